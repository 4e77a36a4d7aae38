"""Producers and consumers at once, which is what queues are for."""

from ledger import BATCH, Ledger, QueueUser, keep
from locust import constant, task


class Worker(QueueUser):
    ledger = Ledger()
    wait_time = constant(0.01)

    @task(2)
    def push_one(self):
        self.push(1)

    @task(1)
    def push_batch(self):
        self.push(BATCH)

    @task(3)
    def pop_and_ack(self):
        messages = self.pop()
        if messages:
            self.ack(messages)


keep(Worker)
