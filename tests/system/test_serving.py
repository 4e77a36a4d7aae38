"""The server as a process: how it starts, refuses to start, and ends."""

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from queen_sync import preflight
from queen_sync.config import Settings
from queen_sync.embedded import Cluster
from queen_sync.errors import BackendUnavailable
from tests.serving import serve, started

# One client, since making one costs more than a request; without kept connections, since the
# servers here come and go.
HTTP = httpx.Client(timeout=60, limits=httpx.Limits(max_keepalive_connections=0))


@pytest.fixture(scope="module", autouse=True)
def _close():
    yield
    HTTP.close()


def command(*arguments, **environment):
    """Run the command to its end and return what it said."""
    return subprocess.run(
        [sys.executable, "-m", "queen_sync.cli", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def push(url, queue, payload=1, **more):
    item = {"queue": queue, "payload": payload, **more}
    answer = HTTP.post(f"{url}/api/v1/push", json={"items": [item]})
    assert answer.status_code == 201, answer.text


def pop(url, queue, **parameters):
    return HTTP.get(f"{url}/api/v1/pop/queue/{queue}", params=parameters)


def waiting_pops(url):
    return HTTP.get(f"{url}/health").json()["stats"]["waiting"]


class Pops:
    """Waiting pops, each in a thread of its own."""

    def __init__(self, url, queue, count):
        self.answers = []
        self.threads = [threading.Thread(target=self._pop, args=(url, queue)) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def _pop(self, url, queue):
        answer = pop(url, queue, wait="true", timeout=50_000)
        self.answers.append((answer.status_code, answer.content))

    def join(self):
        for thread in self.threads:
            thread.join(30)
        return self.answers


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_ends_waiting_pops_at_once_and_the_server_within_seconds(how, wait_until):
    """O-21, PL-15: a wait of 50 s ends with 204, not with a reset and not after 50 s."""
    with started("--backend", "memory:") as server:
        pops = Pops(server.url, "empty", 10)
        wait_until(lambda: waiting_pops(server.url) == 10)
        began = time.monotonic()
        code = server.stop(how)
        took = time.monotonic() - began
        answers = pops.join()
    assert (code, took < 5) == (0, True)
    if how == signal.SIGTERM:  # the others do not promise an answer
        assert answers == [(204, b"")] * 10


def test_what_was_accepted_before_sigterm_is_stored_and_answered(served_dsn, push_load, drain):
    """O-21, PL-16."""
    queue = "accepted-before-the-end"
    with started("--backend", served_dsn, "--workers", "2") as server:
        load = push_load(server.url, queue)
        with load:
            while len(load.answered) < 100:
                time.sleep(0.01)
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(20)
        # What failed was never begun: nothing was accepted and then dropped.
        assert not [failure for failure in load.failures if "ConnectError" not in failure][4:]
    with serve("--backend", served_dsn, "--workers", "1") as url:
        stored = {name for lane in drain(url, queue).values() for name, _ in lane}
    assert set(load.answered) <= stored


def test_memory_refuses_two_workers():
    """O-35."""
    done = command("serve", "--backend", "memory:", "--workers", "2", "--port", "0")
    assert done.returncode == 1
    assert done.stderr == (
        "queen-sync: QUEEN_WORKERS must be 1 on memory:, not 2: "
        "each process would have queues of its own\n"
    )


def test_memory_stays_one_process_whatever_signals_come(wait_until):
    """O-35: gunicorn adds workers on SIGTTIN and replaces them on SIGHUP."""
    with started("--backend", "memory:") as server:
        push(server.url, "kept")
        before = server.workers
        server.process.send_signal(signal.SIGTTIN)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "SIGHUP is ignored" in server.output)
        assert "SIGTTIN is ignored" in server.output
        assert server.workers == before
        assert pop(server.url, "kept").status_code == 200


def test_a_bad_setting_stops_the_start_in_one_line():
    """PL-13, PL-15."""
    done = command("serve", "--backend", "memory:", MAX_BATCH_SIZE="many")
    assert done.returncode == 1
    assert done.stderr == "queen-sync: MAX_BATCH_SIZE must be a whole number, not 'many'\n"


@pytest.mark.parametrize("setting", preflight.KEEPS)
def test_a_postgresql_that_may_lose_messages_is_refused(directory, setting):
    """PL-16: an answered push is never lost."""
    with Cluster(directory / "pg", settings={setting: "off"}) as cluster:
        done = command("serve", "--backend", cluster.dsn(), "--workers", "1", "--port", "0")
    assert done.returncode == 1
    assert f"this PostgreSQL has {setting} off" in done.stderr


def test_an_unsafe_postgresql_is_served_only_loudly(directory):
    with (
        Cluster(directory / "pg", settings={"fsync": "off"}) as cluster,
        started("--backend", cluster.dsn(), "--workers", "1", "--allow-unsafe") as server,
    ):
        assert "UNSAFE: this PostgreSQL has fsync off" in server.output
        health = HTTP.get(f"{server.url}/health")
    assert "fsync" in health.text


def test_more_connections_than_the_database_allows_are_refused(cluster):
    """K12, O-20: the sum is checked before the first client meets it."""
    arguments = ("serve", "--backend", cluster.dsn(), "--workers", "4", "--port", "0")
    done = command(*arguments, DB_POOL_SIZE="30")
    assert done.returncode == 1
    assert "need 128, but this PostgreSQL allows 97; lower DB_POOL_SIZE" in done.stderr


def test_a_database_that_is_not_there_is_said_to_be_so(monkeypatch):
    monkeypatch.setattr(preflight, "WAIT_SECONDS", 0.1)
    nowhere = Settings(backend="postgresql://postgres@/x?host=/nowhere", workers=1)
    with pytest.raises(BackendUnavailable, match="cannot connect to PostgreSQL"):
        preflight.check(nowhere, print)


def test_waiting_pops_leave_threads_for_pushes(wait_until):
    """PL-8: with four threads three may wait; the fourth wait is refused, a push is not."""
    with serve("--backend", "memory:", "--threads", "4") as url:
        pops = Pops(url, "lanes", 3)
        wait_until(lambda: waiting_pops(url) == 3)
        refused = pop(url, "lanes", wait="true")
        assert (refused.status_code, refused.json()["code"]) == (429, "OVERLOADED")
        assert refused.headers["Retry-After"] == "1"
        for partition in "abc":
            push(url, "lanes", partition=partition)
        assert [code for code, _ in pops.join()] == [200, 200, 200]


def test_idle_connections_are_kept(wait_until):
    """O-23: kept-alive connections need slots beside the threads."""
    with (
        serve("--backend", "memory:", "--threads", "2") as url,
        httpx.Client(base_url=url) as client,
    ):
        streams = set()
        for _ in range(5):
            answer = client.get("/health")
            streams.add(id(answer.extensions["network_stream"]))
            assert answer.headers.get("Connection", "keep-alive") != "close"
        assert len(streams) == 1


def test_preloaded_workers_each_open_a_pool_of_their_own(served_dsn, wait_until):
    """O-25: 200 mixed requests to four preloaded workers, with a pool of two each."""
    gunicorn = [sys.executable, "-m", "gunicorn", "--preload"]
    environment = {
        **os.environ,
        "QUEEN_BACKEND": served_dsn,
        "QUEEN_WORKERS": "4",
        "DB_POOL_SIZE": "2",
        "PORT": "0",
    }
    arguments = [*gunicorn, "-c", "python:queen_sync.web.gunicorn_conf"]
    with started(command=arguments, environment=environment) as server:
        wait_until(lambda: len(server.workers) == 4)

        def work(number):
            queue = f"preloaded-{number % 10}"
            push(server.url, queue, number)
            claim = pop(server.url, queue, batch=2)
            assert claim.status_code in (200, 204), claim.text
            for message in claim.json()["messages"] if claim.content else ():
                acked = HTTP.post(
                    f"{server.url}/api/v1/ack",
                    json={
                        "transactionId": message["transactionId"],
                        "partitionId": message["partitionId"],
                        "leaseId": message["leaseId"],
                        "status": "completed",
                    },
                )
                assert (acked.status_code, acked.json()["success"]) == (200, True), acked.text
            return HTTP.get(f"{server.url}/health").status_code

        with ThreadPoolExecutor(16) as threads:
            assert set(threads.map(work, range(200))) == {200}
        # Each worker's listener is alive: a push wakes a pop that waits in any of them.
        pops = Pops(server.url, "woken", 8)
        for number in range(8):
            push(server.url, "woken", partition=f"{number}")
        assert [code for code, _ in pops.join()] == [200] * 8
    assert "Traceback" not in server.said


def test_the_embedded_database_lives_and_ends_with_the_server(directory):
    store = f"embedded:{directory / 'pg'}"
    with serve("--backend", store, "--workers", "2") as url:
        push(url, "kept", {"n": 1})
    assert not (directory / "pg" / "data" / "postmaster.pid").exists()
    with serve("--backend", store, "--workers", "1") as url:
        assert pop(url, "kept").json()["messages"][0]["data"] == {"n": 1}


def test_a_killed_embedded_database_is_brought_back(directory, wait_until):
    """O-27, PL-16."""
    pid_file = directory / "pg" / "data" / "postmaster.pid"
    with started("--backend", f"embedded:{directory / 'pg'}", "--workers", "1") as server:
        push(server.url, "kept")
        os.kill(int(pid_file.read_text().split("\n")[0]), signal.SIGKILL)

        def answers():
            return pop(server.url, "kept").status_code == 200

        wait_until(answers)
        assert "has ended unasked and is started again" in server.output


def test_a_killed_arbiter_takes_everything_with_it(directory, wait_until):
    """K03: workers and database end, and the next start finds its data."""
    store = f"embedded:{directory / 'pg'}"
    with started("--backend", store, "--workers", "2") as server:
        push(server.url, "kept")
        workers = server.workers
        server.process.kill()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    with serve("--backend", store, "--workers", "1") as url:
        assert pop(url, "kept").status_code == 200


def test_a_worker_whose_arbiter_is_killed_answers_its_waiting_pops_and_ends(wait_until):
    """O-21: it drains whichever way its end begins."""
    with started("--backend", "memory:") as server:
        pops = Pops(server.url, "empty", 5)
        wait_until(lambda: waiting_pops(server.url) == 5)
        (worker,) = server.workers
        server.process.kill()
        assert pops.join() == [(204, b"")] * 5
        wait_until(lambda: not Path(f"/proc/{worker}").exists())


def test_idle_connections_beyond_the_usual_limit_of_files_keep_nobody_out():
    """O-36, PL-14: more sockets than 1,024 descriptors, in one process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    try:
        with serve("--backend", "memory:") as url, ExitStack() as sockets:
            address = ("127.0.0.1", int(url.rpartition(":")[2]))
            for _ in range(1_100):
                sockets.enter_context(socket.create_connection(address, timeout=10))
            push(url, "reached")
            assert pop(url, "reached").status_code == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_worker_that_starts_while_the_database_is_down_serves_when_it_is_back(
    cluster, wait_until
):
    """O-27: no restart by hand, and 503 in the meantime."""
    with started("--backend", cluster.dsn(), "--workers", "1") as server:
        push(server.url, "kept")
        cluster.kill()
        (worker,) = server.workers
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: server.workers and server.workers != [worker])

        def refused():
            try:
                return pop(server.url, "kept").status_code == 503
            except httpx.TransportError:
                return False

        wait_until(refused)
        cluster.start()
        wait_until(lambda: pop(server.url, "kept").status_code == 200)


def test_migrate_and_settings_are_commands(empty_database_dsn):
    for _ in range(2):
        done = command("migrate", "--backend", empty_database_dsn)
        assert (done.returncode, done.stdout) == (0, "the schema is up to date\n"), done.stderr
    refused = command("migrate", "--backend", "memory:")
    assert (refused.returncode, refused.stderr) == (1, "queen-sync: memory: has no schema\n")
    assert command("settings").stdout.startswith("# Settings\n")
