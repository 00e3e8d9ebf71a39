"""Gangs as plugins may see them; see :mod:`scheduler_core.framework.group_view`.

A view joins three parts: the gangs (which members exist), the cache (their nodes) and the queue (which wait). Members
are identified by UID, so a pod recreated under the same name is another member.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler_core.framework.group_view import GroupView
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, PodGroup
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.pod_info import PodInfo


@dataclass(frozen=True, slots=True, eq=False)
class GangView:
    """View of a gang, or of all gangs below a CompositePodGroup."""

    of: Gang | CompositePodGroup
    gangs: Sequence[Gang]
    cache: ClusterCache
    queue: SchedulingQueue

    @property
    def key(self) -> GroupKey:
        return self.of.key

    @property
    def group(self) -> PodGroup | None:
        """The PodGroup, or what a CompositePodGroup has of one: priority, policies and topology."""
        return self.of.group if isinstance(self.of, Gang) else self.of.as_unit

    @property
    def since(self) -> float:
        """Time at which the first of the gangs was first seen, in the clock's seconds."""
        return min((gang.since for gang in self.gangs), default=0.0)

    @property
    def known(self) -> int:
        """Number of existing members, ended ones included."""
        return sum(len(gang.pods) for gang in self.gangs)

    @property
    def succeeded(self) -> int:
        """Number of members that have succeeded in the present run, including those whose pods are gone."""
        return sum(gang.succeeded for gang in self.gangs)

    def members(self) -> Sequence[Pod]:
        """Return the members that have not ended and are not being deleted."""
        return [pod for gang in self.gangs for pod in gang.pods.values() if _counts(pod)]

    def assigned(self) -> Sequence[PodInfo]:
        """Return those of :meth:`members` that have a node, bound or assumed."""
        found = []
        for gang in self.gangs:
            for uid in gang.placed:
                pod, placed = gang.pods.get(uid), self.cache.get(uid)
                if pod is not None and placed is not None and _counts(pod):
                    found.append(placed.info)
        return found

    def waiting(self) -> Sequence[PodInfo]:
        """Return those of :meth:`members` that are in the queue or in flight without a node."""
        found = []
        for gang in self.gangs:
            for uid, pod in gang.pods.items():
                queued = self.queue.find(uid) if uid not in gang.placed and _counts(pod) else None
                if queued is not None:
                    found.append(queued.info)
        return found


@dataclass(frozen=True, slots=True)
class GangViews:
    """Views of all gangs."""

    cache: ClusterCache
    queue: SchedulingQueue

    def group_of(self, pod: Pod) -> GangView | None:
        """Return the group of a pod; None for none, or if its API is ignored."""
        gangs = self.queue.gangs
        gang = gangs.of_uid(pod.metadata.uid)
        if gang is not None:
            return self._view(gang)
        key = gangs.key_of(pod)
        return None if key is None else self.get(key)

    def _view(self, gang: Gang) -> GangView:
        return GangView(gang, (gang,), self.cache, self.queue)

    def get(self, key: GroupKey) -> GangView | None:
        """Return the group of a key; None if neither it nor any member exists."""
        gang = self.queue.gangs.get(key)
        return None if gang is None else self._view(gang)

    def disrupted_whole(self) -> Sequence[GroupView]:
        """Return the groups with scheduled members that are preempted as a whole, without groups below others."""
        gangs = self.queue.gangs
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
            found.append(GangView(composite, gangs.forest.leaves_below(key), self.cache, self.queue))
        return found

    def ranked(self) -> Sequence[GangView]:
        """Return the groups with scheduled members that have a priority of their own."""
        gangs = self.queue.gangs
        return [
            self._view(gang)
            for gang in gangs
            if gang.placed and gang.group is not None and gang.group.priority is not None
        ]


def _counts(pod: Pod) -> bool:
    """Return whether a member has not ended and is not being deleted."""
    return pod.metadata.deletion_timestamp is None and not pod.is_terminal
