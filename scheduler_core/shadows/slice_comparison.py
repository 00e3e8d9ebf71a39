"""Decides the pods of one slice again under shadows, each on the state on which the live profile decided it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct
from msgspec.structs import replace

from scheduler_core.cycle.decided_pods import DecidedPod
from scheduler_core.placement.worlds import without_extenders
from scheduler_core.ports import Clock
from scheduler_core.shadows.comparison_record import DifferenceKind, ShadowDifference
from scheduler_core.shadows.score_comparison import ScoreComparison
from scheduler_core.shadows.shadow import FAILED, Shadow
from scheduler_core.shadows.shadow_choice import ShadowChoice, ShadowDecision
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import PodInfo

_NOT_CARRIED = "NotCarried"
_NO_TIME = "not explained, because the time budget was used up"


class _Task(Struct):
    """What one shadow does in this slice.

    Attributes:
        shadow: The shadow.
        places: Places of the decisions that it makes.
        seconds: Time that it used.
        decisions: Its decisions by place.
    """

    shadow: Shadow
    places: set[int]
    seconds: float
    decisions: dict[int, ShadowDecision]

    @property
    def seconds_left(self) -> float:
        """Time of the budget that is left."""
        return self.shadow.budget.seconds - self.seconds


class SliceComparison:
    """Makes and compares the decisions of shadows.

    Args:
        nodes: The columns.
        choice: Decides pods under shadows.
        scores: Compares scores of two nodes.
        clock: Time.
    """

    def __init__(self, nodes: NodeColumns, choice: ShadowChoice, scores: ScoreComparison, clock: Clock) -> None:
        self._nodes = nodes
        self._choice = choice
        self._scores = scores
        self._clock = clock

    async def run(self, pods: Sequence[DecidedPod], chosen: Iterable[tuple[Shadow, set[int]]]) -> None:
        """Make, compare and charge the decisions; the state is as before when this returns.

        Args:
            pods: The decisions of the slice in their order, the last of the present state.
            chosen: The shadows, and the places of the decisions that each makes; not empty.
        """
        tasks = [_Task(shadow, places, 0.0, {}) for shadow, places in chosen]
        if not tasks:
            return
        began = self._clock.now()
        try:
            first = min(min(task.places) for task in tasks)
            await self._decide(pods, first, tasks)
            for task in tasks:
                self._carry(task, pods, first)
        finally:
            # Time that no shadow used alone, such as undoing changes, is shared.
            shared = self._clock.now() - began - sum(task.seconds for task in tasks)
            for task in tasks:
                task.shadow.budget.charge(task.seconds + max(0.0, shared) / len(tasks), len(task.decisions))

    async def _decide(self, pods: Sequence[DecidedPod], first: int, tasks: Sequence[_Task]) -> None:
        with ColumnsOverlay(self._nodes) as overlay:
            overlay.remove(pod.info for pod in reversed(pods[first:]) if pod.node_name)
            for place in range(first, len(pods)):
                pod = pods[place]
                for task in tasks:
                    if place in task.places:
                        await self._decide_one(task, place, pod)
                overlay.restore((pod.info,))

    async def _decide_one(self, task: _Task, place: int, pod: DecidedPod) -> None:
        shadow, began = task.shadow, self._clock.now()
        with _on_no_node(pod.info):
            if shadow.settings.calls_extenders and shadow.has_interested_extender(pod):
                seconds = max(0.001, task.seconds_left)
                decision = await self._choice.decide_with_extenders(shadow.instance, pod, seconds)
            else:
                decision = self._choice.decide(shadow.instance, pod)
            task.seconds += self._clock.now() - began
            task.decisions[place] = decision
            shadow.ended(failed=bool(decision.error), now=self._clock.now())
            if decision.error:
                shadow.record.errors += 1
                shadow.record.last_error = f"{pod.info.key}: {decision.error}"
                shadow.record.skipped[FAILED] += 1
                return
            began = self._clock.now()
            shadow.record.add(self._difference(task, pod, decision))
            task.seconds += self._clock.now() - began

    # -- differences --------------------------------------------------------------------------------------------

    def _difference(self, task: _Task, pod: DecidedPod, decision: ShadowDecision) -> ShadowDifference | None:
        live, own = pod.node_name, decision.node_name
        if live == own:
            return None
        made = ShadowDifference(self._clock.wall(), pod.info.key, DifferenceKind.OTHER_NODE, live, own, "")
        if not own:
            return replace(made, kind=DifferenceKind.WOULD_REJECT, reason=decision.message)
        if not live:
            return replace(made, kind=DifferenceKind.WOULD_PLACE, reason=f"{pod.profile} rejects it: {pod.message}")
        if task.seconds_left <= 0:
            return replace(made, reason=_NO_TIME)
        shadow = task.shadow
        by_live = self._scores.preference(pod.profile, without_extenders(pod.instance), pod, live, own)
        by_shadow = self._scores.preference(shadow.name, shadow.instance, pod, own, live)
        reasons = "; ".join(each.text for each in (by_live, by_shadow) if each.text)
        return replace(made, reason=reasons, live_points=by_live.points, shadow_points=by_shadow.points)

    # -- the ledger ---------------------------------------------------------------------------------------------

    def _carry(self, task: _Task, pods: Sequence[DecidedPod], first: int) -> None:
        """Carry the choices forward if there is time; otherwise the pods stay where the live profile put them."""
        shadow, began = task.shadow, self._clock.now()
        if task.seconds_left <= shadow.ledger.seconds:
            return
        made = {pods[place].info.uid: decision for place, decision in task.decisions.items()}
        carried = [
            pod if pod.info.uid in made and not pod.skipped else replace(pod, skipped=pod.skipped or _NOT_CARRIED)
            for pod in pods[first:]
        ]

        def decide(pod: DecidedPod) -> str | None:
            decision = made[pod.info.uid]
            if shadow.ledger.differs:
                if shadow.has_interested_extender(pod):
                    return None
                with _on_no_node(pod.info):
                    decision = self._choice.decide(shadow.instance, pod)
            return None if decision.error else decision.node_name

        shadow.ledger.carry(carried, decide)
        shadow.record.figures = shadow.ledger.figures
        took = self._clock.now() - began
        shadow.ledger.seconds = took
        task.seconds += took


@contextmanager
def _on_no_node(info: PodInfo) -> Iterator[None]:
    """Let plugins see a pod as before its node was chosen."""
    node_name, info.node_name = info.node_name, ""
    try:
        yield
    finally:
        info.node_name = node_name
