"""Allocator: finds devices for the claims of one pod, node by node.

The result on each node is that of kube-scheduler v1.37.1, device for device. Nodes with equal behaviour and equal
use of devices share one search, because the search depends on nothing else; only names differ in their results.

Two details of kube-scheduler depend on the order in which its threads evaluate nodes, and are decided by node here:
the counters of a pool of which some nodes see an older generation, and which of several errors is reported.

To score extended resources, every device of every slice that targets the node counts: generations, completeness of
pools, counters and taints are ignored, and so is whether a device can be shared. If a selector fails for a device, no
device of the node counts.

Follows kube-scheduler v1.37.1, ``plugins/noderesources/resource_allocation.go`` (``calculateDRAResourceTotals``), which
in addition keeps positive verdicts for devices that a driver changed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import compress
from weakref import WeakKeyDictionary

from scheduler_core.devices.behaviours import DeviceKnowledge, KnowledgeBounds
from scheduler_core.devices.device_state import NodeDevices, Position, TakenDevice
from scheduler_core.devices.inventory import DeviceInventory
from scheduler_core.devices.pools import (
    AllocatedDevices,
    ChangedUse,
    PooledSlice,
    PoolKey,
    PoolUsage,
    PoolView,
    UsedDevices,
)
from scheduler_core.devices.records import DeviceFeatures
from scheduler_core.devices.requests import ClaimPlan, RequestTerms, plan_claims, search_key
from scheduler_core.devices.search import BestFit, DeviceSearch, SearchLimits, Solution, lacks_devices
from scheduler_core.devices.selector_cache import Expressions, SizedCache
from scheduler_core.errors import AllocationError, AllocationTimeoutError, InvalidPoolsError
from scheduler_core.model.affinity import NodeSelector, NodeSelectorTerm, Requirement
from scheduler_core.model.devices import (
    FROM_CLAIM,
    FROM_CLASS,
    MAX_RESULTS,
    AllocatedConfiguration,
    AllocationResult,
    DeviceAllocation,
    DeviceClass,
    DeviceRequestResult,
    OpaqueConfiguration,
    ResourceClaim,
)
from scheduler_core.model.pod_requests import canonical_text
from scheduler_core.model.selectors import IN, METADATA_NAME
from scheduler_core.step_counter import StepCounter


def claim_configuration(plan: ClaimPlan, alternatives: Sequence[int]) -> tuple[AllocatedConfiguration, ...]:
    """Return the configuration of a claim for the chosen alternatives: of classes first, then of the claim.

    The configuration of a class is added once for all its requests. ``requests`` is empty if it names all.
    """
    chosen = [request.terms[index] for request, index in zip(plan.requests, alternatives, strict=True)]
    by_class: dict[str, list[str]] = {}
    sources: list[tuple[str, Sequence[str], OpaqueConfiguration | None]] = []
    for terms in chosen:
        device_class = terms.device_class
        if device_class is None:
            continue
        names = by_class.get(device_class.metadata.name)
        if names is None:
            # The list is completed below, when later requests of the class are met.
            names = by_class[device_class.metadata.name] = []
            sources.extend((FROM_CLASS, names, config.opaque) for config in device_class.spec.config)
        names.append(terms.result_name)
    sources.extend(
        (FROM_CLAIM, config.requests, config.opaque)
        for config in plan.claim.spec.devices.config
        if not config.requests or any(terms.is_named_in(config.requests) for terms in chosen)
    )
    return tuple(
        AllocatedConfiguration(
            source, () if all(terms.is_named_in(requests) for terms in chosen) else tuple(requests), opaque
        )
        for source, requests, opaque in sources
    )


def node_selector(devices: Sequence[TakenDevice], pools: Sequence[PoolView], node: str) -> NodeSelector | None:
    """Return the nodes from which all devices of a claim are reachable; None for all nodes.

    A device that is local to a node, or binds to it, restricts the claim to ``node``.

    Raises:
        AllocationError: A slice has a node selector with several terms.
    """
    fields: list[Requirement] = []
    expressions: list[Requirement] = []
    for taken in devices:
        view = pools[taken.position[0]]
        target = view.node_target(taken.position[1])
        if target.node_name is not None or view.records[taken.position[1]].binds_to_node:
            only = Requirement(METADATA_NAME, IN, (node,))
            return NodeSelector((NodeSelectorTerm(match_fields=(only,)),))
        if target.node_selector is None:
            continue
        terms = target.node_selector.node_selector_terms
        if len(terms) > 1:
            raise AllocationError(
                f"create NodeSelector for claim {taken.terms.claim.partition('/')[2]}: "
                f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms"
            )
        for term in terms:
            _add_new(fields, term.match_fields)
            _add_new(expressions, term.match_expressions)
    if not fields and not expressions:
        return None
    return NodeSelector((NodeSelectorTerm(tuple(expressions), tuple(fields)),))


def _add_new(requirements: list[Requirement], added: Sequence[Requirement]) -> None:
    for one in added:
        if not any(
            one.key == known.key and one.operator == known.operator and set(one.values) == set(known.values)
            for known in requirements
        ):
            requirements.append(one)


@dataclass(slots=True, eq=False)
class NodeAllocation:
    """Devices found for all claims on a node.

    Nodes with equal devices, and pods with equal claims, share one solution, so only positions of devices are stored
    until :meth:`results`.
    """

    node: str
    devices: NodeDevices
    plans: Sequence[ClaimPlan]
    solution: Solution

    def results(self, new_share_id: Callable[[], str]) -> list[AllocationResult]:
        """Return one result for each claim, in order, without timestamps.

        Raises:
            AllocationError: A slice has a node selector that cannot be written into a result.
        """
        own = {one.number: one for plan in self.plans for request in plan.requests for one in request.terms}
        results = []
        for plan, found, alternatives in zip(
            self.plans, self.solution.devices, self.solution.alternatives, strict=True
        ):
            devices = [replace(taken, terms=own[taken.terms.number]) for taken in found]
            allocated = DeviceAllocation(
                results=tuple(self._device(taken, new_share_id) for taken in devices),
                config=claim_configuration(plan, alternatives),
            )
            selector = node_selector(devices, self.devices.pools, self.node)
            results.append(AllocationResult(devices=allocated, node_selector=selector))
        return results

    def _device(self, taken: TakenDevice, new_share_id: Callable[[], str]) -> DeviceRequestResult:
        pool, device = taken.position
        view, terms = self.devices.pools[pool], taken.terms
        record = view.records[device]
        assessment = self.devices.behaviour(taken.position).assessments[terms.number]
        consumed = assessment.consumed if taken.is_share else None
        return DeviceRequestResult(
            request=terms.result_name,
            driver=view.key[0],
            pool=view.key[1],
            device=view.names.names[device],
            admin_access=True if terms.admin_access else None,
            tolerations=terms.tolerations,
            binding_conditions=record.binding_conditions,
            binding_failure_conditions=record.binding_failure_conditions,
            share_id=new_share_id() if taken.is_share else None,
            consumed_capacity={
                name: canonical_text(amount.nano, amount.form) for name, amount in (consumed or {}).items()
            },
            skip_node_operations=record.skip_node_operations,
        )


_DEVICES_PER_STEP = 8
"""Devices that are looked at in a step."""


@dataclass(slots=True)
class SearchTally:
    """Searches for devices since the start of the process.

    Attributes:
        searches: Their number; nodes with equal devices share one.
        given_up: Searches that ended at a limit of time or steps.
    """

    searches: int = 0
    steps: int = 0
    given_up: int = 0

    @property
    def numbers(self) -> tuple[int, int, int]:
        """All numbers, in their order."""
        return self.searches, self.steps, self.given_up

    def add(self, searches: int, steps: int, given_up: int) -> None:
        """Add the searches of a copy of this process."""
        self.searches += searches
        self.steps += steps
        self.given_up += given_up


@dataclass(frozen=True, slots=True)
class ClusterDevices:
    """The long-lived state of the devices of a cluster; feeds update it.

    Attributes:
        inventory: Slices and taint rules.
        knowledge: Verdicts of selectors and behaviours of devices.
        dry_knowledge: The same for dry runs, which must not change how many steps live attempts take.
        tally: Number of searches, including those of dry runs.
    """

    features: DeviceFeatures
    inventory: DeviceInventory
    allocated: AllocatedDevices
    knowledge: DeviceKnowledge
    dry_knowledge: DeviceKnowledge
    steps: StepCounter
    tally: SearchTally = field(default_factory=SearchTally)

    @classmethod
    def empty(
        cls,
        features: DeviceFeatures | None = None,
        bounds: KnowledgeBounds | None = None,
        steps: StepCounter | None = None,
    ) -> ClusterDevices:
        chosen = DeviceFeatures() if features is None else features
        counter = StepCounter() if steps is None else steps
        inventory = DeviceInventory(chosen, counter)
        allocated = AllocatedDevices(inventory.pool_changed, consumable_capacity=chosen.consumable_capacity)
        bounds = KnowledgeBounds() if bounds is None else bounds
        # Dry runs evict nothing that decisions use. Both stores together keep the bound of the process.
        dry_bytes = bounds.verdict_bytes // 4
        live, dry = (
            DeviceKnowledge(chosen, replace(bounds, verdict_bytes=size), counter)
            for size in (bounds.verdict_bytes - dry_bytes, dry_bytes)
        )
        return cls(chosen, inventory, allocated, live, dry, counter)

    @property
    def knowledge_in_use(self) -> DeviceKnowledge:
        """Verdicts and behaviours for the attempt or dry run in progress."""
        return self.dry_knowledge if self.steps.is_dry else self.knowledge


class Allocator:
    """Finds devices for the claims of one pod.

    Args:
        claims: Claims without an allocation, in the order of the pod.
        best_fit: Whether each request takes the smallest device that serves it, and not the first one.
        used: The devices in use; None for those of the cluster.
    """

    def __init__(
        self,
        claims: Sequence[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        devices: ClusterDevices,
        limits: SearchLimits,
        *,
        best_fit: bool = False,
        used: ChangedUse | None = None,
    ) -> None:
        self.plans = plan_claims(claims, classes, devices.features)
        self._inventory = devices.inventory
        self._devices = devices
        self._used: UsedDevices = devices.allocated if used is None else used
        self.changed_pools: AbstractSet[PoolKey] = frozenset() if used is None else used.pools
        """Pools whose use is not that of the cluster."""
        self._tally = devices.tally
        self._counter = devices.steps
        knowledge = devices.knowledge_in_use
        self.table = knowledge.table(self.plans)
        """Behaviours of devices towards the claims; pods with equal claims share it."""
        self._best_fit = BestFit(self.plans, knowledge.selectors) if best_fit else None
        self._limits = limits
        self.search_key = key = search_key(self.plans, best_fit=best_fit)
        """Equal for claims whose searches have equal outcomes on equal devices; None for invalid claims."""
        self._solutions: dict[Hashable, Solution | None] = {} if key is None else self.table.searches(key)
        self.steps = 0
        """Steps of all searches."""
        self.searches = 0
        """Number of searches; other nodes, and pods with equal claims, shared a result."""

    def find(
        self, node: str, labels: Mapping[str, str], declared_features: Collection[str] = ()
    ) -> NodeAllocation | None:
        """Return the devices of the claims on a node, None if the claims cannot be allocated there.

        Raises:
            AllocationError: An object is invalid: the scheduling attempt ends.
            AllocationTimeoutError: The search reached a limit.
            InvalidPoolsError: The claims cannot be allocated on the node, which has invalid pools.
        """
        pools = self._inventory.pools(node, labels, declared_features)
        devices, key = self._described(pools, self._used)
        if key not in self._solutions:
            self._solutions[key] = self._search(devices)
        solution = self._solutions[key]
        if solution is not None:
            return NodeAllocation(node, devices, self.plans, solution)
        if any(view.is_invalid for view in pools):
            raise InvalidPoolsError("invalid resource pools were encountered")
        return None

    def find_all(
        self,
        node: str,
        labels: Mapping[str, str],
        on_step: Callable[[], None],
        declared_features: Collection[str] = (),
    ) -> Iterator[NodeAllocation]:
        """Yield all ways to serve the claims on a node; the first one is that of :meth:`find`.

        Devices that are equal for the claims of all pods count as one. Between two results the devices in use must be
        those of the call. There is no limit of time.

        Args:
            on_step: Called at each step of the search; what it raises ends the search.

        Raises:
            AllocationError: As :meth:`find`.
        """
        pools = self._inventory.pools(node, labels, declared_features)
        devices, _ = self._described(pools, self._used)
        limits = SearchLimits(self._limits.clock, on_step=on_step)
        search = self._device_search(devices, self._prepare(devices), limits, for_all=True)
        for solution in search.solutions():
            yield NodeAllocation(node, devices, self.plans, solution)

    def key(self, node: str, labels: Mapping[str, str], declared_features: Collection[str] = ()) -> Hashable:
        """Return a key that is equal for nodes with the same outcome, apart from names.

        Raises:
            AllocationError: A slice has an invalid node selector.
        """
        return self._described(self._inventory.pools(node, labels, declared_features), self._used)[1]

    def pools_key(self, pools: tuple[PoolView, ...]) -> Hashable:
        """Return the :meth:`key` of a node that sees these pools, by the use of devices in the cluster."""
        return self._described(pools, self._devices.allocated)[1]

    def _described(self, pools: tuple[PoolView, ...], used: UsedDevices) -> tuple[NodeDevices, Hashable]:
        rows = tuple(map(self.table.row, pools))
        usages = tuple(used.usage(view.key) for view in pools)
        key: tuple[Hashable, ...] = tuple(
            (row.number, None if usage is None else self._use(view, usage))
            for view, row, usage in zip(pools, rows, usages, strict=True)
        )
        return NodeDevices(pools, rows, usages), (*key, self._equal_values(pools)) if len(pools) > 1 else key

    def _equal_values(self, pools: tuple[PoolView, ...]) -> Hashable:
        """Return which values of attributes that constraints read occur in several pools; a pool's row has the rest."""
        values = [self.table.values(view) for view in pools]
        indices: dict[Hashable, int] = {}
        return tuple(
            indices.setdefault((attribute, value), len(indices))
            for of_pool in values
            for attribute, of_attribute in enumerate(of_pool)
            for value in of_attribute
        )

    def _use(self, view: PoolView, usage: PoolUsage) -> Hashable:
        pattern = usage.pattern(view.names)
        return (pattern, usage.revision) if view.counters and view.others else pattern

    def _search(self, node: NodeDevices) -> Solution | None:
        all_devices = self._prepare(node)
        self.searches += 1
        self._tally.searches += 1
        self._counter.spend(1 + sum(len(row.behaviours) for row in node.rows) // _DEVICES_PER_STEP)
        if not all_devices and lacks_devices(node, self.plans, self.table.attributes):
            return None
        search = self._device_search(node, all_devices, self._limits)
        try:
            return search.run()
        except AllocationTimeoutError:
            self._tally.given_up += 1
            raise
        finally:
            self.steps += search.steps
            self._tally.steps += search.steps

    def _device_search(
        self, node: NodeDevices, all_devices: dict[int, list[Position]], limits: SearchLimits, *, for_all: bool = False
    ) -> DeviceSearch:
        return DeviceSearch(
            node,
            self.plans,
            self.table.attributes,
            all_devices,
            limits,
            counter=self._counter,
            best_fit=self._best_fit,
            for_all=for_all,
        )

    def _prepare(self, node: NodeDevices) -> dict[int, list[Position]]:
        """Check the claims and return the devices of requests in mode All, by number of the terms."""
        all_devices: dict[int, list[Position]] = {}
        for plan in self.plans:
            total = 0
            for request in plan.requests:
                if request.error:
                    raise AllocationError(request.error)
                counts = []
                for terms in request.terms:
                    if terms.error:
                        raise AllocationError(terms.error)
                    if terms.takes_all:
                        self._counter.spend(1 + sum(len(row.behaviours) for row in node.rows) // _DEVICES_PER_STEP)
                        all_devices[terms.number] = _matching_devices(node, terms)
                    counts.append(len(all_devices[terms.number]) if terms.takes_all else terms.count)
                least = min(counts)
                if least > MAX_RESULTS - total:
                    raise AllocationError(
                        f"claim {plan.claim.key}, request {request.name}: adding {least} devices exceeds the claim "
                        f"limit of {MAX_RESULTS}, with {total} already accounted for"
                    )
                total += least
            if plan.constraint_error:
                raise AllocationError(plan.constraint_error)
        return all_devices


def _matching_devices(node: NodeDevices, terms: RequestTerms) -> list[Position]:
    """Return all devices that match a request in mode All and are large enough, in use or not."""
    found: list[Position] = []
    for pool, view in enumerate(node.pools):
        if view.is_incomplete or view.is_invalid:
            state = "being updated" if view.is_incomplete else "invalid"
            raise AllocationError(
                f"claim {terms.claim}, request {terms.name}: asks for all devices, but resource pool {view.name} is "
                f"currently {state}"
            )
        for device, record in enumerate(view.records):
            position = (pool, device)
            assessment = node.select(terms, position)
            if assessment is None:
                continue
            if assessment.capacity_error:
                raise AllocationError(
                    f"claim {terms.claim}, request {terms.name}: checking capacity for device "
                    f"{view.names.names[device]}: {assessment.capacity_error}"
                )
            consumed = assessment.consumed
            if consumed is not None and all(
                amount.nano <= record.rules[name].value.nano for name, amount in consumed.items()
            ):
                found.append(position)
    return found


_MAX_CLASSES = 16
_COUNTED_PER_STEP = 64
_NONE = (0, 0)

_Matches = tuple[bool | None, ...]
"""Whether each device of a slice matches; None if a selector failed."""


def class_expressions(device_class: DeviceClass) -> Expressions:
    return tuple(each.cel.expression for each in device_class.spec.selectors if each.cel is not None)


class ClassCounts:
    """Counts of devices by class and node; verdicts are stored per slice."""

    def __init__(self, devices: ClusterDevices, max_classes: int = _MAX_CLASSES) -> None:
        self.devices = devices
        self._matches: SizedCache[tuple[bool, Expressions], WeakKeyDictionary[PooledSlice, _Matches]]
        self._matches = SizedCache(max_classes)

    def count(self, device_class: DeviceClass, name: str, labels: Mapping[str, str]) -> tuple[int, int]:
        """Return the number of devices of a node that match a class, and how many of them are in use."""
        expressions = class_expressions(device_class)
        total = used = 0
        try:
            for pooled, targeted in self.devices.inventory.targeting(name, labels):
                self.devices.steps.upkeep(1 + len(pooled.names) // _COUNTED_PER_STEP)
                matches = self._matches_of(expressions, pooled)
                names = pooled.names
                if not isinstance(targeted, bool):
                    matches = tuple(compress(matches, targeted))
                    names = tuple(compress(names, targeted))
                if None in matches:
                    return _NONE
                total += sum(map(bool, matches))
                usage = self.devices.allocated.usage(pooled.pool_key)
                if usage is not None:
                    used += sum(usage.uses(device) for device in compress(names, matches))
        except AllocationError:
            return _NONE
        return total, used

    def _matches_of(self, expressions: Expressions, pooled: PooledSlice) -> _Matches:
        # Dry runs must not change the number of steps of live attempts.
        key = (self.devices.steps.is_dry, expressions)
        by_slice = self._matches.get(key)
        if by_slice is None:
            by_slice = WeakKeyDictionary()
            self._matches.put(key, by_slice)
        found = by_slice.get(pooled)
        if found is None:
            selectors = self.devices.knowledge_in_use.selectors
            verdicts = [selectors.verdict(expressions, each.facts.without_sharing()) for each in pooled.own_records]
            found = by_slice[pooled] = tuple(None if each.is_error else each.matches for each in verdicts)
        return found
