"""``queen-sync bench``: how many messages a second, over HTTP or straight on a store."""

from queen_sync.bench.command import command

__all__ = ["command"]
