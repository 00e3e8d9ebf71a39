"""State of groups between the attempts of their members.

The state belongs to the plugin instance, so another profile or the next revision starts without it. Records of deleted
groups are removed.

A group that backs off::

    free --back_off--> backed off --timer, or scheduled--> free
"""

from __future__ import annotations

from collections.abc import Callable

from scheduler_core.framework.handle import Handle
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.ports import Timer
from scheduler_core.snapshot.pod_info import PodInfo

Order = tuple[int, float, str]
"""Sort key of groups: priority, descending; when they were first seen; their names."""

_FIRST_SWEEP = 256
_FIRST_SECONDS, _LONGEST_SECONDS, _MOST_DOUBLINGS = 1.0, 10.0, 16


class Record:
    """State of one group.

    Attributes:
        failed_at: When it was last rejected as a whole, in the clock's seconds; None if not since it was scheduled.
        order: Its sort key at that time; lower goes first.
        backed_off_until: Until when none of its members is tried, in the clock's seconds.
        has_room_until: Until when the check of its ``minResources`` need not be repeated.
        held: Members that PreEnqueue gates, by UID.
        backoffs: Number of backoffs since it was scheduled; each is longer than the one before.
        timer: Ends the backoff.
    """

    __slots__ = ("backed_off_until", "backoffs", "failed_at", "has_room_until", "held", "order", "timer")

    def __init__(self) -> None:
        self.failed_at: float | None = None
        self.order: Order = (0, 0.0, "")
        self.backed_off_until = 0.0
        self.has_room_until = 0.0
        self.held: dict[str, PodInfo] = {}
        self.backoffs = 0
        self.timer: Timer | None = None


class Records:
    """State of all groups."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._records: dict[GroupKey, Record] = {}
        self._sweep_at = _FIRST_SWEEP

    def __len__(self) -> int:
        return len(self._records)

    def find(self, key: GroupKey) -> Record | None:
        """Return the record of a group; None if there is none."""
        return self._records.get(key)

    def of(self, key: GroupKey) -> Record:
        """Return the record of a group; create it if there is none."""
        record = self._records.get(key)
        if record is None:
            if len(self._records) >= self._sweep_at:
                self._sweep()
            record = self._records[key] = Record()
        return record

    def is_backed_off(self, key: GroupKey) -> bool:
        """Return whether a group is backing off."""
        record = self._records.get(key)
        return record is not None and record.backed_off_until > self._handle.clock.now()

    def failed(self, key: GroupKey, order: Order) -> None:
        """Record that a group was rejected as a whole; it moves back in the queue and needs a new resource check."""
        record = self.of(key)
        record.failed_at = self._handle.clock.now()
        record.order = order
        record.has_room_until = 0.0

    def has_failed_before(self, order: Order, seconds: float) -> bool:
        """Return whether a group with a sort key before ``order`` was rejected within the last ``seconds``."""
        since = self._handle.clock.now() - seconds
        return any(
            record.failed_at is not None and record.failed_at >= since and record.order < order
            for record in self._records.values()
        )

    def back_off(self, key: GroupKey, seconds: float, then: Callable[[GroupKey], None]) -> None:
        """Back off a group; a backoff that is under way is not extended.

        Args:
            seconds: The minimum duration. The actual one starts at 1 second and doubles each time up to 10 seconds.
                Without it, members that take turns on released resources would be tried forever, because the queue pops
                backing-off pods early while it has nothing else to try.
            then: Called with the group when the backoff is over.
        """
        if self.is_backed_off(key):
            return
        record = self.of(key)
        seconds = max(seconds, min(_FIRST_SECONDS * 2.0 ** min(record.backoffs, _MOST_DOUBLINGS), _LONGEST_SECONDS))
        record.backoffs += 1
        record.backed_off_until = self._handle.clock.now() + seconds
        record.timer = self._handle.clock.call_later(seconds, lambda: then(key))

    def placed(self, key: GroupKey) -> None:
        """Remove the record of a group whose members were scheduled together."""
        record = self._records.pop(key, None)
        if record is not None and record.timer is not None:
            record.timer.cancel()

    def close(self) -> None:
        """Remove all records and cancel the timers."""
        for key in list(self._records):
            self.placed(key)

    def _sweep(self) -> None:
        for key in [key for key in self._records if self._handle.groups.get(key) is None]:
            self.placed(key)
        self._sweep_at = max(_FIRST_SWEEP, 2 * len(self._records))
