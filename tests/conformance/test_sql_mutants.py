"""The suite finds out what is wrong in the SQL, too: broken functions, each in its own database."""

import re
import time

import psycopg
import pytest

from queen_sync.conformance.base import case_id
from queen_sync.errors import QueenError
from tests.conformance import sql_mutants, sql_mutants_of_flow, sql_mutants_of_leases
from tests.conformance.conftest import KILLED_BY
from tests.conformance.sql_mutants import MUTANTS
from tests.pages import DOCS

assert all(
    each.mutant is sql_mutants.mutant for each in (sql_mutants_of_flow, sql_mutants_of_leases)
)

VERDICTS = (AssertionError, QueenError, pytest.fail.Exception)
KILLERS = {killer.name: killer for each in MUTANTS.values() for killer in each.killers}


def test_there_are_enough_mutants_and_each_changes_the_functions_as_they_are():
    """A text that has moved on is found here, and not by a mutant that seems to survive."""
    assert len(MUTANTS) >= 20
    for broken in MUTANTS.values():
        for statement in sql_mutants.mutated(broken.changes):
            assert statement.startswith("create or replace function queen.")


def test_the_page_about_the_suite_lists_them():
    """docs/explanation/conformance.md"""
    page = (DOCS / "explanation" / "conformance.md").read_text("utf-8")
    rows = re.findall(r"^\| (.+?) \| (.+?) \| [\d.]+ \|$", page, re.MULTILINE)
    shown = {name: _words(broken.killers[0].name) for name, broken in MUTANTS.items()}
    assert dict(rows) == shown
    assert [name for name, _ in rows] == sorted(MUTANTS)


def _words(name):
    number = case_id(name)
    if number:
        return f"{number} {name[len('test_a00_') :].replace('_', ' ')}"
    return name.removeprefix("test_").replace("_", " ")


def found_by(killer, dsn):
    """What a check says of a database; None where it finds nothing wrong, however often it looks.

    A function that cannot run at all proves nothing: it has to be found wrong.
    """
    for _ in range(killer.tries):
        try:
            killer.run(dsn)
        except VERDICTS as error:
            if isinstance(error.__cause__, psycopg.errors.SyntaxErrorOrAccessRuleViolation):
                raise
            return error
    return None


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_killed_by_the_checks_made_for_it(name, postgres_server, record_property):
    broken = MUTANTS[name]
    with postgres_server.database(migrated=True) as dsn:
        sql_mutants.install(dsn, broken)
        began = time.perf_counter()
        for killer in broken.killers:
            if found_by(killer, dsn):
                record_property(
                    KILLED_BY, (name, killer.name, f"{time.perf_counter() - began:.2f}")
                )
                return
    pytest.fail(f"{name} survives")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", KILLERS)
def test_the_unbroken_functions_pass_the_same_checks(name, postgres_server):
    with postgres_server.database(migrated=True) as dsn:
        KILLERS[name].run(dsn)
