"""Quantities, and the resource requests of a pod, summed over its containers by the API's formula.

Handles init containers, sidecars, overhead, pod-level resources and in-place resize. Sums are computed in nano-units
and rounded once at the end, as in kube-scheduler: two containers that request ``500m`` bytes need one byte, not two.
Pods without any of these features take a short path.

Amounts are clamped: capacities to 0 to 2**62 - 2 and requests to one more, so that the sum of a node's requests and a
pod's request fits in int64, and a request that exceeds the bound fits on no node. kube-scheduler lets int64 overflow.

Follows ``k8s.io/component-helpers`` v0.37.1 ``resource/helpers.go`` and kube-scheduler v1.37.1
``framework/types.go`` (``calculateResource``), with the feature gates at their defaults; quantities follow
``k8s.io/apimachinery`` v0.37.1, ``pkg/api/resource``: precision ends at nano and magnitude at 2**63-1, rounding is away
from zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from msgspec import Struct

from scheduler_core.errors import QuantityError
from scheduler_core.model.pod import Container, ContainerStatus, Pod, Quantities

NANO = 1_000_000_000
_NANO_PER_MILLI = 1_000_000
_MAX_INT64 = 2**63 - 1

_PATTERN = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?(?:([eE])([+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)
_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
_DECIMAL_EXPONENT = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
# No quantity of nano precision below 2**63 needs a larger exponent; the bound protects against hostile input.
_MAX_EXPONENT = 64
# Longer text exceeds the precision and range of a quantity.
_MAX_LENGTH = 256
# Digits that are never more than int64.
_SHORT = 18


def _ceil_div(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


@lru_cache(maxsize=16_384)
def nano(quantity: str | float) -> int:
    """Return the nano-units of a quantity, rounded away from zero, within the range of int64 whole units.

    Raises:
        QuantityError: The text is not a quantity.
    """
    text = str(quantity)
    if len(text) > _MAX_LENGTH:
        raise QuantityError(f'"{text[:20]}..." is too long for a quantity: write at most {_MAX_LENGTH} characters')
    if len(text) <= _SHORT and text.isascii():
        # Most quantities of a server are such numbers, and a pod can have tens of thousands.
        if text.isdecimal():
            return int(text) * NANO
        if text[-1:] == "m" and text[:-1].isdecimal():
            return int(text[:-1]) * _NANO_PER_MILLI
    match = _PATTERN.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        raise QuantityError(f'"{text}" is not a quantity: write a number with an optional suffix, as 500m, 2 or 1.5Gi')
    sign, whole, fraction, _, exponent_text, suffix = match.groups()
    fraction = fraction or ""
    digits = int((whole or "0") + fraction)
    exponent = (int(exponent_text) if exponent_text else _DECIMAL_EXPONENT.get(suffix or "", 0)) + 9 - len(fraction)
    digits *= _BINARY.get(suffix or "", 1)
    if digits == 0:
        return 0
    if exponent > _MAX_EXPONENT:
        magnitude = _MAX_INT64 * NANO
    elif exponent >= 0:
        magnitude = digits * 10**exponent
    else:
        magnitude = _ceil_div(digits, 10**-exponent) if -exponent <= _MAX_EXPONENT + len(fraction) else 1
    magnitude = min(magnitude, _MAX_INT64 * NANO)
    return -magnitude if sign == "-" else magnitude


def whole_units(nano_units: int) -> int:
    """Convert nano-units to whole units (bytes, counts), rounded away from zero and clamped to int64."""
    magnitude = min(_ceil_div(abs(nano_units), NANO), _MAX_INT64)
    return magnitude if nano_units >= 0 else -magnitude


def milli_units(nano_units: int) -> int:
    """Convert nano-units to thousandths (millicores), rounded away from zero and clamped to int64."""
    magnitude = min(_ceil_div(abs(nano_units), _NANO_PER_MILLI), _MAX_INT64)
    return magnitude if nano_units >= 0 else -magnitude


def value(quantity: str | float) -> int:
    """Return a quantity in whole units; raise QuantityError if the text is not a quantity."""
    return whole_units(nano(quantity))


DECIMAL_SI = "DecimalSI"
DECIMAL_EXPONENT = "DecimalExponent"
BINARY_SI = "BinarySI"

_DECIMAL_SUFFIX = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY_SUFFIX = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def notation(quantity: str | float) -> str:
    """Return the notation of a valid quantity: BINARY_SI, DECIMAL_EXPONENT or DECIMAL_SI."""
    text = str(quantity)
    if text.endswith("i"):
        return BINARY_SI
    return DECIMAL_EXPONENT if "e" in text or ("E" in text and not text.endswith("E")) else DECIMAL_SI


def canonical_text(nano_units: int, form: str) -> str:
    """Return a quantity as the API server writes it; a binary *form* is for whole numbers from 1024 only."""
    if nano_units == 0:
        return "0"
    sign, amount = ("-", -nano_units) if nano_units < 0 else ("", nano_units)
    if form == BINARY_SI and amount >= 1024 * NANO and amount % NANO == 0:
        amount //= NANO
        power = 0
        while amount % 1024 == 0 and power < len(_BINARY_SUFFIX) - 1:
            amount //= 1024
            power += 1
        return f"{sign}{amount}{_BINARY_SUFFIX[power]}"
    exponent = -9
    while amount % 1000 == 0 and exponent < max(_DECIMAL_SUFFIX):
        amount //= 1000
        exponent += 3
    if form == DECIMAL_EXPONENT:
        return f"{sign}{amount}e{exponent}" if exponent else f"{sign}{amount}"
    return f"{sign}{amount}{_DECIMAL_SUFFIX[exponent]}"


CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"

_BYTES = frozenset({MEMORY, EPHEMERAL_STORAGE})
_BINARY_UNITS = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def amount_text(resource: str, amount: int) -> str:
    """Return millicores, bytes or a number for display: cores, below one in millicores; bytes with a binary unit."""
    if resource == CPU:
        return cpu_text(amount)
    if resource in _BYTES or resource.startswith("hugepages-"):
        for unit, size in _BINARY_UNITS:
            if abs(amount) >= size:
                return f"{amount / size:.1f}".removesuffix(".0") + unit
    return str(amount)


def cpu_text(milli: int) -> str:
    """Return millicores for display: cores, and below one core millicores."""
    return f"{milli}m" if 0 < abs(milli) < 1000 else f"{milli / 1000:.3f}".rstrip("0").rstrip(".")


# Default requests of containers without requests, used for scoring (kube-scheduler, util/pod_resources.go).
DEFAULT_MILLI_CPU_REQUEST = 100
DEFAULT_MEMORY_REQUEST = 200 * 1024 * 1024
_SCORING_DEFAULTS = {CPU: DEFAULT_MILLI_CPU_REQUEST * 1_000_000, MEMORY: DEFAULT_MEMORY_REQUEST * 1_000_000_000}

LARGEST_CAPACITY = 2**62 - 2
"""Maximum capacity of a resource on a node."""
LARGEST_REQUEST = LARGEST_CAPACITY + 1
"""Maximum request of a pod, and maximum sum of requests on a node; exceeds the capacity of every node."""

_QUALIFIED_NAME_LIMIT = 63
_REQUESTS_PREFIX = "requests."
_FEW = 16
"""Number of resources up to which requests are cached: users must not control the scheduler's memory."""

NanoUnits = dict[str, int]


@lru_cache(maxsize=4096)
def is_extended_resource(name: str) -> bool:
    """Return whether ``name`` is an extended resource: qualified, and not of ``kubernetes.io/``."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith(_REQUESTS_PREFIX):
        return False
    prefix, _, base = name.partition("/")
    return bool(prefix) and 0 < len(base) <= _QUALIFIED_NAME_LIMIT


@lru_cache(maxsize=4096)
def is_scalar_resource(name: str) -> bool:
    """Return whether the scheduler counts ``name`` besides CPU, memory, ephemeral storage and pods."""
    return (
        is_extended_resource(name) or name.startswith(("hugepages-", "attachable-volumes-")) or "kubernetes.io/" in name
    )


class PodRequests(Struct, frozen=True):
    """Requests of one pod, in the scheduler's integer units (CPU in millicores, the rest in whole units).

    Attributes:
        fit: What must be free on a node, by the spec alone, without resources that are not counted.
        accounted: What counts on the pod's node: the spec or, during a resize, the granted resources.
        nonzero_cpu_milli: Accounted CPU, with a default for containers without a request.
        scored_cpu_milli: CPU for scoring; differs from nonzero only with pod-level resources.
    """

    fit: Mapping[str, int]
    accounted: Mapping[str, int]
    nonzero_cpu_milli: int
    nonzero_memory: int
    scored_cpu_milli: int
    scored_memory: int


def pod_requests(pod: Pod) -> PodRequests:
    """Return the requests of a pod; raise QuantityError if a quantity of the pod is invalid."""
    spec = pod.spec
    pod_level = _pod_level_requests(pod, use_status=False)
    plain = not (pod_level or spec.init_containers or spec.overhead)
    resized = _is_resized(pod)
    if plain and not resized and len(spec.containers) == 1:
        requests = spec.containers[0].resources.requests
        single = _single_container_requests if len(requests) <= _FEW else _single_container_requests.__wrapped__
        return single(tuple(requests.items()))
    fit = _requests(pod, use_status=False, missing={})
    accounted = _requests(pod, use_status=True, missing={}) if resized else fit
    scored = _requests(pod, use_status=resized, missing=_SCORING_DEFAULTS)
    nonzero = scored
    if pod_level:
        missing = {name: default for name, default in _SCORING_DEFAULTS.items() if name not in accounted}
        nonzero = _requests(pod, use_status=resized, missing=missing) if missing else accounted
    return PodRequests(
        fit=in_units(fit),
        accounted=in_units(accounted),
        nonzero_cpu_milli=_clamped(milli_units(nonzero.get(CPU, 0))),
        nonzero_memory=_clamped(whole_units(nonzero.get(MEMORY, 0))),
        scored_cpu_milli=_clamped(milli_units(scored.get(CPU, 0))),
        scored_memory=_clamped(whole_units(scored.get(MEMORY, 0))),
    )


def same_granted_resources(old: Pod, new: Pod) -> bool:
    """Return whether the granted resources in the status of two versions of a pod are equal."""
    before, after = old.status, new.status
    return before == after or (
        before.container_statuses == after.container_statuses
        and before.init_container_statuses == after.init_container_statuses
        and before.resources == after.resources
        and before.allocated_resources == after.allocated_resources
        and (before.conditions == after.conditions or _resize_is_infeasible(old) == _resize_is_infeasible(new))
    )


def accounted_milli(pod: Pod) -> dict[str, int]:
    """Return what ``pod`` uses on its node, in thousandths, to detect whether a pod was scaled down."""
    amounts = _requests(pod, use_status=_is_resized(pod), missing={})
    return {name: milli_units(amount) for name, amount in amounts.items()}


def in_units(amounts: Mapping[str, int], largest: int = LARGEST_REQUEST) -> dict[str, int]:
    """Convert nano-units to CPU in millicores and whole units, 0 to *largest*, of the resources that are counted."""
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
    """Return the requests of a pod with one container; cached, because many pods have equal requests."""
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


def _is_resized(pod: Pod) -> bool:
    """Return whether the status may grant other resources than the spec requests.

    The status of most running pods repeats the requests of the spec; their sums are then equal.
    """
    status = pod.status
    if status.resources is not None or _resize_is_infeasible(pod):
        return True
    if not (status.container_statuses or status.init_container_statuses):
        return False
    statuses = _statuses(pod)
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        granted = statuses.get(container.name)
        if granted is not None:
            requested = container.resources.requests
            actual = granted.resources.requests if granted.resources is not None else {}
            if any(given and given != requested for given in (actual, granted.allocated_resources)):
                return True
    return False


def _statuses(pod: Pod) -> dict[str, ContainerStatus]:
    status = pod.status
    return {entry.name: entry for entry in (*status.init_container_statuses, *status.container_statuses)}


def _pod_level(amounts: Quantities) -> NanoUnits:
    return {
        name: nano(quantity)
        for name, quantity in amounts.items()
        if name in (CPU, MEMORY) or name.startswith("hugepages-")
    }


def _pod_level_requests(pod: Pod, *, use_status: bool) -> NanoUnits:
    """Return the pod-level requests; with the status, the largest of those requested, in effect and allocated."""
    resources, status = pod.spec.resources, pod.status
    requested = {} if resources is None else _pod_level(resources.requests)
    if not (requested and use_status and status.resources is not None):
        return requested
    result: NanoUnits = {} if _resize_is_infeasible(pod) else requested
    _raise_to(result, _pod_level(status.resources.requests))
    _raise_to(result, _pod_level(status.allocated_resources))
    return result


def _requests(pod: Pod, *, use_status: bool, missing: Mapping[str, int]) -> NanoUnits:
    """Sum the containers, then apply pod-level resources and overhead."""
    total = _granted(pod, missing) if use_status else _sum(pod, lambda container: container.resources.requests, missing)
    total |= _pod_level_requests(pod, use_status=use_status)
    _add(total, _nano(pod.spec.overhead))
    return total


def _granted(pod: Pod, missing: Mapping[str, int]) -> NanoUnits:
    """Return the largest of what is requested, allocated and in effect; an infeasible resize request does not count."""
    status, statuses, infeasible = pod.status, _statuses(pod), _resize_is_infeasible(pod)

    def requested(container: Container) -> Quantities:
        return {} if infeasible else container.resources.requests

    def allocated(container: Container) -> Quantities:
        granted = statuses.get(container.name)
        return (granted.allocated_resources if granted is not None else {}) or requested(container)

    def in_effect(container: Container) -> Quantities:
        granted = statuses.get(container.name)
        actual = granted.resources.requests if granted is not None and granted.resources is not None else {}
        return actual or allocated(container)

    total: NanoUnits = {} if infeasible else _sum(pod, requested, missing)
    of_pod = {} if status.resources is None else status.resources.requests
    if of_pod and status.allocated_resources:
        _raise_to(total, _nano(of_pod))
        _raise_to(total, _nano(status.allocated_resources))
    else:
        _raise_to(total, _sum(pod, in_effect, missing))
        _raise_to(total, _sum(pod, allocated, missing))
    return total


def _sum(pod: Pod, amounts: Callable[[Container], Quantities], missing: Mapping[str, int]) -> NanoUnits:
    """Sum containers and sidecars, at least the largest init step; *missing* are amounts of a container without any."""
    total: NanoUnits = {}
    sidecars: NanoUnits = {}
    largest_init_step: NanoUnits = {}
    # A pod may have thousands of containers; most of them have the amounts of the one before.
    last, step = None, {**missing}
    for container in pod.spec.containers:
        requests = amounts(container)
        if requests != last:
            last, step = requests, {**missing, **_nano(requests)}
        _add(total, step)
    for container in pod.spec.init_containers:
        step = {**missing, **_nano(amounts(container))}
        if container.restart_policy == "Always":
            _add(sidecars, step)
        else:
            _add(step, sidecars)
            _raise_to(largest_init_step, step)
    # Amounts are not negative: the sidecars' own steps never exceed the sum of all sidecars.
    _add(total, sidecars)
    _raise_to(total, largest_init_step)
    return total
