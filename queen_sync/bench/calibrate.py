"""What this machine can do with the parts alone: figures to hold the others against.

A result from one machine says little on another. How fast Python runs, what a bare Flask
application answers under the same kind of gunicorn worker, and how much the load generator
can make at most say which of them was the limit.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from queen_sync.bench.connection import Answer, Lost, Wire
from queen_sync.bench.http_load import HttpLoad
from queen_sync.bench.plan import LoadError, Plan, Tally
from queen_sync.bench.requests import Requests, read_pop
from queen_sync.bench.trivial_server import Turn, serve

CALIBRATE_SECONDS = 2.0
_LOOP_COUNT = 2_000_000
_PLAN = Plan(
    target="",
    queue=f"bench-{uuid4().hex[:12]}",
    operation="push",
    batch=1,
    connections=8,
    partitions=8,
    payload_bytes=130,
    seconds=CALIBRATE_SECONDS,
)


@dataclass(frozen=True)
class Calibration:
    """What the parts do alone; all rates are per second, those of the generator per process."""

    python_loops_per_second: float
    flask_requests_per_second: float
    flask_workers: int
    generator_calls_per_second: float
    """Pushes of one message against a server that does nothing."""
    generator_pushed_per_second: float
    """Messages in pushes of 100."""
    generator_popped_per_second: float
    """Messages in pops of 100, each followed by its ack."""


def calibrate(workers: int, seconds: float = CALIBRATE_SECONDS) -> Calibration:
    """Measure the parts, ``workers`` being how many processes Flask gets."""
    plan = replace(_PLAN, seconds=seconds)
    single = ceiling(plan)
    pushed = ceiling(replace(plan, batch=100))
    popped = ceiling(replace(plan, batch=100, operation="drain"))
    return Calibration(
        python_loops_per_second=python_loops_per_second(),
        flask_requests_per_second=flask_requests_per_second(workers, plan),
        flask_workers=workers,
        generator_calls_per_second=rate(single, "push"),
        generator_pushed_per_second=rate(pushed, "push"),
        generator_popped_per_second=rate(popped, "ack"),
    )


def rate(tally: Tally, call: str) -> float:
    """Return how many messages a second one kind of call moved."""
    return tally.messages[call] / max(tally.ended - tally.began, 1e-9)


def python_loops_per_second() -> float:
    """Return how often a second a loop adds one number to another."""
    total = 0
    began = time.perf_counter()
    for number in range(_LOOP_COUNT):
        total += number
    return _LOOP_COUNT / (time.perf_counter() - began)


# ----------------------------------------------------------------- the generator alone


def ceiling(plan: Plan) -> Tally:
    """Run one process of load, this one, against a server that does nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        plan = replace(plan, target=_address(listener))
        context = multiprocessing.get_context("spawn")
        server = context.Process(target=serve, args=(listener, turns(plan)), daemon=True)
        server.start()
        try:
            _wait_for(plan)
            with closing(HttpLoad(plan)) as load:
                return load.run()
        finally:
            server.terminate()
            server.join()


def _address(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def turns(plan: Plan) -> list[Turn]:
    """Return what the callers of a plan send in turn, and answers that keep them going."""
    requests = Requests(plan)
    if plan.operation == "push":
        return [Turn(len(requests.push(0)), _answer(201, b"[]"))]
    message = (
        b'{"id":"%(id)s","transactionId":"%(id)s","partitionId":"%(id)s","partition":"lane-000000",'
        b'"leaseId":"%(id)s","data":%(data)s,"createdAt":"2026-01-01T00:00:00.000000Z"}'
    ) % {b"id": str(uuid4()).encode(), b"data": plan.payload}
    body = b'{"success":true,"messages":[%s]}' % b",".join([message] * plan.batch)
    popped = read_pop(Answer(200, body))
    ack = requests.ack(popped, None)
    return [
        Turn(len(requests.pop()), _answer(200, body)),
        Turn(len(ack), _answer(200, b'[{"success":true}]')),
    ]


def _answer(status: int, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} Fine\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


# ------------------------------------------------------------------------ Flask alone


def flask_requests_per_second(workers: int, plan: Plan) -> float:
    """Return how often a second Flask under gunicorn answers when it has nothing to do."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        plan = replace(plan, target=_address(listener), operation="empty")
        with _flask(listener, workers):
            _wait_for(plan)
            with closing(HttpLoad(plan)) as load:
                tally = load.run()
    if tally.errors:
        raise LoadError(f"the bare Flask application failed: {dict(tally.errors)}")
    return len(tally.calls["empty pop"]) / max(tally.ended - tally.began, 1e-9)


@contextmanager
def _flask(listener: socket.socket, workers: int) -> Iterator[None]:
    environment = {name: value for name, value in os.environ.items() if name != "GUNICORN_CMD_ARGS"}
    command = [
        *(sys.executable, "-m", "gunicorn", "--no-control-socket", "--log-level", "critical"),
        *("--bind", f"fd://{listener.fileno()}", "--workers", str(workers)),
        *("--worker-class", "gthread", "--threads", "16"),
        *("--pythonpath", str(Path(__file__).parents[2]), "queen_sync.bench.bare:app"),
    ]
    # It starts in an empty directory, since it takes a configuration that it finds where it is.
    with tempfile.TemporaryDirectory() as empty:
        gunicorn = subprocess.Popen(  # noqa: S603 - nothing of it comes from outside
            command,
            pass_fds=[listener.fileno()],
            env=environment,
            cwd=empty,
            stdin=subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            gunicorn.terminate()
            gunicorn.wait()


def _wait_for(plan: Plan) -> None:
    """Wait until a server answers: the socket takes connections before it does."""
    requests = Requests(plan)
    with closing(Wire(requests.host, requests.port)) as wire:
        try:
            answer = wire.call(requests.push(0) if plan.operation == "push" else requests.pop())
        except Lost as lost:
            raise LoadError(f"a server to calibrate with did not start: {lost}") from lost
    if answer.status >= 300:
        raise LoadError(f"a server to calibrate with answered {answer.status}")
