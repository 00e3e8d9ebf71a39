"""Invariants of devices: no double allocation, no bound pod without its devices, no allocation that stays forever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from scheduler_core.model.devices import EXTENDED_RESOURCE_CLAIM, ResourceClaim
from scheduler_core.model.pod import Pod
from scheduler_core.model.selectors import compile_readable_node_selector
from tests.simulation.api_server import ApiServer
from tests.simulation.device_api import DeviceApi
from tests.simulation.device_conditions import unprepared
from tests.simulation.device_objects import (
    PARTITIONED_MEMORY,
    SHARED_MEMORY,
    claim_names,
    counters_of,
    extended_amount,
    is_shared,
)
from tests.simulation.fault_counts import FaultCounts
from tests.simulation.operator_process import OperatorProcess

_FAULTS_THAT_LEAVE_RESERVATIONS = (
    "claim write failed",
    "claim write conflict",
    "API server unavailable",
    "operator killed",
    "operator stopped",
    "bind acknowledged but not performed",
)
"""Faults after which a pending pod may retain a reservation, as in kube-scheduler.

Unreserve writes only once, and is not called after a bind that was acknowledged.
"""


def check_allocations(claims: list[ResourceClaim]) -> Iterator[str]:
    """Yield devices with more allocations than allowed, and exceeded counters and capacities."""
    holders: dict[tuple[str, str], list[str]] = {}
    counters: Counter[str] = Counter()
    memory: Counter[tuple[str, str]] = Counter()
    for claim in claims:
        allocation = claim.status.allocation
        for result in allocation.devices.results if allocation is not None else ():
            key = (result.pool, result.device)
            if is_shared(result.device):
                memory[key] += int(result.consumed_capacity.get("memory", SHARED_MEMORY + 1))
            else:
                holders.setdefault(key, []).append(claim.metadata.uid)
            counters[result.pool] += counters_of(result.device)
    for (pool, device), names in holders.items():
        if len(names) > 1:
            yield f"device {pool}/{device} is allocated {len(names)} times: {', '.join(sorted(names))}"
    for pool, consumed in counters.items():
        if consumed > PARTITIONED_MEMORY:
            yield f"counters of pool {pool} are negative: {consumed} of {PARTITIONED_MEMORY} are consumed"
    for (pool, device), consumed in memory.items():
        if consumed > SHARED_MEMORY:
            yield f"capacity of device {pool}/{device} is exceeded: {consumed} of {SHARED_MEMORY} are consumed"


def check_bound_devices(api: DeviceApi, pod: Pod) -> Iterator[str]:
    """Yield claims of a bound pod that are not allocated for its node, not reserved for it, or not prepared."""
    uid, node_name = pod.metadata.uid, pod.spec.node_name
    for name in claim_names(pod):
        claim = None if name is None else api.claim(name)
        allocation = None if claim is None else claim.status.allocation
        if claim is None or allocation is None:
            yield f"{uid} is bound to {node_name} and its claim {name} is not allocated"
            continue
        if all(each.uid != uid for each in claim.status.reserved_for):
            yield f"{uid} is bound to {node_name} and its claim {name} is not reserved for it"
        selector = allocation.node_selector
        if selector is not None and not compile_readable_node_selector(selector).matches({}, node_name):
            yield f"{uid} is bound to {node_name} and its claim {name} is allocated on another node"
        if claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) == "true":
            amount = len(allocation.devices.results)
            if amount != extended_amount(pod):
                yield f"{uid} requests {extended_amount(pod)} devices as an extended resource and has {amount}"
        for device in unprepared(claim):
            yield f"{uid} is bound to {node_name} and device {device} of its claim {name} is not prepared"


@dataclass(frozen=True, slots=True)
class DeviceCheckInput:
    """Input of the check of idle devices.

    Attributes:
        api: API of resource claims.
        bound_by_previous_process: UIDs of pods whose bind arrived after its process had a successor; claims of such
            pods may be deallocated, as in kube-scheduler.
    """

    server: ApiServer
    api: DeviceApi
    counts: FaultCounts
    bound_by_previous_process: AbstractSet[str]


def check_idle_devices(process: OperatorProcess, given: DeviceCheckInput) -> Iterator[str]:
    """Yield devices that are allocated or reserved forever, and bound pods without devices."""
    server, api = given.server, given.api
    yield from check_allocations(api.claims())
    for pod in server.pods():
        is_running = pod.spec.node_name and not pod.is_terminal and pod.metadata.deletion_timestamp is None
        if is_running and pod.metadata.uid not in given.bound_by_previous_process:
            yield from check_bound_devices(api, pod)
    for uid in process.scheduler.context.cache.columns.devices._in_flight:
        yield f"claim {uid} has an allocation in flight forever"
    if any(given.counts.by_name[name] for name in _FAULTS_THAT_LEAVE_RESERVATIONS):
        return
    waiting = {pod.metadata.uid for pod in server.pods() if not pod.spec.node_name}
    for claim in api.claims():
        for consumer in claim.status.reserved_for:
            if consumer.uid in waiting:
                yield f"claim {claim.metadata.uid} stays reserved for {consumer.uid}, which is not bound"
    yield from _unused_extended_claims(api.claims(), {pod.metadata.uid: pod for pod in server.pods()})


def _unused_extended_claims(claims: list[ResourceClaim], pods: dict[str, Pod]) -> Iterator[str]:
    """Yield claims for extended resources that no pod uses, because Unreserve must delete them."""
    for claim in claims:
        if claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) != "true":
            continue
        owner = pods.get(claim.metadata.owner_references[0].uid)
        if owner is None or claim.metadata.name not in claim_names(owner) or not owner.spec.node_name:
            yield f"claim {claim.metadata.uid} for extended resources is unused"
