"""L, in part: what a server owes over HTTP beside the backend's promises."""

from __future__ import annotations

from urllib.parse import quote

import httpx
import pytest

from queen_sync.conformance.base import Cases

POP_ROUTES = ("/api/v1/pop/queue/{queue}", "/api/v1/pop/queue/{queue}/partition/Default")


class ServerCases(Cases):
    @pytest.fixture
    def http(self) -> httpx.Client:
        raise pytest.UsageError(f"{type(self).__name__} needs a fixture 'http'")

    def test_l03_head_takes_nothing_from_a_queue(self, http: httpx.Client) -> None:
        """HEAD on a pop route is refused and claims nothing. C-14, INV-NO-500."""
        queue = self.name()
        self.push(queue, 1)
        for route in POP_ROUTES:
            answer = http.head(route.format(queue=quote(queue)))
            assert (answer.status_code, answer.headers["Allow"]) == (405, "GET")
        assert self.drain(queue) == [1]

    def test_l03_no_answer_of_a_pop_may_be_cached(self, http: httpx.Client) -> None:
        """Full, empty and refused ones. C-14."""
        queue = self.name()
        self.push(queue, 1)
        for query, status in (("", 200), ("", 204), ("?subscriptionMode=never", 400)):
            answer = http.get(POP_ROUTES[0].format(queue=quote(queue)) + query)
            assert (answer.status_code, answer.headers["Cache-Control"]) == (status, "no-store")
