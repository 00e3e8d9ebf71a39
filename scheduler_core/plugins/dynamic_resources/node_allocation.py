"""Devices for one pod: what PreFilter found out about its claims, and what Filter found on the nodes.

Follows kube-scheduler v1.37.1, ``plugins/dynamicresources/dynamicresources.go`` (``Filter``) and
``extendeddynamicresources.go`` (``filterExtendedResources``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from scheduler_core.devices.allocator import Allocator
from scheduler_core.devices.results import NodeAllocation
from scheduler_core.errors import AllocationError, AllocationTimeoutError, DeviceError, InvalidPoolsError
from scheduler_core.framework.claims_filter import NodeClaims, UnavailableClaim
from scheduler_core.framework.cycle_state import StateKey
from scheduler_core.framework.status import Status, error, unresolvable
from scheduler_core.model.devices import AllocationResult, ClaimConsumer, ResourceClaim
from scheduler_core.model.node import Node
from scheduler_core.model.pod import ExtendedResourceRequest
from scheduler_core.model.selectors import NodeMatcher
from scheduler_core.plugins.dynamic_resources.binding_conditions import is_past_binding_timeout, is_ready_for_binding
from scheduler_core.plugins.dynamic_resources.extended_resources import (
    is_in_memory,
    node_requests,
    with_requests,
)
from scheduler_core.plugins.dynamic_resources.node_operations import supports_skipping, unsupported
from scheduler_core.plugins.dynamic_resources.pod_claims import consumer_of
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

CANNOT_ALLOCATE = unresolvable("cannot allocate all claims")
NOT_AVAILABLE = unresolvable("resourceclaim not available on the node")
CANNOT_FIT = unresolvable("cannot fit resource")
STALE_EXTENDED_CLAIM = unresolvable("cannot schedule extended resource claim")
INVALID_POOLS = unresolvable("invalid resource pools were encountered")

REASONS: tuple[Status, ...] = (CANNOT_ALLOCATE, NOT_AVAILABLE, CANNOT_FIT, STALE_EXTENDED_CLAIM, INVALID_POOLS)
"""The statuses of nodes that Filter rejects."""
UNSUPPORTED_CODE = len(REASONS) + 1
"""Code of a node that cannot skip operations, which an allocation that is not written yet needs."""
_MAX_ALTERNATIVES = 8


class ExtendedClaim(Struct, frozen=True):
    """What stands for extended resources on nodes that provide the same ones through devices.

    Attributes:
        claim: The claim with its requests.
        mappings: Which request of that claim provides each extended resource of each container.
    """

    claim: ResourceClaim
    mappings: tuple[ExtendedResourceRequest, ...]


class NodeSearch(Struct):
    """The search on all nodes that provide the same extended resources through devices.

    Attributes:
        allocator: Searches devices; None if all claims have an allocation.
        classes: Class of each row, int64: the search has one outcome on all rows of a class.
        by_class: What Filter found, by class.
    """

    allocator: Allocator | None
    classes: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    by_class: dict[int, NodeAllocation] = field(default_factory=dict)

    def run(self, number: int, node: Node) -> Status | None:
        """Search devices on one node of a class; return None if there are some, else the rejection or error."""
        assert self.allocator is not None
        name = node.metadata.name
        try:
            found = self.allocator.find(name, node.metadata.labels, node.status.declared_features)
        except InvalidPoolsError:
            return INVALID_POOLS
        except AllocationTimeoutError:
            return error(f"node {name}: timed out trying to allocate devices")
        except AllocationError as problem:
            return error(str(problem))
        if found is None:
            return CANNOT_ALLOCATE
        self.by_class[number] = found
        return None


class PodDevices(Struct):
    """The claims of a pod within one attempt.

    Attributes:
        nodes: The columns.
        new_uid: Returns a random UUID for a share of a device.
        consumers: What each claim of ``spec.resourceClaims`` is reserved for: the pod, or its PodGroup.
        claims: Its claims, the one for extended resources last; PreBind replaces them by what it wrote.
        extended_claim: The last claim as PreFilter found or made it; None without extended resources.
        extended_amounts: Requested amount of each extended resource, in whole units.
        matchers: Nodes from which each claim's allocation is reachable; None for all, or without an allocation.
        skipping: Indices of the claims whose allocation, written or not, needs a node that can skip operations.
        pending: Allocation of each claim that is not written to it yet: from Reserve, or shared by a gang's member.
        make_allocator: Makes the search for the claims that have no allocation; None if all have one.
        unavailable: Indices of allocated claims that some node cannot reach, or whose devices failed.
        searches: Searches of Filter, by the extended resources that nodes provide through devices.
        assumed_consumers: UIDs of claims and of what uses them, as Reserve counted them.
        reserved_extended: What stands for the extended resources on the node of Reserve; None before, or for nothing.
    """

    pod: PodInfo
    nodes: NodeColumns
    new_uid: Callable[[], str]
    consumers: list[ClaimConsumer] = field(default_factory=list)
    claims: list[ResourceClaim] = field(default_factory=list)
    extended_claim: ResourceClaim | None = None
    extended_amounts: dict[str, int] = field(default_factory=dict)
    matchers: list[NodeMatcher | None] = field(default_factory=list)
    skipping: set[int] = field(default_factory=set)
    pending: list[AllocationResult | None] = field(default_factory=list)
    make_allocator: Callable[[Sequence[ResourceClaim]], Allocator] | None = None
    unavailable: set[int] = field(default_factory=set)
    searches: dict[frozenset[str], NodeSearch] = field(default_factory=dict)
    assumed_consumers: list[tuple[str, str]] = field(default_factory=list)
    reserved_extended: ExtendedClaim | None = None
    _requests: dict[frozenset[str], ExtendedClaim] = field(default_factory=dict)
    _allocators: dict[str, Allocator] = field(default_factory=dict)

    @property
    def has_user_claims(self) -> bool:
        """Whether ``spec.resourceClaims`` names a claim."""
        return len(self.claims) > (self.extended_claim is not None)

    def consumer(self, index: int) -> ClaimConsumer:
        """Return what a claim is reserved for."""
        return self.consumers[index] if index < len(self.consumers) else consumer_of(self.pod.pod)

    def assume_consumers(self) -> None:
        """Count what uses the claims as their consumers, before their reservations are written."""
        for index, claim in enumerate(self.claims):
            used = (claim.metadata.uid, self.consumer(index).uid)
            self.nodes.devices.assume_consumer(*used)
            self.assumed_consumers.append(used)

    def drop_consumers(self) -> None:
        """Undo :meth:`assume_consumers`."""
        while self.assumed_consumers:
            self.nodes.devices.drop_consumer(*self.assumed_consumers.pop())

    def to_allocate(self) -> list[int]:
        """Return the indices of the claims whose status has no allocation."""
        return [index for index, claim in enumerate(self.claims) if claim.status.allocation is None]

    @property
    def pending_skipping(self) -> ResourceClaim | None:
        """The first claim whose allocation is not written yet and needs a node that can skip operations."""
        indices = (index for index in sorted(self.skipping) if self.pending[index] is not None)
        return next((self.claims[index] for index in indices), None)

    def claim_status(self, code: int) -> Status | None:
        """Return the status of a code that names a claim; None for the codes of ``REASONS``."""
        claim = self.pending_skipping if code == UNSUPPORTED_CODE else None
        return None if claim is None else unsupported(claim)

    def search(self, through_devices: frozenset[str]) -> NodeSearch:
        """Return the search on nodes that provide these extended resources through devices."""
        found = self.searches.get(through_devices)
        if found is None:
            extended = None if self.extended_claim is None else self._extended(through_devices)
            allocator = None
            if self.make_allocator is not None:
                allocator = self._allocator(None if extended is None else extended.claim)
            found = self.searches[through_devices] = NodeSearch(allocator)
        return found

    def provided_through_devices(self, rows: NDArray[np.intp]) -> tuple[NDArray[np.int64], list[frozenset[str]]]:
        """Return which extended resources each row provides through devices.

        Returns:
            int64 per row, an index into the list of sets of resources, or -1 for a node that lacks a resource
            altogether; and that list.
        """
        nodes = self.nodes
        bits: NDArray[np.int64] = np.zeros(len(rows), dtype=np.int64)
        lacking: NDArray[np.bool_] = np.zeros(len(rows), dtype=np.bool_)
        names = [name for name, amount in self.extended_amounts.items() if amount]
        for number, name in enumerate(names):
            column = nodes.resources.find(name)
            without = np.ones(len(rows), dtype=np.bool_) if column is None else nodes.allocatable[column, rows] == 0
            if nodes.devices.class_of_resource(name) is not None:
                bits |= without.astype(np.int64) << number
                continue
            for position in np.flatnonzero(without).tolist():
                node = nodes.nodes[rows.item(position)]
                lacking[position] = node is None or name not in node.status.allocatable
        distinct, numbers = np.unique(bits, return_inverse=True)
        sets = [frozenset(name for bit, name in enumerate(names) if each >> bit & 1) for each in distinct.tolist()]
        return np.where(lacking, -1, numbers), sets

    def is_usable(self, index: int, limits: BindingLimit) -> bool:
        """Return whether the devices of a claim are ready, or may still become ready; True without an allocation."""
        claim = self.claims[index]
        if claim.status.allocation is None:
            return True
        try:
            return is_ready_for_binding(claim) or not is_past_binding_timeout(claim, limits.timeout_seconds, limits.now)
        except DeviceError:
            return False

    def extended_on(self, node: Node) -> ExtendedClaim | None:
        """Return the claim for the extended resources that a node provides through devices; None if it needs none."""
        through_devices = self._through_devices(node)
        if self.extended_claim is None or through_devices is None or not (through_devices or self.has_user_claims):
            return None
        return self._extended(through_devices)

    def _through_devices(self, node: Node) -> frozenset[str] | None:
        """Return the extended resources that a node provides through devices; None if it lacks one altogether."""
        if self.extended_claim is None:
            return frozenset()
        numbers, sets = self.provided_through_devices(np.array([self.nodes.row_of(node.metadata.name)], dtype=np.intp))
        return None if numbers.item() < 0 else sets[0]

    def claims_on(self, row: int, limits: BindingLimit) -> NodeClaims:
        """Return the claims as the search on one row reads them; none if there is no search."""
        node = self.nodes.nodes[row]
        if node is None:
            return NodeClaims()
        extended: ResourceClaim | None = None
        if self.extended_claim is not None:
            through_devices = self._through_devices(node)
            if self.extended_claim.spec.devices.request_list is not None or through_devices is None:
                return NodeClaims()
            extended = self._extended(through_devices).claim
        unavailable = tuple(
            UnavailableClaim(claim, is_reachable, is_supported)
            for index, (claim, matcher) in enumerate(zip(self.claims, self.matchers, strict=True))
            for is_reachable in (matcher is None or matcher.matches(node.metadata.labels, node.metadata.name),)
            for is_supported in (index not in self.skipping or supports_skipping(node),)
            if not (is_reachable and is_supported and self.is_usable(index, limits))
        )
        return NodeClaims(tuple(self._wanted(extended)), unavailable)

    def claim_to_deallocate(self, group_uid: str = "") -> ResourceClaim | None:
        """Return an allocated claim that some node cannot use, and that only the pod, or the PodGroup, uses."""
        users = {self.pod.uid, group_uid}
        for index in sorted(self.unavailable):
            claim = self.claims[index]
            if claim is self.extended_claim:
                if not is_in_memory(claim):
                    return None
                continue
            if all(consumer.uid in users for consumer in claim.status.reserved_for):
                return claim
        return None

    @property
    def stale_extended_claim(self) -> ResourceClaim | None:
        """The claim that an earlier attempt created for extended resources, which must be deleted."""
        claim = self.extended_claim
        return None if claim is None or is_in_memory(claim) else claim

    @property
    def has_alternatives(self) -> bool:
        """Whether a request of the claims is a prioritized list."""
        return any(request.first_available for claim in self.claims for request in claim.spec.devices.requests)

    def preference(self, found: NodeAllocation | None) -> int:
        """Return the sum, over all prioritized lists, of 8 minus the index of the alternative that is used.

        Args:
            found: Devices for the claims that have no allocation yet; None if all have one.
        """
        chosen = iter(() if found is None else found.alternatives)
        total = 0
        for index, claim in enumerate(self.claims):
            allocation = claim.status.allocation or self.pending[index]
            requests = claim.spec.devices.requests
            if allocation is None:
                alternatives = next(chosen)
                total += sum(
                    _MAX_ALTERNATIVES - alternative
                    for request, alternative in zip(requests, alternatives, strict=False)
                    if request.first_available
                )
                continue
            taken = {result.request for result in allocation.devices.results}
            total += sum(
                _MAX_ALTERNATIVES - position
                for request in requests
                for position, each in enumerate(request.first_available)
                if f"{request.name}/{each.name}" in taken
            )
        return total

    def allocations(self, node: Node) -> list[AllocationResult] | None:
        """Search devices on a node as it is now: return an allocation for each claim without one, in order.

        Returns:
            None if there are no devices, or the node needs none.

        Raises:
            AllocationError: An object is invalid.
            AllocationTimeoutError: The search reached a limit.
            InvalidPoolsError: The claims cannot be allocated on the node, which has invalid pools.
        """
        through_devices = self._through_devices(node)
        if self.make_allocator is None or through_devices is None or not (through_devices or self.has_user_claims):
            return None
        allocator = self.search(through_devices).allocator
        if allocator is None:
            return None
        found = allocator.find(node.metadata.name, node.metadata.labels, node.status.declared_features)
        if found is None:
            return None
        results = iter(found.results(self.new_uid))
        return [self.pending[index] or next(results) for index in self.to_allocate()]

    def all_allocations(self, node: Node, on_step: Callable[[], None]) -> Iterator[list[AllocationResult]]:
        """Yield every list that :meth:`allocations` could return for a feasible node, the one that it returns first.

        Raises:
            AllocationError: An object is invalid.
        """
        extended, indices = self.extended_on(node), self.to_allocate()
        if all(self.pending[index] is not None for index in indices):
            yield [pending for pending in self.pending if pending is not None]
            return
        allocator = self._allocator(None if extended is None else extended.claim)
        features = node.status.declared_features
        for found in allocator.find_all(node.metadata.name, node.metadata.labels, on_step, features):
            results = iter(found.results(self.new_uid))
            yield [self.pending[index] or next(results) for index in indices]

    def _allocator(self, extended: ResourceClaim | None) -> Allocator:
        """Return the search for the claims with a node's extended resources; nodes that provide the same share it."""
        key = "" if extended is None else repr(extended.spec.devices.request_list)
        found = self._allocators.get(key)
        if found is None:
            assert self.make_allocator is not None
            found = self._allocators[key] = self.make_allocator(self._wanted(extended))
        return found

    def _wanted(self, extended: ResourceClaim | None) -> list[ResourceClaim]:
        """Return the claims to search devices for, with a node's extended resources."""
        return [
            extended if extended is not None and self.claims[index] is self.extended_claim else self.claims[index]
            for index in self.to_allocate()
            if self.pending[index] is None
        ]

    def _extended(self, names: frozenset[str]) -> ExtendedClaim:
        """Return the claim for these extended resources, which is the same on all nodes that provide them."""
        found = self._requests.get(names)
        if found is None:
            assert self.extended_claim is not None
            resolve = self.nodes.devices.class_of_resource
            classes = {name: each.metadata.name for name in names if (each := resolve(name)) is not None}
            requests = node_requests(self.pod.pod, classes)
            claim = with_requests(self.extended_claim, requests.requests)
            found = self._requests[names] = ExtendedClaim(claim, requests.mappings)
        return found


ATTEMPT: StateKey[PodDevices] = StateKey("DynamicResources/attempt")


class BindingLimit(Struct, frozen=True):
    """How long drivers may take to prepare devices, and the time now, in UTC."""

    timeout_seconds: float
    now: datetime
