"""The search of one group cycle: the nodes on which a quorum is feasible, domain by domain, the best first.

Each try assumes the members one after the other; a try without a quorum is undone before the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.gang_constraints import ANYWHERE, Where
from scheduler_core.framework.extension_points import SumsFilter
from scheduler_core.framework.queued_pod import QueuedGang, QueuedPod
from scheduler_core.gangs.device_backtracking import BacktrackingResult, DeviceBacktracking
from scheduler_core.gangs.domain_screen import DomainScreen
from scheduler_core.gangs.failure_handler import SCHEDULER_ERROR, GangFailure, not_enough_free, of_mixed, of_strangers
from scheduler_core.gangs.placement_trial import GangTrial, MemberTrials
from scheduler_core.gangs.reservation_cycle import ReservedScheduling
from scheduler_core.gangs.reservation_planning import PlanRequest
from scheduler_core.gangs.topology_domains import (
    allocated_share,
    candidate_domains,
    member_orders,
    placement_score,
    scattered_members,
    scheduled_members,
    too_small_domains,
)
from scheduler_core.gangs.tree_search import TreeCycle, TreeSearch
from scheduler_core.model.pod import Pod
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.group_trees import GangTree
from scheduler_core.queueing.nominator import NominatedPods
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.pod_info import PodInfo

NearestNodes = Callable[[Gang, GangTrial], str]
"""Returns a sentence on the nodes that lack least for the next member of a failed try; "" for none."""


class GroupCycle:
    """Inputs of one group cycle.

    Attributes:
        entry: The gang's entry in the queue.
        gang: The gang.
        instance: The profile's revision that decides.
        needed: How many members must be scheduled together.
        needed_of: The same for each gang of a tree, or for the gang itself.
        members: Its waiting members of that profile, in the order in which they are tried.
    """

    def __init__(self, entry: QueuedGang, gang: Gang, instance: FrameworkInstance) -> None:
        self.entry = entry
        self.gang = gang
        self.instance = instance
        self.needed = gang.needed
        self.needed_of = {part.key: part.needed for part in gang.parts}
        own = [pod for pod in gang.waiting.values() if pod.profile == entry.profile]
        self.members = sorted(own, key=lambda pod: (-pod.info.priority, pod.sequence))

    def quorum_of(self, trial: GangTrial) -> list[str]:
        """Return the UIDs of the assumed members that are bound together or not at all: the first ones of each gang."""
        left = dict(self.needed_of)
        found = []
        for attempt in trial.placed:
            key = attempt.queued.group
            if key is not None and left.get(key, 0) > 0:
                left[key] -= 1
                found.append(attempt.info.uid)
        return found

    def placed(self, cache: ClusterCache) -> list[PodInfo]:
        """Return the members that have a node already."""
        return scheduled_members(cache, [self.gang])

    def refusal(self, cache: ClusterCache) -> GangFailure | None:
        """Return why no node is tried; None to try.

        The members are not uniform, scheduled members share no domain, no profile has a quorum, or ``minResources``
        are not free.
        """
        assert self.gang.group is not None
        if self.gang.group.is_uniform:
            mixed = of_mixed(self.gang.group, self._counted(), self.needed) or self._scattered(cache)
            if mixed is not None:
                return mixed
        divided = self._divided()
        return divided or not_enough_free(self.instance, cache.columns, self.gang)

    def _scattered(self, cache: ClusterCache) -> GangFailure | None:
        """Return the failure of a group whose scheduled members are in several domains of its topology."""
        for topology, gangs in self.gang.topologies:
            problem = scattered_members(cache.columns, topology, scheduled_members(cache, gangs))
            if problem:
                return GangFailure(problem, SCHEDULER_ERROR, needed=self.needed)
        return None

    def _counted(self) -> list[Pod]:
        """Return the waiting and the scheduled members, in that order."""
        waiting = sorted(self.gang.waiting.values(), key=lambda pod: pod.sequence)
        placed = [pod for uid in sorted(self.gang.placed) if (pod := self.gang.pods.get(uid)) is not None]
        return [*(queued.info.pod for queued in waiting), *placed]

    def _divided(self) -> GangFailure | None:
        """Return the failure of a gang whose members name several schedulers; None if this one has a quorum."""
        if len(self.members) >= self.needed:
            return None
        others = [pod.profile for pod in self.gang.waiting.values() if pod.profile != self.entry.profile]
        return of_strangers(self.entry.profile, others, self.needed)

    def with_impossible_topology(self, cache: ClusterCache, failure: GangFailure) -> GangFailure:
        """Return a failure that also reports that no domain of a required topology can ever hold the quorum."""
        group = self.gang.group
        is_counted = any(isinstance(each, SumsFilter) for each in self.instance.filters)
        if group is None or group.topology is None or not is_counted or failure.is_error:
            return failure
        infos = [queued.info for queued in self.members]
        why = too_small_domains(cache.columns, group.topology, infos, self.needed, self.placed(cache))
        return replace(failure, message=f"{failure.message.rstrip('.')}; {why}") if why else failure

    def request(self, cache: ClusterCache) -> PlanRequest:
        """Return the request for a reservation."""
        return PlanRequest(self.gang, self.instance, self.members, self.needed, self.placed(cache))


class DomainTries:
    """The tries of one group cycle: domains, each with the members by arrival, then the largest first.

    The first feasible one is used. Groups of ``scheduling.k8s.io`` use the domain that scores best with the members
    that fit there, as in kube-scheduler v1.37.1. Domains come in the order of the scores that they have if as many
    members fit as they have room for; so the first one is used if all members fit, and otherwise all are tried and
    compared.

    Args:
        cache: The nodes, and the members that are scheduled.
        gang: The gang.
        members: Its waiting members in the order in which they are tried.
        needed: How many of them must be scheduled together.
        screen: Rules out domains; None to try all.
        least: How many domains are tried before any is ruled out.
    """

    def __init__(
        self,
        cache: ClusterCache,
        gang: Gang,
        members: Sequence[QueuedPod],
        needed: int,
        *,
        screen: DomainScreen | None = None,
        least: int = 1,
    ) -> None:
        assert gang.group is not None
        self._nodes = cache.columns
        self._gang = gang
        self._members = members
        self._screen = screen
        self._least = least
        self._compared: list[_Feasible] = []
        self._is_compared = False
        self.wheres: list[Where] = []
        topology = gang.group.topology
        if topology is not None:
            infos = [pod.info for pod in members]
            domains = candidate_domains(cache.columns, topology, infos, needed, placed=scheduled_members(cache, [gang]))
            enough = [domain for domain in domains if domain.room >= needed]
            self.wheres = [domain.where for domain in enough or domains[:1]]
            self._is_compared = topology.prefers_allocated and len(self.wheres) > 1
        if topology is None or not topology.is_required:
            self.wheres.append(ANYWHERE)

    def __iter__(self) -> Iterator[tuple[Where, Sequence[QueuedPod]]]:
        """Yield domains and orders of members, at the end the feasible ones that were compared, the best first."""
        orders, screen = member_orders(self._members), self._screen
        for number, where in enumerate(self.wheres):
            for order in orders:
                if screen is None or number < self._least or not screen.rules_out(where, order):
                    yield where, order
        self._is_compared = False
        most = max((each.count for each in self._compared), default=0)
        for each in sorted(self._compared, key=lambda each: -placement_score(each.count, most, each.share)):
            yield each.where, each.order

    def rejected(self, trial: GangTrial, order: Sequence[QueuedPod]) -> None:
        """Note a try without a quorum, before it is undone."""
        if self._screen is not None and trial.where.subset is not None and not trial.placed and not trial.is_error:
            self._screen.none_feasible(order)

    def accepts(self, trial: GangTrial, order: Sequence[QueuedPod]) -> bool:
        """Return whether a feasible try is used; if not, it is undone by the caller, and may come again.

        Args:
            trial: The try, whose members are assumed.
            order: Its order of members.
        """
        if not self._is_compared or (not self._compared and len(trial.placed) == len(self._members)):
            return True
        rows = trial.where.rows
        share = 0 if rows is None else allocated_share(self._nodes, rows)
        self._compared.append(_Feasible(trial.where, order, len(self._gang.placed), share))
        return False


@dataclass(frozen=True, slots=True)
class _Feasible:
    """A feasible try: the members with a node, those that had one before included, and the domain's allocated share."""

    where: Where
    order: Sequence[QueuedPod]
    count: int
    share: int


def backtracked(backtracking: DeviceBacktracking, cache: ClusterCache, cycle: GroupCycle) -> BacktrackingResult | None:
    """Search the nodes and devices of a group cycle's members; None if that search does not apply."""
    return backtracking.search(
        cycle.instance,
        cycle.members,
        cycle.needed,
        lambda: DomainTries(cache, cycle.gang, cycle.members, cycle.needed).wheres,
    )


class QuorumSearch:
    """Tries to schedule the quorums of gangs.

    Args:
        cache: The nodes, and the members that are scheduled.
        nominator: Nominations.
        trials: Tries members.
        assumed: Runs Permit, and releases members.
        reserved: Tries the capacity reserved for a gang.
        backtracking: Searches nodes and devices together, if a gang with devices is infeasible.
        nearest_nodes: Describes the nearest nodes while the feasible members of a failed try are still assumed.
    """

    def __init__(
        self,
        *,
        cache: ClusterCache,
        nominator: NominatedPods,
        trials: MemberTrials,
        assumed: AssumedPods,
        reserved: ReservedScheduling,
        backtracking: DeviceBacktracking,
        nearest_nodes: NearestNodes,
    ) -> None:
        self._cache = cache
        self._nominator = nominator
        self._trials = trials
        self._assumed = assumed
        self._reserved = reserved
        self._backtracking = backtracking
        self._trees = TreeSearch(cache, trials, assumed)
        self._nearest_nodes = nearest_nodes

    async def search(self, cycle: GroupCycle, failed: list[GangTrial]) -> GangTrial | None:
        """Try to schedule a quorum.

        Args:
            cycle: The group cycle.
            failed: Receives the failed tries, which are undone.

        Returns:
            The try whose quorum is assumed and permitted or waits at Permit; None for none. Awaits only if the profile
            has extenders.
        """
        # Nominations of members do not block other members of the same gang.
        with self._nominator.without(cycle.gang.waiting):
            if isinstance(cycle.gang, GangTree):
                return await self._in_tree(cycle, cycle.gang, failed)
            trial = await self._in_domains(cycle, failed) or await self._as_reserved(cycle)
            return trial or await self._by_devices(cycle, failed)

    async def _in_tree(self, cycle: GroupCycle, tree: GangTree, failed: list[GangTrial]) -> GangTrial | None:
        inputs = TreeCycle.of(tree, cycle.instance, cycle.members)
        trial = inputs.trial
        if await self._trees.search(inputs) and self._permit(trial, len(trial.placed)):
            return trial
        trial.undo(self._assumed)
        failed.append(trial)
        return None

    async def _in_domains(self, cycle: GroupCycle, failed: list[GangTrial]) -> GangTrial | None:
        screen = DomainScreen(cycle.instance, cycle.needed, self._trials.feasible_rows)
        tries = DomainTries(self._cache, cycle.gang, cycle.members, cycle.needed, screen=screen)
        for where, order in tries:
            trial = GangTrial(where)
            try:
                await self._trials.try_members(cycle.instance, order, cycle.needed, trial)
            except BaseException:
                trial.undo(self._assumed)
                raise
            if len(trial.placed) >= cycle.needed:
                if not tries.accepts(trial, order):
                    trial.undo(self._assumed)
                    continue
                if self._permit(trial, cycle.needed):
                    return trial
            trial.reached = len(trial.placed)
            if trial.failed and not trial.is_error and all(trial.reached > each.reached for each in failed):
                trial.nearest = self._nearest_nodes(cycle.gang, trial)
            tries.rejected(trial, order)
            trial.undo(self._assumed)
            failed.append(trial)
            if trial.is_error:
                break
        if screen.ruled_out:
            failed.append(GangTrial(ANYWHERE))
            failed[-1].add(screen)
        return None

    async def _as_reserved(self, cycle: GroupCycle) -> GangTrial | None:
        """Try to schedule the quorum on the capacity reserved for it, if any."""
        trial = await self._reserved.try_quorum(cycle.request(self._cache))
        if trial is None or self._permit(trial, cycle.needed):
            return trial
        trial.undo(self._assumed)
        return None

    async def _by_devices(self, cycle: GroupCycle, failed: list[GangTrial]) -> GangTrial | None:
        """Try to schedule the quorum on nodes and devices that are searched together."""
        if not failed or any(trial.is_error for trial in failed):
            return None
        found = backtracked(self._backtracking, self._cache, cycle)
        if found is None or not found.placement:
            failed[-1].device_search = "" if found is None else found.message
            return None
        trial = GangTrial(found.where)
        chosen = {choice.queued.uid for choice in found.placement}
        try:
            await self._trials.try_placement(cycle.instance, found.placement, trial)
            if len(trial.placed) >= cycle.needed:
                beyond = [queued for queued in cycle.members if queued.uid not in chosen]
                await self._trials.try_members(cycle.instance, beyond, cycle.needed, trial)
                if self._permit(trial, cycle.needed):
                    return trial
        except BaseException:
            trial.undo(self._assumed)
            raise
        trial.reached = len(trial.placed)
        trial.undo(self._assumed)
        failed.append(trial)
        return None

    def _permit(self, trial: GangTrial, needed: int) -> bool:
        """Run Permit for all assumed members; return whether the quorum passed or waits there."""
        passed: list[Attempt] = []
        for attempt in trial.placed:
            assert attempt.recorder is not None, "members are recorded"
            attempt.recorder.resume()
            failure = self._assumed.permit(attempt)
            if failure is None:
                passed.append(attempt)
            else:
                self._assumed.release(attempt)
                trial.failed.append((attempt, failure))
        trial.placed = passed
        return len(passed) >= needed
