"""A backend that keeps its payloads compressed in another one."""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from queen_sync.backends.base import Backend, Hint
from queen_sync.backends.core import CoreBackend
from queen_sync.model import (
    Ack,
    Acked,
    Claim,
    Configured,
    NewMessage,
    PopRequest,
    Receipt,
    SweepReport,
)
from queen_sync.payloads import JsonText

FEATURES = frozenset({"clock", "extend", "release"})
"""What this backend offers, as far as the store behind it does."""


class ZippedBackend(CoreBackend):
    """Hands every call on to a store, with payloads that take less room there."""

    def __init__(self, store: Backend) -> None:
        self.store = store
        offered = store.capabilities
        self.capabilities = replace(offered, features=offered.features & FEATURES)

    def close(self) -> None:
        self.store.close()

    def check(self) -> Mapping[str, Any]:
        return self.store.check()

    def configure(
        self, queue: str, options: Mapping[str, int | bool] | None = None, **names: str | None
    ) -> Configured:
        self.capabilities.check_options(options or {})
        return self.store.configure(queue, options, **names)

    def push(self, items: Sequence[NewMessage], *, create: bool = True) -> list[Receipt]:
        zipped = [replace(item, payload=zip_text(item.payload)) for item in items]
        return self.store.push(zipped, create=create)

    def pop(self, request: PopRequest) -> Claim:
        claim = self.store.pop(self.offered(request))
        messages = [replace(each, payload=unzip_text(each.payload)) for each in claim.messages]
        return replace(claim, messages=messages)

    def offered(self, request: PopRequest) -> PopRequest:
        """Refuse what this backend does not offer, though the store might."""
        if request.namespace is not None or request.task is not None:
            self.capabilities.require("prio")
        if request.attempt_id is not None:
            self.capabilities.require("popretry")
        if request.subscription is not None and request.subscription.mode != "all":
            self.capabilities.require(f"sub_{request.subscription.mode}")
        return request

    def ack(self, acks: Sequence[Ack]) -> list[Acked]:
        return self.store.ack(acks)

    def extend(self, lease_id: str, seconds: int | None = None) -> int:
        return self.store.extend(lease_id, seconds)

    def release(self, lease_id: str) -> None:
        self.store.release(lease_id)

    def sweep(self) -> SweepReport:
        return self.store.sweep()

    def next_ready_in(self, request: PopRequest) -> float | None:
        return self.store.next_ready_in(request)

    def listen(self, callback: Callable[[Hint], None]) -> Callable[[], None]:
        return self.store.listen(callback)


def zip_text(payload: bytes) -> JsonText:
    return JsonText(b'"' + b64encode(zlib.compress(payload)) + b'"')


def unzip_text(payload: bytes) -> bytes:
    return zlib.decompress(b64decode(payload.strip(b'"')))
