"""Requests that name a queue as older clients do: namespace, task and last name apart."""

import pytest


def push(http, *items, **config):
    given = [{"ns": "mail", "task": "send", "queue": "letters", **item} for item in items]
    return http.post("/api/v1/push", {"items": given, **({"config": config} if config else {})})


def test_a_queue_is_configured_and_shown_by_its_path(http, backend):
    """PL-1: within it is one of three dotted parts."""
    body = {"ns": "mail", "task": "send", "queue": "letters", "options": {"retryLimit": 1}}
    answer = http.post("/api/v1/configure", body)
    assert answer.status_code == 201
    said = answer.get_json()
    assert (said["queue"], said["ns"], said["namespace"], said["task"]) == (
        "mail/send/letters",
        "mail",
        "mail",
        "send",
    )
    assert said["options"]["retryLimit"] == 1
    queue = backend.queue("mail.send.letters")
    assert (queue.namespace, queue.task) == ("mail", "send")


def test_a_push_by_path_is_answered_in_its_own_form(http, backend):
    """PL-1, PL-2, PL-3: the queue is made, and a repeat is a duplicate."""
    answer = push(http, {"payload": 1, "transactionId": "t"}, {"payload": 2})
    assert answer.status_code == 201
    first, second = answer.get_json()["messages"]
    assert first == {"id": first["id"], "transactionId": "t", "traceId": None, "status": "queued"}
    assert second["transactionId"] == second["id"]
    (again,) = push(http, {"payload": 1, "transactionId": "t"}).get_json()["messages"]
    assert (again["id"], again["status"]) == (first["id"], "duplicate")
    queue = backend.queue("mail.send.letters")
    assert (queue.namespace, queue.task) == ("mail", "send")


def test_a_push_of_both_forms_is_answered_in_the_usual_one(http):
    items = [
        {"ns": "mail", "task": "send", "queue": "letters", "payload": 1},
        {"queue": "plain", "payload": 2},
    ]
    body = http.post("/api/v1/push", {"items": items}).get_json()
    assert [item["queue"] for item in body] == ["mail.send.letters", "plain"]


def test_nothing_pushed_is_answered_in_the_usual_form(http):
    assert http.post("/api/v1/push", {"items": []}).get_json() == []


@pytest.mark.parametrize(
    "path", ["ns/mail", "ns/mail/task/send", "ns/mail/task/send/queue/letters"]
)
def test_a_pop_by_path_names_the_queue_by_path(http, path):
    """PL-1: and what it gave is acked like anything else."""
    push(http, {"payload": 1})
    body = http.get(f"/api/v1/pop/{path}").get_json()
    (message,) = body["messages"]
    assert (body["queue"], message["queue"]) == ("mail/send/letters", "mail/send/letters")
    assert http.ack(message)["success"] is True


def test_a_pop_by_path_leaves_other_names_as_they_are(http):
    """Whose labels stand beside them, not in them."""
    http.post("/api/v1/configure", {"queue": "a.b.c", "namespace": "mail", "task": "send"})
    http.push("a.b.c", 1)
    assert http.get("/api/v1/pop/ns/mail").get_json()["queue"] == "a.b.c"


def test_a_path_finds_a_queue_by_its_labels_too(http):
    """PL-1: unless there is one of that dotted name."""
    http.post("/api/v1/configure", {"queue": "letters", "namespace": "mail", "task": "send"})
    http.push("letters", "plain")
    path = "/api/v1/pop/ns/mail/task/{}/queue/letters?autoAck=true"
    assert http.get(path.format("print")).status_code == 204
    body = http.get(path.format("send")).get_json()
    assert (body["queue"], body["messages"][0]["data"]) == ("mail/send/letters", "plain")
    push(http, {"payload": "dotted"})
    assert http.get(path.format("send")).get_json()["messages"][0]["data"] == "dotted"


def test_a_missing_queue_is_made_unless_the_push_says_no(http):
    """PL-2."""
    answer = push(http, {"payload": 1}, autoCreate=False)
    assert (answer.status_code, answer.get_json()["code"]) == (404, "QUEUE_NOT_FOUND")
    assert http.get("/api/v1/resources/queues").get_json()["queues"] == []


def test_a_transaction_may_push_by_path(http, backend):
    item = {"ns": "mail", "task": "send", "queue": "letters", "payload": 1}
    for operation in ({"type": "push", "items": [item]}, {"type": "push", **item}):
        answer = http.post("/api/v1/transaction", {"operations": [operation]})
        assert answer.get_json()["success"] is True
    (stats,) = backend.queue_stats("mail.send.letters")
    assert stats.pushed_count == 2


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({"task": None}, "task"),
        ({"ns": ""}, "namespace"),
        ({"ns": "a.b"}, "namespace"),
        ({"task": "a.b"}, "task"),
        ({"ns": 5}, "ns"),
        ({"queue": ""}, "queue"),
    ],
)
@pytest.mark.parametrize("path", ["/api/v1/push", "/api/v1/configure"])
def test_a_part_that_is_missing_or_dotted_is_refused(http, backend, path, item, field):
    """C-18: two paths never mean the same queue."""
    given = {"ns": "mail", "task": "send", "queue": "letters", **item}
    answer = http.post(path, given if path.endswith("configure") else {"items": [given]})
    assert (answer.status_code, answer.get_json()["field"]) == (400, field)
    assert list(backend.queues()) == []
