"""PostgreSQL clusters that a test may break, and a load that keeps account of its answers."""

import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from queen_sync.embedded import Cluster


@pytest.fixture
def directory():
    """A directory that the unprivileged user can reach; pytest's own are closed to it."""
    path = Path(tempfile.mkdtemp(prefix="queen-sys-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def cluster(directory):
    """A running PostgreSQL of this test's own."""
    with Cluster(directory / "pg") as running:
        yield running


@pytest.fixture
def wait_until() -> Callable[..., None]:
    def wait(condition: Callable[[], object], seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it did not come true in time"
            time.sleep(0.02)

    return wait


class PushLoad:
    """Threads that push numbered messages one by one and remember which were answered.

    A push that failed is repeated with its transaction id until it is answered, as a client
    does; so every number is answered in the end, once the server is back.
    """

    def __init__(self, url: str, queue: str, threads: int = 4) -> None:
        self.url = url
        self.queue = queue
        self.answered: list[str] = []
        self.failures: list[str] = []
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._push, args=(number,)) for number in range(threads)
        ]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._ending.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _push(self, lane: int) -> None:
        number = 0
        with httpx.Client(base_url=self.url, timeout=15) as client:
            while not self._ending.is_set():
                name = f"{lane}-{number}"
                item = {"queue": self.queue, "partition": f"lane-{lane}", "transactionId": name}
                body = {"items": [{**item, "payload": number}]}
                while True:
                    try:
                        answer = client.post("/api/v1/push", json=body)
                    except httpx.TransportError as error:
                        self.failures.append(repr(error))
                    else:
                        if answer.status_code == 201:
                            break
                        self.failures.append(f"{answer.status_code} {answer.text}")
                        assert answer.status_code in (503, 504), answer.text
                    if self._ending.is_set():
                        return
                    time.sleep(0.05)
                self.answered.append(name)
                number += 1


@pytest.fixture
def push_load() -> type[PushLoad]:
    return PushLoad


class ConsumerLoad:
    """Threads that pop and ack, and remember which acks were answered.

    An ack whose answer was lost may have counted or not; its message is ``uncertain``.
    """

    def __init__(self, url: str, queue: str, threads: int = 2) -> None:
        self.url = url
        self.queue = queue
        self.acked: set[str] = set()
        self.uncertain: set[str] = set()
        self.delivered_again: set[str] = set()
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._consume) for _ in range(threads)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._ending.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _consume(self) -> None:
        with httpx.Client(base_url=self.url, timeout=15) as client:
            while not self._ending.is_set():
                try:
                    settled_before = frozenset(self.acked)
                    claim = client.get(f"/api/v1/pop/queue/{self.queue}", params={"batch": 10})
                except httpx.TransportError:
                    time.sleep(0.05)
                    continue
                if claim.status_code != 200:
                    assert claim.status_code in (204, 503, 504), claim.text
                    time.sleep(0.02)
                    continue
                for message in claim.json()["messages"]:
                    if message["transactionId"] in settled_before:
                        self.delivered_again.add(message["transactionId"])
                    self._ack(client, message)

    def _ack(self, client: httpx.Client, message: dict[str, object]) -> None:
        names = ("transactionId", "partitionId", "leaseId")
        body = {name: message[name] for name in names} | {"status": "completed"}
        name = str(message["transactionId"])
        try:
            answer = client.post("/api/v1/ack", json=body)
        except httpx.TransportError:
            self.uncertain.add(name)
            return
        if answer.status_code == 200 and answer.json()["success"]:
            self.acked.add(name)
        elif answer.status_code == 504:
            self.uncertain.add(name)


@pytest.fixture
def consumer_load() -> type[ConsumerLoad]:
    return ConsumerLoad


def _drain(url: str, queue: str) -> dict[str, list[tuple[str, object]]]:
    """Pop everything and return name and payload of the messages of each partition, in order."""
    found: dict[str, list[tuple[str, object]]] = {}
    with httpx.Client(base_url=url, timeout=30) as client:
        while True:
            answer = client.get(
                f"/api/v1/pop/queue/{queue}", params={"batch": 1000, "autoAck": "true"}
            )
            if answer.status_code == 204:
                return found
            assert answer.status_code == 200, answer.text
            for each in answer.json()["messages"]:
                entry = (each["transactionId"], each["data"])
                found.setdefault(each["partition"], []).append(entry)


@pytest.fixture
def drain():
    return _drain
