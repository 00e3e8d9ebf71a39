"""What the plugin remembers of groups between the attempts of their members.

Owns the memory and its end: a group that is gone is forgotten. Must not know why a group failed. Why here and not with
the groups: another profile, or the next revision of this one, starts afresh.

A group that backs off::

    free --back_off--> backed off --time, or it was placed--> free
"""

from __future__ import annotations

from collections.abc import Callable

from scheduler_core.framework.handle import Handle
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.ports import Timer
from scheduler_core.snapshot.pod_info import PodInfo

Order = tuple[int, float, str]
"""What groups are ordered by: priority, descending; when they were first seen; their names."""

_FIRST_SWEEP = 256
_FIRST_SECONDS, _LONGEST_SECONDS, _MOST_DOUBLINGS = 1.0, 10.0, 16


class Record:
    """Of one group.

    Attributes:
        failed_at: When it was last turned away whole, in the clock's seconds; None if it was not since it was placed.
        order: Where it then stood among groups; lower goes first.
        backed_off_until: Until when none of its members is tried, in the clock's seconds.
        has_room_until: Until when it need not be asked again whether the cluster has its ``minResources`` free.
        held: Members that PreEnqueue holds back, by UID.
        backoffs: How often it has backed off since it was placed; each time for longer.
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
    """Of all groups."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._records: dict[GroupKey, Record] = {}
        self._sweep_at = _FIRST_SWEEP

    def __len__(self) -> int:
        return len(self._records)

    def find(self, key: GroupKey) -> Record | None:
        """The record of a group; None if nothing is remembered of it."""
        return self._records.get(key)

    def of(self, key: GroupKey) -> Record:
        """The record of a group, a new one if nothing is remembered of it."""
        record = self._records.get(key)
        if record is None:
            if len(self._records) >= self._sweep_at:
                self._sweep()
            record = self._records[key] = Record()
        return record

    def is_backed_off(self, key: GroupKey) -> bool:
        """Whether no member of a group is to be tried yet."""
        record = self._records.get(key)
        return record is not None and record.backed_off_until > self._handle.clock.now()

    def failed(self, key: GroupKey, order: Order) -> None:
        """A group was turned away whole: it stands behind those that wait, and its resources are to be looked at."""
        record = self.of(key)
        record.failed_at = self._handle.clock.now()
        record.order = order
        record.has_room_until = 0.0

    def has_failed_before(self, order: Order, seconds: float) -> bool:
        """Whether a group that goes before those of ``order`` was turned away within the last ``seconds``."""
        since = self._handle.clock.now() - seconds
        return any(
            record.failed_at is not None and record.failed_at >= since and record.order < order
            for record in self._records.values()
        )

    def back_off(self, key: GroupKey, seconds: float, then: Callable[[GroupKey], None]) -> None:
        """Let no member of a group be tried for a while; a backoff under way is not made longer.

        Args:
            key: The group.
            seconds: How long at the least. It is a second the first time and twice as long each time, up to 10: what
                one member's release lets another take would else be tried for ever, since the queue does not let a
                pod sit out its backoff while it has nothing else to try.
            then: What is called when it is over, with the group.
        """
        if self.is_backed_off(key):
            return
        record = self.of(key)
        seconds = max(seconds, min(_FIRST_SECONDS * 2.0 ** min(record.backoffs, _MOST_DOUBLINGS), _LONGEST_SECONDS))
        record.backoffs += 1
        record.backed_off_until = self._handle.clock.now() + seconds
        record.timer = self._handle.clock.call_later(seconds, lambda: then(key))

    def placed(self, key: GroupKey) -> None:
        """A group has its members together: nothing is held against it any more."""
        record = self._records.pop(key, None)
        if record is not None and record.timer is not None:
            record.timer.cancel()

    def close(self) -> None:
        """Forget all, and stop the timers."""
        for key in list(self._records):
            self.placed(key)

    def _sweep(self) -> None:
        for key in [key for key in self._records if self._handle.groups.get(key) is None]:
            self.placed(key)
        self._sweep_at = max(_FIRST_SWEEP, 2 * len(self._records))
