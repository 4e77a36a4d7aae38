"""SQL functions that are broken on purpose, each with the checks that must find it out.

A mutant is a few exact replacements in the text of a function; a text that is not found exactly
once is an error, so that a mutant cannot quietly become a copy of what it mutates. The mutants
themselves are in sql_mutants_of_flow.py and sql_mutants_of_leases.py.
"""

import re
from importlib import resources
from typing import NamedTuple

import psycopg

from queen_sync.backends.postgres import PostgresBackend
from queen_sync.clock import ManualClock
from queen_sync.conformance import BackendConformance, ConcurrencyConformance
from tests.postgres.sessions import connect, delay_commits

MUTANTS = {}
TRIES = 5
"""How often a check that needs luck is run until it finds something."""
_FOLDER = resources.files("queen_sync.backends") / "sql" / "postgres" / "functions"


class Change(NamedTuple):
    """In a function, a text and what takes its place."""

    function: str
    text: str
    instead: str


class Mutant(NamedTuple):
    changes: tuple
    killers: tuple
    setup: str = ""


class Killer(NamedTuple):
    """A check, by name, that raises where the functions of a database are wrong."""

    name: str
    run: object
    tries: int = 1


def mutant(name, *changes, killers, setup=""):
    assert name not in MUTANTS
    MUTANTS[name] = Mutant(tuple(Change(*change) for change in changes), killers, setup)


def function_text(function, folder=_FOLDER):
    """The statement that makes a function."""
    found = [
        statement
        for file in folder.iterdir()
        for statement in re.findall(
            rf"^create or replace function queen\.{function}\(.*?\$\$.*?\$\$;$",
            file.read_text("utf-8"),
            re.MULTILINE | re.DOTALL,
        )
    ]
    assert len(found) == 1, f"{len(found)} functions are called {function}"
    return found[0]


def mutated(changes):
    """The changed functions, each once, as statements."""
    texts = {}
    for function, old, new in changes:
        text = texts.get(function) or function_text(function)
        count = text.count(old)
        assert count == 1, f"{function} has this text {count} times:\n{old}"
        texts[function] = text.replace(old, new)
    return texts.values()


def install(dsn, broken):
    """Put a mutant's functions into a database."""
    with psycopg.connect(dsn) as connection:
        connection.execute(broken.setup or "select")
        for statement in mutated(broken.changes):
            connection.execute(statement)
        for function in {change.function for change in broken.changes}:
            count = connection.execute(
                "select count(*) from pg_proc where proname = %s"
                " and pronamespace = 'queen'::regnamespace",
                [function],
            ).fetchone()
            assert count == (1,), f"{function} stands beside its mutant, which nobody calls"


# ----------------------------------------------------------------------------- killers


def case(name):
    """A case of the suite, on a clock that is advanced by hand."""

    def run(dsn):
        clock = ManualClock()
        with PostgresBackend(dsn, clock=clock, migrate=False) as backend:
            bound = BackendConformance()
            bound.bind(backend, clock)
            getattr(bound, name)()

    return Killer(name, run)


def load(name, *arguments):
    """A case that runs many threads in real time."""

    def run(dsn):
        with PostgresBackend(dsn, migrate=False) as backend:
            bound = ConcurrencyConformance()
            bound.bind(backend, ManualClock())
            getattr(bound, name)(*arguments)

    return Killer(name, run, TRIES)


def late_commits(name, *arguments):
    """The same while transactions take their time to commit."""
    killer = load(name, *arguments)

    def run(dsn):
        with connect(dsn) as session:
            session.execute("drop function if exists public.dawdle() cascade")
        delay_commits(dsn)
        killer.run(dsn)

    return killer._replace(run=run)


def directed(test, *, tries=1):
    """Sessions side by side, step by step: a test of the PostgreSQL backend."""

    def run(dsn):
        if "make_backend" in test.__code__.co_varnames[: test.__code__.co_argcount]:
            opened = []

            def make_backend(**options):
                opened.append(PostgresBackend(dsn, migrate=False, **options))
                return opened[-1]

            try:
                test(dsn, make_backend)
            finally:
                for backend in opened:
                    backend.close()
        else:
            with PostgresBackend(dsn, migrate=False) as backend:
                test(dsn, backend)

    return Killer(test.__name__, run, tries)
