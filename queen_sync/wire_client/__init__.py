"""Model to JSON and back, for a client: the other side of `queen_sync.wire`.

`requests` and `message_requests` write what a client sends, `answers`, `admin_answers` and
`message_answers` read what it gets. Payloads travel as the bytes they are, in both directions
(C-10).
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
from queen_sync.wire_client.message_answers import (
    decode_message,
    decode_messages,
    decode_trace_filed,
    decode_trace_names,
    decode_traces,
)
from queen_sync.wire_client.message_requests import (
    encode_by_hand,
    encode_trace,
    message_query,
    page_query,
    trace_query,
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
from queen_sync.wire_client.resource_answers import (
    decode_figures,
    decode_groups,
    decode_lanes,
    decode_partitions,
    decode_queue,
    decode_queues,
    lane_query,
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
    "decode_figures",
    "decode_group_deleted",
    "decode_groups",
    "decode_health",
    "decode_lanes",
    "decode_message",
    "decode_messages",
    "decode_partitions",
    "decode_queue",
    "decode_queues",
    "decode_receipts",
    "decode_restarted",
    "decode_sought",
    "decode_trace_filed",
    "decode_trace_names",
    "decode_traces",
    "decode_transacted",
    "encode_acks",
    "encode_by_hand",
    "encode_configure",
    "encode_extend",
    "encode_push",
    "encode_restart",
    "encode_seek",
    "encode_trace",
    "encode_transaction",
    "lane_query",
    "message_query",
    "page_query",
    "pop_query",
    "trace_query",
]
