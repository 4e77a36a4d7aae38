"""Consumers that wait: most users hang in a pop until one of the few producers pushes."""

from ledger import Ledger, QueueUser, keep
from locust import constant, task

WAIT_SECONDS = 2


class Waiter(QueueUser):
    ledger = Ledger()
    wait_time = constant(0)
    weight = 4

    @task
    def wait_and_ack(self):
        messages = self.pop(wait_seconds=WAIT_SECONDS)
        if messages:
            self.ack(messages)


class Producer(QueueUser):
    ledger = Waiter.ledger
    wait_time = constant(0.1)
    weight = 1

    @task
    def push_one(self):
        self.push(1)


keep(Waiter)
