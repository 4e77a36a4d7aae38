"""What the figures were measured on: without it they say nothing."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

_SYNCS = 200
_PAGE = b"\0" * 8192


@dataclass(frozen=True)
class Machine:
    """Processors, Python, and how long the disk takes to make a page durable."""

    cores: int
    python: str
    system: str
    fsync_milliseconds: float
    load_before: float


def describe(directory: Path) -> Machine:
    """Look at this machine; the disk is that of ``directory``."""
    affinity = getattr(os, "sched_getaffinity", None)
    return Machine(
        cores=len(affinity(0)) if affinity else os.cpu_count() or 1,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        fsync_milliseconds=fsync_seconds(directory) * 1000,
        load_before=os.getloadavg()[0],
    )


def fsync_seconds(directory: Path) -> float:
    """Return the median time of writing 8 KiB and making it durable, as a commit does."""
    sync = getattr(os, "fdatasync", os.fsync)
    times = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(_SYNCS):
            began = time.perf_counter()
            os.pwrite(file.fileno(), _PAGE, 0)
            sync(file.fileno())
            times.append(time.perf_counter() - began)
    return median(times)
