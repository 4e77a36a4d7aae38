"""Settings: names, bounds, and errors that say which variable is wrong (PL-13)."""

import pytest

from queen_sync import config
from queen_sync.config import Settings
from queen_sync.errors import InvalidRequest


def test_the_seed_names_are_read():
    """PL-13."""
    settings = Settings.from_environment(
        {
            "HOST": "0.0.0.0",
            "PORT": "7000",
            "DB_POOL_SIZE": "20",
            "DEFAULT_TIMEOUT": "1000",
            "MAX_TIMEOUT": "2000",
            "MAX_BATCH_SIZE": "100",
            "MAX_CONCURRENT_POLLS": "500",
            "MAX_BODY_SIZE": "1024",
        }
    )
    assert (settings.host, settings.port, settings.database_pool_size) == ("0.0.0.0", 7000, 20)
    assert settings.default_timeout_milliseconds == 1000
    assert settings.max_timeout_milliseconds == 2000
    assert (settings.max_batch_size, settings.max_concurrent_polls) == (100, 500)
    assert settings.max_body_bytes == 1024


def test_the_parts_of_a_postgresql_address_are_put_together_and_escaped():
    parts = {"PG_HOST": "db", "PG_PORT": "5433", "PG_DB": "a/b", "PG_USER": "u@x"}
    settings = Settings.from_environment({**parts, "PG_PASSWORD": "p:w"})
    assert settings.backend == "postgresql://u%40x:p%3Aw@db:5433/a%2Fb"
    assert settings.store == ("postgresql", settings.backend)


def test_an_address_of_a_socket_directory_is_a_parameter():
    settings = Settings.from_environment({"PG_HOST": "/run/pg"})
    assert settings.backend == "postgresql://postgres@/postgres?host=%2Frun%2Fpg&port=5432"


def test_queen_backend_goes_before_the_parts_and_a_flag_before_both():
    environment = {"QUEEN_BACKEND": "embedded:/x", "PG_HOST": "db"}
    assert Settings.from_environment(environment).store == ("embedded", "/x")
    assert Settings.from_environment(environment, backend="memory:").store == ("memory", "")


def test_without_anything_named_the_store_is_a_file_here():
    settings = Settings.from_environment({})
    assert settings.backend == config.DEFAULT_BACKEND
    assert settings.store == ("sqlite", "queen.db")
    assert settings.workers == 1


def test_four_slashes_name_an_absolute_file():
    assert Settings(backend="sqlite:////var/lib/queen.db").store == ("sqlite", "/var/lib/queen.db")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PORT", "http"),
        ("PORT", "65536"),
        ("PORT", "-1"),
        ("HOST", ""),
        ("QUEEN_WORKERS", "257"),
        ("QUEEN_THREADS", "1"),
        ("MAX_BATCH_SIZE", "0"),
        ("MAX_BATCH_SIZE", "10001"),
        ("MAX_BODY_SIZE", "1e6"),
        ("MAX_CONCURRENT_POLLS", "1100"),
        ("DEFAULT_TIMEOUT", "60001"),
        ("DB_POOL_SIZE", "0"),
        ("DB_TIMEOUT", "0"),
        ("DEFAULT_SUBSCRIPTION_MODE", "newest"),
        ("QUEEN_ALLOW_UNSAFE", "perhaps"),
        ("QUEEN_BACKEND", "mysql://db/x"),
        ("QUEEN_BACKEND", "embedded:"),
        ("QUEEN_BACKEND", "memory"),
        ("QUEEN_LISTEN_DSN", "db"),
        ("DB_POOLED", "transaction"),
        ("PG_PORT", "five"),
        ("PG_PORT", "70000"),
    ],
)
def test_a_bad_value_is_refused_with_the_name_of_its_variable(variable, value):
    """PL-13, PL-15."""
    with pytest.raises(InvalidRequest, match=variable) as caught:
        Settings.from_environment({variable: value})
    assert caught.value.field == variable


def test_a_pooler_by_transactions_needs_a_way_past_it_for_wake_ups():
    """O-29."""
    given = {"DB_POOLED": "true", "QUEEN_BACKEND": "postgresql://pooler/db"}
    with pytest.raises(InvalidRequest, match="DB_POOLED needs QUEEN_LISTEN_DSN"):
        Settings.from_environment(given)
    direct = {"QUEEN_LISTEN_DSN": "postgresql://server/db"}
    assert Settings.from_environment(given | direct).database_pooled


def test_an_error_about_the_backend_does_not_show_its_password():
    with pytest.raises(InvalidRequest) as caught:
        Settings.from_environment({"QUEEN_BACKEND": "mysql://user:secret@db/x"})
    assert "secret" not in str(caught.value)


def test_memory_refuses_to_be_served_by_two_processes():
    """O-35."""
    with pytest.raises(InvalidRequest, match="QUEEN_WORKERS must be 1 on memory:"):
        Settings(backend="memory:", workers=2)
    assert Settings(backend="memory:").workers == 1


def test_waiting_pops_always_leave_threads_free():
    """PL-8: health, push and ack find a thread while pops wait."""
    for threads in (2, 3, 4, 16, 400, 1_100, 10_000):
        settings = Settings(threads=threads)
        assert 1 <= settings.max_concurrent_polls < threads


def test_every_default_lies_within_its_own_bounds():
    for variable in (*config.VARIABLES, *config.PARTS):
        variable.check(variable.parse(variable.default))
