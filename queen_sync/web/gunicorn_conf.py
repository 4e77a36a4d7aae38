"""The gunicorn configuration of queen-sync, worked out from its settings.

`queen-sync serve` uses it, and so does ``gunicorn -c python:queen_sync.web.gunicorn_conf``
with settings from the environment.
"""

from __future__ import annotations

import resource
from typing import Any

from queen_sync import preflight
from queen_sync.config import Settings
from queen_sync.web.gunicorn_limits import REQUEST_LINE_BYTES

_settings = Settings.from_environment()

wsgi_app = "queen_sync.web.wsgi:app"
worker_class = "queen_sync.web.worker.QueueWorker"
proc_name = "queen-sync"
_host = f"[{_settings.host}]" if ":" in _settings.host else _settings.host
bind = [f"{_host}:{_settings.port}"]
workers = _settings.workers
threads = _settings.threads
# gunicorn keeps idle connections only in what worker_connections leave over after the threads.
worker_connections = 3 * _settings.threads
# Longer than clients and proxies keep an idle connection, so that they close it first and no
# request meets a socket that this side is just closing.
keepalive = 75
# What was accepted may finish: a statement first, then its answer.
graceful_timeout = _settings.statement_timeout_milliseconds // 1000 + 5
# Of the worker's main loop, not of a request: a waiting pop does not touch it.
timeout = 60
limit_request_line = REQUEST_LINE_BYTES
# No max_requests: a worker that restarts cuts its waiting pops, and nothing here leaks.
max_requests = 0
control_socket_disable = True
loglevel = _settings.log_level
accesslog = "-" if _settings.access_log else None

_FILES_BESIDE_CONNECTIONS = 256


def on_starting(server: Any) -> None:
    """Look at the store, and raise the limit of open files, before anything is forked."""
    preflight.check(_settings, server.log.warning)
    wanted = worker_connections + _settings.database_pool_size + _FILES_BESIDE_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        if most < wanted:
            server.log.warning(
                "at most %d open files are allowed, %d may be needed; raise the limit or lower "
                "QUEEN_THREADS", most, wanted,
            )  # fmt: skip


def post_worker_init(worker: Any) -> None:
    """Open the store in the worker itself: connections and threads do not survive a fork."""
    worker.wsgi.open()
