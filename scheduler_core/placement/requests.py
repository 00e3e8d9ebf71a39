"""What is to be placed, and the result. A gang is requested as a tree with one leaf."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.failure_handler import Failure
from scheduler_core.cycle.gang_constraints import Where
from scheduler_core.errors import AttemptLimitError
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.placement.subsets import DomainScreen, scheduled_members
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A gang, or a tree of gangs, whose quorum needs nodes.

    Attributes:
        members: The waiting members of that profile, in the order in which they are tried.
        needed: How many of them must be placed together; of a tree the least number with which its quorum can be met.
        needed_of: The same for each gang of a tree, or for the gang itself.
    """

    gang: Gang
    instance: FrameworkInstance
    members: Sequence[QueuedPod]
    needed: int
    needed_of: Mapping[GroupKey, int]

    @classmethod
    def of(cls, gang: Gang, instance: FrameworkInstance) -> PlacementRequest:
        """Return the request for the waiting members of a gang that name a profile."""
        own = [pod for pod in gang.waiting.values() if pod.profile == instance.name]
        members = sorted(own, key=lambda pod: (-pod.info.priority, pod.sequence))
        return cls(gang, instance, members, gang.needed, {part.key: part.needed for part in gang.parts})

    def placed(self, cache: ClusterCache) -> list[PodInfo]:
        """Return the members that have a node already."""
        return scheduled_members(cache, [self.gang])


@dataclass(slots=True)
class Placement:
    """Members that are assumed on the nodes of one subset, and members that are infeasible there.

    Attributes:
        placed: Attempts of assumed members, in the order in which they were assumed.
        failed: Attempts of infeasible members, with their failures.
        undone: Attempts of members that were assumed before an undo.
        reached: How many members were assumed before the undo.
        nearest: Text on the nearest nodes of the next member; "" if it was not computed.
        untried: Members that were not tried because the quorum was out of reach.
        is_reserved: Whether the nodes are those that are reserved for the gang.
    """

    where: Where
    placed: list[Attempt] = field(default_factory=list)
    failed: list[tuple[Attempt, Failure]] = field(default_factory=list)
    undone: list[Attempt] = field(default_factory=list)
    reached: int = 0
    nearest: str = ""
    untried: Sequence[QueuedPod] = ()
    is_reserved: bool = False

    @property
    def is_error(self) -> bool:
        """Whether a member met an error rather than a rejection."""
        return any(failure.is_error for _, failure in self.failed)


@dataclass(slots=True)
class Rejection:
    """Why a request is not placed.

    Attributes:
        tries: Placements without a quorum, which are undone.
        ruled_out: Domains that were not tried because no member is feasible there.
        rejected_by: Plugins that reject members there.
        pending_on: Those of them that returned Pending.
        has_untried_domains: Whether domains of a group of a tree were not tried because they have too little room.
        device_search: Result of the search over members and devices; "" if it did not run.
        lack: What a tree of groups lacks; "" for a gang.
        lacks: What each group of a tree lacks in the words of kube-scheduler v1.37.1, for groups that failed.
        limit: The limit of steps at which the search was given up; None if it was not.
    """

    tries: list[Placement] = field(default_factory=list)
    ruled_out: set[str] = field(default_factory=set)
    rejected_by: set[str] = field(default_factory=set)
    pending_on: set[str] = field(default_factory=set)
    has_untried_domains: bool = False
    device_search: str = ""
    lack: str = ""
    lacks: dict[GroupKey, str] = field(default_factory=dict)
    limit: AttemptLimitError | None = None

    @property
    def is_error(self) -> bool:
        """Whether a member met an error rather than a rejection."""
        return any(each.is_error for each in self.tries)

    def add(self, screen: DomainScreen) -> None:
        """Add the domains that were ruled out."""
        if screen.ruled_out:
            self.ruled_out.update(screen.ruled_out)
            self.rejected_by |= screen.rejected_by
            self.pending_on |= screen.pending_on
