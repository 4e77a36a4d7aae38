"""The HTTP client: a server somewhere else, as a backend.

::

    with RemoteBackend("http://127.0.0.1:6632") as queen:
        queen.push([NewMessage.of("invoices", {"n": 1})])
        claim = queen.pop_waiting(PopRequest(queue="invoices", max_messages=10), 20)
"""

from queen_sync.client.remote import RemoteBackend
from queen_sync.client.transport import ApplicationTransport

__all__ = ["ApplicationTransport", "RemoteBackend"]
