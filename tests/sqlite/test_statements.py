"""The SQL of the backend: every statement is used, and the hot ones keep to their indexes."""

import re
import sqlite3
from pathlib import Path

import pytest

from queen_sync import model as m
from queen_sync.backends import sqlite_rows, sqlite_statements
from queen_sync.backends.sqlite_statements import STATEMENTS, named

BACKENDS = Path(sqlite_statements.__file__).parent


def plan(connection, name):
    """Return how SQLite says it will execute a statement, parameters unknown."""
    statement = STATEMENTS[name]
    numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    values = [None] * (max(numbered) if numbered else statement.count("?"))
    rows = connection.execute(f"explain query plan {statement}", values).fetchall()
    return [row[3] for row in rows]


@pytest.fixture
def connection(backend, path):
    connection = sqlite3.connect(path)
    yield connection
    connection.close()


def test_every_statement_is_used_and_every_used_one_is_there(connection):
    said = "\n".join(path.read_text() for path in sorted(BACKENDS.glob("sqlite*.py")))
    used = {name for name in STATEMENTS if f'"{name}"' in said}
    assert used == set(STATEMENTS)
    called = set(re.findall(r'\.(?:rows?|run|many)\(\s*"(\w+)"', said))
    assert called <= set(STATEMENTS)
    for name in STATEMENTS:
        plan(connection, name)  # SQLite can read it


def test_names_are_given_once():
    with pytest.raises(ValueError, match="two statements"):
        named("-- name: one\nselect 1;\n-- name: one\nselect 2;")


def test_comments_are_left_out_and_statements_kept_whole():
    text = (
        "-- why\n-- name: one\nselect 1\n    -- inside\nfrom x;\n\n-- of the next\n-- name: two\nx"
    )
    assert named(text) == {"one": "select 1\nfrom x;", "two": "x"}


def test_options_are_columns_of_their_names(connection):
    """The order in which queues are read and written is that of the options."""
    for name in ("queue_by_name", "all_queues"):
        description = connection.execute(
            STATEMENTS[name], ["q"] * STATEMENTS[name].count("?")
        ).description
        columns = [column[0] for column in description]
        assert tuple(columns[6:]) == sqlite_rows.OPTION_COLUMNS
    written = re.findall(r"(\w+) = \?", STATEMENTS["set_queue"])
    assert tuple(written[3:-1]) == sqlite_rows.OPTION_COLUMNS
    defaults = {row[1]: row[4] for row in connection.execute("pragma table_info(queues)")}
    assert {name: int(defaults[name]) for name in m.OPTION_DEFAULTS} == {
        name: int(value) for name, value in m.OPTION_DEFAULTS.items()
    }


@pytest.mark.parametrize("name", ["peek", "next_lane"])
def test_work_is_found_by_the_index_over_ready_us(connection, name):
    """C-05: bounded work, however many partitions there are: a range of the index, no sorting."""
    steps = plan(connection, name)
    assert any("partition_leases_ready (group_id=? AND" in step for step in steps), steps
    assert not [step for step in steps if "SCAN" in step or "TEMP B-TREE" in step]


HOT = [
    "place",
    "read_batch",
    "message_at",
    "first_stored",
    "save_lane",
    "lane",
    "wake_lanes",
    "partition_by_name",
    "push_target",
    "group_by_name",
    "lane_by_partition_name",
    "retry",
    "lanes_of_lease",
    "partitions_of_name",
    "advance_partition",
]


@pytest.mark.parametrize("name", HOT)
def test_hot_statements_search_and_never_scan(connection, name):
    steps = plan(connection, name)
    assert steps
    assert all(step.startswith("SEARCH") for step in steps), steps


@pytest.mark.parametrize("name", ["named_messages", "numbered_messages"])
def test_names_are_looked_up_one_by_one(connection, name):
    """The list is read in its order, and each entry costs a probe of an index."""
    steps = plan(connection, name)
    assert steps[0].startswith("SCAN j VIRTUAL TABLE")
    assert re.match(r"SEARCH m USING INDEX messages_(seq|transaction) \(", steps[1])
    assert len(steps) == 2


INDEXED = {
    "traced_messages": "messages_trace (trace_id=? AND ",
    "newest_messages": "messages_seq (partition_id=? AND seq>? AND seq<?)",
    "message_traces": "traces_message (partition_id=? AND seq=?)",
    "named_traces": "PRIMARY KEY (name=?)",
    "delete_traces": "traces_message (partition_id=? AND seq>? AND seq<?)",
    "dead_seqs": "dead_letters_message (group_id=? AND partition_id=?)",
    "letter": "dead_letters_message (group_id=? AND partition_id=? AND seq=?)",
    "named_lanes": "PRIMARY KEY (partition_id=?)",
}


@pytest.mark.parametrize("name", INDEXED)
def test_what_operators_look_at_is_found_by_an_index(connection, name):
    """O-43: a look costs what it shows, not what is stored; a page is read in its order."""
    steps = plan(connection, name)
    assert any(INDEXED[name] in step for step in steps), steps
    assert not [step for step in steps if step.startswith("SCAN")]
    if name != "named_lanes":  # the few groups of a queue, by name
        assert not [step for step in steps if "TEMP B-TREE" in step]


def test_a_pop_over_100_000_waiting_partitions_looks_at_one(backend, connection):
    """Counted by the steps of SQLite's machine: with many lanes as with few."""
    steps = []
    for partitions in (10, 20_000):
        queue = f"lanes-{partitions}"
        backend.push([m.NewMessage.of(queue, n, partition=str(n)) for n in range(partitions)])
        backend.subscribe(queue, "g", m.Subscription())
        (group,) = connection.execute("select max(id) from consumer_groups").fetchone()
        count = [0]

        def tick(count=count):
            count[0] += 1

        connection.set_progress_handler(tick, 1)
        arguments = [group, 2**62, -(2**63), 0]
        assert connection.execute(STATEMENTS["next_lane"], arguments).fetchall()
        connection.set_progress_handler(None, 0)
        steps.append(count[0])
    assert steps[0] == steps[1] < 100
