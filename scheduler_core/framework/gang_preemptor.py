"""Interfaces of PostFilter plugins that help gangs; a plugin subclasses them beside PostFilterPlugin.

The victims of a gang are chosen for all its members before any of them is evicted, so the plugin is called in steps:
find candidates for each member, choose the least harmful one, and finally evict.

``post_filter`` may evict pods for one infeasible pod. That helps no gang, whose members are scheduled together or not
at all, so it is not called for members of a gang that was rejected; ``post_filter_for_gang`` is called once instead,
before the preemption for the gang.

Follows kube-scheduler v1.37.1, ``PodGroupPostFilterPlugin``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain

from scheduler_core.config.profile_config import PreemptionSettings
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import PreemptionCandidate, ReleasedClaim
from scheduler_core.framework.ongoing_preemptions import Preemption, Preemptor
from scheduler_core.model.pod_group import deletion_cost
from scheduler_core.snapshot.held_claims import HeldClaims
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

_PODS_PER_STEP = 20
"""Pods among which those that terminate are selected in a step."""


@dataclass(frozen=True, slots=True)
class VictimTerms:
    """Constraints on victims besides priority.

    Attributes:
        protected: UIDs of pods that must not be victims.
        leaving: Pods that are evicted already and count against disruption budgets.
        rows: The only rows to try; None for all.
        frees_shared_ports: Whether a victim frees a host port that another pod on its node uses as well, as in
            kube-scheduler.
        held: Claims whose devices are free when all their holders are evicted; None if devices stay in use.
    """

    protected: frozenset[str] = frozenset()
    leaving: Sequence[PodInfo] = ()
    rows: Sequence[int] | None = None
    frees_shared_ports: bool = True
    held: HeldClaims | None = None


NO_TERMS = VictimTerms()


def why_too_many(settings: PreemptionSettings, victims: Sequence[PodInfo]) -> str:
    """Return why a profile does not evict so many victims; "" if it may."""
    most = settings.max_victims
    if most is None or sum(not info.is_leaving for info in victims) <= most:
        return ""
    return f"more than {most} preemption victim{'s' if most > 1 else ''}"


@dataclass(slots=True, eq=False)
class EvictionLimits:
    """Limits of a profile on victims, at one moment."""

    _settings: PreemptionSettings
    _nodes: NodeColumns
    _under_way: Iterable[Preemption]
    _leaving: list[PodInfo] | None = None

    def why_not(self, victims: Sequence[PodInfo]) -> str:
        """Return why the profile does not evict these victims; "" if it may."""
        reason = why_too_many(self._settings, victims)
        if reason or not self._settings.never_violate_disruption_budgets or not self._violates(victims):
            return reason
        return "preemption victims that a PodDisruptionBudget protects"

    def _violates(self, victims: Sequence[PodInfo]) -> bool:
        """Return whether a budget of a victim allows fewer disruptions than there are victims and terminating pods.

        Evictions that are sent count, because a budget shows them only when its controller has seen them. If it shows
        one already, the budget is exhausted one pod too early, until that pod is gone. Unlike in the number of
        violations of a candidate, pods that stay do not count, and a pod counts in all its budgets.
        """
        budgets, left = self._nodes.disruption_budgets, dict[tuple[str, str], int]()
        protecting = [(info, budgets.protecting(info)) for info in victims if not info.is_leaving]
        ours = {(info.pod.metadata.namespace, budget.name) for info, found in protecting for budget in found}
        if not ours:
            return False
        if self._leaving is None:
            self._nodes.steps.pass_by(int(self._nodes.pod_count.sum()) // _PODS_PER_STEP)
            # The pods of deleted nodes terminate, too.
            by_node = chain(self._nodes.pods, self._nodes.pods_without_row.values())
            running = (info for pods in by_node for info in pods.values() if info.is_leaving)
            evicted = (info for preemption in self._under_way for info in preemption.victims)
            self._leaving = list({info.uid: info for info in chain(running, evicted)}.values())
        protecting += [(info, budgets.protecting(info)) for info in self._leaving]
        for info, found in protecting:
            for budget in found:
                key = (info.pod.metadata.namespace, budget.name)
                left[key] = left.get(key, budget.disruptions_allowed) - 1
        return any(left[key] < 0 for key in ours)


def ties_by_cost(victims: Iterable[PodInfo], now: datetime) -> tuple[int, timedelta]:
    """Return the sort key of preemptions that are equal otherwise: sum of the deletion costs, sum of the ages."""
    pods = list(victims)
    ages = (now - (info.pod.status.start_time or now) for info in pods)
    return sum(deletion_cost(info.pod.metadata) for info in pods), sum(ages, timedelta())


@dataclass(frozen=True, slots=True)
class MemberCandidates:
    """Preemption candidates of a gang member.

    Attributes:
        is_row_local: Whether changes on other rows cannot affect the candidates.
    """

    candidates: tuple[PreemptionCandidate, ...]
    is_row_local: bool


@dataclass(frozen=True, slots=True)
class GangEviction:
    """Eviction for a gang.

    Attributes:
        victims: Pods that do not terminate yet, at least one.
        node_names: Nodes to which members are nominated; nominations of pods with lower priority to them are cleared.
        members: UIDs of the gang's members, which keep their nominations.
    """

    preemptor: Preemptor
    victims: tuple[PodInfo, ...]
    node_names: tuple[str, ...]
    members: frozenset[str]


class GangPreemptor(ABC):
    """Preempts pods for gangs."""

    @abstractmethod
    def candidates_for_member(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, terms: VictimTerms
    ) -> MemberCandidates:
        """Return the nodes where an infeasible member would fit without pods of lower priority; changes nothing.

        Raises:
            PluginError: A plugin raised, or returned a value that its extension point does not allow.
        """

    @abstractmethod
    def least_harmful(self, candidates: Sequence[PreemptionCandidate]) -> PreemptionCandidate:
        """Return the best of at least one candidate; the first of equals."""

    def may_be_better(self, pods: Sequence[PodInfo], best: PreemptionCandidate) -> bool:
        """Return whether the eviction of some of these pods can be less harmful than a candidate.

        Then the nodes of the pods are tried; a plugin that does not define this tries all of them.

        Args:
            pods: Pods of lower priority, none of which a PodDisruptionBudget protects.
        """
        del pods, best
        return True

    @abstractmethod
    def is_awaited(self, priority: int, row: int) -> bool:
        """Return whether preempted pods with a priority below ``priority`` still terminate on a row."""

    @abstractmethod
    def evict_for_gang(self, eviction: GangEviction) -> None:
        """Evict the victims; PreEnqueue gates the gang until all evictions are issued."""


@dataclass(frozen=True, slots=True)
class TriedMember:
    """A member that the rejected cycle tried, feasible or not; it is not assumed any more.

    Attributes:
        state: The state of its attempt, after Filter.
    """

    pod: PodInfo
    state: CycleState


class GangPostFilter(ABC):
    """Makes room for gangs without evicting pods."""

    @abstractmethod
    def post_filter_for_gang(self, members: Sequence[TriedMember], group_uid: str) -> Sequence[PodInfo]:
        """Make room for a rejected gang.

        Args:
            members: The members that were tried; the same one several times if several domains were tried.
            group_uid: UID of the PodGroup if no member is scheduled, so that nothing uses what belongs to the group;
                else "".

        Returns:
            The members that may become feasible by what was done; the plugin's queueing hints are called for them.
        """


GangRelease = tuple[PodInfo, ReleasedClaim]
"""A member, and the claim that is released for it."""


class PlannedGangPostFilter(GangPostFilter):
    """Plans first, as :class:`scheduler_core.framework.extension_points.PlannedPostFilter` does."""

    @abstractmethod
    def plan_for_gang(self, members: Sequence[TriedMember], group_uid: str) -> Sequence[GangRelease]:
        """Return what to release for the members that may become feasible by that; changes nothing."""

    @abstractmethod
    def carry_out_for_gang(self, planned: Sequence[GangRelease], group_uid: str) -> None:
        """Do what was planned."""

    def post_filter_for_gang(self, members: Sequence[TriedMember], group_uid: str) -> Sequence[PodInfo]:
        """Plan, and carry the plan out."""
        planned = self.plan_for_gang(members, group_uid)
        self.carry_out_for_gang(planned, group_uid)
        return [pod for pod, _ in planned]
