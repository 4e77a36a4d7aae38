"""A proxy that loses, repeats and swaps messages is found out, and by the right rule."""

import json
import time
from functools import partial

import httpx
import pytest

from queen_sync import model as m
from queen_sync.backends.memory import MemoryBackend
from queen_sync.broker import Broker
from queen_sync.client import ApplicationTransport, RemoteBackend
from queen_sync.config import Settings
from queen_sync.conformance import BackendConformance, harness
from queen_sync.conformance.checkers import violations
from queen_sync.conformance.history import History, recorded
from queen_sync.conformance.workloads import Workload, together
from queen_sync.web import create_app

URL = "http://queen.test"


class Proxy(httpx.BaseTransport):
    """Stands before a server's transport and hands everything on as it is."""

    def __init__(self, server: httpx.BaseTransport, shadow: httpx.BaseTransport) -> None:
        self.server = server
        self.shadow = shadow
        """A second server, which nobody reads from: its answers are plausible and mean nothing."""

    def handle_request(self, request):
        if request.url.path.endswith("/push"):
            return self.push(request)
        answer = self.server.handle_request(request)
        if "/pop/" not in request.url.path or answer.status_code != 200:
            return answer
        claim = json.loads(answer.read())
        claim["messages"] = self.delivered(claim["messages"])
        headers = {
            name: answer.headers[name] for name in answer.headers if name != "content-length"
        }
        return httpx.Response(200, headers=headers, json=claim)

    def push(self, request):
        return self.server.handle_request(request)

    def delivered(self, messages):
        return messages


class Drops(Proxy):
    """The first message of a batch gets lost."""

    def delivered(self, messages):
        return messages[1:] if len(messages) > 1 else messages


class Repeats(Proxy):
    """A message comes twice in one batch."""

    def delivered(self, messages):
        return [messages[0], *messages]


class RepeatsLater(Proxy):
    """A message comes again, long after it was acked."""

    def __init__(self, *servers) -> None:
        super().__init__(*servers)
        self.first = {}

    def delivered(self, messages):
        first = self.first.setdefault(messages[0]["partition"], messages[0])
        is_other = all(message["id"] != first["id"] for message in messages)
        return [first, *messages] if is_other else messages


class Swaps(Proxy):
    """Two messages of a batch change places."""

    def delivered(self, messages):
        return [*messages[1::-1], *messages[2:]]


class Rewrites(Proxy):
    """A payload is not the one that was pushed."""

    def delivered(self, messages):
        return [{**message, "data": {**message["data"], "name": "?"}} for message in messages]


class Swallows(Proxy):
    """Pushes to one partition are answered with 201 and go nowhere."""

    def push(self, request):
        item, *_ = json.loads(request.content)["items"]
        to = self.shadow if item["partition"] == "p0" else self.server
        return to.handle_request(request)


@pytest.fixture
def through():
    """A maker of clients that reach a server through a proxy."""
    brokers = []

    def server(clock, queues=0):
        """With queues in it already, the ids of its messages are none of the other server's."""
        broker = Broker(MemoryBackend(clock=clock), Settings())
        for number in range(queues):
            broker.configure(f"other {number}")
        brokers.append(broker)
        return ApplicationTransport(create_app(broker, broker.settings))

    def make(proxy, clock=None):
        return RemoteBackend(URL, transport=proxy(server(clock), server(clock, 50)))

    yield make
    for broker in brokers:
        broker.close()


def run(backend):
    """Push, pop and drain for a moment; return what the rules say of it."""
    history = History()
    target = recorded(backend, history)
    target.configure("q", {"lease_seconds": 1, "retry_limit": 9})
    work = Workload(target, "q", lease_seconds=1, partitions=3)
    until = time.monotonic() + 1

    def produce(number):
        for n in range(30):
            partition = work.partitions[(number + n) % 3]
            value = {"name": f"{number}-{n}", "poison": False}
            item = partial(m.NewMessage.of, "q", value, partition=partition)
            target.push([item(transaction_id=f"{number}-{n}-{k}") for k in range(3)])

    together(*(partial(produce, n) for n in range(3)), partial(work.consume, 7, until))
    work._drain(m.QUEUE_MODE)
    return violations(history.operations, drained=True)


def test_an_honest_proxy_is_not_suspected(through):
    with through(Proxy) as backend:
        assert [str(found) for found in run(backend)] == []


@pytest.mark.parametrize(
    ("proxy", "rule"),
    [
        (Drops, "INV-FIFO"),
        (Repeats, "INV-FIFO"),
        (RepeatsLater, "INV-DURABLE-ACK"),
        (Swaps, "INV-FIFO"),
        (Rewrites, "INV-INTEGRITY"),
        (Swallows, "INV-NO-LOSS"),
    ],
)
def test_the_rules_name_what_a_proxy_does(through, proxy, rule):
    with through(proxy) as backend:
        found = run(backend)
    assert rule in {violation.invariant for violation in found}
    shown = next(violation for violation in found if violation.invariant == rule)
    assert shown.operations


@pytest.mark.parametrize(
    ("proxy", "case", "rule"),
    [
        (Drops, "test_a04_a_batch_comes_out_in_request_order", "INV-ORDER"),
        (Repeats, "test_a04_a_batch_comes_out_in_request_order", "INV-ORDER"),
        (RepeatsLater, "test_d04_acks_in_reverse_order_bring_nothing_back", "INV-DURABLE-ACK"),
        (Swaps, "test_a05_a_batch_over_partitions_keeps_each_in_order", "INV-ORDER"),
    ],
)
def test_the_suite_names_what_a_proxy_does(through, proxy, case, rule):
    cases = {case}

    class Bound(BackendConformance):
        takes_clock = True

    failed = harness.failures(Bound, lambda clock: through(proxy, clock), cases)
    assert set(failed) == cases
    assert rule in "".join(failed[case].__notes__)
