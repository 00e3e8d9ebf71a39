"""Shadow profiles: decide a sample of the pods that live profiles decided, after the binds of these pods were sent.

::

    cycles of a batch ─▶ binding tasks send ─▶ changes since then are undone ─▶ each shadow decides ─▶ all is restored
                         (other changes wait: suspension)   (overlay)

What a shadow decides is compared and counted. It is never assumed, reserved or bound.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import NamedTuple
from zlib import crc32

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from scheduler_core.config.profile_config import ShadowSettings
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.decided_pods import STATE_CHANGED, DecidedPod, DecidedPods
from scheduler_core.cycle.filter_and_score import NodeSelection, NoNodesError, score_feasible
from scheduler_core.cycle.journal import Journal
from scheduler_core.cycle.reuse_or_search import NodeChoice
from scheduler_core.cycle.scheduling_cycle_with_extenders import ExtendedChoice
from scheduler_core.cycle_assembly import CycleContext
from scheduler_core.errors import SchedulerCoreError, error_message
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.metrics.cycle_recorder import RecorderPool
from scheduler_core.metrics.scheduler_metrics import SchedulerMetrics
from scheduler_core.placement.worlds import without_extenders
from scheduler_core.ports import Clock
from scheduler_core.queueing.queueing_rules import QueueingRules
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.shadows.ledger import LedgerFigures, ShadowLedger
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.step_counter import StepCounter, TimeBudget

# -- a shadow and its results ------------------------------------------------------------------------------------------

KEPT_DIFFERENCES = 100
"""Number of differences that are stored."""


class DifferenceKind(Enum):
    """What a shadow decides differently."""

    OTHER_NODE = "OtherNode"
    WOULD_REJECT = "WouldReject"
    WOULD_PLACE = "WouldPlace"


class ShadowDifference(Struct, frozen=True):
    """One decision that differs.

    Attributes:
        reason: Why they differ; for nodes that both allow, the plugins whose scores decide.
        live_points: Total score of the live node minus that of the shadow's node, by the live profile; None if the live
            profile rejects the shadow's node, or scores were not compared.
        shadow_points: Total score of the shadow's node minus that of the live node, by the shadow; None likewise.
    """

    when: datetime
    pod: str
    kind: DifferenceKind
    live_node: str
    shadow_node: str
    reason: str
    live_points: int | None = None
    shadow_points: int | None = None


class ScorePoints(Struct):
    """Score differences of one profile, in points of its own total."""

    count: int = 0
    total: int = 0

    def add(self, points: int | None) -> None:
        if points is not None:
            self.count += 1
            self.total += points

    @property
    def average(self) -> float | None:
        return self.total / self.count if self.count else None


class ComparisonRecord(Struct):
    """Results since the shadow or its live profile changed last.

    Attributes:
        agreed: Number of those that were equal: the same node, or no node.
        kinds: Number of those that differed, by kind.
        skipped: Number of decisions that were not compared, by reason.
        figures: Effect of the shadow's choices on packing and spread; None before the first estimate.
    """

    since: datetime
    decided: int = 0
    compared: int = 0
    agreed: int = 0
    kinds: Counter[DifferenceKind] = msgspec.field(default_factory=Counter)
    skipped: Counter[str] = msgspec.field(default_factory=Counter)
    errors: int = 0
    last_error: str = ""
    live_points: ScorePoints = msgspec.field(default_factory=ScorePoints)
    shadow_points: ScorePoints = msgspec.field(default_factory=ScorePoints)
    differences: deque[ShadowDifference] = msgspec.field(default_factory=lambda: deque(maxlen=KEPT_DIFFERENCES))
    figures: LedgerFigures | None = None

    @property
    def differed(self) -> int:
        return self.compared - self.agreed

    def add(self, difference: ShadowDifference | None) -> None:
        self.compared += 1
        if difference is None:
            self.agreed += 1
            return
        self.kinds[difference.kind] += 1
        self.live_points.add(difference.live_points)
        self.shadow_points.add(difference.shadow_points)
        self.differences.append(difference)


NOT_SAMPLED, OVER_BUDGET, PAUSED, HAS_EXTENDERS, FAILED = "Sample", "Budget", "Paused", "Extenders", "ShadowError"
"""Reasons why a decision is not compared, besides those of :mod:`scheduler_core.cycle.decided_pods`."""

PAUSE_SECONDS = 60.0
"""Pause of a shadow after repeated errors."""
FAILURES_BEFORE_PAUSE = 5


class Shadow(Struct):
    """A running shadow profile."""

    name: str
    settings: ShadowSettings
    instance: FrameworkInstance
    budget: TimeBudget
    ledger: ShadowLedger
    record: ComparisonRecord
    live_revision: str = ""
    failures: int = 0
    paused_until: float = 0.0

    def samples(self, pod: DecidedPod) -> bool:
        """Return whether a decision is part of the sample; the same for every run."""
        percent = self.settings.sample_percent
        return percent >= 100 or crc32(f"{pod.info.uid}/{pod.number}".encode()) % 100 < percent

    def has_interested_extender(self, pod: DecidedPod) -> bool:
        """Return whether an extender of the profile takes part in the decision on a pod."""
        return any(each.is_interested(pod.info.pod) for each in self.instance.extenders)

    def ended(self, *, failed: bool, now: float) -> None:
        """Count the end of a decision; pause the shadow after repeated errors."""
        self.failures = self.failures + 1 if failed else 0
        if self.failures >= FAILURES_BEFORE_PAUSE:
            self.failures = 0
            self.paused_until = now + PAUSE_SECONDS


# -- decisions of a shadow ---------------------------------------------------------------------------------------------

_SHOWN_PLUGINS = 3
_NOT_CARRIED = "NotCarried"
_NO_TIME = "not explained, because the time budget was used up"


class _Task(Struct):
    """What one shadow does in this batch: its decisions by place."""

    shadow: Shadow
    places: set[int]
    seconds: float = 0.0
    decisions: dict[int, ShadowDecision] = msgspec.field(default_factory=dict)

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
    recorders: RecorderPool
    clock: Clock
    steps: StepCounter

    def decide(self, instance: FrameworkInstance, pod: DecidedPod) -> ShadowDecision:
        """Decide a pod that is on no node, without extenders; an error is returned."""
        try:
            with self._attempt(instance, pod) as attempt:
                gated = _gate(instance, pod)
                if gated:
                    return ShadowDecision(message=gated)
                with self.steps.dry_run(in_slices=True):
                    node_name = self.choice.reuse(attempt)
                    return ShadowDecision(node_name) if node_name else _decision(*self.choice.search(attempt))
        except Exception as error:
            return _failed(error)

    async def decide_with_extenders(
        self, instance: FrameworkInstance, pod: DecidedPod, seconds: float
    ) -> ShadowDecision:
        """Decide a pod that is on no node with the profile's extenders, while a suspension is on."""
        gated = _gate(instance, pod)
        if gated:
            return ShadowDecision(message=gated)
        with self._attempt(instance, pod) as attempt:
            task = asyncio.get_running_loop().create_task(self.extended.choose(attempt))

            def give_up() -> None:
                task.cancel()

            timer = self.clock.call_later(seconds, give_up)
            try:
                with self.steps.dry_run():
                    await asyncio.wait((task,))
                if task.cancelled():
                    within = f"within {1000 * seconds:.0f} ms of the budget"
                    return ShadowDecision(error=f"the extenders did not answer {within}")
                return _decision(*task.result())
            except Exception as error:
                return _failed(error)
            finally:
                timer.cancel()
                task.cancel()

    @contextmanager
    def _attempt(self, instance: FrameworkInstance, pod: DecidedPod) -> Iterator[Attempt]:
        """Begin an attempt, and end it without a trace."""
        order = self.choice.selection.partial.order
        start, order.next_start = order.next_start, pod.next_start
        recorder = self.recorders.take()
        attempt = Attempt(pod.queued, pod.info, instance, recorder.times[0], recorder, number=pod.number)
        attempt.state.recorder = recorder
        attempt.among, attempt.among_reason = pod.among, pod.among_reason
        try:
            yield attempt
        finally:
            order.next_start = start
            self.recorders.release(recorder)


def _decision(node_name: str, diagnosis: Diagnosis) -> ShadowDecision:
    return ShadowDecision(node_name, "" if node_name else diagnosis.message())


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


def _preference(
    selection: NodeSelection, by: tuple[str, FrameworkInstance], pod: DecidedPod, own: str, other: str
) -> tuple[int | None, str]:
    """Return why a profile, given by name and instance, prefers its *own* node to another, for a pod on no node.

    The scores are those of the state of the decision; extenders are not called.

    Returns:
        The difference of the scores, None if the profile rejects the other node, and the text.
    """
    profile_name, instance = by
    nodes = selection.nodes
    attempt = Attempt(pod.queued, pod.info, instance, 0.0, number=pod.number)
    attempt.among, attempt.among_reason = pod.among, pod.among_reason
    first, second = nodes.row_of(own), nodes.row_of(other)
    try:
        feasible = selection.find_feasible(attempt, everywhere=True)
        rows = feasible.rows
        are_scored = first in rows and second in rows and instance.scores
        table = score_feasible(nodes, attempt, rows, keep_parts=True) if are_scored else None
    except SchedulerCoreError as error:
        return None, f"{profile_name}: the scores cannot be compared: {error}"
    if second not in rows:
        status = feasible.diagnosis.status_of(second)
        if feasible.nominated_only:
            return None, f"{profile_name} uses the nominated node {own}"
        reason = status.message or feasible.diagnosis.pre_filter.message or "outside the nodes that PreFilter allows"
        return None, f"{profile_name} rejects {other}: {reason}"
    if table is None:
        return None, f"{profile_name} has no scores for {own}"
    places = np.searchsorted(rows, (first, second)).tolist()
    points = int(table.totals[places[0]] - table.totals[places[1]])
    by_plugin = {name: int(part.weighted[places[0]] - part.weighted[places[1]]) for name, part in table.parts.items()}
    largest = sorted((each for each in by_plugin.items() if each[1]), key=lambda each: -abs(each[1]))
    shown = ", ".join(f"{name} {value:+d}" for name, value in largest[:_SHOWN_PLUGINS])
    if not points:
        return 0, f"{profile_name} scores {own} and {other} equally"
    return points, f"{profile_name} prefers {own} to {other} by {points} ({shown})"


@contextmanager
def _on_no_node(info: PodInfo) -> Iterator[None]:
    """Let plugins see a pod as before its node was chosen."""
    node_name, info.node_name = info.node_name, ""
    try:
        yield
    finally:
        info.node_name = node_name


# -- the shadows of a scheduler ---------------------------------------------------------------------------------------


class ShadowProfiles:
    """The shadows of all live profiles; changes are deferred while they decide, which the journal notes.

    Args:
        clock: One that is not recorded, because shadows do not affect decisions.
    """

    def __init__(
        self, context: CycleContext, decided: DecidedPods, selection: NodeSelection, *, clock: Clock, journal: Journal
    ) -> None:
        options = context.options
        bounds = options.reuse_bounds if options.reuses_results else None
        # Metrics of their own: the results that shadows reuse are not those of live profiles.
        choice, recorders = NodeChoice(selection, SchedulerMetrics(), bounds), context.recording.recorders
        self._choice = ShadowChoice(choice, ExtendedChoice(selection), recorders, clock, context.steps)
        self._cache, self._suspension, self._live_profiles = context.cache, context.suspension, context.profiles
        self._decided = decided
        self._selection = selection
        self._clock = clock
        self._journal = journal
        self._shadows: dict[str, Shadow] = {}

    def __iter__(self) -> Iterator[Shadow]:
        return iter(list(self._shadows.values()))

    def get(self, name: str) -> Shadow | None:
        return self._shadows.get(name)

    def serve(self, wanted: Mapping[str, tuple[FrameworkInstance, ShadowSettings]]) -> None:
        """Run these shadows, by the name of the profile, and no others; results of unchanged ones continue."""
        before, self._shadows = self._shadows, {}
        for name, (instance, settings) in wanted.items():
            old = before.get(name)
            if old is not None and old.instance is instance and old.settings == settings:
                self._shadows[name] = old
                continue
            budget = TimeBudget(settings.budget_percent / 100, self._clock.now)
            ledger, record = ShadowLedger(self._cache, self._clock), ComparisonRecord(self._clock.wall())
            self._shadows[name] = Shadow(name, settings, instance, budget, ledger, record)
        running = {id(shadow.instance) for shadow in self}
        for shadow in before.values():
            if id(shadow.instance) not in running:
                shadow.instance.retire()
        self._decided.profiles = frozenset(shadow.settings.shadow_of for shadow in self)
        if not self._shadows:
            self._decided.take()

    async def compare(self) -> None:
        """Let the binding tasks send their binds, then decide the sample of the recorded decisions again."""
        pods = self._decided.take()
        plan = self._plan(pods)
        if self._suspension.waiting_tasks or not plan:
            await self._clock.sleep(0)
        if not plan:
            return
        self._journal.suspending()
        with self._suspension.of_cycle():
            try:
                await self._clock.sleep(0)
                await self._compare(pods, plan)
            finally:
                self._journal.resuming()

    # -- choosing -----------------------------------------------------------------------------------------------

    def _plan(self, pods: Sequence[DecidedPod]) -> dict[str, list[int]]:
        """Return the places of the decisions that each shadow makes, by its name; count the others."""
        plan = {}
        for shadow in self:
            places = [place for place, pod in enumerate(pods) if pod.profile == shadow.settings.shadow_of]
            if not places:
                continue
            self._start_again_with_live_revision(shadow, pods[places[-1]].instance.revision)
            shadow.record.decided += len(places)
            eligible = [place for place in places if not self._is_skipped(shadow, pods[place])]
            # The last ones, so that fewer changes are undone.
            allowed = shadow.budget.decisions(len(eligible))
            if len(eligible) > allowed:
                shadow.record.skipped[OVER_BUDGET] += len(eligible) - allowed
            if allowed:
                plan[shadow.name] = eligible[-allowed:]
        return plan

    def _start_again_with_live_revision(self, shadow: Shadow, revision: str) -> None:
        if shadow.live_revision != revision:
            if shadow.live_revision:
                shadow.record = ComparisonRecord(self._clock.wall())
                shadow.ledger = ShadowLedger(self._cache, self._clock)
            shadow.live_revision = revision

    def _is_skipped(self, shadow: Shadow, pod: DecidedPod) -> bool:
        if pod.skipped:
            reason = pod.skipped
        elif not shadow.samples(pod):
            reason = NOT_SAMPLED
        elif shadow.paused_until > self._clock.now():
            reason = PAUSED
        elif not shadow.settings.calls_extenders and shadow.has_interested_extender(pod):
            reason = HAS_EXTENDERS
        else:
            return False
        shadow.record.skipped[reason] += 1
        return True

    # -- deciding -----------------------------------------------------------------------------------------------

    async def _compare(self, pods: Sequence[DecidedPod], plan: Mapping[str, list[int]]) -> None:
        """Compare while nothing else changes the state; the caller suspends other changes."""
        known = self._comparable_from(pods)
        # Scores can be compared only while the revision that decided is still live.
        revisions = [self._live_profiles.get(pod.profile) for pod in pods]
        live = {place for place in range(known, len(pods)) if revisions[place] is pods[place].instance}
        tasks = []
        for shadow, places in [(shadow, plan[shadow.name]) for shadow in self if shadow.name in plan]:
            made = live.intersection(places)
            if len(made) < len(places):
                shadow.record.skipped[STATE_CHANGED] += len(places) - len(made)
            if made:
                tasks.append(_Task(shadow, made))
        if tasks:
            await self._run(pods, tasks)

    def _comparable_from(self, pods: Sequence[DecidedPod]) -> int:
        """Return the place from which on nothing but the decided pods changed the state."""
        after = self._decided.mark()
        now = after[1:]
        for place in range(len(pods) - 1, -1, -1):
            pod = pods[place]
            is_same_cycle = place + 1 < len(pods) and pods[place + 1].began is pod.began
            if not is_same_cycle and pod.ended.changes != after.changes:
                return place + 1
            if pod.began[1:] != now:
                return place + 1
            after = pod.began
        return 0

    # -- the decisions of one batch, each on the state on which the live profile decided it --------------------------

    async def _run(self, pods: Sequence[DecidedPod], tasks: Sequence[_Task]) -> None:
        """Make, compare and charge the decisions; the state is as before when this returns."""
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
        with ColumnsOverlay(self._selection.nodes) as overlay:
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
        by_live, by_shadow = (pod.profile, without_extenders(pod.instance)), (shadow.name, shadow.instance)
        live_points, why_live = _preference(self._selection, by_live, pod, live, own)
        shadow_points, why_shadow = _preference(self._selection, by_shadow, pod, own, live)
        return replace(made, reason=f"{why_live}; {why_shadow}", live_points=live_points, shadow_points=shadow_points)

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
