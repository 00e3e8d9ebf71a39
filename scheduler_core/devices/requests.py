"""Requests of claims, compiled for one scheduling attempt.

Errors of a claim are not raised here but stored: kube-scheduler reports the first one in the order of the requests when
it searches a node, after the errors of selectors in mode All of earlier requests.

Follows ``k8s.io/dynamic-resource-allocation`` v0.37.1 ``structured/internal/incubating/allocator_incubating.go``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import msgspec

from scheduler_core.devices.records import Amount, DeviceFeatures, requested_amounts
from scheduler_core.model.devices import (
    ALL,
    EXACT_COUNT,
    DeviceClass,
    DeviceRequest,
    DeviceSelector,
    DeviceTaint,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
)


@dataclass(frozen=True, slots=True, eq=False)
class RequestTerms:
    """A request, or one alternative of a prioritized list.

    Attributes:
        number: Number among all terms of the attempt.
        claim: ``namespace/name`` of the claim.
        parent: Name of the request of an alternative; else "".
        device_class: The class, None if it does not exist.
        takes_all: Whether all matching devices are taken.
        count: Number of devices, unless it takes all.
        admin_access: Whether devices in use are taken, too.
        attributes: Attributes that constraints read of its devices, in the order of the constraints.
        derived: Expressions of those that the request derives, by name.
        error: Why the request is invalid; "" if it is valid.
    """

    number: int
    claim: str
    name: str
    parent: str
    device_class: DeviceClass | None
    class_selectors: tuple[str, ...]
    selectors: tuple[str, ...]
    takes_all: bool
    count: int
    admin_access: bool
    tolerations: tuple[DeviceToleration, ...]
    amounts: dict[str, Amount]
    attributes: tuple[str, ...]
    derived: dict[str, str]
    error: str

    @property
    def result_name(self) -> str:
        """The name that the allocation uses: ``request``, or ``request/alternative``."""
        return f"{self.parent}/{self.name}" if self.parent else self.name

    @property
    def device_key(self) -> Hashable:
        """Key that is equal for terms to which every device behaves equally."""
        amounts = tuple(sorted((name, amount.nano, amount.form) for name, amount in self.amounts.items()))
        derived = tuple(self.derived.items())
        return (self.class_selectors, self.selectors, amounts, self.tolerations, self.attributes, derived)

    def is_named_in(self, names: Sequence[str]) -> bool:
        return _is_named(names, self.name, self.parent)

    def tolerates(self, taint: DeviceTaint) -> bool:
        return any(each.tolerates(taint) for each in self.tolerations)


@dataclass(frozen=True, slots=True, eq=False)
class RequestPlan:
    """A request of a claim: its terms, or those of its alternatives.

    Attributes:
        error: Why the request is invalid; "" if its terms decide.
        terms: One for each alternative; one in all for a request without alternatives.
        has_alternatives: Whether it is a prioritized list.
    """

    name: str
    error: str
    terms: tuple[RequestTerms, ...]
    has_alternatives: bool


@dataclass(frozen=True, slots=True, eq=False)
class ClaimPlan:
    """A claim to allocate.

    Attributes:
        constraint_error: Why a constraint is invalid; "" if all are valid.
    """

    claim: ResourceClaim
    requests: tuple[RequestPlan, ...]
    constraint_error: str


def plan_claims(
    claims: Sequence[ResourceClaim], classes: Mapping[str, DeviceClass], features: DeviceFeatures
) -> tuple[ClaimPlan, ...]:
    numbers = count()
    return tuple(
        ClaimPlan(
            claim,
            tuple(_plan_request(claim, each, classes, features, numbers) for each in claim.spec.devices.requests),
            _constraint_error(claim),
        )
        for claim in claims
    )


def plan_key(plans: Sequence[ClaimPlan]) -> Hashable:
    """Return a key that is equal for plans that treat every device equally, whatever their names and counts are."""
    return (
        tuple(terms.device_key for plan in plans for request in plan.requests for terms in request.terms),
        tuple(
            (constraint.match_attribute, constraint.distinct_attribute)
            for plan in plans
            for constraint in plan.claim.spec.devices.constraints
        ),
    )


def search_key(plans: Sequence[ClaimPlan], *, best_fit: bool) -> bytes | None:
    """Return a key that is equal for plans whose searches have equal outcomes on equal devices; None for wrong plans.

    Names of claims are not part of it.
    """
    parts: list[object] = [best_fit]
    for plan in plans:
        terms = [each for request in plan.requests for each in request.terms]
        if plan.constraint_error or any(request.error for request in plan.requests) or any(one.error for one in terms):
            return None
        devices = plan.claim.spec.devices
        parts.append((devices.requests, devices.constraints, [one.class_selectors for one in terms]))
    return msgspec.json.encode(parts, order="deterministic")


def _is_named(names: Sequence[str], name: str, parent: str) -> bool:
    return (parent or name) in names or (bool(parent) and f"{parent}/{name}" in names)


def _plan_request(
    claim: ResourceClaim,
    request: DeviceRequest,
    classes: Mapping[str, DeviceClass],
    features: DeviceFeatures,
    numbers: Iterator[int],
) -> RequestPlan:
    alternatives = request.first_available
    wanted: list[tuple[str, str, ExactDeviceRequest]] = [(one.name, request.name, one) for one in alternatives]
    if not alternatives:
        wanted = [(request.name, "", request.exactly or ExactDeviceRequest())]
    error = ""
    if alternatives and not features.prioritized_list:
        error = (
            f"claim {claim.key}, request {request.name}: has subrequests, "
            "but the DRAPrioritizedList feature is disabled"
        )
    elif not features.consumable_capacity:
        sized = next((name for name, _, one in wanted if one.capacity is not None), None)
        if sized is not None:
            kind = "subrequest" if alternatives else "request"
            error = (
                f"claim {claim.key}, {kind} {sized}: has capacity requests, "
                "but the DRAConsumableCapacity feature is disabled"
            )
    terms = tuple(
        _terms(claim, name, parent, one, classes=classes, features=features, number=next(numbers))
        for name, parent, one in wanted
    )
    return RequestPlan(request.name, error, terms, bool(alternatives))


def _terms(
    claim: ResourceClaim,
    name: str,
    parent: str,
    request: ExactDeviceRequest,
    *,
    classes: Mapping[str, DeviceClass],
    features: DeviceFeatures,
    number: int,
) -> RequestTerms:
    device_class = classes.get(request.device_class_name)
    attributes = tuple(
        constraint.match_attribute or constraint.distinct_attribute or ""
        for constraint in claim.spec.devices.constraints
        if not constraint.requests or _is_named(constraint.requests, name, parent)
    )
    problem = _request_problem(request, device_class, features, has_parent=bool(parent))
    return RequestTerms(
        number=number,
        claim=claim.key,
        name=name,
        parent=parent,
        device_class=device_class,
        class_selectors=() if device_class is None else _expressions(device_class.spec.selectors),
        selectors=_expressions(request.selectors),
        takes_all=request.allocation_mode == ALL,
        count=request.count,
        admin_access=bool(request.admin_access) and not parent,
        tolerations=request.tolerations,
        amounts=requested_amounts(request.capacity),
        attributes=attributes,
        derived={one.name: one.expression for one in request.derived_attributes if one.name in attributes},
        error=f"claim {claim.key}, request {name}{problem}" if problem else "",
    )


def _expressions(selectors: Sequence[DeviceSelector]) -> tuple[str, ...]:
    # A selector of an unknown kind is an empty expression, which does not compile.
    return tuple("" if one.cel is None else one.cel.expression for one in selectors)


def _request_problem(
    request: ExactDeviceRequest, device_class: DeviceClass | None, features: DeviceFeatures, *, has_parent: bool
) -> str:
    if request.derived_attributes and not features.derived_attributes:
        return ": cannot handle request with derived attributes, the feature is disabled"
    for index, selector in enumerate(request.selectors):
        if selector.cel is None:
            return f", selector #{index}: CEL expression empty (unsupported selector type?)"
    if request.admin_access is not None and not has_parent and not features.admin_access:
        return ": admin access is requested, but the feature is disabled"
    if not request.device_class_name:
        return ": missing device class name (unsupported request type?)"
    if device_class is None:
        name = request.device_class_name
        return f': could not retrieve device class {name}: deviceclass.resource.k8s.io "{name}" not found'
    if request.allocation_mode not in (EXACT_COUNT, ALL):
        return f": unsupported count mode {request.allocation_mode}"
    return ""


def _constraint_error(claim: ResourceClaim) -> str:
    for index, constraint in enumerate(claim.spec.devices.constraints):
        if constraint.match_attribute is None and constraint.distinct_attribute is None:
            return f"claim {claim.key}, constraint #{index}: empty constraint (unsupported constraint type?)"
    return ""
