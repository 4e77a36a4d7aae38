"""What the parts of the remote backend share: the calls, and what the server offers."""

from __future__ import annotations

from functools import cached_property
from typing import NoReturn

import msgspec

from queen_sync import errors, wire_client
from queen_sync.backends.base import FEATURES, Backend, Capabilities
from queen_sync.client.calls import Calls

CARRIED = frozenset(FEATURES) - {"counters", "clock"}
"""The features that the wire can carry."""
ASSUMED = Capabilities(
    features=frozenset({"extend", "release", "sub_new", "sub_from", "delete", "dlq", "txn"}),
    durable=True,
    shared=True,
)
"""What a server is taken to offer that does not say."""
API = ("api", "v1")
"""The segments with which paths begin."""


class Remote(Backend):
    """A backend whose calls go to a server."""

    _calls: Calls

    @cached_property
    def capabilities(self) -> Capabilities:  # type: ignore[override]  # asked for once, when first needed
        """What the server says it offers, less what the wire cannot carry."""
        try:
            response = self._calls.send("GET", *API, "capabilities", reads=True)
        except errors.NotFound:
            return ASSUMED
        offered = self._calls.read(response, wire_client.decode_capabilities, reads=True)
        return msgspec.structs.replace(offered, features=offered.features & CARRIED)

    def _refuse(self, feature: str) -> NoReturn:
        what = FEATURES.get(feature, "the server keeps this to itself")
        raise errors.NotSupported(f"not over HTTP: {what} ({feature})", feature)
