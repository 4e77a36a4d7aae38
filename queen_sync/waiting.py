"""Who waits for what, and who is woken.

A pop that waits registers first, then tries, then sleeps on its own bell: no connection is
held and nothing is polled. Waiters that ask for the same (queue, or namespace and task; group;
partition or any) form a lane. A hint for a queue wakes one waiter of each of its lanes, and of
each lane of a namespace or task, since the hint does not say which of them the queue is in;
whoever is woken and gets something wakes the next, and so does whoever leaves without having
used its wake. So a thousand waiters do not stampede, and none is forgotten (O-17).

Pops that repeat one another (C-13) are given the same claim, wherever they stand in their
lane: when one gets it, the others are woken too, and none of them ends empty without a last
look, since the claim may have been given to one that waits in another process.

One attendant thread per process, running only while somebody waits, does what hints cannot:
it wakes a lane at the instant at which time alone makes something available, has the backend
asked every two seconds, of all lanes in one question, whether there is something after all,
in case a hint was lost (O-42), and lets go of waiters whose client has hung up (O-15), so that
the dead do not use up the limit.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from queen_sync import model as m
from queen_sync.backends.base import Hint
from queen_sync.bell import Bell
from queen_sync.errors import Overloaded

PROBE_SECONDS = 2.0
REAP_SECONDS = 1.0
MIN_DUE_SECONDS = 0.005
MAX_HASTE_SECONDS = 0.2
"""Between these lies the pause after a try that found nothing although something is due now:
somebody else is busy with it. It doubles each time."""

Abandoned = Callable[[], bool]
_log = logging.getLogger(__name__)


class Key(NamedTuple):
    """What the waiters of a lane have in common; no queue where they name a scope."""

    queue: str
    namespace: str | None
    task: str | None
    group: str
    partition: str | None

    def request(self) -> m.PopRequest:
        """Return a pop that stands for all of the lane."""
        return m.PopRequest(**self._asdict())


class Attempt(NamedTuple):
    """What pops that repeat one another have in common: the scope of an id, and the id."""

    queue: str
    namespace: str | None
    task: str | None
    group: str
    attempt_id: str


class _Waiter:
    """One waiting pop. ``woken``: it owes the lane a try, or to wake somebody else."""

    __slots__ = ("abandoned", "attempt", "bell", "gone", "lane", "woken")

    def __init__(self, lane: _Lane, attempt: Attempt | None, abandoned: Abandoned | None) -> None:
        self.lane = lane
        self.attempt = attempt
        self.abandoned = abandoned
        self.bell = Bell()
        self.woken = False
        self.gone = False


class _Lane:
    """The waiters of one key: those asleep, longest first, and those that are trying."""

    __slots__ = ("asleep", "due", "haste", "key", "trying")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.asleep: OrderedDict[_Waiter, None] = OrderedDict()
        self.trying: dict[_Waiter, None] = {}
        self.due: float | None = None
        self.haste = MIN_DUE_SECONDS

    def wake_one(self) -> None:
        """Wake the first that sleeps; while none does, tell one that is trying to try again."""
        if self.asleep:
            self.wake(next(iter(self.asleep)))
            return
        # It may have looked before the change was there to be seen.
        for waiter in self.trying:
            if not waiter.woken:
                waiter.woken = True
                return

    def wake(self, waiter: _Waiter) -> None:
        """Wake this one; if it is trying, have it try again."""
        self.asleep.pop(waiter, None)
        self.trying[waiter] = None
        waiter.woken = True
        waiter.bell.ring()


class Waiting:
    """The waiting pops of one process."""

    def __init__(
        self,
        next_ready_in: Callable[[m.PopRequest], float | None],
        ready_now: Callable[[Sequence[m.PopRequest]], Sequence[bool]] | None = None,
        *,
        limit: int,
    ) -> None:
        """Let at most ``limit`` pops wait; the functions are the backend's.

        Without ``ready_now`` every lane looks by itself instead of being asked for.
        """
        self._next_ready_in = next_ready_in
        self._ready_now = ready_now
        self._limit = limit
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._lanes: dict[Key, _Lane] = {}
        self._of_queue: dict[str, dict[_Lane, None]] = {}
        """By the name of a queue; those of a namespace or task, which any queue may be in, by
        the empty one."""
        self._of_attempt: dict[Attempt, dict[_Waiter, None]] = {}
        self._count = 0
        self._dues: list[tuple[float, int, _Lane]] = []
        self._ticket = itertools.count()
        self._attendant: threading.Thread | None = None
        self._probe: threading.Thread | None = None
        self._draining = False
        self._attending_until = 0.0
        """Until when the attendant sleeps; infinity while nobody waits."""

    @property
    def count(self) -> int:
        """How many pops are waiting."""
        return self._count

    @property
    def draining(self) -> bool:
        return self._draining

    def pop(
        self,
        request: m.PopRequest,
        seconds: float,
        attempt: Callable[[], m.Claim],
        abandoned: Abandoned | None = None,
    ) -> m.Claim:
        """Call ``attempt`` until it gives something, at most for so many seconds.

        The last empty claim is returned when the time is over, when the client is gone and
        when the process drains. Raises Overloaded where too many wait already and there is
        nothing to give at once.
        """
        deadline = time.monotonic() + seconds
        claim = m.Claim(group=request.group)
        waiter = self._join(request, abandoned)
        if waiter is None:
            if self._draining or (abandoned is not None and abandoned()):
                return claim
            claim = attempt()
            if claim:
                return claim
            raise Overloaded("too many waiting connections")
        # Whether a wake was used by the try that is under way: it is passed on unless the try
        # finds nothing, which ends the chain.
        owes = True
        try:
            while True:
                owes = self._begin(waiter)
                if waiter.gone or self._draining or (abandoned is not None and abandoned()):
                    break
                claim = attempt()
                if claim:
                    break
                if waiter.gone or time.monotonic() >= deadline:
                    owes = False
                    break
                self._await_time(waiter.lane, self._next_ready_in(request), deadline)
                if self._sleep(waiter, first=owes):
                    waiter.bell.wait(max(0.0, deadline - time.monotonic()))
                owes = False
                if waiter.woken:
                    continue
                over = time.monotonic() >= deadline
                if waiter.gone or (over and waiter.attempt is None):
                    break
        finally:
            self._leave(waiter, pass_on=owes, found=bool(claim))
        return claim

    def wake(self, hint: Hint) -> None:
        """Wake one waiter of each lane of the queues in a hint; None: of every lane."""
        with self._lock:
            if hint is None:
                for lane in self._lanes.values():
                    lane.wake_one()
                return
            for queue in ("", *hint):
                for lane in self._of_queue.get(queue, ()):
                    lane.wake_one()

    def drain(self) -> None:
        """End all waits now; whoever comes later does not wait."""
        with self._lock:
            self._draining = True
            for lane in self._lanes.values():
                for waiter in lane.asleep:
                    waiter.bell.ring()
            self._changed.notify_all()

    def close(self) -> None:
        """Drain, and end the attendant thread."""
        self.drain()
        for name in ("_attendant", "_probe"):  # the first starts the second
            thread: threading.Thread | None = getattr(self, name)
            if thread is not None and thread is not threading.current_thread():
                thread.join()

    # ------------------------------------------------------------------ the waiter's side

    def _join(self, request: m.PopRequest, abandoned: Abandoned | None) -> _Waiter | None:
        """Register a waiter as one that is trying; None where the limit is reached."""
        scope = (request.queue, request.namespace, request.task, request.group)
        key = Key(*scope, request.partition)
        attempt = None if request.attempt_id is None else Attempt(*scope, request.attempt_id)
        with self._lock:
            if self._count >= self._limit:
                return None
            lane = self._lanes.get(key)
            if lane is None:
                lane = self._lanes[key] = _Lane(key)
                self._of_queue.setdefault(key.queue, {})[lane] = None
            waiter = _Waiter(lane, attempt, abandoned)
            lane.trying[waiter] = None
            if attempt is not None:
                self._of_attempt.setdefault(attempt, {})[waiter] = None
            self._count += 1
            return waiter

    def _begin(self, waiter: _Waiter) -> bool:
        """Say that a try begins; return whether it uses a wake. A wake from now on is another."""
        with self._lock:
            waiter.lane.asleep.pop(waiter, None)
            waiter.lane.trying[waiter] = None
            used, waiter.woken = waiter.woken, False
            waiter.bell.hush()
            return used

    def _sleep(self, waiter: _Waiter, *, first: bool) -> bool:
        """Go to sleep, and return True, unless there is a reason to look again at once."""
        with self._lock:
            if waiter.woken or waiter.gone or self._draining:
                return False
            lane = waiter.lane
            del lane.trying[waiter]
            lane.asleep[waiter] = None
            if first:
                # It was woken for nothing and keeps its place.
                lane.asleep.move_to_end(waiter, last=False)
            if self._attendant is None:
                # Not before the first waiter: threads do not survive a fork.
                self._attendant = threading.Thread(
                    target=self._attend, name="queen-waiting", daemon=True
                )
                self._attendant.start()
            elif self._attending_until == math.inf:
                self._changed.notify_all()
            return True

    def _leave(self, waiter: _Waiter, *, pass_on: bool, found: bool) -> None:
        with self._lock:
            if waiter.attempt is not None:
                repeats = self._of_attempt[waiter.attempt]
                del repeats[waiter]
                if found:
                    for repeat in repeats:
                        repeat.lane.wake(repeat)
                if not repeats:
                    del self._of_attempt[waiter.attempt]
            lane = waiter.lane
            lane.asleep.pop(waiter, None)
            lane.trying.pop(waiter, None)
            self._count -= 1
            if pass_on or waiter.woken:
                lane.wake_one()
            if not lane.asleep and not lane.trying:
                del self._lanes[lane.key]
                lanes = self._of_queue[lane.key.queue]
                del lanes[lane]
                if not lanes:
                    del self._of_queue[lane.key.queue]

    def _await_time(self, lane: _Lane, seconds: float | None, deadline: float) -> None:
        """Have the lane woken in so many seconds, unless it will be woken or given up earlier."""
        if seconds is None:
            return
        with self._lock:
            if seconds <= MIN_DUE_SECONDS:
                seconds = lane.haste
                lane.haste = min(2 * lane.haste, MAX_HASTE_SECONDS)
            else:
                lane.haste = MIN_DUE_SECONDS
            due = time.monotonic() + seconds
            if due > deadline or (lane.due is not None and lane.due <= due):
                return
            lane.due = due
            heapq.heappush(self._dues, (due, next(self._ticket), lane))
            if due < self._attending_until < math.inf:
                self._changed.notify_all()

    # --------------------------------------------------------------- the attendant's side

    def _attend(self) -> None:
        now = time.monotonic()
        reap_at, probe_at = now + REAP_SECONDS, now + PROBE_SECONDS
        while True:
            with self._lock:
                if not self._sleep_until(min(reap_at, probe_at)):
                    return
                now = time.monotonic()
                self._wake_due(now)
                if now >= probe_at:
                    probe_at = now + PROBE_SECONDS
                    self._start_probe()
                to_ask = self._askable() if now >= reap_at else []
            if now >= reap_at:
                reap_at = now + REAP_SECONDS
                self._reap(to_ask)

    def _sleep_until(self, until: float) -> bool:
        """Sleep until then, until a lane is due or until somebody comes; False: it is over."""
        if self._draining:
            return False
        if self._dues:
            until = min(until, self._dues[0][0])
        self._attending_until = until if self._count else math.inf
        left = self._attending_until - time.monotonic()
        if left > 0:
            self._changed.wait(None if left == math.inf else left)
        self._attending_until = 0.0
        return not self._draining

    def _wake_due(self, now: float) -> None:
        while self._dues and self._dues[0][0] <= now:
            due, _, lane = heapq.heappop(self._dues)
            # An entry that an earlier one has replaced says nothing any more.
            if lane.due == due:
                lane.due = None
                lane.wake_one()

    def _start_probe(self) -> None:
        """Have all lanes looked for, in a thread of its own: a store may be slow to answer."""
        if self._probe is None or not self._probe.is_alive():
            self._probe = threading.Thread(
                target=self._look, args=[list(self._lanes)], name="queen-probe", daemon=True
            )
            self._probe.start()

    def _look(self, keys: list[Key]) -> None:
        ready: Sequence[bool] = [True] * len(keys)
        if self._ready_now is not None:
            try:
                ready = self._ready_now([key.request() for key in keys])
            except Exception:  # noqa: BLE001  # whatever it is, the pops meet it too and can say so
                _log.debug("the probe failed", exc_info=True)
        with self._lock:
            for key, may_find in zip(keys, ready, strict=True):
                if may_find and key in self._lanes:
                    self._lanes[key].wake_one()

    def _askable(self) -> list[_Waiter]:
        return [
            waiter
            for lane in self._lanes.values()
            for waiter in lane.asleep
            if waiter.abandoned is not None
        ]

    def _reap(self, waiters: list[_Waiter]) -> None:
        """Let those go whose client is gone; asked without the lock, since it is a system call."""
        for waiter in waiters:
            try:
                gone = waiter.abandoned is not None and waiter.abandoned()
            except Exception:  # noqa: BLE001  # one caller's mistake must not end the attendant
                _log.exception("a waiting pop cannot say whether its client is there")
                gone = False
            if gone:
                waiter.gone = True
                waiter.bell.ring()
