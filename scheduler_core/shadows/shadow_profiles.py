"""Shadow profiles: decide a sample of the pods that live profiles decided, after the binds of these pods were sent.

::

    cycles of a slice ─▶ binding tasks send ─▶ changes since then are undone ─▶ each shadow decides ─▶ all is restored
                         (other changes wait: suspension)   (overlay)

What a shadow decides is compared and counted. It is never assumed, reserved or bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from scheduler_core.config.profile_config import ShadowSettings
from scheduler_core.cycle.decided_pods import STATE_CHANGED, DecidedPod, DecidedPods
from scheduler_core.cycle.filter_and_score import NodeSelection
from scheduler_core.cycle.journal import Journal
from scheduler_core.cycle.reuse_or_search import NodeChoice
from scheduler_core.cycle.scheduling_cycle_with_extenders import ExtendedChoice
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.cycle_assembly import CycleContext
from scheduler_core.gangs.reservation_lifecycle import GangReservations
from scheduler_core.metrics.scheduler_metrics import SchedulerMetrics
from scheduler_core.ports import Clock
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.profile_table import ProfileTable
from scheduler_core.shadows.ledger import ShadowLedger
from scheduler_core.shadows.shadow import HAS_EXTENDERS, NOT_SAMPLED, OVER_BUDGET, PAUSED, ComparisonRecord, Shadow
from scheduler_core.shadows.slice_comparison import ShadowChoice, SliceComparison
from scheduler_core.shadows.time_budget import TimeBudget
from scheduler_core.snapshot.cluster_cache import ClusterCache


def build_shadows(
    context: CycleContext,
    decided: DecidedPods,
    selection: NodeSelection,
    reservations: GangReservations,
    *,
    clock: Clock,
    journal: Journal,
) -> ShadowProfiles:
    """Return the shadow profiles of a scheduler; the clock is not recorded, as they do not affect decisions."""
    options = context.options
    bounds = options.reuse_bounds if options.reuses_results else None
    # Metrics of their own: the results that shadows reuse are not those of live profiles.
    choice = NodeChoice(selection, context.queue.nominator, reservations, SchedulerMetrics(), bounds)
    recorders = context.recording.recorders
    decide = ShadowChoice(choice, ExtendedChoice(selection), context.node_order, recorders, clock, context.steps)
    comparison = SliceComparison(context.cache.columns, decide, selection, clock)
    return ShadowProfiles(context.cache, decided, comparison, context.suspension, context.profiles, clock, journal)


@dataclass(slots=True)
class ShadowProfiles:
    """The shadows of all live profiles; changes are deferred while they decide, which the journal notes."""

    cache: ClusterCache
    decided: DecidedPods
    comparison: SliceComparison
    suspension: Suspension
    profiles: ProfileTable
    clock: Clock
    journal: Journal
    _shadows: dict[str, Shadow] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Shadow]:
        return iter(list(self._shadows.values()))

    def get(self, name: str) -> Shadow | None:
        """Return the shadow profile of a name, None if it does not run."""
        return self._shadows.get(name)

    def serve(self, wanted: Mapping[str, tuple[FrameworkInstance, ShadowSettings]]) -> None:
        """Run these shadows, by the name of the profile, and no others; results of unchanged ones continue."""
        before, self._shadows = self._shadows, {}
        for name, (instance, settings) in wanted.items():
            old = before.get(name)
            if old is not None and old.instance is instance and old.settings == settings:
                self._shadows[name] = old
                continue
            budget = TimeBudget(settings.budget_percent / 100, self.clock.now)
            ledger, record = ShadowLedger(self.cache, self.clock), ComparisonRecord(self.clock.wall())
            self._shadows[name] = Shadow(name, settings, instance, budget, ledger, record)
        running = {id(shadow.instance) for shadow in self}
        for shadow in before.values():
            if id(shadow.instance) not in running:
                shadow.instance.retire()
        self.decided.profiles = frozenset(shadow.settings.shadow_of for shadow in self)
        if not self._shadows:
            self.decided.take()

    async def compare(self) -> None:
        """Let the binding tasks send their binds, then decide the sample of the recorded decisions again."""
        pods = self.decided.take()
        plan = self._plan(pods)
        if self.suspension.waiting_tasks or not plan:
            await self.clock.sleep(0)
        if not plan:
            return
        self.journal.suspending()
        with self.suspension.of_cycle():
            try:
                await self.clock.sleep(0)
                await self._compare(pods, plan)
            finally:
                self.journal.resuming()

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
                shadow.record = ComparisonRecord(self.clock.wall())
                shadow.ledger = ShadowLedger(self.cache, self.clock)
            shadow.live_revision = revision

    def _is_skipped(self, shadow: Shadow, pod: DecidedPod) -> bool:
        reason = pod.skipped
        if not reason and not shadow.samples(pod):
            reason = NOT_SAMPLED
        elif not reason and shadow.paused_until > self.clock.now():
            reason = PAUSED
        elif not reason and not shadow.settings.calls_extenders and shadow.has_interested_extender(pod):
            reason = HAS_EXTENDERS
        if reason:
            shadow.record.skipped[reason] += 1
        return bool(reason)

    # -- deciding -----------------------------------------------------------------------------------------------

    async def _compare(self, pods: Sequence[DecidedPod], plan: Mapping[str, list[int]]) -> None:
        """Compare while nothing else changes the state; the caller suspends other changes."""
        known = self._comparable_from(pods)
        chosen: dict[str, set[int]] = {}
        for shadow in self:
            places = plan.get(shadow.name, [])
            chosen[shadow.name] = {place for place in places if place >= known and self._is_live(pods[place])}
            changed = len(places) - len(chosen[shadow.name])
            if changed:
                shadow.record.skipped[STATE_CHANGED] += changed
        await self.comparison.run(pods, [(shadow, made) for shadow in self if (made := chosen[shadow.name])])

    def _is_live(self, pod: DecidedPod) -> bool:
        """Return whether the revision that decided is still live, so that its scores can be compared."""
        return self.profiles.get(pod.profile) is pod.instance

    def _comparable_from(self, pods: Sequence[DecidedPod]) -> int:
        """Return the place from which on nothing but the decided pods changed the state."""
        after = self.decided.mark()
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
