"""The PostgreSQL backend against the contract."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import psycopg
import pytest

from queen_sync.backends.base import Backend
from queen_sync.backends.postgres import PostgresBackend
from queen_sync.clock import Clock, SystemClock
from queen_sync.conformance import BackendConformance, ConcurrencyConformance
from queen_sync.conformance.cases.encryption import KEYS
from queen_sync.encryption import KeyRing
from tests.databases import postgres_of

DELAYED_TABLES = ("messages", "partitions", "partition_leases")
# A deferred trigger runs when the transaction commits: whatever it drew or read stays
# invisible to others for as long as it sleeps. The other one sleeps at once, so that the order
# in which pushes draw their places is not by chance the order in which they commit.
INSTALL = """
create function public.dawdle() returns trigger language plpgsql as
$$ begin perform pg_sleep(random() * 0.005); return null; end $$;
"""
DAWDLE = """
create trigger dawdle_at_once after insert on queen.messages
for each row when (random() < 0.3) execute function public.dawdle();
"""
DELAY = """
create constraint trigger dawdle after insert or update on queen.{table}
deferrable initially deferred for each row when (random() < 0.2)
execute function public.dawdle();
"""


class Postgres:
    target_name = "postgres"

    @pytest.fixture
    def backend(self, clock: Clock, postgres_dsn: str) -> Iterator[Backend]:
        given = None if isinstance(clock, SystemClock) else clock
        self.dsn, self.given = postgres_dsn, given
        with PostgresBackend(
            postgres_dsn, clock=given, keys=KEYS, repair_interval_seconds=0, migrate=False
        ) as backend:
            yield backend

    def beside(self, keys: str) -> Backend:
        ring = KeyRing.parse("", keys)
        return PostgresBackend(self.dsn, clock=self.given, keys=ring, migrate=False)


class TestPostgres(Postgres, BackendConformance):
    pass


@pytest.fixture(scope="module")
def older_dsn() -> Iterator[str]:
    with postgres_of(15) as dsn:
        yield dsn


class TestPostgres15(Postgres, BackendConformance):
    """The same on the oldest version that is at hand; 14 is the oldest that is promised."""

    target_name = "postgres 15"

    @pytest.fixture
    def postgres_dsn(self, older_dsn: str) -> str:
        return older_dsn


class TestPostgresUnderLoad(Postgres, ConcurrencyConformance):
    @pytest.fixture
    def delayed_commits(self, postgres_dsn: str) -> AbstractContextManager[None]:
        @contextmanager
        def delayed() -> Iterator[None]:
            with psycopg.connect(postgres_dsn, autocommit=True) as connection:
                connection.execute(INSTALL)
                try:
                    connection.execute(DAWDLE)
                    for table in DELAYED_TABLES:
                        connection.execute(DELAY.format(table=table))
                    yield
                finally:
                    connection.execute("drop function public.dawdle() cascade")

        return delayed()
