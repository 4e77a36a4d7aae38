"""gunicorn, started from within: its arbiter also looks after an embedded PostgreSQL."""

from __future__ import annotations

from typing import Any

from gunicorn.app.base import Application
from gunicorn.arbiter import Arbiter

from queen_sync.config import Settings
from queen_sync.embedded import Cluster
from queen_sync.errors import BackendUnavailable


class Serving(Application):  # type: ignore[misc]  # gunicorn has no types
    """The server as `queen-sync serve` runs it, configured by `queen_sync.web.gunicorn_conf`."""

    def __init__(self, cluster: Cluster | None = None) -> None:
        self.cluster = cluster
        super().__init__()

    def load_config(self) -> None:
        self.load_config_from_module_name_or_filename("python:queen_sync.web.gunicorn_conf")

    def load(self) -> Any:
        from queen_sync.web.wsgi import app  # noqa: PLC0415 - in the worker, not in the arbiter

        return app

    def run(self) -> None:
        QueueArbiter(self).run()


class QueueArbiter(Arbiter):  # type: ignore[misc]  # the same
    """An arbiter that brings a killed embedded PostgreSQL back and never splits a private store."""

    def murder_workers(self) -> None:
        """Look after the workers, once a second, and after the database that they need."""
        super().murder_workers()
        cluster = self.app.cluster
        if cluster is not None and not cluster.running:
            self.log.error("the embedded PostgreSQL has ended unasked and is started again")
            try:
                cluster.start()
            except BackendUnavailable as error:
                self.log.warning("it did not start: %s", error)

    def handle_ttin(self) -> None:
        """Add a worker, unless each would have queues of its own."""
        if not self._private_store("SIGTTIN"):
            super().handle_ttin()

    def handle_hup(self) -> None:
        """Replace the workers, unless the queues would end with the old one."""
        if not self._private_store("SIGHUP"):
            super().handle_hup()

    def _private_store(self, signal_name: str) -> bool:
        private = Settings.from_environment().store[0] == "memory"
        if private:
            self.log.warning("%s is ignored: the queues live in the one worker", signal_name)
        return private
