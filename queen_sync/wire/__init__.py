"""Model to JSON and back, for a server: the only place that knows names on the wire.

`requests`, `admin_requests` and `queries` read what clients send into values of
`queen_sync.model`, `answers`, `admin_answers` and `refusals` write what they get, `options`
holds the names of a queue's options. Payloads are never parsed nor written again: the bytes of
the request are the bytes of the answer (C-10). In batches of 100 with 130-byte payloads each
direction costs about 1 µs a message.
"""

from queen_sync.wire.admin_answers import (
    encode_capabilities,
    encode_configured,
    encode_count,
    encode_dead_letters,
    encode_deleted_group,
    encode_deleted_queue,
    encode_health,
    encode_restarted,
    encode_retried,
    encode_sought,
)
from queen_sync.wire.admin_requests import (
    decode_configure,
    decode_dead_letter_choice,
    decode_extend,
    decode_restart,
    decode_retry,
    decode_seek,
)
from queen_sync.wire.answers import (
    encode_ack,
    encode_acks,
    encode_claim,
    encode_extended,
    encode_receipts,
    encode_transacted,
    encode_transaction_refused,
)
from queen_sync.wire.options import OPTION_NAMES
from queen_sync.wire.queries import (
    decode_dead_letter_filter,
    decode_pop,
    decode_scope,
    decode_switch,
    dotted_queue,
)
from queen_sync.wire.refusals import encode_error, encode_lease_refused
from queen_sync.wire.requests import (
    RefusedAck,
    decode_ack,
    decode_acks,
    decode_push,
    decode_transaction,
)

__all__ = [
    "OPTION_NAMES",
    "RefusedAck",
    "decode_ack",
    "decode_acks",
    "decode_configure",
    "decode_dead_letter_choice",
    "decode_dead_letter_filter",
    "decode_extend",
    "decode_pop",
    "decode_push",
    "decode_restart",
    "decode_retry",
    "decode_scope",
    "decode_seek",
    "decode_switch",
    "decode_transaction",
    "dotted_queue",
    "encode_ack",
    "encode_acks",
    "encode_capabilities",
    "encode_claim",
    "encode_configured",
    "encode_count",
    "encode_dead_letters",
    "encode_deleted_group",
    "encode_deleted_queue",
    "encode_error",
    "encode_extended",
    "encode_health",
    "encode_lease_refused",
    "encode_receipts",
    "encode_restarted",
    "encode_retried",
    "encode_sought",
    "encode_transacted",
    "encode_transaction_refused",
]
