"""Limits that the gunicorn configuration and its worker share."""

from __future__ import annotations

REQUEST_LINE_BYTES = 32_768
"""A pop names a queue, a partition and a group of up to 255 characters (C-18), each of up to
twelve bytes when percent-encoded, and more in its query."""
