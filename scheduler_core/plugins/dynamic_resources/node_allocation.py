"""Devices for one pod, node by node: what PreFilter found out about its claims, and what Filter found on each node.

Follows kube-scheduler v1.37.1, ``plugins/dynamicresources/dynamicresources.go`` (``Filter``) and
``extendeddynamicresources.go`` (``filterExtendedResources``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from scheduler_core.devices.allocator import Allocator, random_share_id
from scheduler_core.devices.results import NodeAllocation
from scheduler_core.errors import AllocationError, AllocationTimeoutError, DeviceError, InvalidPoolsError
from scheduler_core.framework.claims_filter import NodeClaims, UnavailableClaim
from scheduler_core.framework.cycle_state import StateKey
from scheduler_core.framework.status import Status, error, unresolvable
from scheduler_core.model.device_claims import AllocationResult, ResourceClaim
from scheduler_core.model.node import Node
from scheduler_core.model.pod import ExtendedResourceRequest
from scheduler_core.model.selectors import NodeMatcher
from scheduler_core.plugins.dynamic_resources.binding_conditions import is_past_binding_timeout, is_ready_for_binding
from scheduler_core.plugins.dynamic_resources.extended_resources import (
    NodeRequests,
    is_in_memory,
    node_requests,
    with_requests,
)
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

CANNOT_ALLOCATE = unresolvable("cannot allocate all claims")
NOT_AVAILABLE = unresolvable("resourceclaim not available on the node")
CANNOT_FIT = unresolvable("cannot fit resource")
STALE_EXTENDED_CLAIM = unresolvable("cannot schedule extended resource claim")
INVALID_POOLS = unresolvable("invalid resource pools were encountered")

REASONS: tuple[Status, ...] = (CANNOT_ALLOCATE, NOT_AVAILABLE, CANNOT_FIT, STALE_EXTENDED_CLAIM, INVALID_POOLS)
"""The statuses of nodes that Filter rejects."""
_MAX_ALTERNATIVES = 8


class NodeDevices(Struct, frozen=True):
    """Devices for a pod on one node.

    Attributes:
        found: Devices for the claims that have no allocation yet; None if all have one.
        extended_claim: The claim for the extended resources that the node provides through devices; None if none.
        mappings: Which request of that claim provides each extended resource of each container.
    """

    found: NodeAllocation | None
    extended_claim: ResourceClaim | None = None
    mappings: tuple[ExtendedResourceRequest, ...] = ()


class PodDevices(Struct):
    """The claims of a pod within one attempt.

    Attributes:
        pod: The pod.
        claims: Its claims, the one for extended resources last; PreBind replaces them by what it wrote.
        extended_claim: The last claim as PreFilter found or made it; None without extended resources.
        extended_amounts: Requested amount of each extended resource, in whole units.
        matchers: Nodes from which each claim's allocation is reachable; None for all, or without an allocation.
        pending: Allocation of each claim that is not written to it yet: from Reserve, or shared by a gang's member.
        make_allocator: Makes the search for the claims that have no allocation; None if all have one.
        unavailable: Indices of allocated claims that some node cannot reach, or whose devices failed.
        by_node: What Filter found, by node name, if it searched each node.
        by_class: What Filter found, by class of nodes, if it searched each class.
        classes: Class of each row, if Filter searched each class.
    """

    pod: PodInfo
    claims: list[ResourceClaim] = field(default_factory=list)
    extended_claim: ResourceClaim | None = None
    extended_amounts: dict[str, int] = field(default_factory=dict)
    matchers: list[NodeMatcher | None] = field(default_factory=list)
    pending: list[AllocationResult | None] = field(default_factory=list)
    make_allocator: Callable[[Sequence[ResourceClaim]], Allocator] | None = None
    unavailable: set[int] = field(default_factory=set)
    by_node: dict[str, NodeDevices] = field(default_factory=dict)
    by_class: dict[int, NodeAllocation] = field(default_factory=dict)
    classes: NDArray[np.int64] | None = None
    _requests: dict[frozenset[str], tuple[ResourceClaim, NodeRequests]] = field(default_factory=dict)
    _allocators: dict[str, Allocator] = field(default_factory=dict)

    @property
    def has_user_claims(self) -> bool:
        """Whether ``spec.resourceClaims`` names a claim."""
        return len(self.claims) > (self.extended_claim is not None)

    def to_allocate(self) -> list[int]:
        """Return the indices of the claims whose status has no allocation."""
        return [index for index, claim in enumerate(self.claims) if claim.status.allocation is None]

    @property
    def is_same_for_classes(self) -> bool:
        """Whether nodes with equal devices have the same outcome: no claim is allocated or for extended resources."""
        return self.extended_claim is None and all(
            claim.status.allocation is None and pending is None
            for claim, pending in zip(self.claims, self.pending, strict=True)
        )

    def filter_class(self, number: int, node: Node) -> Status | None:
        """Search devices on one node of a class; return None if there are some, else the rejection or error."""
        found = self._allocate(node, None)
        if isinstance(found, Status):
            return found
        self.by_class[number] = found
        return None

    def allocator(self) -> Allocator:
        """Return the search for the claims, without extended resources."""
        return self._allocator(None)

    def filter_node(self, nodes: NodeColumns, row: int, node: Node, limits: BindingLimit) -> Status | None:
        """Search devices on one node and store them; return None if there are some, else the rejection or error."""
        extended: tuple[ResourceClaim, NodeRequests] | None = None
        if self.extended_claim is not None:
            if self.extended_claim.spec.devices.request_list is not None:
                return STALE_EXTENDED_CLAIM
            through_devices = self._provided_through_devices(nodes, row)
            if through_devices is None:
                return CANNOT_FIT
            if not through_devices and not self.has_user_claims:
                return None
            extended = self._extended(through_devices, nodes)
        unavailable = [
            index for index, claim in enumerate(self.claims) if not self._is_available(index, claim, node, limits)
        ]
        found: NodeAllocation | None = None
        if self.make_allocator is not None:
            result = self._allocate(node, None if extended is None else extended[0])
            if isinstance(result, Status):
                return result
            found = result
        if unavailable:
            self.unavailable.update(unavailable)
            return NOT_AVAILABLE
        if self.make_allocator is not None:
            name = node.metadata.name
            self.by_node[name] = NodeDevices(found) if extended is None else NodeDevices(found, *_parts(extended))
        return None

    def claims_on(self, nodes: NodeColumns, row: int, limits: BindingLimit) -> NodeClaims:
        """Return the claims as the search on one row reads them; none if there is no search."""
        node = nodes.nodes[row]
        if node is None:
            return NodeClaims()
        extended: ResourceClaim | None = None
        if self.extended_claim is not None:
            through_devices = self._provided_through_devices(nodes, row)
            if self.extended_claim.spec.devices.request_list is not None or through_devices is None:
                return NodeClaims()
            extended = self._extended(through_devices, nodes)[0]
        unavailable = tuple(
            UnavailableClaim(
                claim, is_reachable=matcher is None or matcher.matches(node.metadata.labels, node.metadata.name)
            )
            for index, (claim, matcher) in enumerate(zip(self.claims, self.matchers, strict=True))
            if not self._is_available(index, claim, node, limits)
        )
        return NodeClaims(tuple(self._wanted(extended)), unavailable)

    def claim_to_deallocate(self) -> ResourceClaim | None:
        """Return an allocated claim that some node cannot use, and that nobody but the pod uses."""
        for index in sorted(self.unavailable):
            claim = self.claims[index]
            if claim is self.extended_claim:
                if not is_in_memory(claim):
                    return None
                continue
            if all(consumer.uid == self.pod.uid for consumer in claim.status.reserved_for):
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
        """Return an allocation for each claim without one, in order; None if there are no devices on the node.

        Raises:
            AllocationError: A slice has a node selector that cannot be written into a result.
        """
        if self.classes is not None:
            # Classes may be out of date by now: the devices are those of the node as it is.
            found = self.allocator().find(node.metadata.name, node.metadata.labels)
            return None if found is None else found.results(random_share_id)
        devices = self.by_node.get(node.metadata.name)
        if devices is None:
            return None
        results = iter(() if devices.found is None else devices.found.results(random_share_id))
        return [self.pending[index] or next(results) for index in self.to_allocate()]

    def all_allocations(self, node: Node, on_step: Callable[[], None]) -> Iterator[list[AllocationResult]]:
        """Yield every list that :meth:`allocations` could return for a feasible node, the one that it returns first.

        Raises:
            AllocationError: An object is invalid.
        """
        devices, indices = self.by_node.get(node.metadata.name), self.to_allocate()
        if all(self.pending[index] is not None for index in indices):
            yield [pending for pending in self.pending if pending is not None]
            return
        allocator = self._allocator(None if devices is None else devices.extended_claim)
        for found in allocator.find_all(node.metadata.name, node.metadata.labels, on_step):
            results = iter(found.results(random_share_id))
            yield [self.pending[index] or next(results) for index in indices]

    def _is_available(self, index: int, claim: ResourceClaim, node: Node, limits: BindingLimit) -> bool:
        matcher = self.matchers[index]
        if matcher is not None and not matcher.matches(node.metadata.labels, node.metadata.name):
            return False
        if claim.status.allocation is None:
            return True
        try:
            return is_ready_for_binding(claim) or not is_past_binding_timeout(claim, limits.timeout_seconds, limits.now)
        except DeviceError:
            return False

    def _allocate(self, node: Node, extended: ResourceClaim | None) -> NodeAllocation | Status:
        """Return devices for all claims without an allocation, or the rejection or error."""
        name = node.metadata.name
        try:
            found = self._allocator(extended).find(name, node.metadata.labels)
        except InvalidPoolsError:
            return INVALID_POOLS
        except AllocationTimeoutError:
            return error(f"node {name}: timed out trying to allocate devices")
        except AllocationError as problem:
            return error(str(problem))
        return CANNOT_ALLOCATE if found is None else found

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

    def _provided_through_devices(self, nodes: NodeColumns, row: int) -> frozenset[str] | None:
        """Return the extended resources that the node provides through devices; None if it lacks one altogether."""
        names: set[str] = set()
        node = nodes.nodes[row]
        offered = {} if node is None else node.status.allocatable
        for name, amount in self.extended_amounts.items():
            if not amount:
                continue
            if nodes.devices.class_of_resource(name) is not None and not _amount(nodes, name, row):
                names.add(name)
            elif name not in offered:
                return None
        return frozenset(names)

    def _extended(self, names: frozenset[str], nodes: NodeColumns) -> tuple[ResourceClaim, NodeRequests]:
        """Return the claim for these extended resources, which is the same on all nodes that provide them."""
        found = self._requests.get(names)
        if found is None:
            assert self.extended_claim is not None
            resolve = nodes.devices.class_of_resource
            classes = {name: each.metadata.name for name in names if (each := resolve(name)) is not None}
            requests = node_requests(self.pod.pod, classes)
            found = self._requests[names] = (with_requests(self.extended_claim, requests.requests), requests)
        return found


ATTEMPT: StateKey[PodDevices] = StateKey("DynamicResources/attempt")


class BindingLimit(Struct, frozen=True):
    """How long drivers may take to prepare devices, and the time now, in UTC."""

    timeout_seconds: float
    now: datetime


def _amount(nodes: NodeColumns, resource: str, row: int) -> int:
    column = nodes.resources.find(resource)
    return 0 if column is None else nodes.allocatable.item(column, row)


def _parts(extended: tuple[ResourceClaim, NodeRequests]) -> tuple[ResourceClaim, tuple[ExtendedResourceRequest, ...]]:
    claim, requests = extended
    return claim, requests.mappings
