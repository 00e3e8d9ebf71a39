"""The answer to "would it fit?": now, after evictions, with new nodes, never on the present nodes, or given up.

::

    no evictions ──fits──▶ FitsNow
        │ does not fit
        ├─▶ with the evictions that the profiles allow, unless a bound excludes it ──▶ FitsAfterEvictions
        ├─▶ with n new nodes, n from a proved bound upwards ──▶ FitsWithNewNodes
        └─▶ bounds, and the static rejections of each class ──▶ Impossible, else DoesNotFit

Numbers of new nodes are tried one by one, because one more node may also make pods infeasible, by a topology spread
constraint for example.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from scheduler_core.cycle.filter_and_score import NoNodesError
from scheduler_core.cycle.gang_constraints import ANYWHERE
from scheduler_core.errors import AttemptLimitError, SchedulerCoreError
from scheduler_core.fit.node_bounds import NodeBounds
from scheduler_core.fit.requests import FitRequest
from scheduler_core.fit.trial import Trial, TrialParts, TrialResult
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import PreFilterPlugin, SumsFilter
from scheduler_core.framework.plugin import Plugin, Reads
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import Code
from scheduler_core.placement.worlds import DryProfiles, steps_of_search
from scheduler_core.runtime.equivalence import filter_class
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.node_adapters import NodeFilterAdapter
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import PodInfo


class FitVerdict(Enum):
    """Verdict on a request."""

    FITS_NOW = "FitsNow"
    """All pods have a node now."""
    FITS_AFTER_EVICTIONS = "FitsAfterEvictions"
    """All pods have a node when the listed pods have ended."""
    FITS_WITH_NEW_NODES = "FitsWithNewNodes"
    """All pods have a node when the given number of nodes of the template exists."""
    DOES_NOT_FIT = "DoesNotFit"
    """No evictions and no allowed number of new nodes help; the pods may fit when others have ended."""
    IMPOSSIBLE = "Impossible"
    """It is proved that the pods never fit on the present nodes and on those of the template."""
    GAVE_UP = "GaveUp"
    """The dry run took more steps than it may."""


@dataclass(slots=True)
class FitAnswer:
    """Answer to a request.

    Attributes:
        infos: The compiled pods of the request, in its order.
        now: The trial without evictions and new nodes; None if it was given up.
        after_evictions: The trial with evictions, if all pods are placed in it; None otherwise.
        with_new_nodes: The trial with the least number of new nodes, if all pods are placed in it; None otherwise.
        least_new_nodes: Number of new nodes with less of which the pods are proved not to fit.
        reason: Why the request is impossible, or why it was given up; "" otherwise.
        steps: Steps that the dry run took.
    """

    infos: Sequence[PodInfo]
    verdict: FitVerdict = FitVerdict.DOES_NOT_FIT
    now: TrialResult | None = None
    after_evictions: TrialResult | None = None
    with_new_nodes: TrialResult | None = None
    least_new_nodes: int = 0
    reason: str = ""
    steps: int = 0

    @property
    def chosen(self) -> TrialResult | None:
        """The trial that the verdict is about."""
        return {
            FitVerdict.FITS_AFTER_EVICTIONS: self.after_evictions,
            FitVerdict.FITS_WITH_NEW_NODES: self.with_new_nodes,
        }.get(self.verdict, self.now)


@dataclass(frozen=True, slots=True)
class FitSearch:
    """Answers requests on the present state of a scheduler, between two cycles; nothing is changed.

    Args:
        make_parts: Builds the parts of one trial.
    """

    make_parts: Callable[[], TrialParts]

    def answer(self, request: FitRequest, limit: int | None = None) -> FitAnswer:
        """Answer a request.

        Args:
            limit: Maximum number of steps; None for that of dry runs.

        Raises:
            SchedulerCoreError: A pod or the node template cannot be compiled.
        """
        parts = self.make_parts()
        nodes = parts.cache.columns
        answer = FitAnswer([nodes.compile_pod(pod) for pod in request.pods])
        steps = parts.world.steps
        with steps.dry_run(limit=limit), ColumnsOverlay(nodes) as overlay:
            for each in request.classes:
                if each.metadata.name not in nodes.devices.classes:
                    overlay.replace_device_object(None, each)
            try:
                self._decide(request, parts, answer)
            except AttemptLimitError as reached:
                answer.verdict, answer.reason = FitVerdict.GAVE_UP, str(reached)
            answer.steps = steps.spent
        return answer

    def _decide(self, request: FitRequest, parts: TrialParts, answer: FitAnswer) -> None:
        infos = answer.infos
        answer.now = now = Trial(parts, request).run(infos)
        if now.places(infos):
            answer.verdict = FitVerdict.FITS_NOW
            return
        if all(each.is_gated or each.is_error for each in now.unplaced):
            # Neither evictions nor nodes change that.
            return
        limits: list[AttemptLimitError] = []
        bounds = NodeBounds(parts.cache.columns, parts.profiles, request.template)
        adds_nodes = request.template is not None and request.max_new > 0
        # The search with evictions is by far the longest, and pods that exceed the bounds fit after none.
        if request.may_evict and (adds_nodes or not bounds.impossible(request, infos)):
            try:
                evicting = Trial(self.make_parts(), request, evicts=True).run(infos)
            except AttemptLimitError as limit:
                limits.append(limit)
            else:
                answer.after_evictions = evicting if evicting.places(infos) else None
        if adds_nodes and not limits:
            try:
                self._find_new_nodes(request, bounds, answer)
            except AttemptLimitError as limit:
                limits.append(limit)
        if answer.after_evictions is not None:
            answer.verdict = FitVerdict.FITS_AFTER_EVICTIONS
        elif answer.with_new_nodes is not None:
            answer.verdict = FitVerdict.FITS_WITH_NEW_NODES
        elif limits:
            raise limits[0]
        else:
            answer.reason = self._impossible(request, bounds, answer)
            if answer.reason:
                answer.verdict = FitVerdict.IMPOSSIBLE

    def _find_new_nodes(self, request: FitRequest, bounds: NodeBounds, answer: FitAnswer) -> None:
        answer.least_new_nodes = least = max(1, bounds.least_new_nodes(request, answer.infos))
        for count in range(least, request.max_new + 1):
            found = Trial(self.make_parts(), request, new_nodes=count).run(answer.infos)
            if found.places(answer.infos):
                answer.with_new_nodes = found
                return

    # -- proofs -------------------------------------------------------------------------------------------------

    def _impossible(self, request: FitRequest, bounds: NodeBounds, answer: FitAnswer) -> str:
        """Return why the pods never fit on the present nodes and those of the template; "" if that is not proved."""
        parts = self.make_parts()
        nodes, template = parts.cache.columns, request.template
        with ColumnsOverlay(nodes) as overlay:
            if template is not None and request.max_new > 0:
                overlay.add_node(*next(template.copies(nodes)))
            rejected = self._rejected_class(parts, answer.infos)
        if rejected:
            return rejected
        if template is None or request.max_new <= 0:
            return bounds.impossible(request, answer.infos)
        return ""

    @staticmethod
    def _rejected_class(parts: TrialParts, infos: Sequence[PodInfo]) -> str:
        """Return which pod every node rejects whatever runs there, and why; "" for none."""
        seen, instances = set[object](), DryProfiles(parts.profiles)
        for info in infos:
            instance = instances.get(info.pod.spec.scheduler_name)
            if instance is None or (pod_class := filter_class(instance, info)) in seen:
                continue
            seen.add(pod_class)
            queued = QueuedPod(info, 0.0, 0)
            attempt = parts.world.begin(instance, queued, ANYWHERE)
            parts.world.steps.spend(steps_of_search(parts.cache.columns))
            try:
                feasible = parts.world.choice.find_all(attempt)
            except NoNodesError:
                return f"pod {info.key}: the cluster has no nodes"
            except AttemptLimitError:
                raise
            except SchedulerCoreError:
                continue
            if feasible is None or len(feasible.rows) or not _is_static(feasible.diagnosis, instance):
                continue
            return f"pod {info.key} fits on no node, whatever runs there: {feasible.diagnosis.message()}"
        return ""


def _is_static(diagnosis: Diagnosis, instance: FrameworkInstance) -> bool:
    """Return whether all nodes reject a pod for what it and the Node objects contain."""
    if not diagnosis.pre_filter.is_success or not np.any(diagnosis.evaluated):
        return False
    plugins = (each.plugin if isinstance(each, NodeFilterAdapter) else each for each in instance.filters)
    static = {plugin.name for plugin in plugins if _reads_nodes_only(plugin)}
    return all(
        status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        and bool(status.plugin)
        and static.issuperset(status.plugin.split(","))
        for status, _ in diagnosis.counted()
    )


def _reads_nodes_only(plugin: Plugin) -> bool:
    """Return whether unresolvable rejections of a plugin depend on the pod and the Node object alone."""
    reuse = plugin.reuse
    if reuse.filter is Reads.NODE and (reuse.prepares_once or not isinstance(plugin, PreFilterPlugin)):
        return True
    # It rejects without remedy what is more than the node has without pods.
    return isinstance(plugin, SumsFilter)
