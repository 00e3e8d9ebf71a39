"""Checks of the limits of a profile on preemption victims: their number, and what PodDisruptionBudgets allow.

A decision is correct if each budget allowed the victims beside the pods that terminate already, by what the scheduler
has received and handled. An eviction that took effect counts even if the process has received neither its response nor
its watch event. The simulated budgets do not change after evictions, so each limits the pods that terminate at the same
time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler_core.config.profile_config import PreemptionSettings
from scheduler_core.feeds.object_feed import PodSurrounding, WorkloadFeed
from scheduler_core.framework.ongoing_preemptions import Preemption, PreemptionsUnderWay
from scheduler_core.model.pod import Pod
from scheduler_core.model.workloads import PodDisruptionBudget
from scheduler_core.scheduler import Scheduler
from tests.simulation.ledger import ReservationLedger, RunState
from tests.simulation.received import ReceivedFeed


class ReceivedBudgets(WorkloadFeed):
    """The scheduler's feed of workloads, which records the budgets that it has received.

    Attributes:
        budgets: Budgets by name.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler.context.cache.columns, scheduler.context.suspension)
        self.budgets: dict[str, PodDisruptionBudget] = {}

    def _added(self, shown: PodSurrounding) -> None:
        super()._added(shown)
        self._record(shown)

    def _updated(self, old: PodSurrounding, shown: PodSurrounding) -> None:
        super()._updated(old, shown)
        self._record(shown)

    def _record(self, shown: PodSurrounding) -> None:
        if isinstance(shown, PodDisruptionBudget):
            self.budgets[shown.metadata.name] = shown


@dataclass(slots=True)
class EvictionChecks:
    """Checks of one operator process.

    Attributes:
        preemptions: Preemptions of the core whose evictions are not all issued.
    """

    ledger: ReservationLedger
    run_state: RunState
    received: ReceivedFeed
    budgets: ReceivedBudgets
    settings: PreemptionSettings
    preemptions: PreemptionsUnderWay
    _checked: list[Preemption] = field(default_factory=list)
    _evicted: dict[str, Pod] = field(default_factory=dict)
    """Victims of earlier preemptions, by UID."""

    def sent(self, uid: str) -> None:
        """Check the preemption whose first victim is evicted now; the last one is evicted after the others.

        One that was planned in a suspended cycle evicts nothing before that cycle has ended.
        """
        under_way = list(self.preemptions)
        self._checked = [each for each in self._checked if each in under_way]
        for preemption in under_way:
            if preemption not in self._checked and any(info.uid == uid for info in preemption.victims):
                self._begun(preemption)
                self._checked.append(preemption)

    def _begun(self, preemption: Preemption) -> None:
        """Check the victims of a preemption that begins."""
        most, count = self.settings.max_victims, len(preemption.victims)
        preemptor = preemption.preemptor.key
        if most is not None and count > most:
            self.ledger.report_problem(f"{count} pods are evicted for {preemptor}, which is more than {most}")
        # A pod that has no node yet is not evicted: its attempt is cancelled.
        victims = {info.uid: info.pod for info in preemption.victims if info.uid in self.run_state.bound}
        if self.settings.never_violate_disruption_budgets:
            terminating = self._terminating()
            for budget in self.budgets.budgets.values():
                self._check(budget, preemptor, victims, terminating)
        self._evicted |= victims

    def _check(
        self, budget: PodDisruptionBudget, preemptor: str, victims: dict[str, Pod], terminating: dict[str, Pod]
    ) -> None:
        ours = [uid for uid, pod in victims.items() if _protects(budget, pod)]
        if not ours:
            return
        self.ledger.count("protected pod evicted")
        others = [uid for uid, pod in terminating.items() if uid not in victims and _protects(budget, pod)]
        allowed = budget.status.disruptions_allowed
        if len(ours) + len(others) > allowed:
            beside = f" beside {', '.join(others)}" if others else ""
            self.ledger.report_problem(
                f"PodDisruptionBudget {budget.metadata.name} allows {allowed} disruptions and is violated: "
                f"{', '.join(ours)} is evicted for {preemptor}{beside}"
            )

    def _terminating(self) -> dict[str, Pod]:
        """Return the pods on nodes that terminate, or whose eviction has been decided and may take effect."""
        found = {
            pod.metadata.uid: pod
            for pod in self.received.pods.values()
            if pod.spec.node_name
            and pod.metadata.deletion_timestamp is not None
            and not pod.is_terminal
            and pod.metadata.uid not in self.received.leaving
            # The handling of its deletion raised: the same as one that is received when it is delivered again.
            and pod.metadata.uid not in self.received.unhandled
        }
        for uid, pod in list(self._evicted.items()):
            now = self.run_state.server.pod(pod.metadata.name)
            if now is None or now.metadata.uid != uid or now.is_terminal:
                del self._evicted[uid]
            elif now.metadata.deletion_timestamp is not None:
                found[uid] = pod
        return found


def _protects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    selector = budget.spec.selector
    labels = pod.metadata.labels
    return selector is not None and all(labels.get(key) == value for key, value in selector.match_labels.items())
