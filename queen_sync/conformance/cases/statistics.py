"""H21 and H22: what a store tells of itself as a whole, and what happened in it by the minute."""

from __future__ import annotations

import secrets

import msgspec

from queen_sync import model as m, stats as s
from queen_sync.conformance.base import Cases, needs


class StatisticsCases(Cases):
    def whole(self, queue: str) -> s.QueueStats:
        """Return how a queue stands."""
        (found,) = self.target.queue_stats(queue)
        return found

    def reader(self, queue: str, group: str = m.QUEUE_MODE) -> s.GroupStats:
        """Return how a group of a queue stands."""
        (found,) = self.target.group_stats(group, queue)
        return found

    # ---------------------------------------------------------------------- queues

    @needs("stats")
    def test_h21_a_queue_is_the_sum_of_its_partitions(self) -> None:
        """One row, whatever it holds; of a missing queue none. INV-COUNTERS, PL-9, PLD-10."""
        queue, empty = self.name(), self.queue(retry_limit=2)
        self.push(queue, 1, 2, 3, partition="a")
        self.push(queue, 4, partition="b")
        assert self.whole(queue) == s.QueueStats(
            queue=queue, partition_count=3, pushed_count=4, stored_count=4, waiting_count=4
        )
        self.take(queue, 2, partition="a")
        self.settle(self.take(queue, 1, partition="b"))
        found = self.whole(queue)
        assert found == s.QueueStats(
            queue=queue,
            partition_count=3,
            leased_count=1,
            pushed_count=4,
            stored_count=4,
            waiting_count=3,
            in_flight_count=2,
        )
        assert (found.pending_count, found.completed_count) == (1, 1)
        assert self.whole(empty) == s.QueueStats(queue=empty, partition_count=1)
        assert list(self.target.queue_stats(self.name())) == []
        everything = [each.queue for each in self.target.queue_stats()]
        assert everything == sorted(everything)
        assert {queue, empty} <= set(everything)

    @needs("stats", "dlq", "redrive")
    def test_h21_a_queue_counts_what_failed_and_what_is_dead(self) -> None:
        """A redriven dead letter waits again. INV-COUNTERS, INV-DLQ."""
        queue = self.queue(retry_limit=1)
        self.push(queue, *range(4))
        claim = self.take(queue, 4)
        self.ack(claim, "completed", only=[2])
        self.ack(claim, "dlq", only=[1])
        self.ack(claim, "failed", only=[0, 3])
        found = self.whole(queue)
        assert (found.waiting_count, found.retrying_count, found.dead_count) == (2, 2, 1)
        assert (found.pending_count, found.completed_count) == (2, 1)
        assert self.target.redrive(m.DeadLetterFilter(queue=queue)) == 1
        found = self.whole(queue)
        assert (found.waiting_count, found.dead_count, found.completed_count) == (3, 0, 1)

    @needs("stats")
    def test_h21_a_message_counts_once_however_many_groups_wait_for_it(self) -> None:
        """Also while two of them hold it. INV-COUNTERS, C-06."""
        queue, one, two = self.name(), self.name("one"), self.name("two")
        for group in (one, two):
            self.pop(queue, group=group)
        self.push(queue, *range(5))
        self.take(queue, 3, group=one)
        self.take(queue, 2, group=two)
        found = self.whole(queue)
        assert (found.waiting_count, found.in_flight_count, found.leased_count) == (5, 3, 1)
        self.advance(self.tick)
        assert self.reader(queue, one).in_flight_count == 3
        assert self.reader(queue, two).in_flight_count == 2

    @needs("stats", "browse", "sub_from")
    def test_h21_the_figures_of_a_queue_are_those_of_its_parts(self) -> None:
        """What partitions, groups and lanes say adds up, whatever a group began with.

        INV-COUNTERS, INV-MONOTONIC-CURSOR, C-07.
        """
        queue = self.queue(retry_limit=3)
        for n in range(3):
            self.push(queue, *range(4), partition=f"p{n}")
            self.advance(self.tick)
        middle = self.target.partitions(queue)[-2].newest_us
        assert middle is not None
        late = self.name("late")
        begins = m.Subscription(mode="from", from_us=middle)
        self.settle(self.take(queue, 2, group=late, subscription=begins))
        claim = self.take(queue, 4)
        self.ack(claim, "failed", only=[0])
        self.ack(claim, only=[2])
        self.target.release(str(claim.lease_id))
        parts = self.target.partitions(queue)
        found = self.whole(queue)
        assert found.waiting_count == sum(part.waiting_count for part in parts) == 11
        assert found.retrying_count == sum(g.retrying_count for p in parts for g in p.groups) == 3
        for group, lag in ((late, 6), (m.QUEUE_MODE, 11)):
            lanes = self.target.lanes(s.LaneFilter(queue=queue, group=group))
            stats = self.reader(queue, group)
            assert stats.lag == sum(lane.lag for lane in lanes) == self.lag(queue, group) == lag
            assert stats.partition_count == len(lanes) == 4
            assert stats.lagging_count == sum(lane.lag > 0 for lane in lanes)
            assert all(lane.passed_count >= 0 for lane in lanes)

    # ---------------------------------------------------------------------- groups

    @needs("stats")
    def test_h21_a_group_is_the_sum_of_its_lanes(self) -> None:
        """Its lag, what it holds, how old its oldest message is. QB-5, INV-COUNTERS."""
        queue, group = self.queue(lease_seconds=2 * self.unit), self.name("group")
        first = self.push(queue, 1, 2, partition="a")
        begins = m.Subscription(mode="all")
        self.pop(queue, group=group, subscription=begins, partition="none")
        assert self.reader(queue, group).taken_us is None
        self.advance(self.tick)
        self.push(queue, 3, partition="b")
        claim = self.take(queue, 2, group=group)
        found = self.reader(queue, group)
        assert found == s.GroupStats(
            queue=queue,
            group=group,
            subscription=begins,
            created_us=found.created_us,
            partition_count=3,
            lagging_count=2,
            leased_count=1,
            lease_count=2,
            lag=3,
            in_flight_count=2,
            oldest_waiting_us=claim.messages[0].created_us,
            taken_us=found.taken_us,
        )
        assert first[0].id == claim.messages[0].id
        self.settle(claim)
        later = self.reader(queue, group)
        assert (later.lag, later.lagging_count, later.leased_count) == (1, 1, 0)
        assert later.oldest_waiting_us is not None
        assert found.oldest_waiting_us is not None
        assert later.oldest_waiting_us > found.oldest_waiting_us
        assert later.taken_us == found.taken_us

    @needs("stats")
    def test_h21_groups_are_found_by_name_and_by_queue(self) -> None:
        """Those of one queue, and one group in all of its queues. QB-5, INV-FANOUT."""
        queues, group, other = [self.name(), self.name()], self.name("a"), self.name("b")
        for queue in queues:
            self.push(queue, 1)
            self.pop(queue, group=group)
        self.pop(queues[0], group=other)
        found = [(g.group, g.queue) for g in self.target.group_stats(group)]
        assert found == sorted((group, queue) for queue in queues)
        found = [(g.group, g.queue) for g in self.target.group_stats(queue=queues[0])]
        assert found == [(group, queues[0]), (other, queues[0])]
        assert list(self.target.group_stats(self.name())) == []
        assert list(self.target.group_stats(other, queues[1])) == []

    # ----------------------------------------------------------------------- lanes

    @needs("stats")
    def test_h21_live_leases_are_listed_by_their_end(self) -> None:
        """With what they delivered, what of it is open, and since when. PLD-10, INV-CLAIM."""
        long, short = self.queue(lease_seconds=4 * self.unit), self.queue(lease_seconds=self.unit)
        group = self.name("group")
        claims = []
        for queue in (long, short):
            self.push(queue, *range(3))
            self.advance(self.tick)
            claims.append(self.take(queue, 3, group=group))
        self.ack(claims[1], only=[1])
        wanted = s.LaneFilter(group=group, leased=True, order="expiry")
        found = self.target.lanes(wanted)
        assert [lane.queue for lane in found] == [short, long]
        first, second = found
        assert first == s.LaneStats(
            queue=short,
            partition=m.DEFAULT_PARTITION,
            partition_id=claims[1].messages[0].partition_id,
            group=group,
            passed_count=1,
            lag=2,
            in_flight_count=2,
            lease_count=3,
            lease_expires_us=claims[1].expires_us,
            oldest_waiting_us=claims[1].messages[0].created_us,
            taken_us=first.taken_us,
        )
        assert first.taken_us is not None
        assert second.taken_us is not None
        assert first.taken_us > second.taken_us >= claims[0].messages[0].created_us
        self.advance(self.unit)
        assert list(self.target.lanes(wanted)) == [second]

    @needs("stats", "extend")
    def test_h21_an_extended_lease_is_held_since_it_was_taken(self) -> None:
        """Its end moves, its beginning does not. PLD-10, C-20."""
        queue = self.queue(lease_seconds=2 * self.unit)
        self.push(queue, 1)
        claim = self.take(queue)
        (before,) = self.target.lanes(s.LaneFilter(queue=queue, leased=True))
        self.advance(self.tick)
        expires_us = self.target.extend(str(claim.lease_id), 60 * self.unit)
        (after,) = self.target.lanes(s.LaneFilter(queue=queue, leased=True))
        assert (after.lease_expires_us, after.taken_us) == (expires_us, before.taken_us)

    @needs("stats")
    def test_h21_lanes_are_listed_by_lag_and_by_age(self) -> None:
        """The hottest and the slowest partitions, page by page. QB-5, PL-9, INV-COUNTERS."""
        queue = self.name()
        self.pop(queue)
        for partition, count in (("old", 1), ("most", 3), ("new", 2)):
            self.push(queue, *range(count), partition=partition)
            self.advance(self.tick)

        def listed(order: s.LaneOrder, **wanted: int) -> list[str]:
            given = {"queue": queue, "order": order, **wanted}
            page = self.target.lanes(msgspec.convert(given, s.LaneFilter))
            return [lane.partition for lane in page]

        assert listed("lag") == ["most", "new", "old", "Default"]
        assert listed("age") == ["old", "most", "new", "Default"]
        assert listed("name") == ["Default", "most", "new", "old"]
        assert listed("lag", limit=2, offset=1) == ["new", "old"]
        slowest = self.target.lanes(s.LaneFilter(queue=queue, order="age"))
        since_us = slowest[1].oldest_waiting_us
        assert since_us is not None
        assert listed("age", waiting_since_us=since_us) == ["old", "most"]
        assert listed("name", waiting_since_us=since_us - 1) == ["old"]

    @needs("stats")
    def test_h21_an_autoack_pop_is_seen_as_taking(self) -> None:
        """Though it holds no lease. C-19, INV-COUNTERS."""
        queue = self.name()
        self.push(queue, 1, 2)
        self.take(queue, auto_ack=True)
        (lane,) = self.target.lanes(s.LaneFilter(queue=queue, partition=m.DEFAULT_PARTITION))
        assert (lane.passed_count, lane.lag, lane.lease_expires_us) == (1, 1, None)
        assert lane.taken_us is not None

    # -------------------------------------------------------------------- counters

    @needs("counters")
    def test_h22_counts_add_up_by_minute_and_queue(self) -> None:
        """Sums, and of delays the largest; a queue need not exist. INV-COUNTERS, PL-9."""
        one, two, start = self.name(), self.name(), self.era()
        self.target.add_counts(
            [
                counted(start + 1, one, pushed=2, delay_milliseconds=5, max_delay_milliseconds=5),
                counted(start + 59_999_999, one, pushed=1, failed=1),
                counted(start, two, pushed=7),
                counted(start + s.MINUTE, one, pushed=40),
            ]
        )
        self.target.add_counts(
            [counted(start, one, pushed=10, delay_milliseconds=3, max_delay_milliseconds=3)]
        )
        wanted = s.CountFilter(
            from_us=start, to_us=start + s.MINUTE, queues=[one, two], by_queue=True
        )
        first = s.Counts(pushed=13, failed=1, delay_milliseconds=8, max_delay_milliseconds=5)
        assert list(self.target.counts(wanted)) == sorted(
            [
                s.QueueCounts(start_us=start, queue=one, counts=first),
                counted(start, two, pushed=7),
                counted(start + s.MINUTE, one, pushed=40),
            ],
            key=lambda row: (row.start_us, row.queue),
        )

    @needs("counters")
    def test_h22_counts_are_read_in_buckets_of_a_span(self) -> None:
        """Both ends belong to the span; queues are named, or all meant. INV-COUNTERS, PL-9."""
        queue, start = self.name(), self.era()
        start -= start % (5 * s.MINUTE)
        self.target.add_counts(
            [counted(start + n * s.MINUTE, queue, popped=1, completed=n) for n in range(11)]
        )

        def read(to: int, bucket_minutes: int, queues: list[str] | None) -> list[tuple[int, int]]:
            wanted = s.CountFilter(
                from_us=start + s.MINUTE,
                to_us=start + to * s.MINUTE,
                bucket_minutes=bucket_minutes,
                queues=queues,
            )
            rows = self.target.counts(wanted)
            assert {row.queue for row in rows} <= {""}
            return [((row.start_us - start) // s.MINUTE, row.counts.popped) for row in rows]

        assert read(10, 5, [queue]) == [(0, 4), (5, 5), (10, 1)]
        assert read(9, 5, [queue]) == [(0, 4), (5, 5)]
        assert read(2, 1, [queue]) == [(1, 1), (2, 1)]
        assert read(10, 5, [self.name()]) == []
        assert read(10, 5, []) == []
        assert sum(count for _, count in read(10, 1, None)) >= 10

    @needs("counters")
    def test_h22_old_counts_are_forgotten(self) -> None:
        """Whole minutes, of all queues, up to an instant. INV-COUNTERS, PL-9."""
        queue, start = self.name(), self.era()
        self.target.add_counts([counted(start + n * s.MINUTE, queue, pushed=1) for n in range(3)])
        self.target.forget_counts(start + s.MINUTE)
        wanted = s.CountFilter(from_us=start, to_us=start + s.MINUTE * 2, queues=[queue])
        assert [row.start_us for row in self.target.counts(wanted)] == [
            start + s.MINUTE,
            start + 2 * s.MINUTE,
        ]
        assert self.target.forget_counts(start + s.MINUTE) == 0

    def era(self) -> int:
        """Return an instant of the distant past in whose hour nobody else has counted anything."""
        return secrets.randbelow(100_000) * 60 * s.MINUTE


def counted(start_us: int, queue: str, **counts: int) -> s.QueueCounts:
    """Return counts of a queue."""
    return s.QueueCounts(start_us=start_us, queue=queue, counts=s.Counts(**counts))
