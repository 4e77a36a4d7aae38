"""The command ``queen-sync``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from queen_sync import __version__, config
from queen_sync.bench import command as bench_command
from queen_sync.config import DEFAULT_BACKEND, Settings
from queen_sync.conformance.command import command as conformance_command
from queen_sync.embedded import Cluster
from queen_sync.errors import InvalidRequest, QueenError

DATABASE = "queen"
"""The database of an embedded cluster."""
_STORE = "The store: sqlite:///FILE, postgresql://…, embedded:DIRECTORY or memory:"


@click.group()
@click.version_option(__version__, prog_name="queen-sync")
def main() -> None:
    """Serve and look after partitioned message queues."""


main.add_command(bench_command)
main.add_command(conformance_command)


@main.command()
@click.option("--backend", help=f"{_STORE} [QUEEN_BACKEND; {DEFAULT_BACKEND}]")
@click.option("--host", help="The address to listen on [HOST; 127.0.0.1]")
@click.option("--port", type=int, help="The port to listen on, 0 for any free one [PORT; 6632]")
@click.option("--workers", type=int, help="How many processes [QUEEN_WORKERS; one per core]")
@click.option("--threads", type=int, help="Requests at once per process [QUEEN_THREADS; 1100]")
@click.option(
    "--allow-unsafe",
    is_flag=True,
    default=None,
    help="Serve from a PostgreSQL that may lose answered messages [QUEEN_ALLOW_UNSAFE]",
)
def serve(**flags: Any) -> None:
    """Serve the HTTP interface until SIGTERM or Ctrl-C.

    Every other setting is an environment variable; `queen-sync settings` lists them.
    """
    # The workers, and a gunicorn that starts itself anew, read the environment: flags go there.
    names = {each.field: each.name for each in config.VARIABLES}
    for field, value in flags.items():
        if value is not None:
            os.environ[names[field]] = str(value)
    with _told_plainly():
        settings = Settings.from_environment()
        if settings.store[0] == "embedded":
            os.environ["QUEEN_BACKEND"] = settings.backend
        # Late, because gunicorn's configuration is worked out from the environment on import.
        from queen_sync.arbiter import Serving  # noqa: PLC0415

        if settings.store[0] != "embedded":
            Serving().run()
            return
        with _cluster(settings) as cluster:
            os.environ["QUEEN_BACKEND"] = cluster.dsn(DATABASE)
            Serving(cluster).run()


@main.command()
@click.option("--backend", help=f"{_STORE} [QUEEN_BACKEND; {DEFAULT_BACKEND}]")
def migrate(backend: str | None) -> None:
    """Bring a database to this version's schema; harmless where it has it."""
    from queen_sync.backends import postgres, sqlite  # noqa: PLC0415 - only this command needs them

    with _told_plainly():
        settings = Settings.from_environment(backend=backend)
        scheme, place = settings.store
        if scheme == "memory":
            raise InvalidRequest("memory: has no schema", "QUEEN_BACKEND")
        if scheme == "sqlite":
            sqlite.migrate(place)
        elif scheme == "embedded":
            with _cluster(settings) as cluster:
                postgres.migrate(cluster.dsn(DATABASE))
        else:
            postgres.migrate(place)
    click.echo("the schema is up to date")


@main.command()
def settings() -> None:
    """Print every setting with its unit, default and bounds, in Markdown."""
    click.echo(config.reference(), nl=False)


@contextmanager
def _cluster(settings: Settings) -> Iterator[Cluster]:
    """Start the embedded PostgreSQL that the settings name, with a database in it."""
    path = Path(settings.store[1])
    room = settings.workers * (settings.database_pool_size + 2) + 20
    with Cluster(path, settings={"max_connections": str(max(100, room))}) as cluster:
        cluster.create_database(DATABASE)
        yield cluster


@contextmanager
def _told_plainly() -> Iterator[None]:
    """Turn an error of queen-sync into one line and exit code 1."""
    try:
        yield
    except QueenError as error:
        click.echo(f"queen-sync: {error.message}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
