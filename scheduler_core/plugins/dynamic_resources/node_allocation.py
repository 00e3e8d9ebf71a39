"""Devices for one pod: what PreFilter found out about its claims, and what Filter found on the nodes.

Computing a node's class costs microseconds, which is too much for thousands of nodes and every pod. Pods with equal
claims share the classes, only rows whose node or devices changed are computed again, and nodes that see the same pools
share one computation, so that a change of a device that all nodes reach costs little.

Follows kube-scheduler v1.37.1, ``plugins/dynamicresources/dynamicresources.go`` (``Filter``) and
``extendeddynamicresources.go`` (``filterExtendedResources``).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from datetime import datetime
from itertools import chain, count
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from scheduler_core.devices.allocator import Allocator, NodeAllocation
from scheduler_core.devices.behaviours import BehaviourTable
from scheduler_core.devices.pools import PoolKey, PoolView
from scheduler_core.devices.search import size_ranks
from scheduler_core.errors import (
    AllocationError,
    AllocationTimeoutError,
    DeviceError,
    InvalidPoolsError,
    UndecidedRowsError,
)
from scheduler_core.framework.cycle_state import StateKey
from scheduler_core.framework.device_choices import (
    DeviceChoice,
    FoundDevices,
    NodeClaims,
    StepBudget,
    UnavailableClaim,
)
from scheduler_core.framework.extension_points import Codes, Scores
from scheduler_core.framework.status import Code, Status, error, unresolvable, unschedulable
from scheduler_core.model.devices import AllocationResult, ClaimConsumer, ResourceClaim
from scheduler_core.model.node import Node
from scheduler_core.model.selectors import NodeMatcher
from scheduler_core.plugins.dynamic_resources.pod_claims import (
    ExtendedClaim,
    consumer_of,
    extended_claim,
    is_in_memory,
    is_past_binding_timeout,
    is_ready_for_binding,
    supports_skipping,
    unsupported,
    unsupporting_rows,
)
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.node_selector_matching import NodeMatching
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.snapshot.row_cache import StaleDeviceRows

NO_NODE = -1
_FIRST_CHANGED = NO_NODE - 1
"""From here down, the classes of one attempt: of nodes with devices whose use differs for its pod."""
_NO_POOLS_OF_NODE = 0
"""Entry of rows without a node among the distinct pools."""


class NodeClasses:
    """Class of each row for one plan of claims; numbers are never used again."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._stale = StaleDeviceRows(nodes)
        self._numbers: dict[Hashable, int] = {}
        self._next = count()
        # A call that was interrupted has left these.
        self._rows_left: set[int] = set()
        self._entries_left: set[int] = set()
        self._clear()

    def _clear(self) -> None:
        self._pools_of_row: NDArray[np.intp] = np.zeros(self._nodes.size, dtype=np.intp)
        self._entries: dict[tuple[PoolView, ...] | str, int] = {}
        self._pools: list[tuple[PoolView, ...] | str] = [""]
        self._shared: list[int] = []
        self._entries_of: defaultdict[PoolKey, list[int]] = defaultdict(list)
        self._classes: NDArray[np.int64] = np.full(self._nodes.size + 1, NO_NODE, dtype=np.int64)
        self._numbers.clear()
        self._rows_left.clear()
        self._entries_left.clear()

    def refresh(self, allocator: Allocator) -> NDArray[np.int64]:
        """Return the current class of each row, int64; ``NO_NODE`` for a row without a node.

        The attempt may be postponed after each row and entry, and then goes on from there.
        """
        steps, rows, entries = self._nodes.devices.hardware.steps, self._rows_left, self._entries_left
        is_resumable = False
        try:
            self._take_stale()
            steps.begin_part()
            while rows:
                entries.add(self._enter(rows.pop()))
                is_resumable = True
                # A row leaves an entry at most.
                steps.checkpoint(2 * len(rows) + len(entries))
                is_resumable = False
            entries.discard(_NO_POOLS_OF_NODE)
            while entries:
                entry = entries.pop()
                self._classes[entry] = self._number(allocator, self._pools[entry])
                is_resumable = True
                steps.checkpoint(len(entries), 0)
                is_resumable = False
            if not allocator.changed_pools:
                return self._classes[self._pools_of_row]
            classes = self._classes.copy()
            for entry in chain.from_iterable(self._entries_of.get(key, ()) for key in allocator.changed_pools):
                classes[entry] = _FIRST_CHANGED - entry
            return classes[self._pools_of_row]
        except BaseException:
            if not is_resumable:
                self._stale.invalidate()
            raise

    def _take_stale(self) -> None:
        stale, size = self._stale.take(), self._nodes.size
        if stale is None or max(len(self._numbers), len(self._pools)) > 2 * size + 1:
            self._clear()
            self._rows_left.update(range(size))
        else:
            self._rows_left.update(stale)
        if self._stale.shared_changed:
            self._entries_left.update(self._shared)

    def _enter(self, row: int) -> int:
        """Set and return the entry of a row's pools."""
        node = self._nodes.nodes[row]
        entry = _NO_POOLS_OF_NODE
        if node is not None:
            pools: tuple[PoolView, ...] | str
            try:
                inventory = self._nodes.devices.hardware.inventory
                pools = inventory.pools(node.metadata.name, node.metadata.labels, node.status.declared_features)
            except AllocationError:
                # The search on this node reports the error.
                pools = node.metadata.name
            entry = self._entries.setdefault(pools, len(self._pools))
            if entry == len(self._pools):
                self._add(pools)
        self._pools_of_row[row] = entry
        return entry

    def _add(self, pools: tuple[PoolView, ...] | str) -> None:
        self._pools.append(pools)
        if len(self._pools) > len(self._classes):
            self._classes = np.resize(self._classes, 2 * len(self._pools))
        if isinstance(pools, str):
            return
        entry = len(self._pools) - 1
        for view in pools:
            self._entries_of[view.key].append(entry)
        if any(view.is_shared for view in pools):
            self._shared.append(entry)

    def _number(self, allocator: Allocator, pools: tuple[PoolView, ...] | str) -> int:
        key = pools if isinstance(pools, str) else allocator.pools_key(pools)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = next(self._next)
        return number


CANNOT_ALLOCATE = unresolvable("cannot allocate all claims")
IN_USE = unschedulable(CANNOT_ALLOCATE.message)
"""The same rejection if preemption may free devices."""
NOT_AVAILABLE = unresolvable("resourceclaim not available on the node")
CANNOT_FIT = unresolvable("cannot fit resource")
STALE_EXTENDED_CLAIM = unresolvable("cannot schedule extended resource claim")
INVALID_POOLS = unresolvable("invalid resource pools were encountered")

REASONS: tuple[Status, ...] = (CANNOT_ALLOCATE, NOT_AVAILABLE, CANNOT_FIT, STALE_EXTENDED_CLAIM, INVALID_POOLS)
"""The statuses of nodes that Filter rejects."""
UNSUPPORTED_CODE = len(REASONS) + 1
"""Code of a node that cannot skip operations, which an allocation that is not written yet needs."""
_MAX_ALTERNATIVES = 8


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


class AllocationWrite(Struct):
    """A write of a new allocation that PreBind has begun and not ended.

    Attributes:
        held: The claim as it is in flight.
        claim: The claim that is written; that for extended resources gets another UID when it is created.
        task: The write; None if it could not be started.
    """

    held: ResourceClaim
    claim: ResourceClaim
    task: asyncio.Task[ResourceClaim] | None = None


class PodDevices(Struct):
    """The claims of a pod within one attempt.

    Attributes:
        consumers: What each claim of ``spec.resourceClaims`` is reserved for: the pod, or its PodGroup.
        claims: Its claims, the one for extended resources last; PreBind replaces them by what it wrote.
        extended_claim: The last claim as PreFilter found or made it; None without extended resources.
        matchers: Nodes from which each claim's allocation is reachable; None for all, or without an allocation.
        skipping: Indices of the claims whose allocation, written or not, needs a node that can skip operations.
        pending: Allocation of each claim that is not written to it yet: from Reserve, or shared by a gang's member.
        make_allocator: Makes the search for the claims that have no allocation; None if all have one.
        unavailable: Indices of allocated claims that some node cannot reach, or whose devices failed.
        searches: Searches of Filter, by the extended resources that nodes provide through devices.
        reserved_extended: What stands for the extended resources on the node of Reserve; None before, or for nothing.
        is_found: Whether the devices on the only node to evaluate are known, so that Filter does not search them.
        writes: Writes of allocations, by the UID of the claim in flight, that Unreserve ends if PreBind does not.
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
    is_found: bool = False
    writes: dict[str, AllocationWrite] = field(default_factory=dict)
    _requests: dict[frozenset[str], ExtendedClaim] = field(default_factory=dict)
    _allocators: dict[str, Allocator] = field(default_factory=dict)

    @property
    def has_user_claims(self) -> bool:
        return len(self.claims) > (self.extended_claim is not None)

    def consumer(self, index: int) -> ClaimConsumer:
        return self.consumers[index] if index < len(self.consumers) else consumer_of(self.pod.pod)

    def assume_consumers(self) -> None:
        """Count what uses the claims as their consumers, before their reservations are written."""
        for index, claim in enumerate(self.claims):
            used = (claim.metadata.uid, self.consumer(index).uid)
            self.nodes.devices.assume_consumer(*used)
            self.assumed_consumers.append(used)

    def drop_consumers(self) -> None:
        while self.assumed_consumers:
            self.nodes.devices.drop_consumer(*self.assumed_consumers[-1])
            self.assumed_consumers.pop()

    def to_allocate(self) -> list[int]:
        """Return the indices of the claims whose status has no allocation."""
        return [index for index, claim in enumerate(self.claims) if claim.status.allocation is None]

    def found(self) -> FoundDevices:
        """Return the allocations that are not written yet, with the claims that wait for them."""
        indices = self.to_allocate()
        claims = tuple("" if is_in_memory(self.claims[index]) else self.claims[index].metadata.uid for index in indices)
        return FoundDevices(claims, tuple(each for index in indices if (each := self.pending[index]) is not None))

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
        """Return the sum, over prioritized lists, of 8 minus the index of the alternative in use; 0 for None."""
        chosen = iter(() if found is None else found.solution.alternatives)
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
        """Yield every list that :meth:`allocations` could return for a feasible node, its own first."""
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
            found = self._requests[names] = extended_claim(self.extended_claim, self.pod.pod, classes)
        return found


ATTEMPT: StateKey[PodDevices] = StateKey("DynamicResources/attempt")


class BindingLimit(Struct, frozen=True):
    """How long drivers may take to prepare devices, and the time now, in UTC."""

    timeout_seconds: float
    now: datetime


_encode = msgspec.json.Encoder(order="deterministic").encode


def choices_on(attempt: PodDevices, node: Node, budget: StepBudget) -> Iterator[DeviceChoice]:
    """Yield the allocations on a feasible node, each use of devices once.

    The choices end at an invalid selector or class that the search meets, as the search of Filter does.
    """
    indices = attempt.to_allocate()
    if not indices:
        yield DeviceChoice((), ())
        return
    seen: set[Hashable] = set()
    claims = [attempt.claims[index] for index in indices]
    found = attempt.all_allocations(node, budget.spend)
    while True:
        try:
            allocations = next(found, None)
        except AllocationError:
            return
        if allocations is None:
            return
        key = _key(attempt, claims, allocations)
        if key not in seen:
            seen.add(key)
            yield DeviceChoice(key, tuple(allocations))


def _key(attempt: PodDevices, claims: Sequence[ResourceClaim], allocations: Sequence[AllocationResult]) -> Hashable:
    """Return a key of the devices in use; a claim that other pods can share is part of it."""
    parts = []
    for claim, allocation in zip(claims, allocations, strict=True):
        own = is_in_memory(claim) or claim.metadata.is_controlled_by(attempt.pod.uid)
        devices = frozenset(
            (each.driver, each.pool, each.device, bool(each.admin_access), _encode(each.consumed_capacity))
            for each in allocation.devices.results
        )
        parts.append(("" if own else claim.metadata.uid, devices, _encode(allocation.node_selector)))
    return frozenset(parts)


# -- Filter and Score on rows: one search for each class of nodes, and no loop over nodes -----------------------------

_CODES = {reason: number for number, reason in enumerate(REASONS, 1)}
_FAILED = -1
_FIT_STEPS = 100
"""Weight of alternatives beside sizes: the best size counts less than the next better alternative."""


class RowFilter:
    """Searches devices on rows."""

    def __init__(self, nodes: NodeColumns, plugin: str) -> None:
        self.nodes = nodes
        self._plugin = plugin
        self._matching = NodeMatching(nodes)
        self._classes: WeakKeyDictionary[BehaviourTable, NodeClasses] = WeakKeyDictionary()

    def filter(self, attempt: PodDevices, rows: NDArray[np.intp], limits: BindingLimit) -> Codes:
        """Return int16 per row: 0 for a feasible node, else one more than the index of the reason."""
        codes: Codes = np.zeros(len(rows), dtype=np.int16)
        unsupporting = unsupporting_rows(self.nodes, rows) if attempt.skipping else None
        if attempt.extended_claim is None:
            positions: NDArray[np.intp] | slice = slice(None)
            if unsupporting is not None:
                _check_pending(attempt, unsupporting, codes)
                positions = np.flatnonzero(codes == 0)
            self._search(attempt, attempt.search(frozenset()), rows, positions, codes)
        elif attempt.extended_claim.spec.devices.request_list is not None:
            codes[:] = _CODES[STALE_EXTENDED_CLAIM]
            return codes
        else:
            numbers, sets = attempt.provided_through_devices(rows)
            codes[numbers < 0] = _CODES[CANNOT_FIT]
            if unsupporting is not None:
                _check_pending(attempt, unsupporting, codes)
            for number, names in enumerate(sets):
                if names or attempt.has_user_claims:
                    searched = np.flatnonzero((numbers == number) & (codes == 0))
                    self._search(attempt, attempt.search(names), rows, searched, codes)
        self._check_allocated(attempt, rows, limits, codes, unsupporting)
        return codes

    def _search(
        self,
        attempt: PodDevices,
        search: NodeSearch,
        rows: NDArray[np.intp],
        positions: NDArray[np.intp] | slice,
        codes: Codes,
    ) -> None:
        """Set the codes of rows that provide the same resources through devices."""
        allocator, nodes = search.allocator, self.nodes
        searched = rows[positions]
        if attempt.is_found or allocator is None or not len(searched):
            return
        search.classes = self._refreshed(allocator)
        distinct, first, inverse = np.unique(search.classes[searched], return_index=True, return_inverse=True)
        by_class: Codes = np.zeros(len(distinct), dtype=np.int16)
        for position in np.argsort(first).tolist():
            node = nodes.nodes[searched.item(first.item(position))]
            if node is None:
                continue
            status = search.run(distinct.item(position), node)
            if status is not None and status.code is Code.ERROR:
                by_class[position] = _FAILED
                codes[positions] = by_class[inverse]
                raise UndecidedRowsError(self._plugin, codes, {_FAILED: status.message})
            if status is not None:
                by_class[position] = _CODES[status]
        codes[positions] = by_class[inverse]

    def _refreshed(self, allocator: Allocator) -> NDArray[np.int64]:
        stored = self._classes.get(allocator.table)
        if stored is None:
            stored = self._classes[allocator.table] = NodeClasses(self.nodes)
        return stored.refresh(allocator)

    def _check_allocated(
        self,
        attempt: PodDevices,
        rows: NDArray[np.intp],
        limits: BindingLimit,
        codes: Codes,
        unsupporting: NDArray[np.bool_] | None,
    ) -> None:
        """Reject rows that cannot reach or use the devices of an allocated claim, or where these failed."""
        passed = (codes == 0) & self.nodes.alive[rows]
        for index, matcher in enumerate(attempt.matchers):
            blocked = passed
            if attempt.is_usable(index, limits):
                lacking = unsupporting if index in attempt.skipping else None
                if matcher is None and lacking is None:
                    continue
                blocked = np.zeros_like(passed) if matcher is None else passed & ~self._matching.selector(matcher, rows)
                if lacking is not None:
                    blocked |= passed & lacking
            if blocked.any():
                attempt.unavailable.add(index)
                codes[blocked] = _CODES[NOT_AVAILABLE]


def _check_pending(attempt: PodDevices, unsupporting: NDArray[np.bool_], codes: Codes) -> None:
    """Reject rows that cannot skip operations, if an allocation that is not written yet needs that."""
    if attempt.pending_skipping is not None:
        codes[unsupporting & (codes == 0)] = UNSUPPORTED_CODE


def raw_scores(attempt: PodDevices, rows: NDArray[np.intp], *, best_fit: bool) -> Scores:
    """Return int64 per row: the sum, over requests with alternatives, of 8 minus the index of the one in use.

    With ``best_fit`` that counts 100 times, and 99 is added for the smallest devices among the rows down to 0 for the
    largest ones.
    """
    scores: Scores = np.zeros(len(rows), dtype=np.int64)
    if not best_fit and not attempt.has_alternatives:
        return scores
    parts = _found(attempt, rows)
    values = iter(_values([each for found, _, _ in parts for each in found if each], attempt, best_fit=best_fit))
    for found, positions, inverse in parts:
        scores[positions] = np.array([0 if each is None else next(values) for each in found], dtype=np.int64)[inverse]
    return scores


def _values(found: Sequence[NodeAllocation], attempt: PodDevices, *, best_fit: bool) -> list[int]:
    preferred = [attempt.preference(each) for each in found]
    if not best_fit:
        return preferred
    ranks = size_ranks([each.solution.size for each in found])
    largest = max(1, *ranks) if ranks else 1
    fits = [(_FIT_STEPS - 1) * (largest - rank) // largest for rank in ranks]
    return [value * _FIT_STEPS + fit for value, fit in zip(preferred, fits, strict=True)]


def _found(
    attempt: PodDevices, rows: NDArray[np.intp]
) -> list[tuple[list[NodeAllocation | None], NDArray[np.intp], NDArray[np.intp]]]:
    """Return what Filter found by class of nodes, the positions of the searched rows, and the class of each of them."""
    if attempt.extended_claim is None:
        numbers: NDArray[np.int64] = np.zeros(len(rows), dtype=np.int64)
        sets = [frozenset[str]()]
    else:
        numbers, sets = attempt.provided_through_devices(rows)
    parts = []
    for number, names in enumerate(sets):
        search = attempt.searches.get(names)
        if search is None or not len(search.classes):
            continue
        positions = np.flatnonzero(numbers == number)
        distinct, inverse = np.unique(search.classes[rows[positions]], return_inverse=True)
        parts.append(([search.by_class.get(each) for each in distinct.tolist()], positions, inverse))
    return parts
