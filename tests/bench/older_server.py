"""A server that speaks the wire as the first generation does: 200 for everything, bare arrays.

It keeps one list for each queue and gives each message once; `refuse` and `hang_up` make every
so many pushes go wrong, and `forget` loses one message of every so many pushes.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class OlderServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *, refuse: int = 0, hang_up: int = 0, forget: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.refuse = refuse
        self.hang_up = hang_up
        self.forget = forget
        self.pushes = 0
        self.lock = threading.Lock()
        self.queues: dict[str, list[dict]] = defaultdict(list)
        self.deleted: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address):
        """A caller that left in the middle of a call is no error here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: OlderServer

    def log_message(self, *_):
        """Say nothing."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/api/v1/push":
            self._push(body["items"])
        elif self.path == "/api/v1/ack/batch":
            acks = body["acknowledgments"]
            ok = all(ack["partitionId"] and ack["leaseId"] == "lease" for ack in acks)
            self._answer([{"index": n, "success": ok} for n in range(len(acks))])
        else:
            self._answer({"configured": True, **body})

    def do_DELETE(self):
        self.server.deleted.append(self.path.rpartition("/")[2])
        self._answer({"deleted": True, "existed": True})

    def do_GET(self):
        path = urlsplit(self.path)
        if not path.path.startswith("/api/v1/pop/queue/"):
            self._answer({"error": "Not Found"}, 404)
            return
        batch = int(parse_qs(path.query)["batch"][0])
        with self.server.lock:
            waiting = self.server.queues[path.path.rpartition("/")[2]]
            messages, waiting[:] = waiting[:batch], waiting[batch:]
        if messages:
            # The lease is named once, above the messages.
            self._answer({"success": True, "leaseId": "lease", "messages": messages})
        else:
            self._answer({"success": False, "error": "no_available_partition", "messages": []})

    def _push(self, items):
        server = self.server
        with server.lock:
            server.pushes += 1
            number = server.pushes
        if server.refuse and number % server.refuse == 0:
            self._answer({"error": "try later"}, 503)
            return
        if server.hang_up and number % server.hang_up == 0:
            self.close_connection = True
            return
        messages = [
            {
                "transactionId": item.get("transactionId") or str(uuid.uuid4()),
                "partitionId": item["partition"],
                "data": item["payload"],
            }
            for item in items
        ]
        if server.forget and number % server.forget == 0:
            del messages[0]
        with server.lock:
            server.queues[items[0]["queue"]] += messages
        self._answer([{"index": n, "status": "queued"} for n in range(len(items))])

    def _answer(self, body, status=200):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        middle = len(text) // 2
        for part in (text[:middle], text[middle:]):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")


@contextmanager
def older_server(**how: int) -> Iterator[OlderServer]:
    with OlderServer(**how) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
