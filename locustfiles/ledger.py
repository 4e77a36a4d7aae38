"""What was pushed and what came out again: at the end of a run nothing may be missing.

Every message is named by who pushes it. A push that was answered is stored for good; one that
was not answered may be stored or not. A message whose ack was accepted is done for good. So
when the run ends and the queue has been emptied, every stored message must have come out, no
other message may have, and none may have come out after its ack.

The ledger is of one process: locust's workers would each see a part, so they are refused.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable

import gevent
from locust import FastHttpUser, events
from locust.runners import LocalRunner

LEASE_SECONDS = 10
"""Short, so that what a stopped user has taken and not acked comes back while the end waits."""
QUIET_SECONDS = LEASE_SECONDS + 5
"""When nothing has come for so long, nothing more will: every lease has run out by then."""
PARTITIONS = 16
BATCH = 20

Item = dict[str, object]


class Ledger:
    """The names of one queue's messages."""

    def __init__(self) -> None:
        self.queue = f"load-{uuid.uuid4().hex[:12]}"
        self.tried: set[str] = set()
        self.stored: set[str] = set()
        self.seen: set[str] = set()
        self.acked: set[str] = set()
        self.wrong: list[str] = []
        self._numbers = itertools.count()

    def items(self, count: int) -> list[Item]:
        """Return fresh messages for one push, all to one partition."""
        number = next(self._numbers)
        names = [f"{number}-{position}" for position in range(count)]
        self.tried.update(names)
        partition = f"lane-{number % PARTITIONS}"
        return [
            {
                "queue": self.queue,
                "partition": partition,
                "transactionId": name,
                "payload": {"text": "x" * 100},
            }
            for name in names
        ]

    def note_delivered(self, name: str) -> None:
        if name not in self.tried:
            self.wrong.append(f"{name} came out and was never pushed")
        if name in self.acked:
            self.wrong.append(f"{name} came out again after its ack was accepted")
        self.seen.add(name)

    def verdict(self) -> list[str]:
        """Return what is wrong, in sentences."""
        lost = sorted(self.stored - self.seen)
        missing = [f"{name} was stored and never came out" for name in lost]
        return [*missing, *self.wrong]


class QueueUser(FastHttpUser):
    """A user of the queue's HTTP interface; the files give it its tasks."""

    abstract = True
    ledger: Ledger

    def push(self, count: int) -> None:
        """Push some messages and note those whose push was answered."""
        items = self.ledger.items(count)
        with self.client.post("/api/v1/push", json={"items": items}, catch_response=True) as answer:
            if answer.status_code not in (200, 201):
                answer.failure(f"HTTP {answer.status_code}")
                return
            results = answer.json()
            if any(result["status"] != "queued" for result in results):
                answer.failure("a fresh message was not queued")
        self.ledger.stored.update(str(each["transactionId"]) for each in items)

    def pop(self, *, wait_seconds: float = 0) -> list[Item]:
        """Pop some messages and note that they came out."""
        query = f"batch={BATCH}"
        if wait_seconds:
            query += f"&wait=true&timeout={round(wait_seconds * 1000)}"
        path = f"/api/v1/pop/queue/{self.ledger.queue}?{query}"
        name = "/api/v1/pop (wait)" if wait_seconds else "/api/v1/pop"
        with self.client.get(path, name=name, catch_response=True) as answer:
            if answer.status_code not in (200, 204):
                answer.failure(f"HTTP {answer.status_code}")
                return []
            # Other servers answer an empty pop with 200 and an object, an array or nothing.
            body = answer.json() if answer.status_code == 200 and answer.text else []
            messages = body.get("messages", []) if isinstance(body, dict) else body
        for message in messages:
            # Some servers name the lease once, above the messages.
            message.setdefault("leaseId", body.get("leaseId") if isinstance(body, dict) else None)
            self.ledger.note_delivered(message["transactionId"])
        return messages

    def ack(self, messages: list[Item]) -> None:
        """Ack what a pop brought and note what was accepted."""
        acks = [
            {
                "transactionId": message["transactionId"],
                "partitionId": message["partitionId"],
                "leaseId": message["leaseId"],
                "status": "completed",
            }
            for message in messages
        ]
        body = {"acknowledgments": acks}
        with self.client.post("/api/v1/ack/batch", json=body, catch_response=True) as answer:
            if answer.status_code != 200:
                answer.failure(f"HTTP {answer.status_code}")
                return
            results = answer.json()
            if not all(result["success"] for result in results):
                answer.failure("an ack was refused")
        for ack, result in zip(acks, results, strict=True):
            if result["success"]:
                self.ledger.acked.add(str(ack["transactionId"]))

    def drain(self) -> None:
        """Take what is left, until all that was stored has come out or nothing comes any more."""
        came_at = time.monotonic()
        while self.ledger.stored - self.ledger.seen and time.monotonic() < came_at + QUIET_SECONDS:
            messages = self.pop()
            if messages:
                self.ack(messages)
                came_at = time.monotonic()
            else:
                gevent.sleep(0.1)


def keep(user_class: type[QueueUser], begin: Callable[[QueueUser], None] | None = None) -> None:
    """Keep the ledger of a run: make the queue before it, empty it and judge after it."""
    ledger = user_class.ledger

    @events.init.add_listener
    def refuse_workers(environment, **_):
        if not isinstance(environment.runner, LocalRunner):
            raise SystemExit("the ledger counts in one process: run without workers")
        # Until it has been judged, a run has failed: also where a listener never got so far.
        environment.process_exit_code = 1

    @events.test_start.add_listener
    def make_queue(environment, **_):
        user_class.host = environment.host
        user = user_class(environment)
        options = {"leaseTime": LEASE_SECONDS}
        user.client.post("/api/v1/configure", json={"queue": ledger.queue, "options": options})
        if begin is not None:
            begin(user)

    @events.test_stop.add_listener
    def judge(environment, **_):
        user = user_class(environment)
        user.drain()
        path = f"/api/v1/resources/queues/{ledger.queue}"
        user.client.delete(path, name="/api/v1/resources/queues")
        wrong = ledger.verdict()
        print(
            f"ledger: {len(ledger.tried):,} tried, {len(ledger.stored):,} stored, "
            f"{len(ledger.seen):,} came out, {len(ledger.acked):,} acked, {len(wrong):,} wrong"
        )
        for sentence in wrong[:20]:
            print(f"ledger: {sentence}")
        if ledger.stored and not wrong:
            # None leaves it to locust, which counts the calls that failed.
            environment.process_exit_code = None
