"""PodGroups of the simulated cluster, and their delivery to each life of the operator.

The objects do not pass through an informer, because in the operator kopf watches custom resources, and the first cycle
does not wait for the lists of APIs that not every cluster serves. Each life receives the changes of an object with a
delay, in their order, and each API's first list is complete at some moment before or after the first cycle.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from datetime import datetime

from bayplan.gangs.accepted_groups import AcceptedGroups

from scheduler_core.feeds.pod_group_feed import GroupFeed
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, GroupSource, PodGroup
from scheduler_core.ports import Clock
from scheduler_core.scheduler import Scheduler
from tests.simulation.virtual_loop import LoopClock, VirtualLoop

_LONGEST_LIST_SECONDS = 1.5
_LONGEST_NEWS_SECONDS = 0.6
_LATE_LIST_SECONDS = 8.0
_SOURCES = (GroupSource.BAYPLAN, GroupSource.NATIVE)
_TICK_SECONDS = 1e-6

Group = PodGroup | CompositePodGroup


class PodGroups:
    """The objects.

    Attributes:
        objects: PodGroups by key.
        composites: CompositePodGroups by key.
        listeners: Called with each change; None stands for a deletion.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.objects: dict[GroupKey, PodGroup] = {}
        self.composites: dict[GroupKey, CompositePodGroup] = {}
        self.listeners: list[Callable[[GroupKey, Group | None], None]] = []
        self._say = say
        self._numbers = itertools.count(1)

    def new_uid(self, key: GroupKey) -> str:
        """Return the UID of a new object."""
        return f"{key.namespace}-{key.name}-{next(self._numbers)}"

    def put(self, group: Group) -> None:
        """Create or replace a group."""
        if isinstance(group, PodGroup):
            least = group.min_member
            self.objects[group.key] = group
        else:
            least = group.min_groups
            self.composites[group.key] = group
        self._say(f"{group.key.source.kind} {group.key} asks for {least} ({group.uid}, generation {group.generation})")
        self._notify(group.key, group)

    def remove(self, key: GroupKey) -> None:
        """Delete a group, if there is one."""
        gone = self.objects.pop(key, None) or self.composites.pop(key, None)
        if gone is not None:
            self._say(f"{key.source.kind} {key} is deleted")
            self._notify(key, None)

    def _notify(self, key: GroupKey, group: Group | None) -> None:
        for listener in list(self.listeners):
            listener(key, group)


class GroupWatch:
    """The watch of one life.

    Args:
        loop: Event loop with virtual time.
        clock: Clock of the life; a dead life receives nothing.
        groups: The objects.
        taker: Receives the changes.
        seed: Seed of delays.
    """

    def __init__(self, loop: VirtualLoop, clock: LoopClock, groups: PodGroups, taker: GroupFeed, seed: str) -> None:
        self._loop = loop
        self._clock = clock
        self._groups = groups
        self._taker = taker
        self._accepted = AcceptedGroups(taker)
        self._rng = random.Random(f"{seed}/group watch")
        # Of their own, so that runs without trees stay the same.
        self._of_trees = random.Random(f"{seed}/tree watch")
        self._relists = random.Random(f"{seed}/group relists")
        self._due: dict[GroupKey, float] = {}

    def start(self) -> None:
        """List, and watch from there."""
        for group in self._groups.objects.values():
            self._plan(group.key, group, _LONGEST_LIST_SECONDS)
        for composite in self._groups.composites.values():
            self._plan(composite.key, composite, _LONGEST_LIST_SECONDS)
        for source in (*_SOURCES, GroupSource.COMPOSITE):
            self._list(source)
        self._groups.listeners.append(self._changed)

    def _list(self, source: GroupSource) -> None:
        """Complete the list of a source once all of its objects are delivered; some lists fail at first."""
        dues = [due for key, due in self._due.items() if key.source is source]
        seconds = max([*dues, self._loop.virtual_now]) - self._loop.virtual_now + _TICK_SECONDS
        rng = self._rng_of(source)
        if rng.random() < 0.3:
            self._clock.call_later(seconds, lambda: self._taker.withhold(source, "it is refused"))
            seconds += _LATE_LIST_SECONDS * rng.random()
        self._clock.call_later(seconds + _TICK_SECONDS, lambda: self._taker.serve(source))

    def _rng_of(self, source: GroupSource) -> random.Random:
        return self._of_trees if source is GroupSource.COMPOSITE else self._rng

    def _changed(self, key: GroupKey, group: Group | None) -> None:
        self._plan(key, group, _LONGEST_NEWS_SECONDS)

    def _plan(self, key: GroupKey, group: Group | None, longest: float) -> None:
        """Deliver a change later, never before an earlier one of the same object."""
        now = self._loop.virtual_now
        # Timers of the same moment fire in any order.
        due = self._due[key] = max(
            self._due.get(key, 0.0) + _TICK_SECONDS, now + longest * self._rng_of(key.source).random()
        )
        self._clock.call_later(due - now, lambda: self._notify(key, group))

    def _notify(self, key: GroupKey, group: Group | None) -> None:
        there = self._groups.objects.keys() | self._groups.composites.keys()
        if group is None and key in there and self._relists.random() < 0.5:
            # A relist delivers the object that was created since, and not the deletion.
            return
        if group is None:
            self._accepted.delete(key)
        else:
            self._accepted.update(group)


class ReceivedGroups(GroupFeed):
    """The scheduler's feed of groups, which records what it has received.

    Attributes:
        groups: PodGroups by key.
        composites: CompositePodGroups by key.
        listed: Sources whose first list is complete.
        begun: When each of them was first delivered: the clock's seconds, and UTC.
    """

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        context = scheduler.context
        super().__init__(context.queue, context.suspension, scheduler.cycles.room)
        self._note = context.suspension.report
        self.groups: dict[GroupKey, PodGroup] = {}
        self.composites: dict[GroupKey, CompositePodGroup] = {}
        self.listed: set[GroupSource] = set()
        self.begun: dict[GroupKey, tuple[float, datetime]] = {}
        self._clock = clock

    def serve(self, source: GroupSource) -> None:
        """Complete the first list of a source."""
        self._note(self.listed.add, source)
        super().serve(source)

    def group_changed(self, group: PodGroup | CompositePodGroup) -> None:
        """Receive a new or changed group."""
        if isinstance(group, PodGroup):
            self._note(self._remember, group)
        else:
            self._note(self.composites.__setitem__, group.key, group)
        super().group_changed(group)

    def group_deleted(self, key: GroupKey) -> None:
        """Receive the deletion of a group."""
        self._note(self._forget, key)
        super().group_deleted(key)

    def _remember(self, group: PodGroup) -> None:
        known = self.groups.get(group.key)
        if known is None or known.uid != group.uid:
            self.begun[group.key] = self._clock.now(), self._clock.wall()
        self.groups[group.key] = group

    def _forget(self, key: GroupKey) -> None:
        self.groups.pop(key, None)
        self.composites.pop(key, None)
