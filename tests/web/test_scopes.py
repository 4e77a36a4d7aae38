"""GET /api/v1/pop?namespace=&task= and the older paths /api/v1/pop/ns/…"""

import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import msgspec
import pytest

from queen_sync import model as m
from queen_sync.backends.memory import MemoryBackend
from queen_sync.broker import Broker
from queen_sync.config import Settings

POP = "/api/v1/pop"


def _make(http, queue, namespace=None, task=None, **options):
    body = {"queue": queue, "namespace": namespace, "task": task, "options": options}
    assert http.post("/api/v1/configure", body).status_code == 201


def _pop(http, path=POP, **query):
    answer = http.get(path, query_string=query)
    return answer.get_json() if answer.status_code == 200 else None


def _drain(http, path=POP, **query):
    """Pop with autoAck until nothing comes, and return the payloads."""
    values = []
    while claim := _pop(http, path, autoAck="true", **query):
        values += [message["data"] for message in claim["messages"]]
    return values


@pytest.fixture
def mail(http):
    """Three queues of namespaces and tasks that overlap, with a message each."""
    _make(http, "letters", "mail", "send", priority=2)
    _make(http, "stamps", "mail", "print", priority=5)
    _make(http, "parcels", "freight", "send")
    for queue in ("letters", "stamps", "parcels"):
        http.push(queue, queue)
    return http


@pytest.mark.parametrize(
    ("scope", "found"),
    [
        ({"namespace": "mail"}, ["stamps", "letters"]),
        ({"task": "send"}, ["letters", "parcels"]),
        ({"namespace": "mail", "task": "send"}, ["letters"]),
        ({"namespace": "mail", "task": ""}, ["stamps", "letters"]),
        ({"namespace": "freight", "task": "print"}, []),
        ({"namespace": "ma"}, []),
    ],
    ids=str,
)
def test_a_pop_covers_the_queues_of_its_namespace_and_task(mail, scope, found):
    """C-17: the higher priority first."""
    assert _drain(mail, **scope) == found


def test_a_claim_is_of_one_queue_and_its_messages_say_of_which(mail):
    """C-17."""
    mail.push("letters", "another", partition="p")
    claim = _pop(mail, namespace="mail", batch=9, partitions=9)
    (message,) = claim["messages"]
    assert (claim["queue"], message["queue"], message["priority"]) == ("stamps", "stamps", 5)
    claim = _pop(mail, namespace="mail", batch=9, partitions=9)
    assert claim["queue"] == "letters"
    assert claim["partitionsClaimed"] == 2
    assert {message["priority"] for message in claim["messages"]} == {2}
    assert mail.ack(claim["messages"][0])["success"] is True


def test_a_pop_over_a_scope_takes_what_a_pop_takes(mail):
    """C-07: group, subscription; the queue made later belongs to the scope as well."""
    start = {"consumerGroup": "g", "subscriptionMode": "new"}
    assert _pop(mail, namespace="mail", **start) is None
    mail.push("letters", "new")
    _make(mail, "cards", "mail", "send")
    mail.push("cards", "first")
    assert sorted(_drain(mail, namespace="mail", **start)) == ["first", "new"]
    answer = mail.get(POP, query_string={"namespace": "mail"} | start | {"subscriptionMode": "all"})
    assert answer.status_code == 204
    assert answer.headers["X-Queen-Subscription"] == "ignored"


@pytest.mark.parametrize("query", ["", "namespace=", "task=&namespace=", "consumerGroup=g"])
def test_a_pop_of_everything_is_refused(http, query):
    answer = http.get(f"{POP}?{query}")
    assert answer.status_code == 400
    assert answer.get_json()["error"] == "namespace or task is required"


@pytest.mark.parametrize("name", ["x" * 256, "..", "a\0"])
@pytest.mark.parametrize("field", ["namespace", "task"])
def test_a_scope_obeys_the_rule_of_names(http, field, name):
    """C-18."""
    answer = http.get(POP, query_string={field: name})
    assert (answer.status_code, answer.get_json()["field"]) == (400, field)


@pytest.mark.parametrize("path", [POP, f"{POP}/ns/mail", f"{POP}/ns/mail/task/send"])
def test_only_get_pops_over_a_scope(mail, path):
    """C-14."""
    query = {"namespace": "mail"}
    for method in ("HEAD", "POST"):
        answer = mail.call(method, path, query_string=query)
        assert (answer.status_code, answer.headers["Allow"]) == (405, "GET")
    answer = mail.get(path, query_string=query)
    assert answer.get_json()["messages"][0]["deliveryCount"] == 1
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", [f"{POP}?task=send", f"{POP}/ns/mail", f"{POP}/ns/mail/task/send"])
def test_a_backend_without_scopes_refuses_them_by_name(mail, backend, path):
    """O-14."""
    backend.capabilities = msgspec.structs.replace(
        backend.capabilities, features=backend.capabilities.features - {"prio"}
    )
    answer = mail.get(path)
    body = answer.get_json()
    assert (answer.status_code, body["code"], body["feature"]) == (409, "NOT_SUPPORTED", "prio")
    assert mail.pop("letters") is not None


def test_namespace_and_task_mean_nothing_beside_a_queue(mail):
    assert mail.pop("parcels", namespace="mail", task="print")["messages"][0]["data"] == "parcels"


# ----------------------------------------------------------------------- the older paths


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("ns/mail", ["stamps", "letters"]),
        ("ns/mail/task/send", ["letters"]),
        ("ns/freight/task/send", ["parcels"]),
        ("ns/freight/task/print", []),
    ],
)
def test_the_older_paths_name_namespace_and_task(mail, path, found):
    """Whatever the query says of them."""
    assert _drain(mail, f"{POP}/{path}", namespace="none", task="none") == found


def test_the_oldest_path_names_a_dotted_queue(http):
    http.push("mail.send.letters", 1)
    http.push("mail.send.letters.urgent", 2)
    assert _drain(http, f"{POP}/ns/mail/task/send/queue/letters") == [1]
    assert _drain(http, f"{POP}/ns/mail/task/send/queue/letters.urgent") == [2]
    assert _pop(http, f"{POP}/ns/mail/task/send/queue/none") is None


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        (("a.b", "c", "d"), "namespace"),
        (("a", "b.c", "d"), "task"),
        (("", "b", "c"), "namespace"),
        (("a", "", "c"), "task"),
        (("a", "b", ""), "queue"),
        (("a", "b", "x" * 252), "queue"),
        (("a", "b", "x" * 256), "queue"),
    ],
)
def test_two_of_the_oldest_paths_never_mean_the_same_queue(http, parts, field):
    """C-18."""
    namespace, task, queue = parts
    answer = http.get(f"{POP}/ns/{namespace}/task/{task}/queue/{queue}")
    assert (answer.status_code, answer.get_json()["field"]) == (400, field)


def test_a_slash_in_an_older_path_can_be_part_of_a_name(http, app):
    """C-18."""
    _make(http, "q", "a/b", "c d")
    http.push("q", 1)
    path = f"{POP}/ns/{quote('a/b', safe='')}/task/{quote('c d')}"
    assert _pop(http, path)["queue"] == "q"


# ----------------------------------------------------------------------------- waiting


LONG = 20.0
SOON = 0.3


@pytest.fixture
def living():
    """A broker on the system's clock, over two queues of a namespace."""
    broker = Broker(MemoryBackend(), Settings(backend="memory:"))
    for queue in ("letters", "stamps"):
        broker.configure(queue, namespace="mail", task="send")
    yield broker
    broker.close()


def _waiter(pool, broker, **scope):
    """Start a waiting pop and return it when it is asleep."""
    before = broker.health().waiting_count
    waiter = pool.submit(broker.pop, m.PopRequest(**scope), LONG)
    deadline = time.monotonic() + 5
    while broker.health().waiting_count == before:
        assert time.monotonic() < deadline
    time.sleep(0.02)
    return waiter


def test_a_push_wakes_a_pop_that_waits_for_its_namespace_or_task(living):
    """O-17: each way of naming it is a lane of its own, and so is each group."""
    with ThreadPoolExecutor(5) as pool:
        waiters = [
            _waiter(pool, living, namespace="mail", group="a"),
            _waiter(pool, living, task="send", group="b"),
            _waiter(pool, living, namespace="mail", task="send", group="c"),
        ]
        elsewhere = _waiter(pool, living, namespace="freight", group="d")
        living.push([m.NewMessage.of("stamps", 1)])
        assert [waiter.result(SOON).messages[0].value for waiter in waiters] == [1, 1, 1]
        assert not elsewhere.done()
        living.push([m.NewMessage.of("freight.send", 2)])
        assert elsewhere.result(SOON).messages[0].queue == "freight.send"


@pytest.mark.parametrize(
    "other",
    [{"namespace": "mail", "task": "print"}, {"namespace": "freight", "task": "send"}],
    ids=str,
)
def test_whoever_waits_for_another_scope_takes_no_wake_away(living, other):
    """O-17: it is woken too, and finds nothing."""
    with ThreadPoolExecutor(2) as pool:
        before = _waiter(pool, living, **other)
        waiter = _waiter(pool, living, namespace="mail", task="send")
        living.push([m.NewMessage.of("stamps", 1)])
        assert waiter.result(SOON).messages[0].value == 1
        assert not before.done()
        living.drain()


def test_one_push_to_many_queues_serves_as_many_that_wait(living):
    """O-17: there is one hint; whoever got something wakes the next."""
    with ThreadPoolExecutor(4) as pool:
        waiters = [_waiter(pool, living, namespace="mail") for _ in range(4)]
        living.push(
            [
                m.NewMessage.of(queue, partition, partition=partition)
                for queue in ("letters", "stamps")
                for partition in "xy"
            ]
        )
        found = [waiter.result(SOON).messages[0] for waiter in waiters]
        assert sorted((message.queue, message.value) for message in found) == [
            ("letters", "x"),
            ("letters", "y"),
            ("stamps", "x"),
            ("stamps", "y"),
        ]


@pytest.mark.parametrize("hint", [None, frozenset({"any"})])
def test_a_hint_without_names_and_one_for_any_queue_wake_it_too(monkeypatch, hint):
    """O-17: a hint does not say which namespace its queue is in."""
    backend = MemoryBackend()
    told = []
    monkeypatch.setattr(backend, "listen", lambda tell: told.append(tell) or (lambda: None))
    broker = Broker(backend, Settings(backend="memory:"))
    with ThreadPoolExecutor(1) as pool:
        waiter = _waiter(pool, broker, namespace="mail")
        backend.push([m.NewMessage.of("mail.letters", 1)])
        told[0](hint)
        assert waiter.result(SOON).messages[0].value == 1
    broker.close()


def test_time_alone_makes_something_available_in_a_scope_too(living):
    living.configure("stamps", {"delayed_processing_seconds": 1})
    begun = time.monotonic()
    living.push([m.NewMessage.of("stamps", 1)])
    assert living.pop(m.PopRequest(namespace="mail"), LONG).messages[0].value == 1
    assert 0.99 <= time.monotonic() - begun < 1.15
