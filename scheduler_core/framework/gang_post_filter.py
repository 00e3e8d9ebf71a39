"""Interface of a PostFilter plugin that helps gangs; the plugin subclasses it beside PostFilterPlugin.

A PostFilter plugin may evict pods for one infeasible pod. That helps no gang, whose members are scheduled together or
not at all, so ``post_filter`` is not called for members of a gang that was rejected. This method is called once
instead, before the preemption for the gang.

Follows kube-scheduler v1.37.1, ``PodGroupPostFilterPlugin``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.snapshot.pod_info import PodInfo


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
