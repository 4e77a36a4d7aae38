"""Consumers alone: a queue is filled before the run, and the users compete for what is in it."""

from ledger import BATCH, Ledger, QueueUser, keep
from locust import constant, task

FILL_PUSHES = 250


class Consumer(QueueUser):
    ledger = Ledger()
    wait_time = constant(0.01)

    @task
    def pop_and_ack(self):
        messages = self.pop()
        if messages:
            self.ack(messages)


def fill(user):
    for _ in range(FILL_PUSHES):
        user.push(BATCH)


keep(Consumer, fill)
