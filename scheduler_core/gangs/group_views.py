"""Gangs as plugins may see them; see :mod:`scheduler_core.framework.group_view`.

A view joins three parts: the gangs (which members exist), the cache (their nodes) and the queue (which wait). Members
are identified by UID, so a pod recreated under the same name is another member.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler_core.framework.group_view import GroupView
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, PodGroup
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.pod_info import PodInfo


class GangView:
    """View of one gang."""

    __slots__ = ("_cache", "_gang", "_queue")

    def __init__(self, gang: Gang, cache: ClusterCache, queue: SchedulingQueue) -> None:
        self._gang = gang
        self._cache = cache
        self._queue = queue

    @property
    def key(self) -> GroupKey:
        return self._gang.key

    @property
    def group(self) -> PodGroup | None:
        return self._gang.group

    @property
    def since(self) -> float:
        """Time at which the gang was first seen, in the clock's seconds."""
        return self._gang.since

    @property
    def known(self) -> int:
        """Number of existing members, ended ones included."""
        return len(self._gang.pods)

    @property
    def succeeded(self) -> int:
        """Number of members that have succeeded in the present run, including those whose pods are gone."""
        return self._gang.succeeded

    def members(self) -> Sequence[Pod]:
        """Return the members that have not ended and are not being deleted."""
        return [pod for pod in self._gang.pods.values() if _counts(pod)]

    def assigned(self) -> Sequence[PodInfo]:
        """Return those of :meth:`members` that have a node, bound or assumed."""
        pods, cache = self._gang.pods, self._cache
        found = []
        for uid in self._gang.placed:
            pod, placed = pods.get(uid), cache.get(uid)
            if pod is not None and placed is not None and _counts(pod):
                found.append(placed.info)
        return found

    def waiting(self) -> Sequence[PodInfo]:
        """Return those of :meth:`members` that are in the queue or in flight without a node."""
        queue, placed = self._queue, self._gang.placed
        found = []
        for uid, pod in self._gang.pods.items():
            queued = queue.find(uid) if uid not in placed and _counts(pod) else None
            if queued is not None:
                found.append(queued.info)
        return found


class _JoinedView:
    """View of all gangs below a CompositePodGroup."""

    __slots__ = ("_of", "_views")

    def __init__(self, of: CompositePodGroup, views: Sequence[GangView]) -> None:
        self._of = of
        self._views = views

    @property
    def key(self) -> GroupKey:
        return self._of.key

    @property
    def group(self) -> PodGroup:
        """Its priority, policies and topology."""
        return self._of.as_unit

    @property
    def since(self) -> float:
        """Time at which the first of the gangs was first seen, in the clock's seconds."""
        return min((view.since for view in self._views), default=0.0)

    @property
    def known(self) -> int:
        """Number of existing members, ended ones included."""
        return sum(view.known for view in self._views)

    @property
    def succeeded(self) -> int:
        """Number of members that have succeeded."""
        return sum(view.succeeded for view in self._views)

    def members(self) -> Sequence[Pod]:
        """Return the members of all gangs that have not ended and are not being deleted."""
        return [pod for view in self._views for pod in view.members()]

    def assigned(self) -> Sequence[PodInfo]:
        """Return those of :meth:`members` that have a node, bound or assumed."""
        return [info for view in self._views for info in view.assigned()]

    def waiting(self) -> Sequence[PodInfo]:
        """Return those of :meth:`members` that are in the queue or in flight without a node."""
        return [info for view in self._views for info in view.waiting()]


class GangViews:
    """Views of all gangs."""

    def __init__(self, cache: ClusterCache, queue: SchedulingQueue) -> None:
        self._cache = cache
        self._queue = queue

    def group_of(self, pod: Pod) -> GangView | None:
        """Return the group of a pod; None for none, or if its API is ignored."""
        gangs = self._queue.gangs
        gang = gangs.of_uid(pod.metadata.uid)
        if gang is not None:
            return self._view(gang)
        key = gangs.key_of(pod)
        return None if key is None else self.get(key)

    def _view(self, gang: Gang) -> GangView:
        return GangView(gang, self._cache, self._queue)

    def get(self, key: GroupKey) -> GangView | None:
        """Return the group of a key; None if neither it nor any member exists."""
        gang = self._queue.gangs.get(key)
        return None if gang is None else self._view(gang)

    def disrupted_whole(self) -> Sequence[GroupView]:
        """Return the groups with scheduled members that are preempted as a whole, without groups below others."""
        gangs = self._queue.gangs
        found: list[GroupView] = []
        joined: dict[GroupKey, CompositePodGroup] = {}
        highest_above = gangs.forest.highest_disrupted_whole()
        for gang in gangs:
            if not gang.placed or gang.group is None:
                continue
            highest = highest_above(gang)
            if highest is not None:
                joined[highest.key] = highest
            elif gang.group.disrupts_whole:
                found.append(self._view(gang))
        for key, composite in joined.items():
            found.append(_JoinedView(composite, [self._view(gang) for gang in gangs.forest.leaves_below(key)]))
        return found

    def ranked(self) -> Sequence[GangView]:
        """Return the groups with scheduled members that have a priority of their own."""
        gangs = self._queue.gangs
        return [
            self._view(gang)
            for gang in gangs
            if gang.placed and gang.group is not None and gang.group.priority is not None
        ]


def _counts(pod: Pod) -> bool:
    """Return whether a member has not ended and is not being deleted."""
    return pod.metadata.deletion_timestamp is None and not pod.is_terminal
