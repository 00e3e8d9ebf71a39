"""Decides the pods of one slice again under shadows, each on the state on which the live profile decided it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.decided_pods import DecidedPod
from scheduler_core.cycle.filter_and_score import NodeSelection, NoNodesError, score_feasible
from scheduler_core.cycle.percentage_of_nodes import NodeOrder
from scheduler_core.cycle.reuse_or_search import NodeChoice
from scheduler_core.cycle.scheduling_cycle_with_extenders import ExtendedChoice
from scheduler_core.errors import SchedulerCoreError, error_message
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.metrics.cycle_recorder import RecorderPool
from scheduler_core.placement.worlds import without_extenders
from scheduler_core.ports import Clock
from scheduler_core.queueing.queueing_rules import QueueingRules
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.shadows.shadow import FAILED, DifferenceKind, Shadow, ShadowDifference
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.step_counter import StepCounter

_SHOWN_PLUGINS = 3
_NOT_CARRIED = "NotCarried"
_NO_TIME = "not explained, because the time budget was used up"


class _Task(Struct):
    """What one shadow does in this slice: its decisions by place."""

    shadow: Shadow
    places: set[int]
    seconds: float
    decisions: dict[int, ShadowDecision]

    @property
    def seconds_left(self) -> float:
        return self.shadow.budget.seconds - self.seconds


class ShadowDecision(NamedTuple):
    """What a shadow decides: the node, "" for none, and why not; or why the decision failed."""

    node_name: str = ""
    message: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class ShadowChoice:
    """Decides pods under profiles that are not live: the steps of a scheduling cycle up to the choice of the node.

    Reserve, Permit, PreBind, Bind and PostFilter are not run, because they may act on the cluster.
    """

    choice: NodeChoice
    extended: ExtendedChoice
    order: NodeOrder
    recorders: RecorderPool
    clock: Clock
    steps: StepCounter

    def decide(self, instance: FrameworkInstance, pod: DecidedPod) -> ShadowDecision:
        """Decide a pod that is on no node, without extenders; an error is returned."""
        start, self.order.next_start = self.order.next_start, pod.next_start
        attempt = self._attempt(instance, pod)
        try:
            gated = _gate(instance, pod)
            if gated:
                return ShadowDecision(message=gated)
            with self.steps.dry_run(in_slices=True):
                node_name = self.choice.reuse(attempt)
                if node_name:
                    return ShadowDecision(node_name)
                node_name, diagnosis = self.choice.search(attempt)
            return ShadowDecision(node_name, "" if node_name else diagnosis.message())
        except Exception as error:
            return _failed(error)
        finally:
            self._end(attempt, start)

    async def decide_with_extenders(
        self, instance: FrameworkInstance, pod: DecidedPod, seconds: float
    ) -> ShadowDecision:
        """Decide a pod that is on no node with the profile's extenders, while a suspension is on."""
        gated = _gate(instance, pod)
        if gated:
            return ShadowDecision(message=gated)
        start, self.order.next_start = self.order.next_start, pod.next_start
        attempt = self._attempt(instance, pod)
        task = asyncio.get_running_loop().create_task(self.extended.choose(attempt))
        timer = self.clock.call_later(seconds, partial(_cancel, task))
        try:
            with self.steps.dry_run():
                await asyncio.wait((task,))
            if task.cancelled():
                return ShadowDecision(
                    error=f"the extenders did not answer within {1000 * seconds:.0f} ms of the budget"
                )
            node_name, diagnosis = task.result()
            return ShadowDecision(node_name, "" if node_name else diagnosis.message())
        except Exception as error:
            return _failed(error)
        finally:
            timer.cancel()
            task.cancel()
            self._end(attempt, start)

    def _attempt(self, instance: FrameworkInstance, pod: DecidedPod) -> Attempt:
        recorder = self.recorders.take()
        attempt = Attempt(pod.queued, pod.info, instance, recorder.times[0], recorder, number=pod.number)
        attempt.state.recorder = recorder
        attempt.among, attempt.among_reason = pod.among, pod.among_reason
        return attempt

    def _end(self, attempt: Attempt, start: int) -> None:
        self.order.next_start = start
        assert attempt.recorder is not None
        self.recorders.release(attempt.recorder)


def _cancel(task: asyncio.Task[tuple[str, Diagnosis]]) -> None:
    task.cancel()


def _gate(instance: FrameworkInstance, pod: DecidedPod) -> str:
    if not instance.pre_enqueue:
        return ""
    rules = QueueingRules(instance.pre_enqueue, instance.registrations, instance.queue_sort.sort_key)
    status = rules.preview_gate(pod.queued)
    return "" if status.is_success else f"gated by {status.plugin}: {status.message or status.code_name}"


def _failed(error: Exception) -> ShadowDecision:
    if isinstance(error, NoNodesError):
        return ShadowDecision(message=str(error))
    return ShadowDecision(error=error_message(error))


class _Preference(NamedTuple):
    """Comparison of a profile's own node with another; *points* are None if it rejects the other."""

    points: int | None
    text: str


def _preference(
    selection: NodeSelection, by: tuple[str, FrameworkInstance], pod: DecidedPod, own: str, other: str
) -> _Preference:
    """Return why a profile, given by name and instance, prefers its *own* node to another, for a pod on no node.

    The scores are those of the state of the decision; extenders are not called.
    """
    try:
        return _compared(selection, by, pod, own, other)
    except SchedulerCoreError as error:
        return _Preference(None, f"{by[0]}: the scores cannot be compared: {error}")


def _compared(
    selection: NodeSelection, by: tuple[str, FrameworkInstance], pod: DecidedPod, own: str, other: str
) -> _Preference:
    profile_name, instance = by
    nodes = selection.nodes
    attempt = Attempt(pod.queued, pod.info, instance, 0.0, number=pod.number)
    attempt.among, attempt.among_reason = pod.among, pod.among_reason
    feasible = selection.find_feasible(attempt, everywhere=True)
    rows = feasible.rows
    first, second = nodes.row_of(own), nodes.row_of(other)
    if second not in rows:
        status = feasible.diagnosis.status_of(second)
        if feasible.nominated_only:
            return _Preference(None, f"{profile_name} uses the nominated node {own}")
        reason = status.message or feasible.diagnosis.pre_filter.message or "outside the nodes that PreFilter allows"
        return _Preference(None, f"{profile_name} rejects {other}: {reason}")
    if first not in rows or not instance.scores:
        return _Preference(None, f"{profile_name} has no scores for {own}")
    table = score_feasible(nodes, attempt, rows, keep_parts=True)
    places = np.searchsorted(rows, (first, second)).tolist()
    points = int(table.totals[places[0]] - table.totals[places[1]])
    by_plugin = {name: int(part.weighted[places[0]] - part.weighted[places[1]]) for name, part in table.parts.items()}
    largest = sorted((each for each in by_plugin.items() if each[1]), key=lambda each: -abs(each[1]))
    shown = ", ".join(f"{name} {value:+d}" for name, value in largest[:_SHOWN_PLUGINS])
    if not points:
        return _Preference(0, f"{profile_name} scores {own} and {other} equally")
    return _Preference(points, f"{profile_name} prefers {own} to {other} by {points} ({shown})")


@dataclass(frozen=True, slots=True)
class SliceComparison:
    """Makes and compares the decisions of shadows."""

    nodes: NodeColumns
    choice: ShadowChoice
    selection: NodeSelection
    clock: Clock

    async def run(self, pods: Sequence[DecidedPod], chosen: Iterable[tuple[Shadow, set[int]]]) -> None:
        """Make, compare and charge the decisions; the state is as before when this returns.

        Args:
            chosen: The shadows, and the places of the decisions that each makes; not empty.
        """
        tasks = [_Task(shadow, places, 0.0, {}) for shadow, places in chosen]
        if not tasks:
            return
        began = self.clock.now()
        try:
            first = min(min(task.places) for task in tasks)
            await self._decide(pods, first, tasks)
            for task in tasks:
                self._carry(task, pods, first)
        finally:
            # Time that no shadow used alone, such as undoing changes, is shared.
            shared = self.clock.now() - began - sum(task.seconds for task in tasks)
            for task in tasks:
                task.shadow.budget.charge(task.seconds + max(0.0, shared) / len(tasks), len(task.decisions))

    async def _decide(self, pods: Sequence[DecidedPod], first: int, tasks: Sequence[_Task]) -> None:
        with ColumnsOverlay(self.nodes) as overlay:
            overlay.remove(pod.info for pod in reversed(pods[first:]) if pod.node_name)
            for place in range(first, len(pods)):
                pod = pods[place]
                for task in tasks:
                    if place in task.places:
                        await self._decide_one(task, place, pod)
                overlay.restore((pod.info,))

    async def _decide_one(self, task: _Task, place: int, pod: DecidedPod) -> None:
        shadow, began = task.shadow, self.clock.now()
        with _on_no_node(pod.info):
            if shadow.settings.calls_extenders and shadow.has_interested_extender(pod):
                seconds = max(0.001, task.seconds_left)
                decision = await self.choice.decide_with_extenders(shadow.instance, pod, seconds)
            else:
                decision = self.choice.decide(shadow.instance, pod)
            task.seconds += self.clock.now() - began
            task.decisions[place] = decision
            shadow.ended(failed=bool(decision.error), now=self.clock.now())
            if decision.error:
                shadow.record.errors += 1
                shadow.record.last_error = f"{pod.info.key}: {decision.error}"
                shadow.record.skipped[FAILED] += 1
                return
            began = self.clock.now()
            shadow.record.add(self._difference(task, pod, decision))
            task.seconds += self.clock.now() - began

    # -- differences --------------------------------------------------------------------------------------------

    def _difference(self, task: _Task, pod: DecidedPod, decision: ShadowDecision) -> ShadowDifference | None:
        live, own = pod.node_name, decision.node_name
        if live == own:
            return None
        made = ShadowDifference(self.clock.wall(), pod.info.key, DifferenceKind.OTHER_NODE, live, own, "")
        if not own:
            return replace(made, kind=DifferenceKind.WOULD_REJECT, reason=decision.message)
        if not live:
            return replace(made, kind=DifferenceKind.WOULD_PLACE, reason=f"{pod.profile} rejects it: {pod.message}")
        if task.seconds_left <= 0:
            return replace(made, reason=_NO_TIME)
        shadow = task.shadow
        by_live = _preference(self.selection, (pod.profile, without_extenders(pod.instance)), pod, live, own)
        by_shadow = _preference(self.selection, (shadow.name, shadow.instance), pod, own, live)
        reasons = "; ".join(each.text for each in (by_live, by_shadow) if each.text)
        return replace(made, reason=reasons, live_points=by_live.points, shadow_points=by_shadow.points)

    # -- the ledger ---------------------------------------------------------------------------------------------

    def _carry(self, task: _Task, pods: Sequence[DecidedPod], first: int) -> None:
        """Carry the choices forward if there is time; otherwise the pods stay where the live profile put them."""
        shadow, began = task.shadow, self.clock.now()
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
                    decision = self.choice.decide(shadow.instance, pod)
            return None if decision.error else decision.node_name

        shadow.ledger.carry(carried, decide)
        shadow.record.figures = shadow.ledger.figures
        took = self.clock.now() - began
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
