"""Obstacles of claims: which request of which claim has no devices on a node, or what prevents all of them together.

The search only returns that there is no solution. Here it runs again on parts of the claims: each request alone, the
requests of a claim without constraints, each claim alone. The first part that fails is the reason. Nodes with equal
devices share the result, as in the search itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from scheduler_core.devices.allocator import Allocator, SearchTally
from scheduler_core.devices.pools import PoolView
from scheduler_core.devices.requests import ClaimPlan, RequestPlan, RequestTerms, plan_claims
from scheduler_core.devices.search import SearchLimits
from scheduler_core.errors import AllocationError, AllocationTimeoutError, InvalidPoolsError
from scheduler_core.explain.device_problems import DeviceProblems, Problems
from scheduler_core.model.devices import DeviceConstraint, DeviceRequest, ResourceClaim
from scheduler_core.model.node import Node
from scheduler_core.snapshot.indexes.device_index import DeviceIndex

_MAX_STEPS = 20_000
"""Steps of one search."""
_MAX_STEPS_TOTAL = 200_000
"""Steps of all searches of one explanation, after which nodes are not examined any more."""
_NO_DEVICES = "the node has no devices"
_TOGETHER = "each claim has devices alone, but not all of them together"
_UNEXAMINED = "not examined: the search was given up"


class Obstacle(Struct, frozen=True):
    """Why claims cannot be allocated on a node.

    Attributes:
        claim: ``namespace/name`` of the claim; several claims are joined by commas.
        request: The request, if one has no devices even alone; else "".
        reason: Description.
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

    def __init__(self, devices: DeviceIndex) -> None:
        self._hardware = dataclasses.replace(devices.hardware, tally=SearchTally())
        self._classes = devices.classes
        self._problems = DeviceProblems(devices.hardware.knowledge_in_use)
        self._devices: dict[tuple[RequestTerms, PoolView], dict[Problems, list[int]]] = {}
        self._allocators: dict[Hashable, Allocator] = {}
        self._plans: dict[Hashable, tuple[ClaimPlan, ...]] = {}
        self._claims: list[ResourceClaim] = []
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
            found = self._problems.of_pool(terms, view, self._hardware.allocated.usage(view.key))
            self._devices[terms, view] = found
        return found

    def on_node(self, claims: Sequence[ResourceClaim], node: Node) -> tuple[Obstacle, ...]:
        """Return why claims without an allocation cannot be allocated on a node that has no devices for them."""
        identity = ("all", *map(id, claims))
        if identity not in self._plans:
            self._claims.extend(claims)
            self._plans[identity] = plan_claims(claims, self._classes, self._hardware.features)
        plans = self._plans[identity]
        names = ", ".join(claim.key for claim in claims)
        try:
            allocator = self._allocator(identity, claims)
            key = (
                identity,
                allocator.key(node.metadata.name, node.metadata.labels, node.status.declared_features),
            )
        except AllocationError as problem:
            return (Obstacle(names, "", str(problem)),)
        found = self._found.get(key)
        if found is None:
            try:
                found = tuple(self._examined(plans, node)) or (Obstacle(names, "", _TOGETHER),)
            except AllocationTimeoutError:
                found = (Obstacle(names, "", _UNEXAMINED),)
            self._found[key] = found
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
            found = self._allocators[key] = Allocator(claims, self._classes, self._hardware, limits)
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
