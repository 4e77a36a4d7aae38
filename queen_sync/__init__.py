"""queen-sync: a partitioned message queue."""

from importlib.metadata import version

__version__ = version("queen-sync")
