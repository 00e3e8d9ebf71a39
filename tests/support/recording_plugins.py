"""Plugins that serve every extension point, record their calls, and return what the test has set.

Owns the journal. Why one class for all points: which points it serves in a test is said by the profile, as for any
plugin, and the journal is the whole story of a pod in one list.
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
    """What was called, and what is answered.

    Attributes:
        calls: ``plugin.point`` in order; Unreserve and NormalizeScore are points of their own here.
        results: What a plugin answers at a point, by ``plugin.point``; an exception is raised. A plugin that is not
            named lets every pod pass, and leaves binding to the next.
        registrations: The events that a plugin registers, by its name; every event for one that is not named.
    """

    calls: list[str] = field(default_factory=list)
    results: dict[str, object] = field(default_factory=dict)
    registrations: dict[str, Sequence[EventRegistration]] = field(default_factory=dict)

    def points_of(self, plugin: str) -> list[str]:
        """The points at which a plugin was called, in order."""
        return [call.partition(".")[2] for call in self.calls if call.startswith(f"{plugin}.")]

    def plugins_at(self, point: str) -> list[str]:
        """The plugins that were called at a point, in order."""
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
    """Serves every point but QueueSort; make one with :func:`recorder`."""

    normalization = Normalization.OWN
    journal: ClassVar[Journal]

    def _answer(self, point: str, usual: T) -> T:
        call = f"{self.name}.{point}"
        self.journal.calls.append(call)
        answer = self.journal.results.get(call, usual)
        if isinstance(answer, Exception):
            raise answer
        return cast("T", answer)

    def events_to_register(self) -> Sequence[EventRegistration]:
        return self.journal.registrations.get(self.name, (EventRegistration(EVERY_EVENT),))

    def close(self) -> None:
        self._answer("close", None)

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return self._answer("preEnqueue", SUCCESS)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        return self._answer("preFilter", PreFilterResult())

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        return self._answer("filter", None)

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        return self._answer("decode", unschedulable("why"))

    def post_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
    ) -> PostFilterResult:
        return self._answer("postFilter", PostFilterResult(unschedulable()))

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Status:
        return self._answer("preScore", SUCCESS)

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Scores:
        return self._answer("score", np.zeros(len(nodes.alive[rows]), dtype=np.int64))

    def normalize(self, state: CycleState, pod: PodInfo, raw: Scores) -> Scores:
        return self._answer("normalizeScore", raw)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return self._answer("reserve", SUCCESS)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._answer("unreserve", None)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        return self._answer("permit", PermitResult())

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return self._answer("preBindPreFlight", SUCCESS)

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return self._answer("preBind", SUCCESS)

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return self._answer("bind", SKIP)

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self._answer("postBind", None)


def recorder(name: str, journal: Journal) -> type[Recorder]:
    """A plugin class of that name which writes into ``journal``."""
    return cast("type[Recorder]", type(name, (Recorder,), {"name": name, "journal": journal}))


def recorder_rig(journal: Journal, *names: str, waiting: Pod, nodes: int = 2) -> Rig:
    """A scheduler with recorders of these names (``Rec`` for none), nodes ``n0``, ``n1`` and so on, and a pod."""
    made = rig([recorder(name, journal) for name in names or ("Rec",)])
    made.add(*(node(f"n{number}") for number in range(nodes)), waiting)
    return made


def no_pods_assumed(made: Rig) -> bool:
    """Whether no pod is assumed, counted on a node or waiting at Permit."""
    columns = made.context.cache.columns
    return made.context.cache.assumed_count == 0 and not columns.pod_count.any() and not len(made.context.waiting)
