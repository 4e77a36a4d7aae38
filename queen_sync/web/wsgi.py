"""Where a worker's parts are put together: backend, broker, application.

This module and `queen_sync.cli` are the only places that know which backends there are.
Nothing is opened on import: `WorkerApplication` opens its parts in the process that serves,
after the fork.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from queen_sync.backends.base import Backend
from queen_sync.broker import Broker
from queen_sync.config import Settings
from queen_sync.encryption import KeyRing
from queen_sync.errors import BackendUnavailable, InvalidRequest, NotSupported
from queen_sync.upkeep import Metrics, Sweeper
from queen_sync.web import create_app

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

log = logging.getLogger("gunicorn.error")
_RETRY_SECONDS = 1.0
_UNAVAILABLE = b'{"error":"the store cannot be reached","code":"BACKEND_UNAVAILABLE"}'


def open_backend(settings: Settings) -> Backend:
    """Open the store that the settings name, in this process."""
    scheme, place = settings.store
    keys = KeyRing.parse(settings.encryption_key, settings.encryption_keys)
    if scheme == "memory":
        from queen_sync.backends.memory import MemoryBackend  # noqa: PLC0415 - only who uses it

        return MemoryBackend(keys=keys)
    if scheme == "sqlite":
        from queen_sync.backends.sqlite import SqliteBackend  # noqa: PLC0415 - the same

        return SqliteBackend(place, keys=keys)
    if scheme == "postgresql":
        from queen_sync.backends.postgres import PostgresBackend  # noqa: PLC0415 - the same

        return PostgresBackend(
            place,
            pool_size=settings.database_pool_size,
            statement_timeout_milliseconds=settings.statement_timeout_milliseconds,
            lock_timeout_milliseconds=settings.lock_timeout_milliseconds,
            listen_dsn=settings.listen_dsn or None,
            pooled=settings.database_pooled,
            keys=keys,
        )
    raise InvalidRequest(
        f"{scheme}: is started by 'queen-sync serve', not by gunicorn alone", "QUEEN_BACKEND"
    )


class WorkerApplication:
    """The WSGI application of one process, opened where it is used.

    A forked child that inherited an opened one opens its own. While the store cannot be
    reached, requests are answered 503 and the opening is tried again.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._tried_at = float("-inf")
        self._draining = False
        self._broker: Broker | None = None
        self._sweeper: Sweeper | None = None
        self._app: WSGIApplication | None = None

    def open(self) -> bool:
        """Open backend, broker and application in this process unless they are; say if they are.

        An unreachable store is no error here: the next request tries again.
        """
        if self._pid != os.getpid():
            # A lock inherited in a locked state would never be free, so it is replaced too.
            self._lock, self._tried_at = threading.Lock(), float("-inf")
            self._broker = self._sweeper = self._app = None
            self._pid = os.getpid()
        with self._lock:
            if self._app is not None:
                return True
            if time.monotonic() - self._tried_at < _RETRY_SECONDS:
                return False
            try:
                self._compose()
            except BackendUnavailable as error:
                log.warning("the store cannot be opened, and is tried again: %s", error)
                return False
            finally:
                self._tried_at = time.monotonic()
        return True

    def _compose(self) -> None:
        settings = self._settings or Settings.from_environment()
        backend = open_backend(settings)
        if settings.workers > 1 and not backend.capabilities.shared:
            backend.close()
            raise NotSupported("this backend cannot be served by several processes", "shared")
        self._broker = Broker(backend, settings)
        if self._draining:
            self._broker.drain()
        self._sweeper = Sweeper(
            backend,
            settings.sweep_interval_milliseconds,
            Metrics(
                flush=self._broker.flush_counts,
                interval_milliseconds=settings.metrics_interval_milliseconds,
                retention_days=settings.metrics_retention_days,
            ),
        )
        self._app = create_app(self._broker, settings)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        if (self._pid == os.getpid() and self._app is not None) or self.open():
            assert self._app is not None
            return self._app(environ, start_response)
        headers = [("Content-Type", "application/json"), ("Retry-After", "1")]
        headers.append(("Content-Length", str(len(_UNAVAILABLE))))
        start_response("503 Service Unavailable", headers)
        return [_UNAVAILABLE]

    def drain(self) -> None:
        """End all waits; what is asked for from now on finds nothing to wait for."""
        self._draining = True
        if self._broker is not None and self._pid == os.getpid():
            self._broker.drain()

    def close(self) -> None:
        """Close what this process opened."""
        if self._broker is not None and self._pid == os.getpid():
            if self._sweeper is not None:
                self._sweeper.close()
            self._broker.close()
            self._broker = self._sweeper = self._app = None


app = WorkerApplication()
