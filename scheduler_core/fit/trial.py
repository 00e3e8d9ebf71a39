"""One trial: the pods of a request are placed as the scheduling loop would place them, and everything is undone.

::

    new nodes added ─▶ pods queued ─▶ pop ─▶ pod or gang assumed ─▶ pop ... ─▶ undone
                                      ▲       │ infeasible, and evictions help
                                      │       ▼
                                      │      nominated, its victims terminate
                                      └────── all were tried: the victims are gone

Pods stay assumed for those after them. All pods are tried before the first victim ends, as if they were created
together. Extenders are not called, because a dry run must not await.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from msgspec.structs import replace as with_fields

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.failure_handler import Failure, no_fit
from scheduler_core.cycle.gang_constraints import ANYWHERE
from scheduler_core.cycle.scheduling_cycle import failure_of, restrict_to_domain
from scheduler_core.errors import AttemptLimitError
from scheduler_core.fit.claim_binding import add_storage
from scheduler_core.fit.request_queue import RequestQueue
from scheduler_core.fit.requests import FitRequest
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.framework.queued_pod import QueuedGang, QueuedPod
from scheduler_core.gangs.failure_handler import of_rejection
from scheduler_core.gangs.group_cycle import GangPlacing, refusal
from scheduler_core.gangs.preemption import GangPreemption
from scheduler_core.model.devices import AllocationResult
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.placement.engine import Observer, Policy, at_once
from scheduler_core.placement.requests import Placement, PlacementRequest
from scheduler_core.placement.subsets import GangDomains
from scheduler_core.placement.worlds import CycleWorld, DryProfiles
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.post_filtering import preview_post_filters
from scheduler_core.runtime.profile_table import ProfileTable
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.held_claims import HeldClaims
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import PodInfo

_STEPS_OF_POD = 2
"""Steps to queue a pod of a request."""
_STEPS_OF_NODE = 3
"""Steps to add a node; each of its pods takes one more."""


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A pod or gang without nodes.

    Attributes:
        name: ``namespace/name`` of the pod, or of the group.
        group: The group; None for a pod.
        message: Why there are none, as in the condition.
        is_error: Whether an error ended the attempt.
        is_gated: Whether no node was tried.
    """

    name: str
    group: GroupKey | None
    message: str
    is_error: bool = False
    is_gated: bool = False


@dataclass(slots=True)
class TrialResult:
    """Where the pods of a request were placed.

    Attributes:
        nodes: Node of each placed pod by UID, in the order of the placements; members of the same gangs that exist
            already are included.
        devices: Devices of the placed pods for all their claims by UID of the pod, for pods whose claims have none yet.
        domains: Topology domain of each gang that has one.
        victims: Pods that are evicted, in the order of the evictions.
        awaited: Terminating pods whose end is awaited.
        evicting_gangs: Gangs that evict others; of several, the victims depend on which victims end first.
        pdb_violations: How many of the victims violate a PodDisruptionBudget.
        unplaced: Pods and gangs without nodes.
        new_nodes: Names of the new nodes.
    """

    nodes: dict[str, str] = field(default_factory=dict)
    devices: dict[str, tuple[AllocationResult, ...]] = field(default_factory=dict)
    domains: dict[GroupKey, str] = field(default_factory=dict)
    victims: list[PodInfo] = field(default_factory=list)
    awaited: list[PodInfo] = field(default_factory=list)
    evicting_gangs: set[GroupKey] = field(default_factory=set)
    pdb_violations: int = 0
    unplaced: list[Unplaced] = field(default_factory=list)
    new_nodes: tuple[str, ...] = ()

    def places(self, infos: Iterable[PodInfo]) -> bool:
        """Return whether all of some pods are placed."""
        return all(info.uid in self.nodes for info in infos)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialParts:
    """What places the pods of one trial."""

    cache: ClusterCache
    profiles: ProfileTable
    nominator: NominatedPods
    queue: RequestQueue
    world: CycleWorld
    placing: GangPlacing
    preemption: GangPreemption


class Trial:
    """Places the pods of a request once.

    Args:
        evicts: Whether infeasible pods and gangs evict others.
        new_nodes: Number of nodes of the request's template that are added first.
        reserves: Whether single pods are assumed, and Reserve plugins are called for them. It is not necessary for one
            pod, and plugins are not called at Reserve for an existing pod that is only explained.
    """

    def __init__(
        self,
        parts: TrialParts,
        request: FitRequest,
        *,
        evicts: bool = False,
        new_nodes: int = 0,
        reserves: bool = True,
    ) -> None:
        self._parts = parts
        self._request = request
        self._evicts = evicts
        self._new_nodes = new_nodes
        self._reserves = reserves
        self._nodes = parts.cache.columns
        self._queue = parts.queue.queue
        self._domains = GangDomains(parts.cache, self._queue.gangs)
        self._instances = DryProfiles(parts.profiles)
        self._overlay = ColumnsOverlay(self._nodes, held=self._held())
        self._found = TrialResult()
        self._failed: dict[str, tuple[QueuedPod, Unplaced]] = {}
        """Entries that were tried and have no nodes, by UID, in the order in which they were tried."""
        self._draws: Counter[str] = Counter()
        """How often PostFilter plugins would have acted, by profile."""
        self._ending: dict[str, PodInfo] = {}
        """Victims that have not ended yet, by UID."""

    def _held(self) -> HeldClaims | None:
        """Return the claims that end with their holders, if a profile evicts pods for their devices."""
        frees_devices = self._evicts and any(each.config.preemption.devices for each in self._parts.profiles)
        return HeldClaims(self._nodes, lambda _: True) if frees_devices else None

    def run(self, infos: Sequence[PodInfo]) -> TrialResult:
        """Place the compiled pods of the request, and undo everything.

        Raises:
            AttemptLimitError: The dry run took more steps than it may.
        """
        # What is assumed is released before the overlay is undone, because it may be on a new node.
        with self._parts.nominator.hypothetical(), self._parts.world.assumed.undone():
            self._overlay.__enter__()
            self._add_objects()
            # By members of all gangs that are queued again, whose search may end with the first of them.
            self._parts.world.steps.spend(1 + _STEPS_OF_POD * len(infos))
            self._parts.queue.add(self._request, infos)
            self._place_all()
            self._note_waiting(infos)
        return self._found

    def _add_objects(self) -> None:
        template, names = self._request.template, []
        for claim in self._request.claims:
            # A claim of the cluster is used as it is.
            if self._nodes.devices.claims.get(claim.key) is None:
                self._overlay.replace_device_object(None, claim)
        self._parts.world.steps.spend(len(self._request.storage))
        add_storage(self._overlay, self._nodes.storage, self._request.storage)
        if template is not None and self._new_nodes:
            copies = template.copies(self._nodes)
            for _ in range(self._new_nodes):
                self._parts.world.steps.spend(_STEPS_OF_NODE + len(template.daemon_pods))
                node, pods = next(copies)
                self._overlay.add_node(node, pods)
                if template.devices_of:
                    self._overlay.copy_devices(template.devices_of, node.metadata.name)
                for each in template.slices_of(node.metadata.name):
                    self._overlay.replace_device_object(None, each)
                names.append(node.metadata.name)
        self._found.new_nodes = tuple(names)

    def _place_all(self) -> None:
        self._place_popped()
        has_progress = bool(self._ending)
        while has_progress:
            # A nomination that ends when its pod is placed elsewhere may leave room, too.
            placed = len(self._found.nodes)
            self._end_victims()
            again, self._failed = list(self._failed.values()), {}
            for entry, _ in again:
                if not isinstance(entry, QueuedGang):
                    entry.attempts += 1
                self._place(entry)
            self._place_popped()
            has_progress = bool(self._ending) or (bool(self._failed) and len(self._found.nodes) > placed)
        self._found.unplaced += (why for _, why in self._failed.values())

    def _place_popped(self) -> None:
        queue = self._queue
        while True:
            entry = queue.pop()
            if entry is not None:
                self._place(entry)
            elif not queue.readings.is_behind:
                return

    def _place(self, entry: QueuedPod) -> None:
        instance = self._instances.get(entry.profile)
        if instance is None:
            return
        if isinstance(entry, QueuedGang):
            self._place_gang(entry, instance)
        else:
            self._place_pod(entry, instance)

    def _end_victims(self) -> None:
        for info in self._overlay.remove(self._ending.values()):
            (self._found.awaited if info.is_leaving else self._found.victims).append(info)
        self._ending.clear()

    # -- pods ---------------------------------------------------------------------------------------------------

    def _place_pod(self, queued: QueuedPod, instance: FrameworkInstance) -> None:
        attempt, failure, diagnosis = self._tried(queued, instance)
        if failure is None:
            self._placed([attempt])
            self._queue.done(queued.uid)
            return
        if diagnosis is not None and self._evicts:
            self._evict_for(attempt, diagnosis)
        self._failed[queued.uid] = queued, Unplaced(queued.info.key, None, failure.message, failure.is_error)

    def _tried(
        self, queued: QueuedPod, instance: FrameworkInstance
    ) -> tuple[Attempt, Failure | None, Diagnosis | None]:
        world = self._parts.world
        attempt = world.begin(instance, queued, ANYWHERE)
        attempt.number = queued.attempts
        restrict_to_domain(self._domains, attempt)
        diagnosis: Diagnosis | None = None
        try:
            node_name, diagnosis = world.choose(attempt)
            if node_name and not self._reserves:
                attempt.node_name, failure, diagnosis = node_name, None, None
            elif node_name:
                failure, diagnosis = world.assumed.reserve(attempt, node_name), None
            else:
                assert diagnosis is not None, "a search returns a diagnosis"
                failure = no_fit(diagnosis, None)
        except AttemptLimitError:
            raise
        except Exception as error:  # noqa: BLE001 - of a plugin; reported as the failure of the pod
            failure, diagnosis = failure_of(attempt, error), None
        if failure is not None:
            world.assumed.release(attempt)
        return attempt, failure, diagnosis

    def _evict_for(self, attempt: Attempt, diagnosis: Diagnosis) -> None:
        """Let the pods end that PostFilter plugins would evict, and nominate the pod."""
        with self._after_draws(attempt.instance):
            outcome, preview = preview_post_filters(
                attempt.instance, attempt.state, attempt.info, self._nodes, diagnosis
            )
        self._draws[attempt.instance.name] += 1
        if preview is None or not outcome.status.is_success or not outcome.nominated_node:
            return
        chosen = next((each for each in preview.candidates if each.node_name == outcome.nominated_node), None)
        victims = {info.uid: info for info in (*(() if chosen is None else chosen.victims), *preview.evicted)}
        if self._found.nodes.keys().isdisjoint(victims):
            self._end(victims.values(), 0 if chosen is None else chosen.pdb_violations)
            self._nominate(attempt.queued, outcome.nominated_node)

    @contextmanager
    def _after_draws(self, instance: FrameworkInstance) -> Iterator[None]:
        """Preview as the plugins would act after the pods of this trial that they have run for."""
        with ExitStack() as stack:
            for plugin in instance.post_filter:
                stack.enter_context(plugin.previewed_after(self._draws[instance.name]))
            yield

    def _end(self, pods: Iterable[PodInfo], pdb_violations: int) -> None:
        self._ending.update((info.uid, info) for info in pods)
        self._found.pdb_violations += pdb_violations

    def _nominate(self, queued: QueuedPod, node_name: str) -> None:
        """Nominate a pod; its next attempt evaluates the node in its status first."""
        pod = queued.info.pod
        status = with_fields(pod.status, nominated_node_name=node_name)
        queued.info = self._nodes.compile_pod(with_fields(pod, status=status))
        self._parts.nominator.nominate(queued.info, node_name)

    # -- gangs --------------------------------------------------------------------------------------------------

    def _place_gang(self, entry: QueuedGang, instance: FrameworkInstance) -> None:
        queue, gang = self._queue, self._queue.gangs.get(entry.gang_key)
        if gang is None or gang.group is None or not gang.has_quorum:
            return
        found, message = self._tried_gang(gang, instance)
        if found is None:
            if self._evicts:
                self._evict_for_gang(gang, instance)
            for queued in gang.waiting.values():
                queued.attempts += 1
            self._failed[entry.uid] = entry, Unplaced(str(gang.key), gang.key, message)
            return
        if found.where.name:
            self._found.domains[gang.key] = found.where.name
        members = [attempt.queued for attempt in found.placed]
        queue.gang_placed(entry, members)
        queue.gang_changed(gang)
        self._placed(found.placed)
        for queued in members:
            queue.done(queued.uid)

    def _tried_gang(self, gang: Gang, instance: FrameworkInstance) -> tuple[Placement | None, str]:
        """Assume the members of a gang as a group cycle does; return the placement, or why there is none."""
        parts, request = self._parts, PlacementRequest.of(gang, instance)
        failure = refusal(parts.cache, request)
        if failure is not None:
            return None, failure.message
        with parts.nominator.without(gang.waiting):
            found, rejection = at_once(parts.placing.place(request, Policy(), Observer()))
        if rejection.limit is not None:
            raise rejection.limit
        return found, "" if found is not None else of_rejection(instance, request.needed, rejection).message

    def _evict_for_gang(self, gang: Gang, instance: FrameworkInstance) -> None:
        """Let the pods end that the gang would evict or waits for, and nominate the members."""
        with self._after_draws(instance):
            preview = self._parts.preemption.preview(gang, instance)
        if preview.is_given_up:
            raise AttemptLimitError(self._parts.world.steps.limit, is_dry=True)
        plan = preview.plan
        if plan is None or any(info.uid in self._found.nodes for info in plan.victims):
            return
        self._draws[instance.name] += bool(plan.victims)
        if plan.victims:
            self._found.evicting_gangs.add(gang.key)
        self._end((*plan.victims, *plan.awaited), plan.pdb_violations)
        for queued in gang.waiting.values():
            if queued.uid in plan.nodes:
                self._nominate(queued, plan.nodes[queued.uid])

    # -- results ------------------------------------------------------------------------------------------------

    def _placed(self, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            info = attempt.info
            self._found.nodes[info.uid] = attempt.node_name
            self._parts.nominator.withdraw(info.uid)
            if info.pod.spec.resource_claims:
                chosen = self._nodes.devices.in_flight_of(info.uid)
                if len(chosen) >= len(info.pod.spec.resource_claims):
                    self._found.devices[info.uid] = tuple(each.allocation for each in chosen)

    def _note_waiting(self, infos: Iterable[PodInfo]) -> None:
        """Record why pods of the request were not tried."""
        queue, found = self._queue, self._found
        failed = {(each.group, each.name) for each in found.unplaced}
        gangs: dict[GroupKey, Gang] = {}
        for info in infos:
            queued = queue.find(info.uid)
            if info.uid in found.nodes or (None, info.key) in failed or queued is None:
                continue
            gang = queue.gangs.of_uid(info.uid)
            if queued.profile not in self._parts.profiles:
                message = no_profile(self._parts.profiles, queued.profile)
                found.unplaced.append(Unplaced(info.key, None, message, is_gated=True))
            elif queued.gated_by:
                found.unplaced.append(Unplaced(info.key, None, ", ".join(queued.gate_reasons), is_gated=True))
            elif gang is not None and (gang.unit.key, str(gang.unit.key)) not in failed:
                gangs[gang.unit.key] = gang.unit
        for key, gang in gangs.items():
            found.unplaced.append(Unplaced(str(key), key, _lacks(gang), is_gated=True))


def _lacks(gang: Gang) -> str:
    if gang.is_held:
        return gang.why_held
    if gang.is_tree:
        return "the groups of the tree lack members of their quorums; add the missing pods to the request"
    least = 0 if gang.group is None else gang.group.min_member
    have = len(gang.waiting) + len(gang.placed) + gang.succeeded
    return f"minMember is {least}, and {have} members exist with those of the request; add pods, or lower minMember"


def no_profile(profiles: ProfileTable, name: str) -> str:
    """Return that no profile serves a ``schedulerName``."""
    names = ", ".join(sorted(each.name for each in profiles)) or "none"
    return f'no profile serves schedulerName "{name}"; available profiles: {names}'
