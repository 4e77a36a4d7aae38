"""An app around the memory backend, whose clock the tests move, and a small HTTP helper."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import flask
import pytest
from werkzeug.test import TestResponse

from queen_sync.backends.memory import MemoryBackend
from queen_sync.broker import Broker
from queen_sync.clock import ManualClock
from queen_sync.config import Settings
from queen_sync.web import create_app


class Http:
    """Calls an app in this process and keeps every answer to the rules that hold for all."""

    def __init__(self, app: flask.Flask) -> None:
        self._client = app.test_client()

    def call(self, method: str, path: str, **given: Any) -> TestResponse:
        """Send a request; whatever comes back is JSON or nothing, and no bug."""
        answer = self._client.open(path, method=method, **given)
        assert answer.status_code != 500, answer.get_data()
        if method != "HEAD" and answer.get_data():
            assert answer.content_type == "application/json"
            assert answer.get_json() is not None or answer.get_data() == b"null"
        return answer

    def get(self, path: str, **given: Any) -> TestResponse:
        return self.call("GET", path, **given)

    def post(self, path: str, body: Any = None, **given: Any) -> TestResponse:
        return self.call("POST", path, json=body, **given)

    def send(self, path: str, body: bytes, **given: Any) -> TestResponse:
        """Post a body exactly as given."""
        return self.call("POST", path, data=body, **given)

    def delete(self, path: str, **given: Any) -> TestResponse:
        return self.call("DELETE", path, **given)

    def configure(self, queue: str, **options: Any) -> dict[str, Any]:
        answer = self.post("/api/v1/configure", {"queue": queue, "options": options})
        assert answer.status_code == 201, answer.get_data()
        return answer.get_json()

    def push(self, queue: str, *payloads: Any, **item: Any) -> list[dict[str, Any]]:
        """Push one message for each payload; ``item`` holds the other keys of all of them."""
        items = [{"queue": queue, "payload": payload, **item} for payload in payloads]
        answer = self.post("/api/v1/push", {"items": items})
        assert answer.status_code == 201, answer.get_data()
        return answer.get_json()

    def pop(self, queue: str, partition: str | None = None, **query: Any) -> dict[str, Any] | None:
        """Pop; None where there was nothing."""
        path = f"/api/v1/pop/queue/{quote(queue, safe='')}"
        if partition is not None:
            path += f"/partition/{quote(partition, safe='')}"
        answer = self.get(path, query_string=query)
        if answer.status_code == 204:
            assert answer.get_data() == b""
            return None
        assert answer.status_code == 200, answer.get_data()
        return answer.get_json()

    def ack(
        self, message: dict[str, Any], status: str = "completed", **more: Any
    ) -> dict[str, Any]:
        """Ack a message of a pop under its lease; a key of ``more`` that is None is left out."""
        body = {
            "transactionId": message["transactionId"],
            "partitionId": message["partitionId"],
            "leaseId": message["leaseId"],
            "consumerGroup": message["consumerGroup"],
            "status": status,
            **more,
        }
        body = {key: value for key, value in body.items() if value is not None}
        answer = self.post("/api/v1/ack", body)
        assert answer.status_code == 200, answer.get_data()
        return answer.get_json()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def settings() -> Settings:
    return Settings(backend="memory:", max_body_bytes=1_000_000)


@pytest.fixture
def backend(clock: ManualClock) -> MemoryBackend:
    return MemoryBackend(clock)


@pytest.fixture
def broker(backend: MemoryBackend, settings: Settings, clock: ManualClock) -> Iterator[Broker]:
    broker = Broker(backend, settings, clock)
    yield broker
    broker.close()


@pytest.fixture
def app(broker: Broker, settings: Settings) -> flask.Flask:
    return create_app(broker, settings)


@pytest.fixture
def http(app: flask.Flask) -> Http:
    return Http(app)
