"""What a PostFilter plugin offers to gangs that preempt.

Owns the class that such a plugin subclasses beside PostFilterPlugin. A gang's victims are chosen for all its members
before any of them is evicted, so the plugin is asked in parts: where one member could go, which of several places does
the least harm, and at last to evict. Must not know how a gang is placed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import PreemptionCandidate
from scheduler_core.framework.preemptions import Preemptor
from scheduler_core.snapshot.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class VictimTerms:
    """Who may be a victim besides those that priority allows.

    Attributes:
        spared: UIDs of pods that stay.
        leaving: Pods that leave already and use up budgets.
        rows: The only rows to try; None for all.
    """

    spared: frozenset[str] = frozenset()
    leaving: Sequence[PodInfo] = ()
    rows: Sequence[int] | None = None


NO_TERMS = VictimTerms()


@dataclass(frozen=True, slots=True)
class MemberCandidates:
    """Where a member could go if pods left.

    Attributes:
        candidates: Nodes, each with its victims; not more than are enough to choose from.
        is_row_local: Whether what happens on other rows cannot change them.
    """

    candidates: tuple[PreemptionCandidate, ...]
    is_row_local: bool


@dataclass(frozen=True, slots=True)
class GangEviction:
    """What is to be evicted for a gang.

    Attributes:
        preemptor: The gang.
        victims: Pods that are not ending yet, at least one.
        node_names: Nodes that members are promised; pods of lower priority lose their promises there.
        members: UIDs of the gang's members, which keep theirs.
    """

    preemptor: Preemptor
    victims: tuple[PodInfo, ...]
    node_names: tuple[str, ...]
    members: frozenset[str]


class GangPreemptor(ABC):
    """Makes room for gangs."""

    @abstractmethod
    def candidates_for_member(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, terms: VictimTerms
    ) -> MemberCandidates:
        """Where a member that fits nowhere would fit without pods of lower priority; changes nothing.

        Args:
            state: The state of the attempt that found no node.
            pod: The member, with its gang's priority.
            diagnosis: Why it fits nowhere.
            terms: Who may leave.

        Raises:
            PluginError: A plugin raised, or answered what its point does not allow.
        """

    @abstractmethod
    def least_harmful(self, candidates: Sequence[PreemptionCandidate]) -> PreemptionCandidate:
        """Choose among candidates, of which there is at least one; the first of equals."""

    @abstractmethod
    def is_awaited(self, priority: int, row: int) -> bool:
        """Whether pods below ``priority`` that were preempted still end on a row."""

    @abstractmethod
    def evict_for_gang(self, eviction: GangEviction) -> None:
        """Evict; until all evictions are issued, PreEnqueue holds the gang back."""
