"""Devices in an explanation: obstacles of claims with the nodes they apply to, and problems of devices, nearest first.

The search only returns that there is no solution. Here it runs again on parts of the claims: each request alone, the
requests of a claim without constraints, each claim alone. The first part that fails is the reason. Nodes with equal
devices share the result, as in the search itself. Devices are counted once, also those that many nodes reach.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from msgspec.structs import replace

from scheduler_core.devices.allocator import Allocator, SearchTally
from scheduler_core.devices.pools import PoolKey, PoolView
from scheduler_core.devices.requests import ClaimPlan, RequestPlan, RequestTerms
from scheduler_core.devices.search import SearchLimits
from scheduler_core.errors import AllocationError, AllocationTimeoutError, InvalidPoolsError
from scheduler_core.explain.device_problems import LACKED_FEATURE, DeviceProblem, DeviceProblems, Problems, distance
from scheduler_core.explain.findings import ClaimRejection, DeviceExplanation, DeviceGroup, UnmetCondition, request_key
from scheduler_core.explain.pod_dry_run import Examination
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.device_choices import ClaimsFilter, NodeClaims, UnavailableClaim
from scheduler_core.model.affinity import NodeSelector
from scheduler_core.model.devices import AllocationResult, DeviceConstraint, DeviceRequest, ResourceClaim
from scheduler_core.model.node import Node
from scheduler_core.model.selectors import METADATA_NAME
from scheduler_core.runtime.filtering import run_pre_filters
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.indexes.device_index import DeviceIndex, HeldDevices, allocations_of
from scheduler_core.snapshot.node_columns import NodeColumns

# -- obstacles of claims on one node ----------------------------------------------------------------------------------


_MAX_STEPS = 20_000
"""Steps of one search."""
_MAX_STEPS_TOTAL = 200_000
"""Steps of all searches of one explanation, after which nodes are not examined any more."""
_NO_DEVICES = "the node has no devices"
_TOGETHER = "each claim has devices alone, but not all of them together"
_UNEXAMINED = "not examined: the search was given up"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why claims cannot be allocated on a node.

    Attributes:
        claim: ``namespace/name`` of the claim; several claims are joined by commas.
        request: The request, if one has no devices even alone; else "".
        terms: The alternatives of that request.
        needed: Number of devices that it needs, the least of all alternatives.
        gap: How much must change where no single device explains it; larger is more.
    """

    claim: str
    request: str
    reason: str
    terms: tuple[RequestTerms, ...] = ()
    needed: int = 0
    gap: float = 0.5


class ClaimObstacles:
    """Finds the obstacles of the claims of one pod, node by node; nothing is changed."""

    def __init__(self, devices: DeviceIndex, held: Sequence[AllocationResult] = ()) -> None:
        self._hardware = dataclasses.replace(devices.hardware, tally=SearchTally())
        self._used = devices.hardware.allocated.with_changes(held)
        self._classes = devices.classes
        self._problems = DeviceProblems(devices.hardware.knowledge_in_use)
        self._devices: dict[tuple[RequestTerms, PoolView], dict[Problems, list[int]]] = {}
        self._allocators: dict[Hashable, Allocator] = {}
        self._found: dict[Hashable, tuple[Obstacle, ...]] = {}

    def pools(self, node: Node) -> tuple[PoolView, ...]:
        """Return the pools that a node sees; none if they cannot be determined."""
        try:
            return self._hardware.inventory.pools(
                node.metadata.name, node.metadata.labels, node.status.declared_features
            )
        except AllocationError:
            return ()

    def devices(self, terms: RequestTerms, view: PoolView) -> dict[Problems, list[int]]:
        """Return the positions of the devices of a pool by their problems."""
        found = self._devices.get((terms, view))
        if found is None:
            self._hardware.steps.spend(1 + len(view.records))
            found = self._problems.of_pool(terms, view, self._used.usage(view.key))
            self._devices[terms, view] = found
        return found

    def on_node(self, claims: Sequence[ResourceClaim], node: Node) -> tuple[Obstacle, ...]:
        """Return why claims without an allocation cannot be allocated on a node that has no devices for them."""
        identity = ("all", *map(id, claims))
        names = ", ".join(claim.key for claim in claims)
        try:
            allocator = self._allocator(identity, claims)
            of_node = allocator.key(node.metadata.name, node.metadata.labels, node.status.declared_features)
        except AllocationError as problem:
            return (Obstacle(names, "", str(problem)),)
        found = self._found.get((identity, of_node))
        if found is None:
            try:
                found = tuple(self._examined(allocator.plans, node)) or (Obstacle(names, "", _TOGETHER),)
            except AllocationTimeoutError:
                found = (Obstacle(names, "", _UNEXAMINED),)
            self._found[identity, of_node] = found
        return found

    # -- parts of claims --------------------------------------------------------------------------------------------

    def _examined(self, plans: Sequence[ClaimPlan], node: Node) -> Iterator[Obstacle]:
        """Yield the obstacles of single requests; if there are none, those of single claims."""
        pools = self.pools(node)
        if not pools:
            yield from (Obstacle(plan.claim.key, "", _NO_DEVICES, gap=4.0) for plan in plans if plan.requests)
            return
        alone = [each for plan in plans for each in self._requests(plan, pools, node)]
        yield from alone
        if not alone:
            for plan in plans:
                yield from self._claim(plan, node)

    def _requests(self, plan: ClaimPlan, pools: Sequence[PoolView], node: Node) -> Iterator[Obstacle]:
        claim = plan.claim
        for request, compiled in zip(claim.spec.devices.requests, plan.requests, strict=True):
            part = _part(claim, (request,))
            try:
                if self._fits(("request", id(claim), request.name), [part], node):
                    continue
            except AllocationError as problem:
                yield Obstacle(claim.key, request.name, str(problem), gap=2.0)
                continue
            reason = self._lacking(compiled, pools)
            yield Obstacle(claim.key, request.name, reason, compiled.terms, _needed(compiled), gap=2.0)

    def _lacking(self, request: RequestPlan, pools: Sequence[PoolView]) -> str:
        """Return why a request has no devices even alone."""
        for view in pools:
            if view.is_incomplete or view.is_invalid:
                state = "incomplete" if view.is_incomplete else "invalid"
                return f"a resource pool of the node is {state}"
        usable = [sum(len(self.devices(terms, view).get((), ())) for view in pools) for terms in request.terms]
        if request.has_alternatives:
            return f"none of {len(request.terms)} alternatives has enough devices"
        (terms,), (count,) = request.terms, usable
        if terms.takes_all:
            return "needs all devices that match, some of which cannot be used" if count else "no device can be used"
        needed = f"needs {terms.count} device{'s' if terms.count > 1 else ''}"
        if count >= terms.count:
            limits = "the shared counters or capacity suffice for fewer"
            if any(view.has_compatibility_groups for view in pools):
                limits = "the shared counters, capacity or compatibility groups allow fewer"
            return f"{needed}; {limits}"
        return f"{needed}, {count or 'none'} can be used"

    def _claim(self, plan: ClaimPlan, node: Node) -> Iterator[Obstacle]:
        """Yield why the requests of one claim have no devices together, although each of them has some alone."""
        claim = plan.claim
        constraints = claim.spec.devices.constraints
        if self._attempt(claim, constraints, node):
            return
        if not self._attempt(claim, (), node):
            yield Obstacle(claim.key, "", "each request has devices alone, but not all of them together")
            return
        for index, constraint in enumerate(constraints):
            others = (*constraints[:index], *constraints[index + 1 :])
            if len(constraints) == 1 or self._attempt(claim, others, node):
                count = sum(
                    _needed(each)
                    for each in plan.requests
                    if not constraint.requests or each.terms[0].is_named_in(constraint.requests)
                )
                yield Obstacle(claim.key, "", constraint_text(constraint, count))
                return
        yield Obstacle(claim.key, "", "the requests have devices, but the constraints cannot all be met")

    def _attempt(self, claim: ResourceClaim, constraints: tuple[DeviceConstraint, ...], node: Node) -> bool:
        """Return whether a claim with some of its constraints can be allocated; an error counts as a failure."""
        part = _part(claim, claim.spec.devices.requests, constraints)
        try:
            return self._fits(("claim", id(claim), *map(id, constraints)), [part], node)
        except AllocationError:
            return False

    # -- searches ---------------------------------------------------------------------------------------------------

    def _fits(self, key: Hashable, claims: Sequence[ResourceClaim], node: Node) -> bool:
        if sum(each.steps for each in self._allocators.values()) > _MAX_STEPS_TOTAL:
            raise AllocationTimeoutError(_MAX_STEPS_TOTAL)
        name, labels, features = node.metadata.name, node.metadata.labels, node.status.declared_features
        try:
            return self._allocator(key, claims).find(name, labels, features) is not None
        except InvalidPoolsError:
            return False

    def _allocator(self, key: Hashable, claims: Sequence[ResourceClaim]) -> Allocator:
        found = self._allocators.get(key)
        if found is None:
            limits = SearchLimits(lambda: 0.0, max_steps=_MAX_STEPS)
            found = self._allocators[key] = Allocator(claims, self._classes, self._hardware, limits, used=self._used)
        return found


def constraint_text(constraint: DeviceConstraint, count: int) -> str:
    """Return why a constraint over ``count`` devices cannot be met."""
    attribute = constraint.match_attribute or constraint.distinct_attribute
    kind, values = ("matchAttribute", "the same value")
    if constraint.match_attribute is None:
        kind, values = ("distinctAttribute", "different values")
    if count == 1:
        return f"{kind} {attribute}: no usable device has the attribute"
    return f"{kind} {attribute}: no {count} usable devices have {values}"


def _part(
    claim: ResourceClaim, requests: tuple[DeviceRequest, ...], constraints: tuple[DeviceConstraint, ...] = ()
) -> ResourceClaim:
    devices = replace(claim.spec.devices, request_list=requests, constraints=constraints)
    return replace(claim, spec=replace(claim.spec, devices=devices))


def _needed(request: RequestPlan) -> int:
    return min(1 if terms.takes_all else terms.count for terms in request.terms)


# -- all nodes --------------------------------------------------------------------------------------------------------


DeviceKey = tuple[PoolKey, str]
"""Pool and name of a device."""
_MAX_PODS_NAMED = 3
_MAX_HOLDERS = 2


@dataclass(frozen=True, slots=True)
class Holder:
    """A claim that has a device, or a pod for which a free device is held.

    Attributes:
        claim: ``namespace/name``; the pod, as in ``nominated pod ml/train-0``, if the device is held.
        pods: Names of the pods that it is reserved for; empty while the allocation is not written.
        groups: Names of the PodGroups that it is reserved for; preemption frees no device of such a claim.
    """

    claim: str
    pods: tuple[str, ...]
    is_held: bool = False
    groups: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The claim with its pods: ``ml/train (pod train-0)``, or with its PodGroup."""
        if self.groups:
            return f"{self.claim} (PodGroup {', '.join(self.groups)}; not preempted)"
        if not self.pods:
            return self.claim
        named = ", ".join(self.pods[:_MAX_PODS_NAMED])
        more = len(self.pods) - _MAX_PODS_NAMED
        plural = "s" if len(self.pods) > 1 else ""
        others = f" and {more} more" if more > 0 else ""
        return f"{self.claim} (pod{plural} {named}{others})"


@dataclass(frozen=True, slots=True)
class NearestDevice:
    """A device of a node that lacks the least for a request."""

    terms: RequestTerms
    view: PoolView
    position: int
    problems: Problems
    holders: tuple[Holder, ...]
    missing: int

    @property
    def name(self) -> str:
        """``pool/device``; the driver is left out, because the class states it."""
        return f"{self.view.key[1]}/{self.view.names.names[self.position]}"

    @property
    def gap(self) -> float:
        """How much must change; larger is more."""
        is_class, count, _ = distance(self.problems)
        return self.missing * (2.0 if is_class else max(count, 0.5) / (count + 1))


@dataclass(slots=True)
class GroupedDevices:
    """Devices that do not serve a request for the same reasons.

    Attributes:
        example: One of the devices, ``driver/pool/device``.
        devices: Their number.
        nodes: The nodes that reach them.
        holders: The claims that have them, if they are in use.
    """

    terms: RequestTerms
    problems: Problems
    example: str
    devices: int = 0
    nodes: set[str] = field(default_factory=set)
    holders: dict[Holder, None] = field(default_factory=dict)


class DeviceFindings:
    """What the nodes lack for the claims of one pod.

    Args:
        state: State of the attempt after PreFilter.
        held: Devices that are held for other pods.
    """

    def __init__(
        self,
        columns: NodeColumns,
        plugin: ClaimsFilter,
        plugin_name: str,
        state: CycleState,
        held: Sequence[HeldDevices] = (),
    ) -> None:
        self.plugin_name = plugin_name
        self._held_devices = held
        self._columns = columns
        self._plugin = plugin
        self._state = state
        self._obstacles = ClaimObstacles(columns.devices, allocations_of(held))
        self._by_row: dict[int, tuple[Obstacle, ...]] = {}
        self._holders: Mapping[DeviceKey, tuple[Holder, ...]] | None = None

    def claims_on(self, row: int) -> NodeClaims:
        """Return the claims of the pod on a row."""
        return self._plugin.claims_on(self._state, self._columns, row)

    def obstacles(self, row: int) -> tuple[Obstacle, ...]:
        """Return why the claims cannot be allocated on a row that the plugin rejects."""
        found = self._by_row.get(row)
        if found is None:
            found = self._by_row[row] = self._obstacles_of(row)
        return found

    def _obstacles_of(self, row: int) -> tuple[Obstacle, ...]:
        node, claims = self._columns.nodes[row], self.claims_on(row)
        if node is None:
            return ()
        found: tuple[Obstacle, ...] = ()
        if claims.to_allocate:
            found = self._obstacles.on_node(claims.to_allocate, node)
        if claims.unavailable and (not claims.to_allocate or found[0].terms == ()):
            found = tuple(Obstacle(each.claim.key, "", _unavailable(each)) for each in claims.unavailable)
        return found

    def nearest(self, row: int) -> list[tuple[Obstacle, NearestDevice | None]]:
        """Return the obstacles of a row; those of a request with the device that lacks the least, if it has one.

        A device that lacks nothing is returned if all devices of the row serve the request, but they are too few.
        """
        node = self._columns.nodes[row]
        if node is None:
            return []
        pools = self._obstacles.pools(node)
        found: list[tuple[Obstacle, NearestDevice | None]] = []
        for obstacle in self.obstacles(row):
            device: NearestDevice | None = None
            ranked = [
                (distance(problems), order, terms, view, positions[0], problems)
                for terms in obstacle.terms
                for order, view in enumerate(pools)
                for problems, positions in self._obstacles.devices(terms, view).items()
            ]
            if ranked:
                lacking = [each for each in ranked if each[-1]] or ranked
                _, _, terms, view, position, problems = min(lacking, key=lambda each: each[:2])
                holders = self._held(view, position) if _is_used(problems) else ()
                usable = sum(len(self._obstacles.devices(terms, each).get((), ())) for each in pools)
                missing = max(1, obstacle.needed - usable)
                device = NearestDevice(terms, view, position, problems, holders, missing)
            found.append((obstacle, device))
        return found

    def details(self, row: int) -> tuple[str, ...]:
        """Return what a row lacks: for each request with too few devices, the problems of the nearest one."""
        texts = []
        for obstacle, device in self.nearest(row):
            where = f"request {obstacle.request}" if obstacle.request else f"claim {obstacle.claim}"
            if device is None or not device.problems:
                texts.append(f"{where}: {obstacle.reason}")
                continue
            words = "; ".join(problem_text(each, device.holders) for each in device.problems)
            texts.append(f"{where}: device {device.name}: {words}")
        return tuple(texts)

    def gap(self, row: int) -> float:
        """Return how far a row is from serving the claims: the lower, the less must change."""
        return sum(obstacle.gap if device is None else device.gap for obstacle, device in self.nearest(row))

    # -- all nodes --------------------------------------------------------------------------------------------------

    def explain(self, found: Examination, limit: int) -> DeviceExplanation | None:
        """Return what nodes and devices lack for the claims of a pod.

        Args:
            limit: Maximum number of groups of devices for each request.

        Returns:
            The explanation; None if other plugins rejected all nodes before devices were searched.
        """
        rows = [self._columns.row_of(name) for name, why in found.rejected.items() if why.plugin == self.plugin_name]
        if not rows:
            return None
        shown: list[DeviceGroup] = []
        count: Counter[str] = Counter()
        omitted: dict[str, int] = {}
        for group in self.groups(rows):
            key = request_key(group.terms.claim, group.terms.result_name)
            count[key] += 1
            if count[key] <= limit:
                shown.append(_shown(group))
            else:
                omitted[key] = omitted.get(key, 0) + group.devices
        return DeviceExplanation(self.rejections(rows), tuple(shown), omitted)

    def rejections(self, rows: Iterable[int]) -> tuple[ClaimRejection, ...]:
        found: dict[tuple[str, str, str], list[str]] = {}
        for row in rows:
            for each in self.obstacles(row):
                found.setdefault((each.claim, each.request, each.reason), []).append(self._columns.node_name(row))
        ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[0][0], not item[0][1], *item[0][1:]))
        return tuple(
            ClaimRejection(claim, request or None, reason, len(nodes), min(nodes))
            for (claim, request, reason), nodes in ordered
        )

    def groups(self, rows: Iterable[int]) -> list[GroupedDevices]:
        """Return the devices of rows that do not serve the requests that have too few, nearest first."""
        found: dict[tuple[RequestTerms, Problems], GroupedDevices] = {}
        counted: set[tuple[RequestTerms, PoolView]] = set()
        order: dict[RequestTerms, int] = {}
        for row in rows:
            node = self._columns.nodes[row]
            if node is None:
                continue
            pools = self._obstacles.pools(node)
            for terms in [terms for each in self.obstacles(row) for terms in each.terms]:
                order.setdefault(terms, len(order))
                for view in pools:
                    is_new = (terms, view) not in counted
                    counted.add((terms, view))
                    self._group(found, terms, view, node.metadata.name, is_new=is_new)
        return sorted(
            found.values(),
            key=lambda each: (order[each.terms], distance(each.problems), -each.devices, each.example),
        )

    def _group(
        self,
        found: dict[tuple[RequestTerms, Problems], GroupedDevices],
        terms: RequestTerms,
        view: PoolView,
        node_name: str,
        *,
        is_new: bool,
    ) -> None:
        """Add the devices of a pool to the groups; devices that an earlier node reaches are not counted again."""
        for problems, positions in self._obstacles.devices(terms, view).items():
            if not problems:
                continue
            group = found.get((terms, problems))
            if group is None:
                example = view.device_name(positions[0])
                group = found[terms, problems] = GroupedDevices(terms, problems, example)
            group.nodes.add(node_name)
            if not is_new:
                continue
            group.devices += len(positions)
            if _is_used(problems):
                for position in positions:
                    group.holders.update(dict.fromkeys(self._held(view, position)))

    def _held(self, view: PoolView, position: int) -> tuple[Holder, ...]:
        """Return the claims that have a device; if none has it, those that have others of the pool, for counters."""
        if self._holders is None:
            self._holders = device_holders(self._columns.devices, self._held_devices)
        found = self._holders.get((view.key, view.names.names[position]))
        if found is not None or not view.counters:
            return found or ()
        devices = [name for name, record in zip(view.names.names, view.records, strict=True) if record.counter_sets]
        devices += [name for other in view.others for name in other.names]
        return tuple(dict.fromkeys(each for name in devices for each in self._holders.get((view.key, name), ())))


def device_findings(columns: NodeColumns, instance: FrameworkInstance, found: Examination) -> DeviceFindings | None:
    """Return what nodes lack for the claims of a rejected pod; None for a pod without claims to search devices for."""
    if not found.rejected:
        return None
    state = CycleState()
    run_pre_filters(instance, state, found.pod, columns)
    for plugin in instance.filters:
        if isinstance(plugin, ClaimsFilter) and plugin.name not in state.skip_filter:
            return DeviceFindings(columns, plugin, plugin.name, state, columns.devices.held_from(found.pod))
    return None


def _shown(group: GroupedDevices) -> DeviceGroup:
    return DeviceGroup(
        claim=group.terms.claim,
        request=group.terms.result_name,
        devices=group.devices,
        nodes=len(group.nodes),
        example=group.example,
        unmet=tuple(UnmetCondition(each.text, each.required_by or None, each.is_use) for each in group.problems),
        held_by=tuple(each.text for each in islice(group.holders, _MAX_HOLDERS)),
        more_holders=max(0, len(group.holders) - _MAX_HOLDERS),
    )


def problem_text(problem: DeviceProblem, holders: Sequence[Holder]) -> str:
    """Return a problem of a device with the claims that cause it."""
    if not problem.is_use or not holders:
        return problem.text
    if any(each.is_held for each in holders):
        return f"held for {', '.join(each.text for each in holders if each.is_held)}"
    plural = "s" if len(holders) > 1 else ""
    return f"{problem.text} by claim{plural} {', '.join(each.text for each in holders)}"


def device_holders(devices: DeviceIndex, held: Iterable[HeldDevices] = ()) -> Mapping[DeviceKey, tuple[Holder, ...]]:
    """Return the claims that have each device that is in use, and the pods for which devices are held."""
    found: dict[DeviceKey, list[Holder]] = {}
    uses = [(_holder(claim), allocation) for claim, allocation in devices.allocations()]
    uses += ((Holder(each.holder, (), is_held=True), allocation) for each in held for allocation in each.allocations)
    for holder, allocation in uses:
        for result in allocation.devices.results:
            if not result.admin_access:
                holders = found.setdefault(((result.driver, result.pool), result.device), [])
                if holder not in holders:
                    holders.append(holder)
    return {device: tuple(holders) for device, holders in found.items()}


def _holder(claim: ResourceClaim) -> Holder:
    pods, groups = (
        tuple(each.name for each in claim.status.reserved_for if each.resource == resource)
        for resource in ("pods", "podgroups")
    )
    return Holder(claim.key, pods, groups=groups)


def _is_used(problems: Problems) -> bool:
    return any(each.is_use for each in problems)


def _unavailable(each: UnavailableClaim) -> str:
    if each.is_reachable and each.is_supported:
        return "the driver failed to prepare its devices, or did not within bindingTimeout"
    if each.is_reachable:
        return f"its devices need {LACKED_FEATURE}"
    allocation = each.claim.status.allocation
    nodes = _named_nodes(None if allocation is None else allocation.node_selector)
    return f"its devices are on node {', '.join(nodes)}" if nodes else "its devices are not reachable from the node"


def _named_nodes(selector: NodeSelector | None) -> Sequence[str]:
    terms = () if selector is None else selector.node_selector_terms
    return [value for term in terms for each in term.match_fields if each.key == METADATA_NAME for value in each.values]
