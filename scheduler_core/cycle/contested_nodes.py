"""Contested nodes: nodes that a bind of another client, a *rival*, has overcommitted.

Two schedulers that share nodes decide on caches that lag behind each other's binds, so either may exceed what a node
offers. A node whose allocatable amounts were reduced is overcommitted and not contested. Pods prefer other feasible
nodes until no rival has bound a pod to the node for a while. Until then, every second bind that fills a node is *held*
for a moment, so that a rival that has decided on the same room is seen, and the pod gives it up.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from scheduler_core.ports import Clock
from scheduler_core.runtime.profile_table import ProfileTable
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

CONTESTED_SECONDS = 600.0
"""Duration for which a node is reported as contested after the last bind that overcommitted it."""
HELD_SECONDS = 0.2
"""Duration for which a bind is held: longer than a rival takes from its decision until its bind is received here."""
MAX_NODES = 1000
"""Maximum number of contested nodes; the one that was overcommitted longest ago is dropped."""
OTHER_RIVALS = "other"
"""Name that stands for all rivals beyond the first :data:`MAX_RIVALS`."""
MAX_RIVALS = 20
_MAX_RIVALS_OF_NODE = 8
_MAX_PODS_OF_NODE = 5
_POD_SLOTS = -1
"""Number that stands for the pod slots of a node, beside the columns of resources."""

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class ContestedNode:
    """A node that rivals have overcommitted.

    Attributes:
        since, last: Times of the first and the last bind that overcommitted it, UTC.
        until: Time of the clock until which it is reported.
        count: Number of pods that rivals bound while, or so that, the node was overcommitted.
        rivals: ``spec.schedulerName`` of these pods, the last one at the end; a name that this process serves stands
            for another client that binds pods of that name.
        pods: The last of these pods as ``namespace/name``.
        profiles: Profiles of this process with pods on the node at these times.
    """

    name: str
    since: datetime
    last: datetime
    until: float
    count: int = 0
    rivals: list[str] = field(default_factory=list)
    pods: deque[str] = field(default_factory=lambda: deque(maxlen=_MAX_PODS_OF_NODE))
    profiles: set[str] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class HeldBind:
    """A bind that is held.

    Attributes:
        info: The assumed pod.
        is_lost: Whether a rival has taken its room.
    """

    info: PodInfo
    is_lost: bool = False


class ContestedNodes:
    """Nodes that rivals have overcommitted.

    Args:
        avoided_seconds: Duration for which pods prefer other nodes after the last bind of a rival, and for which binds
            are held; 0 for no effect on decisions.

    Attributes:
        is_scheduling: Whether this process schedules, so that binds are received as they are made.
        avoided: Nodes that pods avoid, with the time of the clock at which that ends; empty in most clusters. A timer
            removes them, so that decisions and dry runs read no clock.
        counts: Number of pods by rival that overcommitted nodes, since the process started.
    """

    def __init__(self, columns: NodeColumns, clock: Clock, avoided_seconds: float = 0.0) -> None:
        self.is_scheduling = False
        self.avoided: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self._columns = columns
        self._clock = clock
        self._avoided_seconds = avoided_seconds
        self._is_timed = False
        self._by_name: dict[str, ContestedNode] = {}
        self._held: list[HeldBind] = []
        self._is_held_next = True
        self._avoided_rows: NDArray[np.intp] | None = None
        """Rows of the avoided nodes; None if they are to be determined. A node keeps its row until it is removed."""

    def rival_bound(self, info: PodInfo, profiles: ProfileTable) -> None:
        """Handle a pod that another client bound, and that is counted on its node now."""
        if not self.is_scheduling or info.row == NO_ROW:
            # A first list does not show which pod came last.
            return
        name = info.node_name
        if not self._exceeds_without_held(info):
            if name in self.avoided:
                # The rival still binds pods there, though this one fits.
                self.avoided[name] = self._clock.now() + self._avoided_seconds
            return
        now, wall = self._clock.now(), self._clock.wall()
        rival = self._rival(info.pod.spec.scheduler_name)
        node = self._by_name.pop(name, None)
        if node is None or node.until <= now:
            node = ContestedNode(name, wall, wall, 0.0)
            text = "node %s is contested: pod %s, which scheduler %s bound, exceeds its allocatable amounts"
            log.warning(text, name, info.key, rival, extra={"node": name, "pod": info.key})
        node.last, node.until = wall, now + CONTESTED_SECONDS
        node.count += 1
        if rival in node.rivals:
            node.rivals.remove(rival)
        node.rivals = [*node.rivals, rival][-_MAX_RIVALS_OF_NODE:]
        node.pods.append(info.key)
        node.profiles.update(
            each.pod.spec.scheduler_name
            for each in self._columns.pods[info.row].values()
            if each is not info and each.pod.spec.scheduler_name in profiles
        )
        # At the end: the order is that of the last binds, and the first one is dropped.
        self._by_name[name] = node
        if len(self._by_name) > MAX_NODES:
            dropped = next(iter(self._by_name))
            del self._by_name[dropped]
            self._stop_avoiding(dropped)
        self.counts[rival] = self.counts.get(rival, 0) + 1
        if self._avoided_seconds > 0:
            self.avoided[name] = now + self._avoided_seconds
            self._avoided_rows = None
            if not self._is_timed:
                self._is_timed = True
                self._clock.call_later(self._avoided_seconds, self._end_avoidance)

    @contextmanager
    def held_bind(self, info: PodInfo) -> Iterator[HeldBind | None]:
        """Yield the bind of an assumed pod if it is to be held during the block; call it only if ``avoided`` has any.

        The next one is not held: a rival that binds at once would get all room otherwise.
        """
        is_held = False
        if info.row != NO_ROW and _fills(self._columns, info):
            is_held, self._is_held_next = self._is_held_next, not self._is_held_next
        if not is_held:
            yield None
            return
        held = HeldBind(info)
        self._held.append(held)
        try:
            yield held
        finally:
            self._held.remove(held)

    def _exceeds_without_held(self, info: PodInfo) -> bool:
        """Give up held binds to the node of a rival's pod until it fits; return whether it exceeds the node even so."""
        there = [each for each in self._held if each.info.row == info.row]
        for held in there:
            exceeded = _exceeded(self._columns, info, [each.info for each in there if each.is_lost])
            if not exceeded:
                return False
            # A pod that requests nothing of what is exceeded keeps its room, which the rival's pod does not need.
            held.is_lost |= any(amount > 0 and column in exceeded for column, amount in _amounts(held.info))
        return bool(_exceeded(self._columns, info, [each.info for each in there if each.is_lost]))

    def node_removed(self, name: str) -> None:
        self._by_name.pop(name, None)
        self._stop_avoiding(name)

    def _stop_avoiding(self, name: str) -> None:
        self.avoided.pop(name, None)
        self._avoided_rows = None

    def current(self) -> list[ContestedNode]:
        """Return the nodes that are contested now, the last overcommitted first."""
        now = self._clock.now()
        return [node for node in reversed(self._by_name.values()) if node.until > now]

    def by_rival(self) -> dict[str, int]:
        """Return the number of nodes that are contested now by rival, 0 for a rival of the past."""
        found = dict.fromkeys(self.counts, 0)
        for node in self.current():
            for rival in node.rivals:
                found[rival] = found.get(rival, 0) + 1
        return found

    def others(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Return bool per given row: whether pods do not avoid it; call it only if ``avoided`` has any."""
        if self._avoided_rows is None:
            self._avoided_rows = np.array([self._columns.row_of(name) for name in self.avoided], dtype=np.intp)
        return ~np.isin(rows, self._avoided_rows)

    def _end_avoidance(self) -> None:
        now = self._clock.now()
        for name in [name for name, until in self.avoided.items() if until <= now]:
            self._stop_avoiding(name)
        self._is_timed = bool(self.avoided)
        if self.avoided:
            self._clock.call_later(min(self.avoided.values()) - now, self._end_avoidance)

    def _rival(self, scheduler_name: str) -> str:
        """Return the name by which a rival is counted: users choose scheduler names, so their number is bounded."""
        is_known = scheduler_name in self.counts or len(self.counts) < MAX_RIVALS
        return scheduler_name if is_known else OTHER_RIVALS


def is_overcommitted(columns: NodeColumns, name: str) -> bool:
    """Return whether the pods of a node request more than it offers; False if there is no such node."""
    row = columns.row_of(name)
    if row == NO_ROW:
        return False
    requested = columns.requested[:, row]
    over = (requested > 0) & (requested > columns.allocatable[:, row])
    return bool(over.any() or columns.pod_count[row] > columns.allowed_pods[row])


def _amounts(info: PodInfo) -> tuple[tuple[int, int], ...]:
    return (_POD_SLOTS, 1), *info.accounted


def _free(columns: NodeColumns, row: int, column: int) -> int:
    """Return what a node offers of a resource and pods do not request; negative if they request more."""
    if column == _POD_SLOTS:
        return columns.allowed_pods.item(row) - columns.pod_count.item(row)
    return columns.allocatable.item(column, row) - columns.requested.item(column, row)


def _exceeded(columns: NodeColumns, info: PodInfo, released: Iterable[PodInfo] = ()) -> set[int]:
    """Return the columns of which the node of a pod offers less than requested, of those that the pod requests.

    Args:
        released: Pods of the node that do not count.
    """
    freed = Counter[int]()
    for each in released:
        freed.update(dict(_amounts(each)))
    return {
        column
        for column, amount in _amounts(info)
        if amount > 0 and _free(columns, info.row, column) + freed[column] < 0
    }


def _fills(columns: NodeColumns, info: PodInfo) -> bool:
    """Return whether the node of a pod has no room for another one with the same requests."""
    return any(amount > 0 and _free(columns, info.row, column) < amount for column, amount in _amounts(info))
