"""The values in which a store tells how it is doing: queues, groups, lanes, counts by the minute.

Of queues, groups and lanes everything is told from positions, as it is now; what happened is
told from counts that the serving processes kept. They follow the rules of `queen_sync.model`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from queen_sync.clock import SECOND
from queen_sync.errors import InvalidRequest
from queen_sync.inspection import PartitionState, check_page
from queen_sync.model import Subscription, Value, check_name

MINUTE = 60 * SECOND
LaneOrder = Literal["name", "lag", "age", "expiry"]
LANE_ORDERS: tuple[LaneOrder, ...] = ("name", "lag", "age", "expiry")


class QueueStats(Value, frozen=True):
    """A queue as it stands, over all of its partitions and groups.

    The counts are those of `PartitionState` and `PartitionGroup`, added up. A message counts as
    in flight once, whoever holds it: in each partition as many are as the group holds that holds
    the most, though no more than wait there. ``leased_count`` counts partitions under a live lease.
    """

    queue: str
    partition_count: int = 0
    leased_count: int = 0
    pushed_count: int = 0
    stored_count: int = 0
    waiting_count: int = 0
    in_flight_count: int = 0
    retrying_count: int = 0
    dead_count: int = 0

    @property
    def pending_count(self) -> int:
        """How many messages wait and are in nobody's hands."""
        return self.waiting_count - self.in_flight_count

    @property
    def completed_count(self) -> int:
        """How many messages no group waits for any more, dead letters aside."""
        return max(0, self.pushed_count - self.waiting_count - self.dead_count)


def of_partition(state: PartitionState) -> QueueStats:
    """Return how one partition stands, as if it were all of its queue."""
    lanes = state.groups
    most = max((lane.in_flight_count for lane in lanes), default=0)
    return QueueStats(
        queue=state.queue,
        partition_count=1,
        leased_count=int(any(lane.lease_expires_us is not None for lane in lanes)),
        pushed_count=state.pushed_count,
        stored_count=state.stored_count,
        waiting_count=state.waiting_count,
        in_flight_count=min(state.waiting_count, most),
        retrying_count=sum(lane.retrying_count for lane in lanes),
        dead_count=sum(lane.dead_count for lane in lanes),
    )


class GroupStats(Value, frozen=True):
    """A group of one queue as it stands, over all partitions.

    ``lagging_count`` counts partitions in which it has something to settle, ``leased_count`` those
    that it holds now; ``lease_count`` is how many messages its live leases delivered. ``taken_us``
    is when it last took messages; None: never.
    """

    queue: str
    group: str
    subscription: Subscription
    created_us: int
    partition_count: int = 0
    lagging_count: int = 0
    leased_count: int = 0
    lease_count: int = 0
    lag: int = 0
    in_flight_count: int = 0
    retrying_count: int = 0
    dead_count: int = 0
    oldest_waiting_us: int | None = None
    taken_us: int | None = None


class LaneStats(Value, frozen=True):
    """Where a group stands in one partition.

    ``passed_count`` counts all messages ever pushed here that do not wait for the group in the
    log: settled, skipped or removed; the rest as in `PartitionGroup`. ``taken_us`` is when the
    group last took messages here, which is since when it holds a live lease.
    """

    queue: str
    partition: str
    partition_id: str
    group: str
    passed_count: int = 0
    lag: int = 0
    in_flight_count: int = 0
    lease_count: int = 0
    lease_expires_us: int | None = None
    oldest_waiting_us: int | None = None
    taken_us: int | None = None


class LaneFilter(Value, frozen=True):
    """Which lanes to list, and in which order: a page of them.

    ``leased``: only those under a live lease. ``waiting_since_us``: only those whose oldest waiting
    message was created at that instant or before. By ``name`` they come in the order of queue,
    partition and group; by ``lag`` the furthest behind first, by ``age`` the one whose oldest
    message has waited longest, by ``expiry`` the lease that ends first; then by name.
    """

    queue: str | None = None
    group: str | None = None
    partition: str | None = None
    leased: bool = False
    waiting_since_us: int | None = None
    order: LaneOrder = "name"
    limit: int = 100
    offset: int = 0

    def __post_init__(self) -> None:
        if self.order not in LANE_ORDERS:
            raise InvalidRequest(f"order must be one of {', '.join(LANE_ORDERS)}", "order")
        check_page(self.limit, self.offset)


class Counts(Value, frozen=True):
    """What happened with messages in some time.

    ``ack_requests`` counts acks in batches as one; ``failed`` outcomes come again and
    ``dead_lettered`` ones do not; ``refused`` acks changed nothing. Of the pops that found
    something, ``delay_milliseconds`` adds up how old the oldest message was that each of them took,
    and ``max_delay_milliseconds`` is the most of these.
    """

    push_requests: int = 0
    pushed: int = 0
    duplicates: int = 0
    pop_requests: int = 0
    pops_empty: int = 0
    popped: int = 0
    ack_requests: int = 0
    completed: int = 0
    failed: int = 0
    given_back: int = 0
    dead_lettered: int = 0
    refused: int = 0
    transactions: int = 0
    delay_milliseconds: int = 0
    max_delay_milliseconds: int = 0


COUNT_NAMES: tuple[str, ...] = Counts.__struct_fields__
"""The names of all counts; all are added up but the last, of which the most counts."""
LARGEST = "max_delay_milliseconds"


class QueueCounts(Value, frozen=True):
    """What happened in one queue from an instant on, for the length of a bucket.

    ``queue`` is empty where it is about all queues together.
    """

    start_us: int
    counts: Counts
    queue: str = ""


class CountFilter(Value, frozen=True):
    """Which counts to read: of the minutes that begin in a span, added up in buckets.

    Both ends belong to the span. A bucket begins at a whole multiple of its length since 1970.
    ``by_queue``: one row for each bucket and queue, else one for each bucket.
    """

    from_us: int
    to_us: int
    bucket_minutes: int = 1
    queues: Sequence[str] | None = None
    by_queue: bool = False

    def __post_init__(self) -> None:
        if self.bucket_minutes < 1:
            raise InvalidRequest("a bucket is at least a minute long", "interval")
        if self.from_us > self.to_us:
            raise InvalidRequest("from must not be after to", "from")
        for queue in self.queues or ():
            check_name(queue, "queue")

    def bucket_of(self, minute_us: int) -> int:
        """Return the start of the bucket in which a minute lies."""
        return minute_us - minute_us % (self.bucket_minutes * MINUTE)


def minute_of(instant_us: int) -> int:
    """Return the start of the minute in which an instant lies."""
    return instant_us - instant_us % MINUTE


def total(counts: Sequence[Counts]) -> Counts:
    """Add counts up; of the largest delays the largest counts."""
    rows = [msgspec.structs.astuple(each) for each in counts]
    if not rows:
        return Counts()
    added = {
        name: max(column) if name == LARGEST else sum(column)
        for name, column in zip(COUNT_NAMES, zip(*rows, strict=True), strict=True)
    }
    return Counts(**added)
