"""PodGroups of the simulated cluster, and their delivery to each operator process.

PodGroups do not pass through an informer, because kopf watches custom resources in the operator. Each process receives
the changes of an object late and in order, and the first list of each API completes before or after the first cycle.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from bayplan.gangs.bayplan_group_source import AcceptedGroups, BayplanGroups
from bayplan.gangs.group_translation import from_bayplan
from bayplan.resources.pod_group import PodGroup as PodGroupObject

from scheduler_core.feeds.pod_group_feed import GroupFeed
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, GroupSource, PodGroup
from scheduler_core.ports import Clock
from scheduler_core.scheduler import Scheduler
from tests.simulation.virtual_loop import LoopClock, VirtualLoop

_MAXIMUM_LIST_SECONDS = 1.5
_MAXIMUM_EVENT_SECONDS = 0.6
_LATE_LIST_SECONDS = 8.0
_SOURCES = (GroupSource.BAYPLAN, GroupSource.NATIVE)
_TICK_SECONDS = 1e-6
_RETRY_SECONDS = 0.2
_RELIST_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class OwnedBody:
    """Object of a PodGroup that the operator manages for an owner."""

    key: GroupKey
    body: dict[str, Any]
    is_deleted: bool = False


Group = PodGroup | CompositePodGroup | OwnedBody


class PodGroups:
    """The objects.

    Attributes:
        objects: PodGroups by key.
        composites: CompositePodGroups by key.
        bodies: Objects of the PodGroups of owners by key.
        are_owned: Whether the PodGroups of Bayplan's API are those of owners.
        listeners: Called with each changed group; with None for a deletion.
        version: Returns the API server's version.
    """

    def __init__(self, log: Callable[[str], None], version: Callable[[], str] = lambda: "0") -> None:
        self.version = version
        self.objects: dict[GroupKey, PodGroup] = {}
        self.composites: dict[GroupKey, CompositePodGroup] = {}
        self.bodies: dict[GroupKey, dict[str, Any]] = {}
        self.are_owned = False
        self.listeners: list[Callable[[GroupKey, Group | None], None]] = []
        self._log = log
        self._numbers = itertools.count(1)

    def new_uid(self, key: GroupKey) -> str:
        """Return a UID for a new object."""
        return f"{key.namespace}-{key.name}-{next(self._numbers)}"

    def put(self, group: PodGroup | CompositePodGroup) -> None:
        """Create or replace a group."""
        if isinstance(group, PodGroup):
            quorum = group.min_member
            self.objects[group.key] = group
        else:
            quorum = group.min_groups
            self.composites[group.key] = group
        self._log(f"{group.key.source.kind} {group.key} requires {quorum} ({group.uid}, generation {group.generation})")
        self._notify(group.key, group)

    def remove(self, key: GroupKey) -> None:
        """Delete a group, if it exists."""
        deleted = self.objects.pop(key, None) or self.composites.pop(key, None)
        if deleted is not None:
            self._log(f"{key.source.kind} {key} is deleted")
            self._notify(key, None)

    def put_body(self, changed: OwnedBody) -> None:
        """Create, replace or delete a PodGroup of an owner."""
        key, body = changed.key, changed.body
        if changed.is_deleted:
            del self.bodies[key], self.objects[key]
            self._log(f"PodGroup {key} ({body['metadata']['uid']}) is deleted")
        else:
            self.bodies[key] = body
            self.objects[key] = from_bayplan(PodGroupObject.from_object(body), None)
            self._log(f"PodGroup {key} ({body['metadata']['uid']}) requires {body['spec']['minMember']}")
        self._notify(key, changed)

    def _notify(self, key: GroupKey, group: Group | None) -> None:
        for listener in list(self.listeners):
            listener(key, group)


class GroupWatch:
    """Watches of one operator process.

    Args:
        loop: Event loop with virtual time.
        clock: Clock of the process; a killed process receives nothing.
        feed: Receives the changes.
        seed: Seed of the delays.

    Attributes:
        owned: PodGroups of owners, as received.
    """

    def __init__(self, loop: VirtualLoop, clock: LoopClock, groups: PodGroups, feed: GroupFeed, seed: str) -> None:
        self._loop = loop
        self._clock = clock
        self._groups = groups
        self._feed = feed
        self._accepted = AcceptedGroups(feed)
        self.owned = BayplanGroups(feed)
        self._rng = random.Random(f"{seed}/group watch")
        # Separate generators, so that runs without trees do not change.
        self._tree_rng = random.Random(f"{seed}/tree watch")
        self._relist_rng = random.Random(f"{seed}/group relists")
        self._due: dict[GroupKey, float] = {}
        self._unhandled: dict[GroupKey | GroupSource, Callable[[], None]] = {}

    def start(self) -> None:
        """List, and watch from then on."""
        for group in self._groups.objects.values():
            if group.key not in self._groups.bodies:
                self._deliver_later(group.key, group, _MAXIMUM_LIST_SECONDS)
        for composite in self._groups.composites.values():
            self._deliver_later(composite.key, composite, _MAXIMUM_LIST_SECONDS)
        for source in (*_SOURCES, GroupSource.COMPOSITE):
            self._list(source)
        self._groups.listeners.append(self._changed)

    def _list(self, source: GroupSource) -> None:
        """Complete the list of a source after all of its objects are delivered; some lists fail at first."""
        dues = [due for key, due in self._due.items() if key.source is source]
        seconds = max([*dues, self._loop.virtual_now]) - self._loop.virtual_now + _TICK_SECONDS
        rng = self._rng_of(source)
        are_owned = source is GroupSource.BAYPLAN and self._groups.are_owned
        if rng.random() < 0.3:
            why = "the list is forbidden"
            withhold = partial(self.owned.unlisted, why) if are_owned else partial(self._feed.withhold, source, why)
            self._clock.call_later(seconds, lambda: self._handle(source, withhold))
            seconds += _LATE_LIST_SECONDS * rng.random()
        serve = self._list_owned if are_owned else partial(self._feed.serve, source)
        self._clock.call_later(seconds + _TICK_SECONDS, lambda: self._handle(source, serve))

    def _list_owned(self) -> None:
        """List the PodGroups of owners, and again later, as the operator does."""
        self._clock.call_later(_RELIST_SECONDS, lambda: self._handle(GroupSource.BAYPLAN, self._list_owned))
        bodies = list(self._groups.bodies.values())
        self.owned.listed(PodGroupObject, bodies, self._groups.version())

    def _rng_of(self, source: GroupSource) -> random.Random:
        return self._tree_rng if source is GroupSource.COMPOSITE else self._rng

    def _changed(self, key: GroupKey, group: Group | None) -> None:
        self._deliver_later(key, group, _MAXIMUM_EVENT_SECONDS)

    def _deliver_later(self, key: GroupKey, group: Group | None, maximum: float) -> None:
        """Deliver a change later, but never before an earlier change of the same object."""
        now = self._loop.virtual_now
        # Timers with equal times fire in any order.
        due = self._due[key] = max(
            self._due.get(key, 0.0) + _TICK_SECONDS, now + maximum * self._rng_of(key.source).random()
        )
        self._clock.call_later(due - now, lambda: self._notify(key, group))

    def _notify(self, key: GroupKey, group: Group | None) -> None:
        there = self._groups.objects.keys() | self._groups.composites.keys()
        if group is None and key in there and self._relist_rng.random() < 0.5:
            # A relist delivers the new object and not the deletion of the old one.
            return
        if isinstance(group, OwnedBody):
            handle = self.owned.gone if group.is_deleted else self.owned.seen
            self._handle(key, partial(handle, PodGroupObject, group.body))
        else:
            self._handle(key, lambda: self._accepted.delete(key) if group is None else self._accepted.update(group))

    def _handle(self, changed: GroupKey | GroupSource, handle: Callable[[], None]) -> None:
        """Handle a change, again after an exception unless a newer one replaces it, as the sources of PodGroups do."""
        self._unhandled[changed] = handle
        self._try(changed, handle)

    def _try(self, changed: GroupKey | GroupSource, handle: Callable[[], None]) -> None:
        if self._unhandled.get(changed) is not handle:
            return
        try:
            handle()
        except Exception:  # noqa: BLE001 - any exception
            self._clock.call_later(_RETRY_SECONDS, lambda: self._try(changed, handle))
        else:
            del self._unhandled[changed]


class ReceivedGroups(GroupFeed):
    """The scheduler's feed of groups, which records the groups that it has received.

    Attributes:
        groups: PodGroups by key.
        composites: CompositePodGroups by key.
        listed: Sources whose first list is complete.
        received_at: Time at which each PodGroup was first delivered: seconds of the clock, and UTC.
        unhandled: Groups and sources whose last change raised; it is delivered again.
    """

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        context = scheduler.context
        super().__init__(context.queue, context.suspension, scheduler.cycles.freed)
        self._run_or_defer = context.suspension.run_or_defer
        self.groups: dict[GroupKey, PodGroup] = {}
        self.composites: dict[GroupKey, CompositePodGroup] = {}
        self.listed: set[GroupSource] = set()
        self.received_at: dict[GroupKey, tuple[float, datetime]] = {}
        self.unhandled: set[GroupKey | GroupSource] = set()
        self._clock = clock

    def serve(self, source: GroupSource) -> None:
        """Complete the first list of a source."""
        self._run_or_defer(self.listed.add, source)
        super().serve(source)

    def group_changed(self, group: PodGroup | CompositePodGroup) -> None:
        """Receive a new or changed group."""
        if isinstance(group, PodGroup):
            self._run_or_defer(self._store, group)
        else:
            self._run_or_defer(self.composites.__setitem__, group.key, group)
        super().group_changed(group)

    def group_deleted(self, key: GroupKey) -> None:
        """Receive the deletion of a group."""
        # Afterwards: a change that raises is delivered again, and counts until then.
        super().group_deleted(key)
        self._run_or_defer(self._remove, key)

    def _group_changed(self, group: PodGroup) -> None:
        self.unhandled.add(group.key)
        super()._group_changed(group)
        self.unhandled.discard(group.key)

    def _composite_changed(self, composite: CompositePodGroup) -> None:
        self.unhandled.add(composite.key)
        super()._composite_changed(composite)
        self.unhandled.discard(composite.key)

    def _group_deleted(self, key: GroupKey) -> None:
        self.unhandled.add(key)
        super()._group_deleted(key)
        self.unhandled.discard(key)

    def _serve(self, source: GroupSource) -> None:
        self.unhandled.add(source)
        super()._serve(source)
        self.unhandled.discard(source)

    def _withhold(self, source: GroupSource, reason: str) -> None:
        self.unhandled.add(source)
        super()._withhold(source, reason)
        self.unhandled.discard(source)

    def _store(self, group: PodGroup) -> None:
        known = self.groups.get(group.key)
        if known is None or known.uid != group.uid:
            self.received_at[group.key] = self._clock.now(), self._clock.wall()
        self.groups[group.key] = group

    def _remove(self, key: GroupKey) -> None:
        self.groups.pop(key, None)
        self.composites.pop(key, None)


# -- quorums of trees, computed from the received objects and not from the core's trees --------------------------------


@dataclass(frozen=True, slots=True)
class TreeState:
    """Groups of a namespace at the time of a decision.

    Attributes:
        groups: PodGroups by key.
        composites: CompositePodGroups by key.
    """

    groups: Mapping[GroupKey, PodGroup]
    composites: Mapping[GroupKey, CompositePodGroup]

    def problem(self, key: GroupKey, counted: Mapping[GroupKey, int]) -> str:
        """Return why a member of a gang must not be scheduled; "" if it may.

        Args:
            counted: Number of members of each gang that have a node or have succeeded.
        """
        group = self.groups.get(key)
        parent = None if group is None else group.parent_key
        while parent is not None:
            composite = self.composites.get(parent)
            if composite is None:
                return f"{parent} has not been received"
            met = sum(self._is_met(child, counted) for child in self._children(parent))
            if met < composite.min_groups:
                return f"{met} of {composite.min_groups} groups of {parent} have their quorum"
            parent = composite.parent_key
        return ""

    def can_be_met(self, root: GroupKey, counted: Mapping[GroupKey, int]) -> bool:
        """Return whether a root has the groups that its quorum needs, with the given members of each gang."""
        composite = self.composites.get(root)
        return composite is not None and self._is_met(composite, counted)

    def _children(self, parent: GroupKey) -> Iterator[PodGroup | CompositePodGroup]:
        yield from (group for group in self.groups.values() if group.parent_key == parent)
        yield from (each for each in self.composites.values() if each.parent_key == parent)

    def _is_met(self, group: PodGroup | CompositePodGroup, counted: Mapping[GroupKey, int]) -> bool:
        if isinstance(group, PodGroup):
            return counted.get(group.key, 0) >= group.min_member
        return sum(self._is_met(child, counted) for child in self._children(group.key)) >= group.min_groups
