"""POST /api/v1/configure and DELETE /api/v1/resources/queues/:queue."""

import pytest

DEFAULTS = {
    "leaseTime": 300,
    "retryLimit": 3,
    "retryDelay": 0,
    "maxSize": 0,
    "ttl": 0,
    "deadLetterQueue": False,
    "dlqAfterMaxRetries": False,
    "priority": 0,
    "delayedProcessing": 0,
    "windowBuffer": 0,
    "retentionSeconds": 0,
    "completedRetentionSeconds": 0,
    "retentionEnabled": False,
    "encryptionEnabled": False,
    "maxWaitTimeSeconds": 0,
    "requireLeaseId": True,
    "spreadPartitions": 0,
}


def test_a_new_queue_echoes_every_option(http):
    answer = http.post("/api/v1/configure", {"queue": "invoices"})
    assert answer.status_code == 201
    body = answer.get_json()
    assert body["configured"] is True
    assert (body["queue"], body["namespace"], body["task"]) == ("invoices", "", "")
    assert body["options"] == DEFAULTS
    assert body["queueId"]
    assert body["partitionId"]


def test_the_partition_id_of_a_configure_is_that_of_the_default_partition(http):
    body = http.configure("invoices")
    assert http.push("invoices", 1)[0]["partitionId"] == body["partitionId"]


def test_what_an_official_client_sends_is_echoed(http):
    sent = {
        "leaseTime": 60,
        "retryLimit": 0,
        "priority": 0,
        "delayedProcessing": 0,
        "windowBuffer": 0,
        "maxSize": 5000,
        "retentionSeconds": 0,
        "completedRetentionSeconds": 0,
        "encryptionEnabled": False,
    }
    body = {"queue": "q", "namespace": None, "task": None, "options": sent}
    echoed = http.post("/api/v1/configure", body).get_json()["options"]
    assert echoed == DEFAULTS | sent


def test_a_zero_lease_time_is_echoed_and_means_a_minute(http, clock):
    assert http.configure("q", leaseTime=0)["options"]["leaseTime"] == 0
    http.push("q", 1)
    http.pop("q")
    clock.advance(59)
    assert http.pop("q") is None
    clock.advance(1)
    assert http.pop("q") is not None


def test_options_that_a_call_does_not_name_keep_their_values(http):
    """C-11."""
    http.configure("q", retryLimit=7, leaseTime=10)
    assert http.configure("q", leaseTime=20, retryLimit=None)["options"] == DEFAULTS | {
        "retryLimit": 7,
        "leaseTime": 20,
    }


@pytest.mark.parametrize("labels", [{}, {"namespace": None, "task": None}])
def test_labels_that_a_call_does_not_name_keep_their_values(http, labels):
    http.post("/api/v1/configure", {"queue": "q", "namespace": "billing", "task": "send"})
    body = http.post("/api/v1/configure", {"queue": "q", **labels}).get_json()
    assert (body["namespace"], body["task"]) == ("billing", "send")


def test_a_numeric_string_counts_as_its_number(http):
    assert http.configure("q", retryLimit="12")["options"]["retryLimit"] == 12


def test_max_queue_size_is_another_name_of_max_size(http):
    assert http.configure("q", maxQueueSize=4)["options"]["maxSize"] == 4


def test_two_different_limits_are_refused(http):
    body = b'{"queue":"q","options":{"maxSize":1,"maxQueueSize":2}}'
    answer = http.send("/api/v1/configure", body)
    assert (answer.status_code, answer.get_json()["field"]) == (400, "maxQueueSize")


@pytest.mark.parametrize(
    ("options", "field", "text"),
    [
        ({"nope": 1}, "nope", "unknown option 'nope'"),
        ({"lease_seconds": 1}, "lease_seconds", "unknown option 'lease_seconds'"),
        ({"leaseTime": -1}, "leaseTime", "leaseTime must be a non-negative integer"),
        ({"leaseTime": 1.5}, "leaseTime", "leaseTime must be a non-negative integer"),
        ({"leaseTime": True}, "leaseTime", "leaseTime must be a non-negative integer"),
        ({"leaseTime": "x"}, "leaseTime", "leaseTime must be a non-negative integer"),
        ({"leaseTime": "٣"}, "leaseTime", "leaseTime must be a non-negative integer"),
        ({"leaseTime": 86401}, "leaseTime", "leaseTime must be at most 86400"),
        ({"retryLimit": 2**31}, "retryLimit", "retryLimit must be at most 2147483647"),
        ({"retentionEnabled": 1}, "retentionEnabled", "retentionEnabled must be true or false"),
        ({"requireLeaseId": "false"}, "requireLeaseId", "requireLeaseId must be true or false"),
    ],
)
def test_a_bad_option_is_named_and_nothing_changes(http, backend, options, field, text):
    """C-11."""
    body = {"queue": "q", "options": {"retryLimit": 9, **options}}
    answer = http.post("/api/v1/configure", body)
    assert answer.status_code == 400
    assert answer.get_json() == {"error": text, "code": "INVALID_REQUEST", "field": field}
    assert backend.queue("q") is None


def test_an_option_that_the_backend_cannot_honour_is_refused_by_name(http, backend):
    """O-14."""
    answer = http.post("/api/v1/configure", {"queue": "q", "options": {"encryptionEnabled": True}})
    body = answer.get_json()
    assert answer.status_code == 400
    assert (body["code"], body["field"], body["feature"]) == (
        "NOT_SUPPORTED",
        "encryptionEnabled",
        "enc",
    )
    assert backend.queue("q") is None


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "queue is required"),
        ({"queue": None}, "queue is required"),
        ({"queue": 5}, "queue is required"),
        ({"queue": ""}, "queue is required"),
        ([], "queue is required"),
        ({"queue": "q" * 256}, "queue name exceeds 255 characters"),
    ],
)
def test_a_configure_without_a_usable_name_is_refused(http, body, text):
    answer = http.post("/api/v1/configure", body)
    assert (answer.status_code, answer.get_json()["error"]) == (400, text)
    assert answer.get_json()["field"] == "queue"


@pytest.mark.parametrize("name", ["namespace", "task"])
def test_labels_obey_the_rule_of_names(http, name):
    """C-18."""
    answer = http.post("/api/v1/configure", {"queue": "q", name: "x" * 256})
    assert (answer.status_code, answer.get_json()["field"]) == (400, name)


def test_a_name_of_the_server_is_refused(http):
    """C-18."""
    assert http.post("/api/v1/configure", {"queue": "__system_x"}).status_code == 400


def test_a_queue_is_deleted_once_and_the_answer_says_so(http):
    http.push("q", 1)
    first = http.delete("/api/v1/resources/queues/q")
    again = http.delete("/api/v1/resources/queues/q")
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.get_json() == {"deleted": True, "queue": "q", "existed": True}
    assert again.get_json() == {"deleted": True, "queue": "q", "existed": False}
    assert http.pop("q") is None
