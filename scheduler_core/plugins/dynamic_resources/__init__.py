"""DynamicResources: allocates the devices of a pod's resource claims, and reserves the claims for the pod.

:mod:`.pod_claims` looks the claims up and turns extended resources into device requests, :mod:`.node_allocation` finds
devices on nodes, :mod:`.claim_binding` writes claims. The search itself is in :mod:`scheduler_core.devices`.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from msgspec.structs import replace

from scheduler_core.config.plugin_args import DynamicResourcesArgs
from scheduler_core.devices.allocator import Allocator
from scheduler_core.devices.pools import ChangedUse
from scheduler_core.devices.search import SearchLimits
from scheduler_core.errors import AttemptLimitError, DeviceError, SchedulerCoreError
from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.device_choices import (
    CHOSEN,
    FOUND,
    ClaimsFilter,
    DeviceChoice,
    DeviceChooser,
    DeviceSearchKey,
    FoundDevices,
    NodeClaims,
    StepBudget,
)
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import (
    Codes,
    FilterPlugin,
    Normalization,
    PlannedPostFilter,
    PodReads,
    PostFilterAction,
    PostFilterPreview,
    PostFilterResult,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreFilterResult,
    Reads,
    ReleasedClaim,
    ReservePlugin,
    Reuse,
    ScorePlugin,
    Scores,
)
from scheduler_core.framework.gang_preemptor import GangRelease, PlannedGangPostFilter, TriedMember
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.plugin import always
from scheduler_core.framework.status import SKIP, SUCCESS, Status, error, failed_write, unresolvable, unschedulable
from scheduler_core.framework.waiting_pods import is_task_cancelled
from scheduler_core.model.devices import MAX_CONSUMERS, AllocationResult, ResourceClaim, ResourceClaimStatus
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import PodGroup
from scheduler_core.model.pod_requests import nano
from scheduler_core.model.selectors import NodeMatcher, compile_readable_node_selector
from scheduler_core.plugins.dynamic_resources.claim_binding import ClaimBinder, PodBinding, planned_claims
from scheduler_core.plugins.dynamic_resources.node_allocation import (
    ATTEMPT,
    CANNOT_ALLOCATE,
    IN_USE,
    REASONS,
    BindingLimit,
    PodDevices,
    RowFilter,
    choices_on,
    raw_scores,
)
from scheduler_core.plugins.dynamic_resources.pod_claims import (
    claim_in_memory,
    claims_of_pod,
    class_rejection,
    consumer_of,
    extended_claim_of,
    extended_names,
    is_in_memory,
    is_reserved_for,
    lacks_offers,
    referenced_claims,
    require_lists,
    require_readable,
    served_amounts,
    skips_operations,
)
from scheduler_core.snapshot.indexes.device_index import DeviceIndex, allocations_of, devices_of
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

_CHANGED = Action.ADD | Action.UPDATE
_NODE = Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE


def _is_same(old: ResourceClaimStatus, new: ResourceClaimStatus) -> bool:
    """Return whether two statuses are equal, whatever the notation of their quantities."""
    return old == new or _without_notation(old) == _without_notation(new)


def _without_notation(status: ResourceClaimStatus) -> ResourceClaimStatus:
    allocation = status.allocation
    if allocation is None:
        return status
    results = tuple(
        replace(each, consumed_capacity={name: nano(amount) for name, amount in each.consumed_capacity.items()})
        for each in allocation.devices.results
    )
    return replace(status, allocation=replace(allocation, devices=replace(allocation.devices, results=results)))


_NO_CLAIMS = PreFilterResult(SKIP)
_HELD = PreFilterResult(unresolvable("the devices that were found are held for another pod"))
_OTHER_CLAIMS = PreFilterResult(unresolvable("other claims have no allocation than those for which devices were found"))
_NOTHING_TO_DEALLOCATE = PostFilterResult(unschedulable())
_PRE_FILTER_DID_NOT_RUN = PostFilterResult(error("not found"))
_DEFAULT_ARGS = DynamicResourcesArgs()


class DynamicResources(
    PreEnqueuePlugin,
    PreFilterPlugin,
    FilterPlugin,
    ClaimsFilter,
    PlannedPostFilter,
    ScorePlugin,
    ReservePlugin,
    PreBindPlugin,
    DeviceChooser,
    PlannedGangPostFilter,
):
    """Rules out nodes on which a pod's devices cannot be allocated, and allocates them before the pod is bound."""

    name = "DynamicResources"
    handles_resizes = False
    may_free_devices = True
    reasons = REASONS
    reuse = Reuse(filter=Reads.NODE, score=Reads.NODE, pod=PodReads.NOTHING)
    remaining_rows_only = True
    args_model = DynamicResourcesArgs
    normalization = Normalization.MAX

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._args = args if args is not None else _DEFAULT_ARGS
        self._rows = RowFilter(handle.nodes, self.name)

    def reuse_check(self, pod: PodInfo, nodes: NodeColumns) -> Callable[[], bool] | None:
        """Return a check that no class serves the pod's extended resources; None for a pod that needs devices."""
        devices = nodes.devices
        if pod.pod.spec.resource_claims or served_amounts(pod, devices):
            return None
        if not extended_names(pod):
            return always
        version = devices.classes_version
        return lambda: devices.classes_version == version

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Return changes of claims, classes, slices and nodes, and of the claims that the pod names."""
        return (
            EventRegistration(ClusterEvent(Resource.NODE, _NODE)),
            EventRegistration(ClusterEvent(Resource.RESOURCE_CLAIM, _CHANGED | Action.DELETE), self.after_claim_change),
            EventRegistration(
                ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM), self.after_pod_update
            ),
            EventRegistration(ClusterEvent(Resource.DEVICE_CLASS, _CHANGED)),
            EventRegistration(ClusterEvent(Resource.RESOURCE_SLICE, _CHANGED)),
        )

    def after_claim_change(self, pod: Pod, old: object | None, new: object | None) -> Hint:
        """Queue if a claim of the pod was created or has another status, or if any claim lost its allocation."""
        if not isinstance(old, ResourceClaim | None) or not isinstance(new, ResourceClaim | None):
            return Hint.QUEUE
        had_devices = old is not None and old.status.allocation is not None
        if new is None:
            return Hint.QUEUE if had_devices else Hint.SKIP
        try:
            claims = claims_of_pod(pod, self.handle.nodes.devices)
        except DeviceError:
            return Hint.SKIP
        if had_devices and new.status.allocation is None:
            return Hint.QUEUE
        if all(claim.metadata.uid != new.metadata.uid for claim in claims):
            return Hint.SKIP
        return Hint.SKIP if old is not None and _is_same(old.status, new.status) else Hint.QUEUE

    def after_pod_update(self, pod: Pod, old: object | None, new: object | None) -> Hint:
        """Queue if all claims of the pod exist now."""
        if not isinstance(new, Pod):
            return Hint.QUEUE
        try:
            claims_of_pod(new, self.handle.nodes.devices)
        except DeviceError:
            return Hint.SKIP
        return Hint.QUEUE

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Gate a pod until all its claims exist, or until it is known whether devices provide its resources."""
        claims = pod.pod.spec.resource_claims
        if not claims and not pod.scalars:
            return SUCCESS
        nodes = self.handle.nodes
        if not claims and not (nodes.devices.are_lists_expected and lacks_offers(pod, nodes)):
            return SUCCESS
        try:
            require_lists(nodes.devices)
            claims_of_pod(pod.pod, nodes.devices)
        except DeviceError as problem:
            return unresolvable(str(problem))
        return SUCCESS

    # -- filtering ----------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> PreFilterResult:
        """Look up the claims and their classes; reject the pod if one is missing or being allocated to another pod."""
        devices = nodes.devices
        attempt = PodDevices(pod, nodes, self.handle.new_uid)
        state.write(ATTEMPT, attempt)
        amounts = served_amounts(pod, devices)
        if not pod.pod.spec.resource_claims and not amounts:
            state.skip_score.add(self.name)
            return _NO_CLAIMS
        try:
            require_lists(devices)
            referenced = referenced_claims(pod.pod, devices)
            known = extended_claim_of(pod.pod, devices.claims.for_resources_of(pod.uid)) if amounts else None
            if known is not None:
                require_readable(known.key, devices)
        except DeviceError as problem:
            return PreFilterResult(unresolvable(str(problem)))
        claims = [claim for _, claim in referenced]
        group = self._group_with_claims(pod)
        attempt.consumers = [consumer_of(pod.pod, reference, group) for reference, _ in referenced]
        if amounts:
            attempt.extended_amounts = amounts
            attempt.extended_claim = known or claim_in_memory(pod.pod, self.handle.new_uid)
            claims.append(attempt.extended_claim)
        if not claims:
            state.skip_score.add(self.name)
            return _NO_CLAIMS
        attempt.claims = claims
        for claim in claims:
            rejection = self._prepare(attempt, claim, devices)
            if rejection is not None:
                return PreFilterResult(rejection)
        if attempt.to_allocate():
            attempt.make_allocator = partial(self._allocator, pod)
        found = state.get(FOUND)
        if found is not None:
            if attempt.found().claims != found.claims:
                return _OTHER_CLAIMS
            if not devices_of(found.allocations).isdisjoint(devices_of(allocations_of(devices.held_from(pod)))):
                return _HELD
            attempt.is_found = True
        return PreFilterResult()

    def _allocator(self, pod: PodInfo, claims: Sequence[ResourceClaim]) -> Allocator:
        devices = self.handle.nodes.devices
        held = allocations_of(devices.held_from(pod))
        return self._allocator_on(devices.hardware.allocated.with_changes(held) if held else None, claims)

    def _allocator_on(self, used: ChangedUse | None, claims: Sequence[ResourceClaim]) -> Allocator:
        devices = self.handle.nodes.devices
        limits = SearchLimits(self.handle.clock.now, self._args.filter_timeout.seconds or None)
        return Allocator(claims, devices.classes, devices.hardware, limits, best_fit=self._args.is_best_fit, used=used)

    def devices_without(
        self, pod: PodInfo, node_name: str, freed: Sequence[AllocationResult], held: Sequence[AllocationResult]
    ) -> tuple[AllocationResult, ...]:
        state, nodes = CycleState(), self.handle.nodes
        row = nodes.row_of(node_name)
        node = None if row == NO_ROW else nodes.nodes[row]
        if node is None or not self.pre_filter(state, pod, nodes).status.is_success:
            return ()
        attempt = state.read(ATTEMPT)
        if attempt.make_allocator is None:
            return ()
        # These allocations are written nowhere, so that their shares need no UID of their own.
        attempt.new_uid = lambda: pod.uid
        attempt.make_allocator = partial(self._allocator_on, nodes.devices.hardware.allocated.with_changes(held, freed))
        try:
            return tuple(attempt.allocations(node) or ())
        except AttemptLimitError:
            raise
        except SchedulerCoreError:
            return ()

    def _prepare(self, attempt: PodDevices, claim: ResourceClaim, devices: DeviceIndex) -> Status | None:
        """Store from which nodes a claim's allocation is reachable; return why the pod cannot use the claim at all."""
        allocation = claim.status.allocation
        pending = None
        if allocation is None:
            in_flight = devices.in_flight(claim.metadata.uid)
            if in_flight is not None:
                if in_flight.group is None or in_flight.group != self._group_key(attempt.pod):
                    return unresolvable(f"resource claim {claim.key} is in the process of being allocated")
                allocation = pending = in_flight.allocation
            elif claim is not attempt.extended_claim:
                rejection = class_rejection(claim, devices)
                if rejection is not None:
                    return rejection
        matcher: NodeMatcher | None = None
        if allocation is not None and allocation.node_selector is not None:
            try:
                matcher = compile_readable_node_selector(allocation.node_selector)
            except SchedulerCoreError as problem:
                return error(str(problem))
        if allocation is not None and skips_operations(allocation):
            attempt.skipping.add(len(attempt.matchers))
        attempt.matchers.append(matcher)
        attempt.pending.append(pending)
        return None

    def _group_with_claims(self, pod: PodInfo) -> PodGroup | None:
        """Return the PodGroup of a pod if it can have claims."""
        view = self.handle.groups.group_of(pod.pod) if self.handle.nodes.devices.group_claims else None
        return None if view is None else view.group

    def _group_key(self, pod: PodInfo) -> Any:
        view = self.handle.groups.group_of(pod.pod)
        return None if view is None else view.key

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        """Search devices on each row."""
        attempt = state.read(ATTEMPT)
        if not attempt.claims:
            return None
        limits = BindingLimit(self._args.binding_timeout.seconds, self.handle.clock.wall())
        try:
            return self._rows.filter(attempt, np.arange(nodes.size, dtype=np.intp)[rows], limits)
        except AttemptLimitError:
            nodes.devices.hardware.tally.given_up += 1
            raise

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        """Return the status of a code; one names a claim, and one depends on whether preemption frees devices."""
        status = state.read(ATTEMPT).claim_status(code) or super().decode(state, pod, code)
        return IN_USE if status is CANNOT_ALLOCATE and self.handle.preemption_settings.devices else status

    def claims_on(self, state: CycleState, nodes: NodeColumns, row: int) -> NodeClaims:
        """Return the claims of the pod as the search on one row reads them, after PreFilter."""
        attempt = state.get(ATTEMPT)
        if attempt is None or not attempt.claims:
            return NodeClaims()
        return attempt.claims_on(row, BindingLimit(self._args.binding_timeout.seconds, self.handle.clock.wall()))

    # -- what a search over the members of a gang calls ---------------------------------------------------------

    def gang_search_steps(self) -> int:
        return self._args.gang_search_steps

    def needs_devices(self, pod: PodInfo, nodes: NodeColumns) -> bool:
        """Return whether the pod has claims, or extended resources that a class serves."""
        return bool(pod.pod.spec.resource_claims or served_amounts(pod, nodes.devices))

    def search_key(self, state: CycleState) -> DeviceSearchKey | None:
        attempt = state.read(ATTEMPT)
        is_whole_search = attempt.make_allocator is not None and attempt.extended_claim is None and not attempt.is_found
        if not is_whole_search or len(attempt.to_allocate()) < len(attempt.claims) or any(attempt.pending):
            return None
        allocator, inventory = attempt.search(frozenset()).allocator, self.handle.nodes.devices.hardware.inventory
        if (
            allocator is None
            or allocator.search_key is None
            or not inventory.spread.isdisjoint(allocator.changed_pools)
        ):
            return None
        held_on = frozenset(chain.from_iterable(map(inventory.nodes_of, allocator.changed_pools)))
        return DeviceSearchKey(allocator.search_key, held_on)

    def found_devices(self, state: CycleState) -> FoundDevices:
        return state.read(ATTEMPT).found()

    def device_choices(self, state: CycleState, node_name: str, budget: StepBudget) -> Iterator[DeviceChoice]:
        node = self.handle.nodes.nodes[self.handle.nodes.row_of(node_name)]
        return iter(()) if node is None else choices_on(state.read(ATTEMPT), node, budget)

    # -- making devices available -------------------------------------------------------------------------------

    def plan(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis
    ) -> tuple[PostFilterResult, PostFilterAction]:
        """Return the claim to deallocate that only this pod uses and that no node can use; PostFilter goes on after."""
        preview = self.preview(state, pod, nodes, diagnosis)
        return preview.result, PostFilterAction(released=self._to_release(state))

    def carry_out(self, pod: PodInfo, action: PostFilterAction) -> None:
        """Start to deallocate or delete the claim."""
        if action.released is not None:
            self._release(pod, action.released)

    def plan_for_gang(self, members: Sequence[TriedMember], group_uid: str) -> Sequence[GangRelease]:
        """Return one claim of each member as for a single pod; a claim of the PodGroup only if no member uses it.

        kube-scheduler does not deallocate for groups with a topology and for trees, whose members then need the nodes
        of an earlier attempt without end.
        """
        found: dict[str, GangRelease] = {}
        for member in members:
            released = None if member.pod.uid in found else self._to_release(member.state, group_uid)
            if released is not None:
                found[member.pod.uid] = member.pod, released
        return tuple(found.values())

    def carry_out_for_gang(self, planned: Sequence[GangRelease], group_uid: str) -> None:
        """Start to deallocate or delete each of the claims, once for all members that use it."""
        released: set[str] = set()
        for pod, claim in planned:
            if claim.uid not in released:
                released.add(claim.uid)
                self._release(pod, claim, group_uid)

    def _to_release(self, state: CycleState, group_uid: str = "") -> ReleasedClaim | None:
        """Return the claim to deallocate or delete; *group_uid* if that may be one of the PodGroup."""
        attempt = state.get(ATTEMPT)
        if attempt is None or self.handle.claim_writer is None:
            return None
        claim, stale = attempt.claim_to_deallocate(group_uid), attempt.stale_extended_claim
        chosen = claim or stale
        return None if chosen is None else ReleasedClaim(chosen.key, chosen.metadata.uid, is_deleted=claim is None)

    def _release(self, pod: PodInfo, released: ReleasedClaim, group_uid: str = "") -> None:
        devices, binder = self.handle.nodes.devices, self._binder()
        claim = devices.claims.get(released.key)
        if binder is None or claim is None or claim.metadata.uid != released.uid:
            return
        if released.is_deleted:
            devices.turns.start("delete resource claim", claim, self._delete_stale(claim, pod, binder))
        else:
            devices.turns.start("deallocate resource claim", claim, binder.deallocate(claim, pod.pod, group_uid))

    async def _delete_stale(self, claim: ResourceClaim, pod: PodInfo, binder: ClaimBinder) -> None:
        """Delete the claim of an earlier attempt and retry its pod.

        In kube-scheduler the pod waits for another event, because the claim had no allocation that others could use.
        """
        await binder.delete(claim)
        self.handle.nodes.devices.remove(claim)
        self.handle.activate([pod])

    def preview(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, diagnosis: Diagnosis) -> PostFilterPreview:
        """Return the result of ``post_filter`` without a write."""
        attempt = state.get(ATTEMPT)
        if attempt is None:
            return PostFilterPreview(_PRE_FILTER_DID_NOT_RUN)
        claim, stale = attempt.claim_to_deallocate(), attempt.stale_extended_claim
        if claim is not None:
            done = PostFilterResult(unschedulable("deallocation of ResourceClaim completed"))
            return PostFilterPreview(done, released=(claim.key,))
        if stale is not None:
            done = PostFilterResult(unschedulable("deletion of ResourceClaim completed"))
            return PostFilterPreview(done, released=(stale.key,))
        return PostFilterPreview(_NOTHING_TO_DEALLOCATE)

    # -- scoring ------------------------------------------------------------------------------------------------

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Scores:
        """Return int64 per row, as :func:`raw_scores`."""
        numbers = np.arange(nodes.size, dtype=np.intp)[rows]
        return raw_scores(state.read(ATTEMPT), numbers, best_fit=self._args.is_best_fit)

    # -- reserving and binding ----------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Count the node's devices as in use, so that no other pod gets them; nothing is written."""
        attempt, devices = state.read(ATTEMPT), self.handle.nodes.devices
        for index, claim in enumerate(attempt.claims):
            # Filter accepts the pod, as in kube-scheduler, where it fails at PreBind again and again.
            if devices.is_full(claim, attempt.consumer(index).uid):
                text = f"resource claim {claim.key} has {MAX_CONSUMERS} consumers, the limit of status.reservedFor"
                return unschedulable(text)
        if attempt.claims:
            attempt.assume_consumers()
        if attempt.make_allocator is None:
            return SUCCESS
        indices = attempt.to_allocate()
        if not indices:
            return SUCCESS
        row = self.handle.nodes.row_of(node_name)
        node = self.handle.nodes.nodes[row] if row >= 0 else None
        chosen = state.get(FOUND) or state.get(CHOSEN)
        try:
            allocations = None if node is None else attempt.allocations(node) if chosen is None else chosen.allocations
            attempt.reserved_extended = None if node is None else attempt.extended_on(node)
        except AttemptLimitError as limit:
            return unschedulable(str(limit))
        except SchedulerCoreError as problem:
            return error(str(problem))
        if not allocations:
            only_extended = all(attempt.claims[index] is attempt.extended_claim for index in indices)
            return SUCCESS if only_extended else error("claim allocation not found for node")
        group = self._group_key(pod)
        for index, allocation in zip(indices, allocations, strict=True):
            claim = attempt.claims[index]
            attempt.pending[index] = allocation
            devices.begin_allocation(claim, allocation, pod.uid, group)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Free the devices, and remove what PreBind wrote in the background; a written allocation stays.

        A process that stops removes nothing, because the pod's bind may be on its way: without its reservation the
        claim of a bound pod would be deallocated.
        """
        attempt = state.get(ATTEMPT)
        if attempt is None or not attempt.claims:
            return
        attempt.drop_consumers()
        devices, binder = self.handle.nodes.devices, self._binder()
        if binder is not None:
            binder.end_writes(attempt)
        if is_task_cancelled():
            binder = None
        for index, claim in enumerate(attempt.claims):
            is_extended = attempt.extended_claim is not None and index == len(attempt.claims) - 1
            uid = attempt.extended_claim.metadata.uid if is_extended and attempt.extended_claim else claim.metadata.uid
            devices.end_allocation(uid, pod.uid)
            if binder is None:
                continue
            if is_extended:
                if not is_in_memory(claim):
                    devices.turns.start("delete resource claim", claim, binder.delete(claim))
            elif claim.status.allocation is not None and is_reserved_for(claim, pod.pod):
                binder.drop_reservation(claim, pod.pod)
                what = f"end the reservation for pod {pod.key} of resource claim"
                devices.turns.start(what, claim, binder.end_reservation(claim, pod.pod))

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Return Skip for a pod without claims."""
        attempt = state.get(ATTEMPT)
        return SUCCESS if attempt is not None and attempt.claims else SKIP

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Write allocations and reservations, and wait until the drivers have prepared the devices."""
        attempt, binder = state.read(ATTEMPT), self._binder()
        if binder is None:
            return error("resource claims cannot be written; run the scheduler with write access to resource claims")
        # An earlier attempt may still be ending the reservation that is written next, or deallocating the claim.
        is_changed = await self.handle.nodes.devices.turns.finished(attempt.claims)
        binding = PodBinding(self.handle, binder, attempt, node_name)
        try:
            if is_changed:
                await binding.read_claims()
            await binding.write_claims()
            await binding.wait_for_drivers(self._args.binding_timeout.seconds)
        except SchedulerCoreError as fault:
            return failed_write(fault)
        binding.end_allocations()
        attempt.drop_consumers()
        return SUCCESS

    def planned_writes(self, state: CycleState, pod: PodInfo, node_name: str) -> Mapping[str, Any] | None:
        """Return the pod's claims as PreBind would leave them, by name."""
        attempt, row = state.get(ATTEMPT), self.handle.nodes.row_of(node_name)
        node = self.handle.nodes.nodes[row] if row >= 0 else None
        return None if attempt is None or node is None or not attempt.claims else planned_claims(attempt, node)

    def _binder(self) -> ClaimBinder | None:
        writer = self.handle.claim_writer
        return None if writer is None else ClaimBinder(self.handle, writer)
