"""Every setting: its environment variable, its unit, its default and its bounds.

One declaration serves the environment, the command line, the check of a value and the
reference page (`reference`), so that they cannot disagree. A setting is here only if it has
an effect. A bad value is an InvalidRequest that names the variable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self
from urllib.parse import quote, urlencode, urlsplit

from queen_sync import encryption
from queen_sync.errors import InvalidRequest

DEFAULT_BACKEND = "sqlite:///queen.db"
MAX_WORKERS_BY_DEFAULT = 8
"""One process per core, but no more than leave a default PostgreSQL (100 connections) room."""
KEPT_FREE_THREADS = 100
"""How many threads waiting pops leave alone at most, so that push, ack and health find one."""

Scheme = Literal["sqlite", "postgresql", "embedded", "memory"]
Kind = Literal["text", "number", "switch"]


@dataclass(frozen=True, slots=True)
class Variable:
    """What there is to know about one environment variable."""

    name: str
    about: str
    field: str | None = None
    kind: Kind = "text"
    unit: str = ""
    default: str = ""
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()

    def parse(self, text: str) -> str | int | bool:
        """Return the value that the text of the variable means; refuse one that means none."""
        if self.kind == "switch":
            meaning = {"1": True, "true": True, "on": True, "yes": True}
            meaning |= {"0": False, "false": False, "off": False, "no": False, "": False}
            value = meaning.get(text.strip().lower())
            if value is None:
                raise InvalidRequest(f"{self.name} must be true or false, not {text!r}", self.name)
            return value
        if self.kind == "number":
            try:
                return int(text.strip())
            except ValueError:
                raise InvalidRequest(
                    f"{self.name} must be a whole number, not {text!r}", self.name
                ) from None
        return text.strip()

    def check(self, value: object) -> None:
        """Refuse a value of the wrong type or out of bounds."""
        expected = {"text": str, "number": int, "switch": bool}[self.kind]
        if type(value) is not expected:
            raise InvalidRequest(
                f"{self.name} must be a {expected.__name__}, not {value!r}", self.name
            )
        if self.choices and value not in self.choices:
            known = ", ".join(choice or "(empty)" for choice in self.choices)
            raise InvalidRequest(f"{self.name} must be one of {known}, not {value!r}", self.name)
        if isinstance(value, int) and not isinstance(value, bool):
            if self.minimum is not None and value < self.minimum:
                raise InvalidRequest(
                    f"{self.name} must be at least {self.minimum}, not {value}", self.name
                )
            if self.maximum is not None and value > self.maximum:
                raise InvalidRequest(
                    f"{self.name} must be at most {self.maximum}, not {value}", self.name
                )

    @property
    def bounds(self) -> str:
        """The bounds as the reference page shows them."""
        if self.choices:
            return ", ".join(f"`{choice}`" if choice else "empty" for choice in self.choices)
        if self.kind == "switch":
            return "`true`, `false`"
        if self.minimum is None:
            return ""
        return f"{self.minimum:,} to {self.maximum:,}"


def _text(variable: str, default: str, about: str, *, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"name": variable, "about": about, "choices": choices})


def _secret(variable: str, about: str) -> Any:
    return field(default="", repr=False, metadata={"name": variable, "about": about})


def _number(variable: str, default: int, bounds: tuple[int, int], unit: str, about: str) -> Any:
    low, high = bounds
    what = {"name": variable, "about": about, "kind": "number", "unit": unit}
    return field(default=default, metadata={**what, "minimum": low, "maximum": high})


def _switch(variable: str, about: str) -> Any:
    return field(default=False, metadata={"name": variable, "about": about, "kind": "switch"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """All settings of a server, checked when made; `Settings()` gives the defaults.

    ``workers`` and ``max_concurrent_polls`` may be given as 0; what is read is never 0, but
    the number that was worked out from the machine and from the other settings.
    """

    backend: str = _text(
        "QUEEN_BACKEND",
        DEFAULT_BACKEND,
        "Where the queues are kept: `sqlite:///FILE` (one machine; four slashes before an absolute "
        "path), `postgresql://user:password@host:port/database`, `embedded:DIRECTORY` (a "
        "PostgreSQL that the server starts and stops itself) or `memory:` (for tests; gone when "
        "the process ends).",
    )
    host: str = _text("HOST", "127.0.0.1", "The address to listen on.")
    port: int = _number(
        "PORT", 6632, (0, 65_535), "", "The port to listen on; 0 takes a free one and logs it."
    )
    workers: int = _number(
        "QUEEN_WORKERS",
        0,
        (0, 256),
        "processes",
        "How many processes serve; 0: one per core, at most "
        f"{MAX_WORKERS_BY_DEFAULT}, and 1 on `sqlite:` and `memory:`.",
    )
    threads: int = _number(
        "QUEEN_THREADS",
        1_100,
        (2, 10_000),
        "threads",
        "How many requests a process works on at once, waiting pops included. "
        "Threads are started when needed.",
    )
    max_concurrent_polls: int = _number(
        "MAX_CONCURRENT_POLLS",
        0,
        (0, 9_999),
        "requests",
        "How many pops may wait in one process; more are answered 429. It must stay below "
        "`QUEEN_THREADS`; 0: all threads but a quarter, at most "
        f"{KEPT_FREE_THREADS} of which stay free.",
    )
    default_timeout_milliseconds: int = _number(
        "DEFAULT_TIMEOUT",
        30_000,
        (0, 600_000),
        "milliseconds",
        "How long a waiting pop waits when it does not say.",
    )
    max_timeout_milliseconds: int = _number(
        "MAX_TIMEOUT",
        60_000,
        (0, 600_000),
        "milliseconds",
        "How long a pop may wait at most; longer waits are cut to this.",
    )
    max_batch_size: int = _number(
        "MAX_BATCH_SIZE",
        10_000,
        (1, 10_000),
        "messages",
        "How many messages a pop returns at most; larger requests are cut to this.",
    )
    sweep_interval_milliseconds: int = _number(
        "QUEEN_SWEEP_INTERVAL",
        10_000,
        (100, 3_600_000),
        "milliseconds",
        "How often each process looks after expired leases and leftovers; pops do not wait for it.",
    )
    metrics_interval_milliseconds: int = _number(
        "METRICS_COLLECTION_INTERVAL",
        5_000,
        (100, 600_000),
        "milliseconds",
        "How often each process writes what it counted (messages and requests by minute and "
        "queue) to the store; a process that is killed loses what it has not written.",
    )
    metrics_retention_days: int = _number(
        "METRICS_RETENTION_DAYS",
        30,
        (1, 3_650),
        "days",
        "How long counts are kept.",
    )
    max_body_bytes: int = _number(
        "MAX_BODY_SIZE",
        16 * 1024 * 1024,
        (1_024, 1024 * 1024 * 1024),
        "bytes",
        "How large the body of a request may be; larger ones are answered 413.",
    )
    default_subscription_mode: str = _text(
        "DEFAULT_SUBSCRIPTION_MODE",
        "",
        "Where a consumer group begins whose first pop does not say: `all` (also when empty) "
        "or `new`.",
        choices=("", "all", "new"),
    )
    database_pool_size: int = _number(
        "DB_POOL_SIZE",
        8,
        (1, 500),
        "connections",
        "How many database connections each process keeps for requests.",
    )
    statement_timeout_milliseconds: int = _number(
        "DB_TIMEOUT",
        30_000,
        (100, 600_000),
        "milliseconds",
        "How long one database transaction may take.",
    )
    lock_timeout_milliseconds: int = _number(
        "DB_LOCK_TIMEOUT",
        5_000,
        (10, 600_000),
        "milliseconds",
        "How long a database statement waits for a lock.",
    )
    listen_dsn: str = _text(
        "QUEEN_LISTEN_DSN",
        "",
        "A `postgresql://` address for the connection that listens for wake-ups, where "
        "`QUEEN_BACKEND` goes through a pooler that cannot carry it; empty: the same.",
    )
    database_pooled: bool = _switch(
        "DB_POOLED",
        "`QUEEN_BACKEND` leads through a pooler that gives sessions out by the transaction, such "
        "as pgbouncer in transaction mode. Needs `QUEEN_LISTEN_DSN`, which leads past it.",
    )
    allow_unsafe: bool = _switch(
        "QUEEN_ALLOW_UNSAFE",
        "Serve from a PostgreSQL that may lose answered messages (`fsync`, `full_page_writes` "
        "or `synchronous_commit` off); refused otherwise.",
    )
    encryption_key: str = _secret(
        encryption.KEY,
        "The key for the payloads of encrypted queues (`encryptionEnabled`): 64 hexadecimal "
        "digits. Empty, with `QUEEN_ENCRYPTION_KEYS` empty too: such queues are refused.",
    )
    encryption_keys: str = _secret(
        encryption.KEYS,
        "Several such keys, each with an id: `id:key,id:key`. The first seals, all of them and "
        "`QUEEN_ENCRYPTION_KEY` open; keys that were sealed with have to stay for as long as "
        "their messages do.",
    )
    log_level: str = _text(
        "QUEEN_LOG_LEVEL",
        "info",
        "How much is logged.",
        choices=("debug", "info", "warning", "error"),
    )
    access_log: bool = _switch("QUEEN_ACCESS_LOG", "Log each request, to standard output.")

    def __post_init__(self) -> None:
        for variable in VARIABLES:
            if variable.field is not None:
                variable.check(getattr(self, variable.field))
        scheme, _ = self.store
        encryption.KeyRing.parse(self.encryption_key, self.encryption_keys)
        if self.listen_dsn and urlsplit(self.listen_dsn).scheme not in ("postgresql", "postgres"):
            raise InvalidRequest(
                "QUEEN_LISTEN_DSN must be a postgresql:// address", "QUEEN_LISTEN_DSN"
            )
        if self.database_pooled and not self.listen_dsn:
            raise InvalidRequest(
                "DB_POOLED needs QUEEN_LISTEN_DSN: a pooler by transactions carries no wake-ups",
                "QUEEN_LISTEN_DSN",
            )
        if not self.host:
            raise InvalidRequest("HOST must not be empty", "HOST")
        if self.default_timeout_milliseconds > self.max_timeout_milliseconds:
            raise InvalidRequest(
                f"DEFAULT_TIMEOUT ({self.default_timeout_milliseconds}) must not be above "
                f"MAX_TIMEOUT ({self.max_timeout_milliseconds})",
                "DEFAULT_TIMEOUT",
            )
        if self.workers == 0:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
            one = scheme in {"sqlite", "memory"}
            count = 1 if one else min(cores, MAX_WORKERS_BY_DEFAULT)
            object.__setattr__(self, "workers", count)
        if scheme == "memory" and self.workers > 1:
            raise InvalidRequest(
                f"QUEEN_WORKERS must be 1 on memory:, not {self.workers}: each process would have "
                "queues of its own",
                "QUEEN_WORKERS",
            )
        if self.max_concurrent_polls == 0:
            free = min(KEPT_FREE_THREADS, max(1, self.threads // 4))
            object.__setattr__(self, "max_concurrent_polls", self.threads - free)
        if self.max_concurrent_polls >= self.threads:
            raise InvalidRequest(
                f"MAX_CONCURRENT_POLLS ({self.max_concurrent_polls}) must be below "
                f"QUEEN_THREADS ({self.threads}), or waiting pops leave no thread for pushes",
                "MAX_CONCURRENT_POLLS",
            )

    @property
    def store(self) -> tuple[Scheme, str]:
        """The kind of store, and where it is: a file, a DSN, a directory, or nothing."""
        scheme, colon, place = self.backend.partition(":")
        if scheme == "sqlite" and place.startswith("///") and place != "///":
            return "sqlite", place.removeprefix("///")
        if scheme in ("postgresql", "postgres") and place.startswith("//"):
            return "postgresql", self.backend
        if scheme == "embedded" and place:
            return "embedded", place
        if scheme == "memory" and colon and not place:
            return "memory", ""
        raise InvalidRequest(
            "QUEEN_BACKEND must be sqlite:///FILE, postgresql://…, embedded:DIRECTORY or memory:, "
            f"not {_without_password(self.backend)!r}",
            "QUEEN_BACKEND",
        )

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, **overrides: Any) -> Self:
        """Return the settings that the environment gives; an override that is None does not count.

        Without QUEEN_BACKEND, any of the PG_… variables makes the address of a PostgreSQL.
        """
        environ = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        for variable in VARIABLES:
            if variable.field is not None and variable.name in environ:
                values[variable.field] = variable.parse(environ[variable.name])
        if not values.get("backend"):
            values.pop("backend", None)
            if any(environ.get(part.name) for part in PARTS):
                values["backend"] = _address_of_parts(environ)
        values.update({name: value for name, value in overrides.items() if value is not None})
        return cls(**values)


PARTS = (
    Variable("PG_HOST", "Host name, address, or directory of a socket.", default="localhost"),
    Variable("PG_PORT", "Port.", kind="number", default="5432", minimum=1, maximum=65_535),
    Variable("PG_DB", "Database.", default="postgres"),
    Variable("PG_USER", "User.", default="postgres"),
    Variable("PG_PASSWORD", "Password; empty: none is sent."),
)
"""The parts of a PostgreSQL address, for whoever sets them one by one."""


def _variables() -> Iterator[Variable]:
    for each in fields(Settings):
        shown = str(each.default).lower() if isinstance(each.default, bool) else str(each.default)
        yield Variable(field=each.name, default=shown, **each.metadata)


VARIABLES = tuple(_variables())
"""The variables that are settings of their own, in the order of the reference page."""


def _address_of_parts(environ: Mapping[str, str]) -> str:
    """Return the address that PG_HOST, PG_PORT, PG_DB, PG_USER and PG_PASSWORD spell."""
    values: dict[str, str] = {}
    for part in PARTS:
        value = part.parse(environ.get(part.name) or part.default)
        part.check(value)
        values[part.name] = str(value)
    user = quote(values["PG_USER"], safe="")
    if values["PG_PASSWORD"]:
        user += ":" + quote(values["PG_PASSWORD"], safe="")
    database = quote(values["PG_DB"], safe="")
    host, port = values["PG_HOST"], values["PG_PORT"]
    if host.startswith("/"):
        return f"postgresql://{user}@/{database}?{urlencode({'host': host, 'port': port})}"
    if ":" in host:
        host = f"[{host}]"
    return f"postgresql://{user}@{host}:{port}/{database}"


def _without_password(address: str) -> str:
    """Return the address as it may be shown to people."""
    before, at, after = address.rpartition("@")
    head, colon, _ = before.rpartition(":")
    return f"{head}:…@{after}" if at and colon and "//" in head else address


def reference() -> str:
    """Return the reference page of all settings, in Markdown."""
    lines = [
        "# Settings",
        "",
        "<!-- Written by `make docs` from queen_sync/config.py; a test compares them. -->",
        "",
        "Settings come from the environment; flags of `queen-sync serve` go before them.",
        "A value that is out of bounds stops the start with an error that names the variable.",
        "",
        *_table(VARIABLES),
        "",
        "## A PostgreSQL address in parts",
        "",
        "Where `QUEEN_BACKEND` is not set and one of these is, they make the address.",
        "",
        *_table(PARTS),
    ]
    return "\n".join(lines) + "\n"


def _table(variables: tuple[Variable, ...]) -> Iterator[str]:
    yield "| variable | default | unit | bounds | what it does |"
    yield "| --- | --- | --- | --- | --- |"
    for each in variables:
        default = f"`{each.default}`" if each.default else "empty"
        yield f"| `{each.name}` | {default} | {each.unit} | {each.bounds} | {each.about} |"
