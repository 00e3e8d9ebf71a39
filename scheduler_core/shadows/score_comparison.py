"""Why two profiles choose different nodes for a pod: which node each rejects, or which plugins' scores decide."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.decided_pods import DecidedPod
from scheduler_core.cycle.filter_and_score import NodeSelection, score_feasible
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.runtime.framework_instance import FrameworkInstance

_SHOWN_PLUGINS = 3


class Preference(NamedTuple):
    """Comparison of a profile's own node with another node.

    Attributes:
        points: Total score of its own node minus that of the other; None if the other is rejected.
        text: The reason in words.
    """

    points: int | None
    text: str


class ScoreComparison:
    """Compares the scores of two nodes under one profile, on the state of the decision.

    Args:
        selection: Searches feasible nodes.
    """

    def __init__(self, selection: NodeSelection) -> None:
        self._selection = selection

    def preference(
        self, profile_name: str, instance: FrameworkInstance, pod: DecidedPod, own: str, other: str
    ) -> Preference:
        """Return why a profile prefers one node to another.

        Args:
            profile_name: Name of the profile in the text.
            instance: The profile; its extenders are not called.
            pod: The pod, which is on no node.
            own: The node that the profile chose.
            other: The node that the other profile chose.
        """
        try:
            return self._preference(profile_name, instance, pod, own, other)
        except SchedulerCoreError as error:
            return Preference(None, f"{profile_name}: the scores cannot be compared: {error}")

    def _preference(
        self, profile_name: str, instance: FrameworkInstance, pod: DecidedPod, own: str, other: str
    ) -> Preference:
        nodes = self._selection.nodes
        attempt = Attempt(pod.queued, pod.info, instance, 0.0, number=pod.number)
        attempt.among, attempt.among_reason = pod.among, pod.among_reason
        feasible = self._selection.find_feasible(attempt, everywhere=True)
        rows = feasible.rows
        first, second = nodes.row_of(own), nodes.row_of(other)
        if second not in rows:
            status = feasible.diagnosis.status_of(second)
            if feasible.nominated_only:
                return Preference(None, f"{profile_name} uses the nominated node {own}")
            reason = (
                status.message or feasible.diagnosis.pre_filter.message or "outside the nodes that PreFilter allows"
            )
            return Preference(None, f"{profile_name} rejects {other}: {reason}")
        if first not in rows or not instance.scores:
            return Preference(None, f"{profile_name} has no scores for {own}")
        table = score_feasible(nodes, attempt, rows, keep_parts=True)
        places = np.searchsorted(rows, (first, second)).tolist()
        points = int(table.totals[places[0]] - table.totals[places[1]])
        by_plugin = {
            name: int(part.weighted[places[0]] - part.weighted[places[1]]) for name, part in table.parts.items()
        }
        largest = sorted((each for each in by_plugin.items() if each[1]), key=lambda each: -abs(each[1]))
        shown = ", ".join(f"{name} {value:+d}" for name, value in largest[:_SHOWN_PLUGINS])
        if not points:
            return Preference(0, f"{profile_name} scores {own} and {other} equally")
        return Preference(points, f"{profile_name} prefers {own} to {other} by {points} ({shown})")
