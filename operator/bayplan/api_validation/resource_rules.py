"""Rules for amounts of resources, of containers, pods and nodes.

Follows Kubernetes v1.37.1: pkg/apis/core/validation (validateResourceRequirements), pkg/apis/core/helper and
pkg/apis/core/v1/defaults.go (requests from limits).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from bayplan.api_validation.field_errors import Fields, dns_label, qualified_name
from scheduler_core.errors import QuantityError
from scheduler_core.model.pod_requests import NANO, nano, whole_units

HUGE_PAGES = "hugepages-"
_OF_CONTAINERS = ("cpu", "memory", "ephemeral-storage")
_OF_PODS = ("cpu", "memory")
_COUNTS = (
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
)
_STANDARD = frozenset(
    {
        *_OF_CONTAINERS,
        *(f"{kind}.{name}" for kind in ("requests", "limits") for name in _OF_CONTAINERS),
        "requests.storage",
        "storage",
        *_COUNTS,
    }
)
_QUOTA = "requests."


def amount(value: Any) -> int:
    """Return an amount in nano-units; 0 if it is not set."""
    if value is None:
        return 0
    try:
        return nano(value.strip() if isinstance(value, str) else value)
    except QuantityError:
        return 0


def quantity_problems(owner: Fields, field: str, resource: str, value: Any) -> None:
    """Validate an amount of a resource: it must not be negative, and counts must be whole."""
    units = amount(value)
    if units < 0:
        owner.invalid(field, value, "must be greater than or equal to 0")
    if units % NANO and (resource in _COUNTS or _is_extended(resource)):
        owner.invalid(field, value, "must be an integer")


def requirement_problems(requirements: Fields, claims: Container[str] | None, *, of_pod: bool = False) -> None:
    """Validate requests and limits of a container or pod, and references to claims, None if there are none."""
    limits, requests = requirements.mapping("limits"), requirements.mapping("requests")
    for field in ("limits", "requests"):
        for name, value in requirements.mapping(field).items():
            where = f"{field}[{name}]"
            (_pod_name_problems if of_pod else _container_name_problems)(requirements, where, name)
            quantity_problems(requirements, where, name, value)
            if name.startswith(HUGE_PAGES) and not _is_multiple(name, value):
                requirements.invalid(where, value, f"{value} is not positive integer multiple of {name}")
    for name, value in requests.items():
        may_exceed = _is_native(name) and not name.startswith(HUGE_PAGES)
        if name in limits:
            request, limit = amount(value), amount(limits[name])
            if request != limit and not may_exceed:
                requirements.invalid(f"requests[{name}]", value, f"must be equal to {name} limit of {limits[name]}")
            elif request > limit:
                detail = f"must be less than or equal to {name} limit of {limits[name]}"
                requirements.invalid(f"requests[{name}]", value, detail)
        elif not may_exceed:
            requirements.required(f"limits[{name}]", "Limit must be set for non overcommitable resources")
    names = {*limits, *requests}
    if any(name.startswith(HUGE_PAGES) for name in names) and not names & {"cpu", "memory"}:
        requirements.forbidden("", "HugePages require cpu or memory")
    if claims is not None:
        _claim_problems(requirements, claims)


def pod_resource_problems(spec: Fields) -> None:
    """Validate the pod-level resources of a pod against those of its containers."""
    if spec.get("resources") is None:
        return
    if spec.part("os").text("name") == "windows":
        spec.forbidden("resources", "may not be set for a windows pod")
        return
    resources = spec.part("resources")
    if resources.get("claims") is not None:
        resources.forbidden("claims", "claims may not be set for Resources at pod-level")
    sums, sum_limits = _summed(spec, "requests"), _summed(spec, "limits")
    requests, limits = dict(resources.mapping("requests")), dict(resources.mapping("limits"))
    if requests or limits:
        for name, units in sums.items():
            if name in _OF_PODS:
                requests.setdefault(name, f"{units}n")
            elif name.startswith(HUGE_PAGES) and name not in requests:
                limits.setdefault(name, f"{units}n")
        for name, value in limits.items():
            if name in _OF_PODS or name.startswith(HUGE_PAGES):
                requests.setdefault(name, value)
    completed = Fields({"requests": requests, "limits": limits}, resources.path, spec.problems)
    requirement_problems(completed, None, of_pod=True)
    for name, units in sums.items():
        if name in requests and units > amount(requests[name]):
            detail = "must be greater than or equal to the aggregate container requests"
            resources.invalid(f"requests[{name}]", requests[name], detail)
    for name, units in sum_limits.items():
        if name.startswith(HUGE_PAGES) and name in limits and units > amount(limits[name]):
            detail = "must be greater than or equal to the aggregate container limits"
            resources.invalid(f"limits[{name}]", limits[name], detail)
    for container in spec.parts("containers"):
        own = container.part("resources")
        for name, value in own.mapping("limits").items():
            if name in limits and amount(value) > amount(limits[name]):
                own.invalid(f"limits[{name}]", value, f"must be less than or equal to pod limits of {limits[name]}")


def _summed(spec: Fields, field: str) -> dict[str, int]:
    """Return the largest sums that containers, sidecars and init containers need together, in nano-units."""
    total = dict[str, int]()
    for container in spec.parts("containers"):
        _add(total, _of(container, field))
    sidecars, peaks = dict[str, int](), dict[str, int]()
    for container in spec.parts("initContainers"):
        own = _of(container, field)
        if container.text("restartPolicy") == "Always":
            _add(total, own)
            _add(sidecars, own)
            own = dict(sidecars)
        else:
            _add(own, sidecars)
        for name, units in own.items():
            peaks[name] = max(peaks.get(name, units), units)
    for name, units in peaks.items():
        total[name] = max(total.get(name, units), units)
    return total


def _of(container: Fields, field: str) -> dict[str, int]:
    resources = container.part("resources")
    given = resources.mapping(field)
    if field == "requests":
        given = {**resources.mapping("limits"), **given}
    return {name: amount(value) for name, value in given.items()}


def _add(total: dict[str, int], other: Mapping[str, int]) -> None:
    for name, units in other.items():
        total[name] = total.get(name, 0) + units


def _claim_problems(requirements: Fields, claims: Container[str]) -> None:
    names = set[str]()
    for each in requirements.parts("claims"):
        name, request = each.text("name"), each.text("request")
        if not name:
            each.required("")
            continue
        key = f"{name}/{request}" if request else name
        if name in names or key in names or (not request and any(one.startswith(f"{name}/") for one in names)):
            each.duplicate("", key)
        if request and name not in names:
            each.check("request", dns_label)
        names.add(key)
        if name not in claims:
            each.not_found("", name, "must be one of the names in pod.spec.resourceClaims")


# -- names ------------------------------------------------------------------------------------------------------------


def _container_name_problems(owner: Fields, field: str, name: str) -> None:
    problems = qualified_name(name)
    owner.invalid(field, name, *problems)
    if "/" not in name:
        if not problems and not _is_standard(name):
            owner.invalid(field, name, "must be a standard resource type or fully qualified")
        if name not in _OF_CONTAINERS and not name.startswith(HUGE_PAGES):
            owner.invalid(field, name, "must be a standard resource for containers")
    elif not _is_native(name) and not _is_extended(name):
        owner.invalid(field, name, "doesn't follow extended resource name standard")


def _pod_name_problems(owner: Fields, field: str, name: str) -> None:
    problems = qualified_name(name)
    if problems or ("/" not in name and not _is_standard(name)):
        owner.invalid(field, name, *(problems or ("must be a standard resource type or fully qualified",)))
    elif name not in _OF_PODS and not name.startswith(HUGE_PAGES):
        owner.unsupported(field, name, (*_OF_PODS, HUGE_PAGES))


def _is_standard(name: str) -> bool:
    return name in _STANDARD or name.startswith((HUGE_PAGES, _QUOTA + HUGE_PAGES))


def _is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def _is_extended(name: str) -> bool:
    return not _is_native(name) and not name.startswith(_QUOTA) and not qualified_name(_QUOTA + name)


def _is_multiple(name: str, value: Any) -> bool:
    try:
        size = nano(name.removeprefix(HUGE_PAGES))
    except QuantityError:
        return False
    return size > 0 and size % NANO == 0 and whole_units(amount(value)) % (size // NANO) == 0
