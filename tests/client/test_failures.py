"""What the client makes of broken connections and of answers that are no success."""

from __future__ import annotations

import json
import socket
import threading

import msgspec
import pytest

from queen_sync import errors, model as m
from queen_sync.client import RemoteBackend
from queen_sync.payloads import JsonText

ITEMS = [m.NewMessage.of("invoices", 1)]


@pytest.fixture
def closed_port():
    """A port of this machine that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def push_error(url: str, **options) -> errors.QueenError:
    with RemoteBackend(url, **options) as queen, pytest.raises(errors.QueenError) as raised:
        queen.push(ITEMS)
    return raised.value


def test_a_refused_connection_is_definite(closed_port):
    """Nothing was sent, so nothing happened and the call may be repeated (O-57)."""
    error = push_error(f"http://127.0.0.1:{closed_port}")
    assert type(error) is errors.BackendUnavailable
    assert error.definite
    assert error.retryable
    assert "POST /api/v1/push" in error.message


def test_a_reset_in_the_middle_of_the_answer_leaves_the_outcome_unknown(scripted, scripts):
    """The request was sent whole: it may have been stored (O-57)."""
    server = scripted(scripts["reset"])
    error = push_error(server.url)
    assert type(error) is errors.OutcomeUnknown
    assert not error.definite
    assert len(server.requests) == 1


def test_a_server_that_hangs_up_without_a_word_leaves_the_outcome_unknown(scripted, scripts):
    server = scripted(scripts["hang_up"])
    assert type(push_error(server.url)) is errors.OutcomeUnknown
    assert len(server.requests) == 1


def test_a_server_that_never_answers_leaves_the_outcome_unknown(scripted):
    release = threading.Event()
    server = scripted(lambda connection, request: release.wait(10))
    error = push_error(server.url, timeout_seconds=0.2)
    release.set()
    assert type(error) is errors.OutcomeUnknown
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", ["500 Oops", "502 Bad Gateway", "504 Gateway Timeout"])
def test_a_proxy_s_html_page_leaves_the_outcome_unknown(scripted, scripts, status):
    page = b"<html><body>upstream went away</body></html>"
    error = push_error(scripted(scripts["answer"](status, page, "text/html")).url)
    assert type(error) is errors.OutcomeUnknown
    assert "upstream went away" in error.message
    assert status[:3] in error.message


def test_a_503_that_names_no_code_proves_nothing(scripted, scripts):
    """Only the server itself can say that nothing was stored, and it says so by code."""
    error = push_error(scripted(scripts["answer"]("503 Busy", b"busy", "text/plain")).url)
    assert type(error) is errors.OutcomeUnknown


def test_a_503_that_says_unavailable_is_definite(scripted, scripts):
    body = b'{"error":"the database is away","code":"BACKEND_UNAVAILABLE"}'
    error = push_error(scripted(scripts["answer"]("503 Busy", body)).url)
    assert type(error) is errors.BackendUnavailable
    assert error.message == "the database is away"


def test_a_504_that_says_unknown_is_indefinite(scripted, scripts):
    body = b'{"error":"commit sent","code":"OUTCOME_UNKNOWN"}'
    error = push_error(scripted(scripts["answer"]("504 Late", body)).url)
    assert type(error) is errors.OutcomeUnknown


@pytest.mark.parametrize(
    ("call", "reads"),
    [
        (lambda queen: queen.check(), True),
        (lambda queen: queen.capabilities, True),
        (lambda queen: queen.pop(m.PopRequest(queue="invoices")), False),
    ],
    ids=["check", "capabilities", "pop"],
)
def test_only_calls_that_change_nothing_fail_definitely_after_sending(
    scripted, scripts, call, reads
):
    """A pop takes leases, so its lost answer is indefinite; a health page's is not."""
    server = scripted(scripts["hang_up"])
    expected = errors.BackendUnavailable if reads else errors.OutcomeUnknown
    with RemoteBackend(server.url) as queen, pytest.raises(errors.BackendError) as raised:
        call(queen)
    assert type(raised.value) is expected


@pytest.mark.parametrize(
    "body", [b"", b"not json", b"{}", b"[]", b'[{"status":"buffered"}]', b'[{"index":0}]']
)
def test_an_unreadable_answer_to_a_push_leaves_the_outcome_unknown(scripted, scripts, body):
    """201 says that something was stored; what, cannot be read."""
    error = push_error(scripted(scripts["answer"]("201 Created", body)).url)
    assert type(error) is errors.OutcomeUnknown
    assert "cannot be read" in error.message


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        ("400 No", "INVALID_REQUEST", errors.InvalidRequest),
        ("413 No", "PAYLOAD_TOO_LARGE", errors.PayloadTooLarge),
        ("404 No", "NOT_FOUND", errors.NotFound),
        ("404 No", "QUEUE_NOT_FOUND", errors.QueueNotFound),
        ("404 No", "PARTITION_NOT_FOUND", errors.PartitionNotFound),
        ("404 No", "GROUP_NOT_FOUND", errors.GroupNotFound),
        ("404 No", "MESSAGE_NOT_FOUND", errors.MessageNotFound),
        ("404 No", "LEASE_LOST", errors.LeaseLost),
        ("409 No", "LEASE_REQUIRED", errors.LeaseRequired),
        ("409 No", "ALREADY_SETTLED", errors.AlreadySettled),
        ("409 No", "NOT_SUPPORTED", errors.NotSupported),
        ("429 No", "OVERLOADED", errors.Overloaded),
        ("429 No", "QUEUE_FULL", errors.QueueFull),
    ],
)
def test_an_error_body_becomes_the_class_of_its_code(scripted, scripts, status, code, kind):
    body = json.dumps({"error": "because", "code": code}).encode()
    error = push_error(scripted(scripts["answer"](status, body)).url)
    assert type(error) is kind
    assert error.code == code
    assert error.definite


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("400 No", errors.InvalidRequest),
        ("404 No", errors.NotFound),
        ("409 No", errors.Conflict),
        ("413 No", errors.PayloadTooLarge),
        ("429 No", errors.Overloaded),
        ("403 No", errors.QueenError),
    ],
)
def test_an_error_without_a_code_goes_by_its_status(scripted, scripts, status, kind):
    """Older servers send only a text."""
    error = push_error(scripted(scripts["answer"](status, b'{"error":"because"}')).url)
    assert type(error) is kind
    assert "because" in error.message


@pytest.mark.parametrize("said", [{"batch": 5, "error": "full"}, {}], ids=["keys", "text"])
def test_a_full_queue_comes_back_with_its_figures(scripted, scripts, said):
    """C-06: the caller can tell how much would fit; older servers say it only in the text."""
    sent = errors.QueueFull("invoices", 100, 98, 5)
    body = {
        "error": sent.message,
        "code": "QUEUE_FULL",
        "queue": "invoices",
        "maxQueueSize": 100,
        "queueDepth": 98,
        "remainingCapacity": 2,
        **said,
    }
    script = scripts["answer"]("429 Full", json.dumps(body).encode(), headers="Retry-After: 7\r\n")
    error = push_error(scripted(script).url)
    assert isinstance(error, errors.QueueFull)
    assert (error.queue, error.max_queue_size, error.depth) == ("invoices", 100, 98)
    assert (error.pushed, error.remaining) == (5, 2)
    assert error.retry_after_seconds == 7
    assert error.message == sent.message


def test_an_invalid_request_names_its_field(scripted, scripts):
    body = b'{"error":"batch must be at least 1","code":"INVALID_REQUEST","field":"batch"}'
    error = push_error(scripted(scripts["answer"]("400 No", body)).url)
    assert isinstance(error, errors.InvalidRequest)
    assert error.field == "batch"


@pytest.mark.parametrize("address", ["localhost:6632", "ftp://localhost", ""])
def test_an_address_that_is_no_http_is_refused_at_once(address):
    with pytest.raises(errors.InvalidRequest) as raised:
        RemoteBackend(address)
    assert raised.value.field == "base_url"


def test_a_call_that_finds_no_free_connection_is_definite(scripted):
    """Waiting pops may hold them all; nothing was sent of the call that came too late."""
    arrived, released = threading.Event(), threading.Event()

    def hold(connection: socket.socket, request: bytes) -> None:
        arrived.set()
        released.wait(10)

    server = scripted(hold)
    with RemoteBackend(server.url, max_connections=1, timeout_seconds=0.3) as queen:
        lost = []

        def wait() -> None:
            try:
                queen.pop_waiting(m.PopRequest(queue="invoices"), 5)
            except errors.OutcomeUnknown as error:
                lost.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        assert arrived.wait(10)
        with pytest.raises(errors.BackendUnavailable):
            queen.push(ITEMS)
        released.set()
        waiting.join(timeout=10)
    assert len(lost) == 1
    assert len(server.requests) == 1


def test_nothing_is_tried_twice(scripted, scripts):
    """Retrying belongs to the caller, who knows whether a repeat is harmless (O-57)."""
    server = scripted(scripts["answer"]("503 Busy", b'{"code":"BACKEND_UNAVAILABLE"}'))
    push_error(server.url)
    assert len(server.requests) == 1


def test_a_waiting_pop_reads_longer_than_the_server_waits(scripted, scripts):
    """O-16: an answer at the last moment arrives; the ordinary read timeout does not apply."""
    released = threading.Event()

    def late(connection: socket.socket, request: bytes) -> None:
        released.wait(0.5)
        scripts["answer"]("204 No Content", b"")(connection, request)

    server = scripted(late)
    with RemoteBackend(server.url, timeout_seconds=0.1) as queen:
        claim = queen.pop_waiting(m.PopRequest(queue="invoices"), 0.3)
    assert not claim
    assert b"wait=true&timeout=300 " in server.requests[0]


def test_a_payload_goes_out_byte_for_byte(scripted, scripts):
    """C-10: spacing, key order, duplicate keys, number spelling and escapes stay."""
    text = rb'{"b": 1.10, "a":1e999, "a":-0,"big":123456789012345678901234567890,"z":"\u0000\/"}'
    receipt = b'[{"index":0,"status":"queued","message_id":"m","partition_id":"p"}]'
    server = scripted(scripts["answer"]("201 Created", receipt))
    with RemoteBackend(server.url) as queen:
        queen.push([m.NewMessage(queue="invoices", payload=JsonText.check(text))])
    body = server.requests[0].partition(b"\r\n\r\n")[2]
    assert text in body


def test_a_payload_comes_back_byte_for_byte(scripted, scripts):
    """C-10, the other way; the seq of an id that is not ours is 0."""
    text = rb'{"b": 1.10, "a":1e999, "a":-0,"big":123456789012345678901234567890,"z":"\u0000\/"}'
    body = (
        b'{"success":true,"leaseId":"l","messages":[{"id":"0192","transactionId":"t",'
        b'"partitionId":"p","createdAt":"2026-03-01T10:00:00.123456Z","data":' + text + b"}]}"
    )
    with RemoteBackend(scripted(scripts["answer"]("200 OK", body)).url) as queen:
        claim = queen.pop(m.PopRequest(queue="invoices"))
    (message,) = claim.messages
    assert message.payload == text
    assert message.seq == 0
    assert message.created_us % 1_000_000 == 123_456
    assert claim.lease_id == "l"


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("a/b", b"a%2Fb"),
        ("a b?#%&+", b"a%20b%3F%23%25%26%2B"),
        ("prüfung→", b"pr%C3%BCfung%E2%86%92"),
    ],
)
def test_a_name_is_one_segment_of_the_path_whatever_it_holds(scripted, scripts, name, segment):
    """C-18: a slash in a name is part of the name."""
    server = scripted(scripts["answer"]("204 No Content", b""))
    with RemoteBackend(server.url) as queen:
        queen.pop(m.PopRequest(queue=name, partition=name, group=name))
    target = server.requests[0].split(b" ")[1]
    path = b"/api/v1/pop/queue/" + segment + b"/partition/" + segment
    assert target.startswith(path + b"?")


def test_a_server_that_does_not_say_gets_a_careful_set_of_features(scripted, scripts):
    """An option that an older server would store and ignore is refused here (O-14)."""
    server = scripted(scripts["answer"]("404 Not Found", b"<html/>", "text/html"))
    with RemoteBackend(server.url) as queen:
        assert "txn" in queen.capabilities.features
        with pytest.raises(errors.NotSupported) as raised:
            queen.configure("invoices", {"retry_delay_milliseconds": 5})
    assert raised.value.feature == "retrydelay"
    assert len(server.requests) == 1


def test_features_are_what_the_server_offers_and_the_wire_carries(scripted, scripts):
    body = {
        "features": ["extend", "browse", "clock", "cap"],
        "durable": True,
        "shared": False,
        "maxBatch": 7,
        "maxPayloadBytes": 1000,
        "clockResolutionMicroseconds": 1000,
        "version": "1",
    }
    server = scripted(scripts["answer"]("200 OK", msgspec.json.encode(body)))
    with RemoteBackend(server.url) as queen:
        found = queen.capabilities
    assert found.features == {"extend", "browse", "cap"}
    assert (found.durable, found.shared) == (True, False)
    assert (found.max_batch, found.max_payload_bytes) == (7, 1000)
    assert found.clock_resolution_us == 1000


@pytest.mark.parametrize(
    ("call", "feature"),
    [
        (lambda queen: queen.removals("q"), "removals"),
        (lambda queen: queen.sweep(), "sweep"),
        (lambda queen: queen.next_ready_in(m.PopRequest(queue="q")), "next_ready_in"),
        (lambda queen: queen.listen(lambda hint: None), "listen"),
    ],
    ids=["removals", "sweep", "next_ready_in", "listen"],
)
def test_what_the_wire_cannot_carry_is_refused_by_name(closed_port, call, feature):
    """Refused without a call: nobody listens there."""
    queen = RemoteBackend(f"http://127.0.0.1:{closed_port}")
    with queen, pytest.raises(errors.NotSupported) as raised:
        call(queen)
    assert raised.value.feature == feature


def test_a_lease_of_another_client_cannot_be_given_back(scripted, scripts):
    """The wire has no release: only who was handed the messages can return them."""
    server = scripted(scripts["answer"]("404 Not Found", b""))
    with RemoteBackend(server.url) as queen, pytest.raises(errors.LeaseLost):
        queen.release("00000000-0000-8000-8000-000000000000")
    assert len(server.requests) == 1  # the question for capabilities
