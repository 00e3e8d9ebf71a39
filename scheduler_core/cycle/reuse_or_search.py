"""The choice of a node for one pod: from what earlier pods of its class computed, or by a full search.

``reuse`` runs before ``search`` in every scheduling cycle, of single pods and gang members.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.filter_and_score import Feasible, NodeSelection
from scheduler_core.cycle.gang_constraints import NodeReservations
from scheduler_core.errors import AttemptLimitError, PluginError
from scheduler_core.framework.cycle_state import CycleStage
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.status import Code
from scheduler_core.metrics.scheduler_metrics import SchedulerMetrics
from scheduler_core.runtime.equivalence import PodClass, PodClasses, ReuseBounds

log = logging.getLogger(__name__)

_REUSE, _SUCCESS = CycleStage.REUSE, Code.SUCCESS
_SAMPLED = 10
"""Sampling interval: of the timed attempts of known classes, one in this many runs the full scheduling cycle."""


def note_reserved(rejections: NodeReservations | None, attempt: Attempt, diagnosis: Diagnosis) -> None:
    """Requeue the pod of a live attempt when a reservation that blocked it ends."""
    if rejections is not None and diagnosis.reserved_for:
        rejections.note_rejected(attempt.info.uid, diagnosis.reserved_for)


@dataclass(slots=True, eq=False)
class NodeChoice:
    """Chooses nodes; raises what :class:`NodeSelection` raises.

    Args:
        bounds: Bounds of what is stored for later pods of a class; None stores nothing.
        rejections: Receives pods that reservations made unschedulable; None in dry runs.
    """

    selection: NodeSelection
    metrics: SchedulerMetrics
    bounds: ReuseBounds | None
    rejections: NodeReservations | None = None

    def reuse(self, attempt: Attempt) -> str:
        """Return the node for a pod whose class is known; "" to fall back to the full search."""
        classes = self._classes(attempt)
        if classes is None:
            return ""
        if self.selection.reservations.by_gang and len(self.selection.reservations.preferred_rows(attempt.info)):
            return ""
        instance, nodes, recorder = attempt.instance, self.selection.nodes, attempt.recorder
        assert recorder is not None, "an attempt without a recorder reuses no results"
        # The stage Reuse stays, the stages after it run again.
        stages = len(recorder.left)
        found = None
        try:
            recorder.enter(_REUSE)
            known = classes.lookup(instance, attempt.info, nodes)
            recorder.leave(_REUSE, _SUCCESS)
            if known is not None and not (attempt.is_sampled and self._is_timed(attempt, classes, known)):
                among = self._without_reserved(attempt) if self.selection.reservations.by_gang else attempt.among
                found = known.evaluate(instance, attempt.info, nodes, recorder, among)
        except Exception as error:
            recorder.interrupt()
            recorder.rewind(stages)
            if isinstance(error, AttemptLimitError):
                raise
            self._failed(attempt, error)
            return ""
        best = None if found is None else found.best
        contested = self.selection.contested
        if best is not None and contested.avoided:
            others = contested.others(best)
            # If none is left, a full search finds the best of the other nodes.
            best = best[others] if others.any() else None
        if found is None or best is None:
            recorder.rewind(stages)
            return ""
        self.metrics.profiles[instance.name].reused += 1
        found.state.recorder = recorder
        attempt.state = found.state
        attempt.feasible_count = found.feasible_count
        name = nodes.names[self.selection.row_of_ties(attempt, best)]
        assert name is not None, "only rows of nodes are feasible"
        return name

    def _without_reserved(self, attempt: Attempt) -> NDArray[np.bool_] | None:
        """Return the only rows to evaluate, bool per row, without those that reservations block; None for all rows."""
        blocked = [rows for _, rows in self.selection.reservations.blocking(attempt.queued.group, attempt.info)]
        if not blocked:
            return attempt.among
        # Rankings contain these rows, because the next pod of the class may be blocked on others.
        among = np.ones(self.selection.nodes.size, dtype=np.bool_) if attempt.among is None else attempt.among.copy()
        for rows in blocked:
            among[rows] = False
        return among

    def find_all(self, attempt: Attempt) -> Feasible | None:
        """Return all feasible nodes with the complete diagnosis; None if the profile evaluates a percentage of them."""
        selection = self.selection
        return None if selection.partial.percentage_of(attempt.instance) < 100 else selection.find_all(attempt)

    def search(self, attempt: Attempt) -> tuple[str, Diagnosis]:
        """Choose a node by a full search, and store the results for later pods of the class.

        Returns:
            The node, "" if none is feasible; and the diagnosis, which is complete then.
        """
        feasible = self.selection.find_feasible(attempt)
        if not len(feasible.rows):
            note_reserved(self.rejections, attempt, feasible.diagnosis)
            return "", feasible.diagnosis
        node_name = self.selection.select(attempt, feasible)
        self._store(attempt, feasible)
        return node_name, feasible.diagnosis

    def _store(self, attempt: Attempt, feasible: Feasible) -> None:
        classes = self._classes(attempt)
        if classes is None or len(feasible.rows) < 2 or feasible.node_names is not None or feasible.nominated_only:
            return
        try:
            classes.store(attempt.instance, attempt.info, attempt.state, self.selection.nodes)
        except Exception as error:
            # A plugin's reuse check raised; the pod has its node all the same.
            self._failed(attempt, error)

    def _is_timed(self, attempt: Attempt, classes: PodClasses, known: PodClass) -> bool:
        """Return whether the full cycle decides, so that its plugins are timed; if not, the attempt is not sampled."""
        # Timing the plugins costs as much as many reused cycles.
        is_turn = classes.untimed % _SAMPLED == 0
        classes.untimed += 1
        # A plugin that may read anything is called anyway.
        attempt.is_sampled = is_turn or known.rerun.reads_anything
        return attempt.is_sampled

    def _classes(self, attempt: Attempt) -> PodClasses | None:
        """Return the classes of the profile's revision; None if a nomination matters, or the profile has none.

        Nodes that a reservation blocks for the pod are left out of the ranking when it is read.
        """
        pod = attempt.info.pod
        # A running pod whose resize is deferred may only use its own node, and a nominated node is evaluated first.
        if pod.spec.node_name or pod.status.nominated_node_name:
            return None
        # Nominated pods reject nodes by more than their rows and Node objects.
        if self.selection.nominator.node_by_uid:
            return None
        instance = attempt.instance
        if instance.pod_classes is None and self.bounds is not None and not instance.extenders:
            # A profile that evaluates a percentage of the nodes never has classes.
            if self.selection.partial.percentage_of(instance) < 100:
                return None
            instance.pod_classes = PodClasses(self.bounds)
        return instance.pod_classes

    def _failed(self, attempt: Attempt, fault: Exception) -> None:
        """Count an error in what one pod's cycle reuses for the next; the full scheduling cycle decides instead."""
        # Logged once for each plugin of a profile: the error may be the plugin's own, which the full cycle then reports
        # for every pod.
        plugin, name = fault.plugin if isinstance(fault, PluginError) else "", attempt.instance.name
        counts = self.metrics.profiles[name].reuse_errors
        counts[plugin] = counts.get(plugin, 0) + 1
        if counts[plugin] == 1:
            text = "reuse of results failed for pod %s (profile %s, plugin %s): the full scheduling cycle decides"
            where = {"pod": attempt.info.key, "profile": name, "plugin": plugin}
            log.warning(text, attempt.info.key, name, plugin or "none", exc_info=fault, extra=where)
