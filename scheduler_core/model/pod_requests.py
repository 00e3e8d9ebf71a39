"""What a pod asks for, summed over its containers by the API's own formula.

Owns the arithmetic of init containers, sidecars, overhead, pod-level resources and in-place resize. Must not know nodes
or columns. All of it is done on nano-units in mappings and rounded once at the end, as the reference does; pods without
any of the specials take a short path, since most pods are such.

Amounts are clamped: capacities to 0 to 2**62 - 2 and requests to one more, so that a node's requests plus a pod's
request stay in int64, and a request that exceeds the bound fits on no node. The reference lets int64 overflow.

Follows ``k8s.io/component-helpers`` v0.36.3 ``resource/helpers.go`` and kube-scheduler v1.36.3
``framework/types.go`` (``CalculateResource``), with the feature gates at their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from scheduler_core.model.pod import Container, ContainerStatus, Pod, Quantities
from scheduler_core.model.quantity import milli_units, nano, whole_units

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"

# What a container without a request counts for when nodes are scored (kube-scheduler, util/pod_resources.go).
DEFAULT_MILLI_CPU_REQUEST = 100
DEFAULT_MEMORY_REQUEST = 200 * 1024 * 1024
_SCORING_DEFAULTS = {CPU: DEFAULT_MILLI_CPU_REQUEST * 1_000_000, MEMORY: DEFAULT_MEMORY_REQUEST * 1_000_000_000}

LARGEST_CAPACITY = 2**62 - 2
"""The largest amount of a resource that a node can offer."""
LARGEST_REQUEST = LARGEST_CAPACITY + 1
"""The largest request of a pod, and the largest sum of requests on a node: more than any node can offer."""

_QUALIFIED_NAME_LIMIT = 63
_REQUESTS_PREFIX = "requests."

NanoUnits = dict[str, int]


@lru_cache(maxsize=4096)
def is_extended_resource(name: str) -> bool:
    """Whether ``name`` is an extended resource: qualified, and not of ``kubernetes.io/``."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith(_REQUESTS_PREFIX):
        return False
    prefix, _, base = name.partition("/")
    return bool(prefix) and 0 < len(base) <= _QUALIFIED_NAME_LIMIT


@lru_cache(maxsize=4096)
def is_scalar_resource(name: str) -> bool:
    """Whether the scheduler counts ``name`` beside cpu, memory, ephemeral storage and pods."""
    return (
        is_extended_resource(name) or name.startswith(("hugepages-", "attachable-volumes-")) or "kubernetes.io/" in name
    )


class PodRequests(Struct, frozen=True):
    """What one pod asks for, in the scheduler's integer units (cpu in milli, the rest in whole units).

    Attributes:
        fit: What must be free on a node: the spec alone. Resources that are not counted are left out.
        accounted: What the pod takes of the node that it runs on: the spec, or during a resize what is granted.
        nonzero_cpu_milli: As accounted, containers without a cpu request counted with a default.
        nonzero_memory: The same of memory, in bytes.
        scored_cpu_milli: What scoring adds for this pod; differs from nonzero only with pod-level resources.
        scored_memory: The same of memory, in bytes.
    """

    fit: Mapping[str, int]
    accounted: Mapping[str, int]
    nonzero_cpu_milli: int
    nonzero_memory: int
    scored_cpu_milli: int
    scored_memory: int


def pod_requests(pod: Pod) -> PodRequests:
    """Sum what ``pod`` asks for.

    Raises:
        QuantityError: A quantity of the pod cannot be read.
    """
    spec = pod.spec
    pod_level = _pod_level_requests(pod)
    plain = not (pod_level or spec.init_containers or spec.overhead)
    has_status = bool(pod.status.container_statuses or pod.status.init_container_statuses or pod.status.resources)
    if plain and not has_status and len(spec.containers) == 1:
        return _single_container_requests(tuple(spec.containers[0].resources.requests.items()))
    fit = _requests(pod, use_status=False, missing={})
    accounted = _requests(pod, use_status=True, missing={}) if has_status else fit
    scored = _requests(pod, use_status=has_status, missing=_SCORING_DEFAULTS)
    nonzero = scored
    if pod_level:
        missing = {name: default for name, default in _SCORING_DEFAULTS.items() if name not in accounted}
        nonzero = _requests(pod, use_status=has_status, missing=missing) if missing else accounted
    return PodRequests(
        fit=in_units(fit),
        accounted=in_units(accounted),
        nonzero_cpu_milli=_clamped(milli_units(nonzero.get(CPU, 0))),
        nonzero_memory=_clamped(whole_units(nonzero.get(MEMORY, 0))),
        scored_cpu_milli=_clamped(milli_units(scored.get(CPU, 0))),
        scored_memory=_clamped(whole_units(scored.get(MEMORY, 0))),
    )


def grants_alike(old: Pod, new: Pod) -> bool:
    """Whether the status of two versions of a pod says the same of what the pod is granted, whatever else it says."""
    before, after = old.status, new.status
    return before == after or (
        before.container_statuses == after.container_statuses
        and before.init_container_statuses == after.init_container_statuses
        and before.resources == after.resources
        and before.allocated_resources == after.allocated_resources
        and _resize_is_infeasible(old) == _resize_is_infeasible(new)
    )


def accounted_milli(pod: Pod) -> dict[str, int]:
    """What ``pod`` takes of its node, in thousandths of every resource, those that are not counted included.

    Finer than :attr:`PodRequests.accounted`, for whoever asks whether a pod has shrunk.

    Raises:
        QuantityError: A quantity of the pod cannot be read.
    """
    return {name: milli_units(amount) for name, amount in _requests(pod, use_status=True, missing={}).items()}


def in_units(amounts: Mapping[str, int], largest: int = LARGEST_REQUEST) -> dict[str, int]:
    """Convert nano-units to the scheduler's units: cpu in milli, the rest in whole units.

    Args:
        amounts: Resource name to nano-units.
        largest: Upper bound of each result: :data:`LARGEST_REQUEST`, or :data:`LARGEST_CAPACITY` for a node.

    Returns:
        Resource name to amount, 0 to ``largest``, without resources that the scheduler does not count.
    """
    counted: dict[str, int] = {}
    for name, amount in amounts.items():
        if name == CPU:
            counted[name] = _clamped(milli_units(amount), largest)
        elif name in (MEMORY, EPHEMERAL_STORAGE) or is_scalar_resource(name):
            counted[name] = _clamped(whole_units(amount), largest)
    return counted


def _clamped(amount: int, largest: int = LARGEST_REQUEST) -> int:
    return min(max(amount, 0), largest)


@lru_cache(maxsize=4096)
def _single_container_requests(requests: tuple[tuple[str, str | int | float], ...]) -> PodRequests:
    """Most pods are such, and many ask for the same: those share what is found."""
    fit = in_units({name: nano(quantity) for name, quantity in requests})
    cpu = fit.get(CPU, DEFAULT_MILLI_CPU_REQUEST)
    memory = fit.get(MEMORY, DEFAULT_MEMORY_REQUEST)
    return PodRequests(fit, fit, cpu, memory, cpu, memory)


def _nano(requests: Quantities) -> NanoUnits:
    return {name: nano(quantity) for name, quantity in requests.items()}


def _add(total: NanoUnits, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: NanoUnits, floor: Mapping[str, int]) -> None:
    for name, amount in floor.items():
        if name not in total or amount > total[name]:
            total[name] = amount


def _resize_is_infeasible(pod: Pod) -> bool:
    for condition in pod.status.conditions:
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def _granted(pod: Pod, spec: Quantities, actual: Quantities, allocated: Quantities) -> NanoUnits:
    """The larger of what is asked, allocated and in force; what is asked does not count if it can never be granted."""
    result: NanoUnits = {} if _resize_is_infeasible(pod) else _nano(spec)
    _raise_to(result, _nano(actual))
    _raise_to(result, _nano(allocated))
    return result


def _container_requests(
    pod: Pod, container: Container, statuses: Mapping[str, ContainerStatus], missing: Mapping[str, int]
) -> NanoUnits:
    status = statuses.get(container.name)
    if status is not None and status.resources is not None:
        requests = _granted(pod, container.resources.requests, status.resources.requests, status.allocated_resources)
    else:
        requests = _nano(container.resources.requests)
    for name, default in missing.items():
        requests.setdefault(name, default)
    return requests


def _pod_level_requests(pod: Pod) -> Quantities:
    resources = pod.spec.resources
    if resources is None:
        return {}
    return {
        name: quantity
        for name, quantity in resources.requests.items()
        if name in (CPU, MEMORY) or name.startswith("hugepages-")
    }


def _requests(pod: Pod, *, use_status: bool, missing: Mapping[str, int]) -> NanoUnits:
    """The formula: containers and sidecars summed, raised to the largest init step, pod level over it, overhead."""
    spec, status = pod.spec, pod.status
    statuses: dict[str, ContainerStatus] = {}
    if use_status:
        statuses = {entry.name: entry for entry in (*status.container_statuses, *status.init_container_statuses)}
    total: NanoUnits = {}
    for container in spec.containers:
        _add(total, _container_requests(pod, container, statuses, missing))
    sidecars: NanoUnits = {}
    largest_init_step: NanoUnits = {}
    for container in spec.init_containers:
        is_sidecar = container.restart_policy == "Always"
        requests = _container_requests(pod, container, statuses if is_sidecar else {}, missing)
        if is_sidecar:
            _add(total, requests)
            _add(sidecars, requests)
            step = sidecars
        else:
            _add(requests, sidecars)
            step = requests
        _raise_to(largest_init_step, step)
    _raise_to(total, largest_init_step)
    pod_level = _pod_level_requests(pod)
    if pod_level:
        granted: NanoUnits | None = None
        if use_status and status.resources is not None and spec.resources is not None:
            granted = _granted(pod, spec.resources.requests, status.resources.requests, status.allocated_resources)
        for name, quantity in pod_level.items():
            total[name] = nano(quantity) if granted is None else granted.get(name, 0)
    _add(total, _nano(spec.overhead))
    return total
