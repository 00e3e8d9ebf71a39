"""Pod groups as plugins see them, and the units in which a preemption disrupts them.

A view is live: each call returns the current state. Members are methods, not sets, because a group may have a thousand
members and few callers need them.

A disruption unit ranks as high as the highest of its pods and its group, because a preemption must not evict a pod that
the preemptor may not preempt, even on another node. A member that is evicted alone ranks by its group's priority where
that is higher: a gang preempts by the group's priority, and two gangs whose pods rank lower than their groups would
otherwise evict each other forever.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/preemption/types.go`` (``victim``), which ranks a group by its
own priority alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup
from scheduler_core.snapshot.indexes.selector_index import DisruptionBudgets
from scheduler_core.snapshot.pod_info import PodInfo


class GroupView(Protocol):
    """One group: the content of its PodGroup, and its members in any state."""

    @property
    def key(self) -> GroupKey:
        """The key of the group."""

    @property
    def group(self) -> PodGroup | None:
        """The PodGroup object; None while there is none."""

    @property
    def since(self) -> float:
        """When the first member or the PodGroup was first seen, in the clock's seconds."""

    @property
    def known(self) -> int:
        """Number of members that exist, including finished and terminating ones."""

    @property
    def succeeded(self) -> int:
        """Number of members that have succeeded in the present run, including those whose pods are gone."""

    def members(self) -> Sequence[Pod]:
        """Return the members that exist, have not finished and are not being deleted."""

    def assigned(self) -> Sequence[PodInfo]:
        """Return the members that are assumed or bound, including those whose wait at Permit was just rejected."""

    def waiting(self) -> Sequence[PodInfo]:
        """Return the members without a node that are in the queue or in flight."""


class GroupViews(Protocol):
    """All pod groups."""

    def group_of(self, pod: Pod) -> GroupView | None:
        """Return the group of a pod; None for none, or if the API that the pod names is ignored."""

    def get(self, key: GroupKey) -> GroupView | None:
        """Return the group of this key; None if neither a PodGroup nor a member exists."""

    def disrupted_whole(self) -> Sequence[GroupView]:
        """Return the groups with scheduled members that are preempted all together or not at all."""

    def ranked(self) -> Sequence[GroupView]:
        """Return the groups with scheduled members that have a priority of their own."""


Importance = tuple[int, int, int, datetime]

_SINGLE, _OF_GROUP, _OF_COMPOSITE = 1, 2, 3


class DisruptionUnit(Struct, frozen=True):
    """Pods that are evicted together or not at all.

    Attributes:
        priority: The highest priority of the pods and their group.
        rank: Rank among units of equal priority: 3 for a whole CompositePodGroup, 2 for another whole group and for a
            pod of a native one, 1 for other pods.
    """

    pods: tuple[PodInfo, ...]
    priority: int
    rank: int = _SINGLE

    def importance(self, now: datetime) -> Importance:
        """Return the sort key, most important first: higher priority, higher rank, more pods, older pods."""
        started = min(info.pod.status.start_time or now for info in self.pods)
        return -self.priority, -self.rank, -len(self.pods), started


class DisruptionUnits:
    """All disruption units at one moment."""

    def __init__(self, groups: GroupViews) -> None:
        self._by_uid: dict[str, DisruptionUnit] = {}
        for view in groups.disrupted_whole():
            pods = tuple(sorted(view.assigned(), key=lambda info: info.uid))
            if not pods:
                continue
            own = [view.group.priority] if view.group is not None and view.group.priority is not None else []
            rank = _OF_COMPOSITE if view.key.source is GroupSource.COMPOSITE else _OF_GROUP
            unit = DisruptionUnit(pods, max([*own, *(info.priority for info in pods)]), rank)
            self._by_uid.update((info.uid, unit) for info in pods)
        self._raised: dict[str, int] = {}
        for view in groups.ranked():
            own_priority = None if view.group is None else view.group.priority
            if own_priority is not None:
                lower = (info.uid for info in view.assigned() if info.priority < own_priority)
                self._raised.update(dict.fromkeys(lower, own_priority))

    def __len__(self) -> int:
        """Return the number of pods that belong to a group that is disrupted as a whole."""
        return len(self._by_uid)

    def of(self, info: PodInfo) -> DisruptionUnit:
        rank = _SINGLE if info.pod.spec.scheduling_group is None else _OF_GROUP
        return self._by_uid.get(info.uid) or DisruptionUnit((info,), self._raised.get(info.uid, info.priority), rank)

    def protected_from(self, priority: int) -> frozenset[str]:
        """Return the UIDs of pods that a preemptor of this priority may not preempt, even if they rank lower."""
        of_units = {uid for uid, unit in self._by_uid.items() if unit.priority >= priority}
        return frozenset(of_units.union(uid for uid, raised in self._raised.items() if raised >= priority))

    def whole(self, pods: Iterable[PodInfo]) -> tuple[PodInfo, ...]:
        """Return pods with all pods of their units: in the given order, each pod followed by the rest of its unit."""
        if not self._by_uid:
            return tuple(pods)
        found: dict[str, PodInfo] = {}
        for info in pods:
            found[info.uid] = info
            unit = self._by_uid.get(info.uid)
            if unit is not None:
                found.update((other.uid, other) for other in unit.pods)
        return tuple(found.values())


def split_by_budgets(
    pods: Iterable[PodInfo], budgets: DisruptionBudgets, leaving: Iterable[PodInfo] = ()
) -> tuple[list[PodInfo], list[PodInfo]]:
    """Split pods by whether evicting them, in this order, violates a PodDisruptionBudget.

    Args:
        leaving: Pods that are evicted before them.

    Returns:
        The pods that violate a budget, and the others, both in the given order.
    """
    violating: list[PodInfo] = []
    others: list[PodInfo] = []
    left: dict[tuple[str, str], int] = {}
    for info in leaving:
        _take(info, budgets, left)
    for info in pods:
        (violating if _take(info, budgets, left) else others).append(info)
    return violating, others


def _take(info: PodInfo, budgets: DisruptionBudgets, left: dict[tuple[str, str], int]) -> bool:
    namespace = info.pod.metadata.namespace
    for budget in budgets.protecting(info):
        key = (namespace, budget.name)
        left[key] = left.get(key, budget.disruptions_allowed) - 1
        if left[key] < 0:
            # As there since v1.37: the budgets after the first one that is violated keep what they allow.
            return True
    return False
