"""The nearest nodes for the next member of a rejected gang, as text for the PodGroup's status.

They are computed while the feasible members are still assumed. Calling every plugin for every node costs more than the
attempt, so the text is cached while the failure stays the same, for up to half a minute, and takes at most about a
tenth of the scheduler's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.gang_constraints import Where
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.explain.findings import Lack, NodeLacks
from scheduler_core.explain.nearest_nodes import near_misses
from scheduler_core.explain.pod_dry_run import Examiner, GangContext
from scheduler_core.framework.extension_points import Shortage
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.model.pod_group import GroupTopology
from scheduler_core.placement.engine import Observer
from scheduler_core.placement.requests import Placement, PlacementRequest
from scheduler_core.ports import Clock
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.snapshot.node_columns import NodeColumns

_MAX_NODES = 3
_OLDEST_SECONDS = 30.0
_TIMES_APART = 10.0
_BINARY = ("Ki", "Mi", "Gi", "Ti")
_CPU, _MILLI, _KIBI = "cpu", 1000, 1024


def labels_of(nodes: NodeColumns, topology: GroupTopology | None, where: Where) -> dict[str, str]:
    """Return the labels of a domain; none for all nodes."""
    rows = where.rows
    if topology is None or rows is None or not len(rows):
        return {}
    node = nodes.nodes[int(rows[0])]
    labels = {} if node is None else node.metadata.labels
    level = where.name.partition("=")[0]
    return {key: labels[key] for key in dict.fromkeys((topology.key, level)) if key in labels}


@dataclass(slots=True)
class NearestNodesOfGangs(Observer):
    """Describes the nearest nodes of rejected gangs."""

    nodes: NodeColumns
    examiner: Examiner
    clock: Clock
    _not_before: float = field(default=0.0, init=False)

    def failed(
        self, request: PlacementRequest, found: Placement, order: Sequence[QueuedPod], tries: Sequence[Placement]
    ) -> None:
        """Describe the nearest nodes of a placement that reaches more members than those before it."""
        del order
        if found.failed and not found.is_error and all(found.reached > each.reached for each in tries):
            found.nearest = self.describe(request.gang, found)

    def describe(self, gang: Gang, found: Placement) -> str:
        """Describe the nearest nodes for the next member of a failed placement.

        Returns:
            A sentence without a full stop; "" if there is none, or if it must not be computed now.
        """
        attempt, failure = found.failed[0]
        key, now = f"{found.where.name}/{found.reached}/{failure.message}", self.clock.now()
        if gang.nearest is not None and gang.nearest[0] == key:
            is_fresh = now < gang.nearest[2] + _OLDEST_SECONDS
            if is_fresh or now < self._not_before:
                return gang.nearest[1]
        if now < self._not_before:
            return ""
        text = self._compute(gang, found, attempt)
        took = self.clock.now() - now
        self._not_before = now + took * (1 + _TIMES_APART)
        gang.nearest = (key, text, now)
        return text

    def _compute(self, gang: Gang, found: Placement, attempt: Attempt) -> str:
        topology = None if gang.group is None else gang.group.topology
        gang_context = GangContext(frozenset(gang.pods), labels_of(self.nodes, topology, found.where))
        try:
            again = self.examiner.examine_member(attempt.instance, attempt.queued, gang_context)
            if again.feasible or again.error:
                return ""
            misses = near_misses(self.nodes, attempt.instance, again, _MAX_NODES)
        except SchedulerCoreError:
            return ""
        return _sentence(misses)


def _sentence(misses: tuple[NodeLacks, ...]) -> str:
    if not misses:
        return ""
    first, nodes = misses[0], ", ".join(f"{miss.node} ({_lacks(miss)})" for miss in misses)
    shortages = [each for lack in first.lacks for each in lack.amounts]
    if all(lack.amounts for lack in first.lacks):
        more = " and ".join(_amount(each, each.needed - each.free) for each in shortages)
        return f"Nearest: {nodes}; it would fit on {first.node} with {more} more"
    return f"Nearest: {nodes}; it would fit on {first.node} but for that"


def _lacks(miss: NodeLacks) -> str:
    return "; ".join(map(_lack, miss.lacks))


def _lack(lack: Lack) -> str:
    if not lack.amounts:
        return ", ".join(lack.reasons) or lack.plugin
    return ", ".join(
        f"needs {_amount(each, each.needed)}, has {_quantity(each.resource, max(0, each.free))}"
        for each in lack.amounts
    )


def _amount(shortage: Shortage, value: int) -> str:
    return f"{_quantity(shortage.resource, value)} {shortage.resource}"


def _quantity(resource: str, value: int) -> str:
    if resource == _CPU:
        return str(value // _MILLI) if value % _MILLI == 0 else f"{value}m"
    suffix = ""
    for each in _BINARY:
        if value == 0 or value % _KIBI:
            break
        value, suffix = value // _KIBI, each
    return f"{value}{suffix}"
