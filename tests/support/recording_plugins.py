"""Plugins that implement every extension point, record their calls, and return the results that a test sets.

The profile of a test selects the extension points of each plugin; all calls for a pod are in one list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar, cast

import numpy as np

from scheduler_core.framework.cluster_events import EVERY_EVENT, EventRegistration
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import (
    BindPlugin,
    Codes,
    FilterPlugin,
    Normalization,
    PermitPlugin,
    PermitResult,
    PostBindPlugin,
    PostFilterPlugin,
    PostFilterResult,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ReservePlugin,
    ScorePlugin,
    Scores,
)
from scheduler_core.framework.status import SKIP, SUCCESS, Status, unschedulable
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node
from tests.support.scheduling import Rig, rig

T = TypeVar("T")


@dataclass
class Journal:
    """Recorded calls and the results of plugins.

    Attributes:
        calls: ``plugin.point`` of each call, in order; Unreserve and NormalizeScore count as extension points.
        results: Result of a plugin at a point, by ``plugin.point``; an exception is raised. By default, plugins let
            every pod pass and Bind is skipped.
        registrations: Registered events by plugin; by default every event.
    """

    calls: list[str] = field(default_factory=list)
    results: dict[str, object] = field(default_factory=dict)
    registrations: dict[str, Sequence[EventRegistration]] = field(default_factory=dict)

    def points_of(self, plugin: str) -> list[str]:
        """Return the points at which a plugin was called, in order."""
        return [call.partition(".")[2] for call in self.calls if call.startswith(f"{plugin}.")]

    def plugins_at(self, point: str) -> list[str]:
        """Return the plugins that were called at a point, in order."""
        return [call.partition(".")[0] for call in self.calls if call.endswith(f".{point}")]


class Recorder(
    PreEnqueuePlugin,
    PreFilterPlugin,
    FilterPlugin,
    PostFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    ReservePlugin,
    PermitPlugin,
    PreBindPlugin,
    BindPlugin,
    PostBindPlugin,
):
    """Plugin with every extension point except QueueSort; :func:`recorder` creates its subclasses."""

    normalization = Normalization.OWN
    journal: ClassVar[Journal]

    def _record(self, point: str, default: T) -> T:
        call = f"{self.name}.{point}"
        self.journal.calls.append(call)
        result = self.journal.results.get(call, default)
        if isinstance(result, Exception):
            raise result
        return cast("T", result)

    def events_to_register(self) -> Sequence[EventRegistration]:
        return self.journal.registrations.get(self.name, (EventRegistration(EVERY_EVENT),))

    def close(self) -> None:
        self._record("close", None)

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return self._record("preEnqueue", SUCCESS)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        return self._record("preFilter", PreFilterResult())

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        return self._record("filter", None)

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        return self._record("decode", unschedulable("why"))

    def post_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
    ) -> PostFilterResult:
        return self._record("postFilter", PostFilterResult(unschedulable()))

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Status:
        return self._record("preScore", SUCCESS)

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Scores:
        return self._record("score", np.zeros(len(nodes.alive[rows]), dtype=np.int64))

    def normalize(self, state: CycleState, pod: PodInfo, raw: Scores) -> Scores:
        return self._record("normalizeScore", raw)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return self._record("reserve", SUCCESS)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._record("unreserve", None)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        return self._record("permit", PermitResult())

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return self._record("preBindPreFlight", SUCCESS)

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return self._record("preBind", SUCCESS)

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return self._record("bind", SKIP)

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._record("postBind", None)


def recorder(name: str, journal: Journal) -> type[Recorder]:
    """Return a plugin class that records its calls in ``journal``."""
    return cast("type[Recorder]", type(name, (Recorder,), {"name": name, "journal": journal}))


def recorder_rig(journal: Journal, *names: str, waiting: Pod, nodes: int = 2) -> Rig:
    """Return a scheduler with recorders (by default ``Rec``), nodes ``n0``, ``n1`` and so on, and a pending pod."""
    made = rig([recorder(name, journal) for name in names or ("Rec",)])
    made.add(*(node(f"n{number}") for number in range(nodes)), waiting)
    return made


def no_pods_assumed(made: Rig) -> bool:
    """Return whether no pod is assumed, counted on a node, or waiting at Permit."""
    columns = made.columns
    return made.context.cache.assumed_count == 0 and not columns.pod_count.any() and not len(made.context.waiting)
