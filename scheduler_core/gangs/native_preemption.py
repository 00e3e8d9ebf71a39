"""Victims for groups of ``scheduling.k8s.io``, selected as kube-scheduler selects them.

::

    pods of lower priority removed ─▶ group cycle ─▶ members on their nodes ─▶ each pod that fits beside them reprieved

Members beyond the quorum count as well, and the domain is the one that scores best without the pods of lower priority.
So a group may evict more pods than are needed, and other ones than a gang of ``bayplan.dev`` would.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/preemption/podgrouppreemption.go``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler_core.framework.group_view import DisruptionUnit
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.gangs.domain_screen import DomainScreen
from scheduler_core.gangs.dry_trials import DryTrials, without_extenders
from scheduler_core.gangs.placement_search import DomainTries
from scheduler_core.gangs.placement_trial import GangTrial
from scheduler_core.gangs.preemption_dry_run import VictimSearch
from scheduler_core.gangs.preemption_plan import GangRequest
from scheduler_core.gangs.tree_search import TreeCycle
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.group_trees import GangTree
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.node_columns import NodeColumns


def preemptible_units(nodes: NodeColumns, request: GangRequest, rows: NDArray[np.intp]) -> list[DisruptionUnit]:
    """Return all units on some rows that a gang may preempt, terminating pods included."""
    pods = (info for row in rows.tolist() for info in nodes.pods[row].values())
    allowed = (info for info in pods if info.priority < request.priority and info.uid not in request.protected)
    return list({id(unit): unit for unit in map(request.units.of, allowed)}.values())


class NativePlacement:
    """Places the members of one group or tree, once all units that it may preempt are removed.

    Args:
        cache: The nodes, and the members that are scheduled.
        trials: Dry-runs the group cycle.
        units: The units.
        gang: The group or tree.
        members: Its waiting members in the order in which they are tried.

    Attributes:
        failed: The tries that placed too few members; empty for a tree.
    """

    def __init__(
        self,
        cache: ClusterCache,
        trials: DryTrials,
        units: Sequence[DisruptionUnit],
        gang: Gang,
        members: Sequence[QueuedPod],
    ) -> None:
        self._cache = cache
        self._trials = trials
        self._units = units
        self._gang = gang
        self._members = members
        self.failed: list[GangTrial] = []

    def place(self, search: VictimSearch) -> bool:
        """Remove the units, and assume the members that a group cycle then places; return whether it could."""
        search.choose(self._units)
        trial = self._placed(search.request)
        if trial is None:
            return False
        row_of = self._cache.columns.row_of
        seats = [(attempt.queued, row_of(attempt.node_name)) for attempt in trial.placed]
        search.where = trial.where
        self._trials.undo(trial)
        return all(search.assume_on(queued, row) for queued, row in seats)

    def _placed(self, request: GangRequest) -> GangTrial | None:
        """Return a try whose members are assumed; None if the quorum is infeasible."""
        instance, gang = without_extenders(request.instance), self._gang
        if isinstance(gang, GangTree):
            cycle = TreeCycle.of(gang, instance, self._members)
            return cycle.trial if self._trials.fill_tree(cycle) else None
        screen = DomainScreen(instance, request.needed, self._trials.feasible_rows)
        tries = DomainTries(self._cache, gang, self._members, request.needed, screen=screen)
        for where, order in tries:
            trial = GangTrial(where)
            try:
                self._trials.fill(instance, order, request.needed, trial)
            except BaseException:
                self._trials.undo(trial)
                raise
            if len(trial.placed) >= request.needed and tries.accepts(trial, order):
                return trial
            tries.rejected(trial, order)
            trial.reached = len(trial.placed)
            self._trials.undo(trial)
            self.failed.append(trial)
        return None
