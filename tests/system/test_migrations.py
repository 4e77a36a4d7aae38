"""The schema under concurrent first starts (O-33)."""

import subprocess
import sys

import psycopg

MIGRATE = "import sys; from queen_sync.backends.postgres import migrate; migrate(sys.argv[1])"
SCHEMA = """
    select table_name, column_name, data_type, is_nullable, column_default
      from information_schema.columns where table_schema = 'queen' order by 1, 2
"""


def schema(dsn):
    with psycopg.connect(dsn) as connection:
        return connection.execute(SCHEMA).fetchall()


def test_six_processes_migrate_an_empty_database_at_once(empty_database_dsn, postgres_dsn):
    """O-33: all of them start, and the schema is the one that a single start makes."""
    command = [sys.executable, "-c", MIGRATE, empty_database_dsn]
    racers = [
        subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        for _ in range(6)
    ]
    said = [racer.communicate(timeout=60)[1] for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * 6, said
    assert schema(empty_database_dsn) == schema(postgres_dsn) != []


def test_a_migration_killed_half_way_is_completed_by_the_next(empty_database_dsn, postgres_dsn):
    """O-33: killed at several instants, each time on what the kill before it left."""
    command = [sys.executable, "-c", MIGRATE, empty_database_dsn]
    for milliseconds in (150, 250, 300, 350, 400, 500):
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as racer:
            try:
                racer.wait(milliseconds / 1000)
            except subprocess.TimeoutExpired:
                racer.kill()
    subprocess.run(command, check=True, timeout=60)
    assert schema(empty_database_dsn) == schema(postgres_dsn) != []
