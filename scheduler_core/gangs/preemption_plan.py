"""Preemption of gangs: what is requested, what is planned, and the steps in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler_core.cycle.gang_constraints import Where
from scheduler_core.framework.gang_preemptor import GangPreemptor
from scheduler_core.framework.group_view import DisruptionUnits
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.pod_info import PodInfo

Harm = tuple[int, int, int, int]
"""Sort key, lowest is best: budget violations, highest priority, sum of shifted priorities, number of victims."""
_ABOVE_ANY_PRIORITY = 2**31


def harm_of(victims: Sequence[PodInfo], violations: int) -> Harm:
    """Return the harm of victims of which some violate a PodDisruptionBudget."""
    priorities = [info.priority for info in victims]
    highest = max(priorities, default=-_ABOVE_ANY_PRIORITY)
    total = sum(priority + _ABOVE_ANY_PRIORITY for priority in priorities)
    return violations, highest, total, len(priorities)


@dataclass(frozen=True, slots=True)
class GangRequest:
    """A gang that preempts.

    Attributes:
        instance: The profile's revision that decides.
        preemptor: Its plugin that preempts for gangs.
        priority: Priority of the gang; only pods of lower priority are victims.
        needed: How many members must be feasible; of a tree the least number with which its quorum can be met.
        units: Disruption units: pods that are evicted together.
        protected: UIDs of pods that are never victims, such as the gang's own.
        terminating: Pods of lower priority that are already being deleted.
    """

    instance: FrameworkInstance
    preemptor: GangPreemptor
    priority: int
    needed: int
    units: DisruptionUnits
    protected: frozenset[str]
    terminating: tuple[PodInfo, ...]


@dataclass(frozen=True, slots=True)
class GangPlan:
    """Plan of a gang's preemption.

    Attributes:
        where: The domain of its members.
        nodes: The node of each member of the quorum, by UID, in the order in which they were tried.
        victims: Pods to evict, most important first; none if terminating pods free enough room.
        awaited: Terminating pods on the members' nodes.
        pdb_violations: How many victims violate a PodDisruptionBudget.
        rejected_by: Plugins that reject members because of the victims; their events requeue the gang.
    """

    where: Where
    nodes: dict[str, str]
    victims: tuple[PodInfo, ...]
    awaited: tuple[PodInfo, ...]
    pdb_violations: int = 0
    rejected_by: frozenset[str] = frozenset()

    @property
    def victim_nodes(self) -> tuple[str, ...]:
        """Nodes of the victims, sorted."""
        return tuple(sorted({info.node_name for info in self.victims}))

    @property
    def harm(self) -> Harm:
        """Harm of the victims."""
        return harm_of(self.victims, self.pdb_violations)
