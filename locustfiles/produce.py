"""Producers alone: every user pushes; when the run ends, all that was stored has to come out."""

from ledger import BATCH, Ledger, QueueUser, keep
from locust import constant, task


class Producer(QueueUser):
    ledger = Ledger()
    wait_time = constant(0.01)

    @task(3)
    def push_one(self):
        self.push(1)

    @task(1)
    def push_batch(self):
        self.push(BATCH)


keep(Producer)
