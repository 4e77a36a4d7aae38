"""Model to JSON and back, for a client: the other side of `queen_sync.wire`.

`requests` writes what a client sends, `answers` and `admin_answers` read what it gets. Payloads
travel as the bytes they are, in both directions (C-10).
"""

from queen_sync.wire_client.admin_answers import (
    decode_capabilities,
    decode_configured,
    decode_count,
    decode_dead_letters,
    decode_deleted,
    decode_group_deleted,
    decode_health,
    decode_restarted,
    decode_sought,
)
from queen_sync.wire_client.answers import (
    code_of,
    decode_acked,
    decode_claim,
    decode_extended,
    decode_receipts,
    decode_transacted,
)
from queen_sync.wire_client.requests import (
    dead_letter_body,
    dead_letter_filters,
    dead_letter_query,
    encode_acks,
    encode_configure,
    encode_extend,
    encode_push,
    encode_restart,
    encode_seek,
    encode_transaction,
    pop_query,
)

__all__ = [
    "code_of",
    "dead_letter_body",
    "dead_letter_filters",
    "dead_letter_query",
    "decode_acked",
    "decode_capabilities",
    "decode_claim",
    "decode_configured",
    "decode_count",
    "decode_dead_letters",
    "decode_deleted",
    "decode_extended",
    "decode_group_deleted",
    "decode_health",
    "decode_receipts",
    "decode_restarted",
    "decode_sought",
    "decode_transacted",
    "encode_acks",
    "encode_configure",
    "encode_extend",
    "encode_push",
    "encode_restart",
    "encode_seek",
    "encode_transaction",
    "pop_query",
]
