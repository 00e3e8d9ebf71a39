"""Planted bugs in the allocation of devices; see :mod:`tests.simulation.planted_bugs`.

Each violates one invariant: a device is allocated once, counters and capacities are not exceeded, a bound pod has its
devices, no pod is lost, and released devices are free again.
"""

from __future__ import annotations

from typing import Any

from scheduler_core.devices import device_state
from scheduler_core.devices.pools import AllocatedDevices, PoolUsage
from scheduler_core.errors import ServerUnavailableError, WriteTimeoutError
from scheduler_core.framework.cluster_events import Resource
from scheduler_core.plugins import dynamic_resources
from scheduler_core.plugins.dynamic_resources import DynamicResources
from scheduler_core.plugins.dynamic_resources.claim_binding import ClaimBinder, PodBinding
from scheduler_core.snapshot.held_claims import HeldClaims
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from tests.simulation.planted_bugs import Bug, Original, _patched, _replaced, _skipped, _without_hints_for


async def _unwritten(*_: Any) -> None:
    return None


def _shares_not_counted(original: Original) -> Original:
    def change(self: PoolUsage, result: Any, sign: int, revision: int, *, shares_count: bool) -> None:
        if result.share_id is None:
            original(self, result, sign, revision, shares_count=shares_count)

    return change


def _unknown_outcome_fails(original: Original) -> Original:
    async def write(self: ClaimBinder, *given: Any) -> Any:
        try:
            return await original(self, *given)
        except (WriteTimeoutError, ServerUnavailableError) as error:
            raise RuntimeError("not read again") from error

    return write


async def _deleted_without_event(plugin: DynamicResources, claim: Any, pod: Any, binder: ClaimBinder) -> None:
    await binder.delete(claim)


DEVICE_BUGS: dict[str, Bug] = {
    "devices of in-flight allocations count as free": _skipped(AllocatedDevices, "put_in_flight"),
    "counters of allocated devices count as free": _replaced(device_state, "_allocated", lambda *_: iter(())),
    "shares of devices are not counted": _patched(PoolUsage, "change", _shares_not_counted),
    "claims are not written before the bind": _replaced(PodBinding, "write_claims", _unwritten),
    "deallocated claims are not read again": _replaced(PodBinding, "read_claims", _unwritten),
    "an allocation in flight never ends": _skipped(DeviceIndex, "end_allocation"),
    "written allocations stay in flight": _skipped(PodBinding, "end_allocations"),
    "the response of a write restores a deleted claim": _replaced(
        DeviceIndex, "claim_written", DeviceIndex.assign_claim
    ),
    "an allocation with unknown outcome is treated as failed": _patched(ClaimBinder, "_write", _unknown_outcome_fails),
    "the bind does not wait for binding conditions of devices": _replaced(PodBinding, "wait_for_drivers", _unwritten),
    "DynamicResources skips events of resource slices": _without_hints_for(DynamicResources, Resource.RESOURCE_SLICE),
    "DynamicResources skips events of resource claims": _without_hints_for(DynamicResources, Resource.RESOURCE_CLAIM),
    "devices are allocated before the first list of claims": _replaced(
        dynamic_resources, "require_lists", lambda _: None
    ),
    "the deletion of an earlier attempt's claim requeues no pod": _replaced(
        DynamicResources, "_delete_stale", _deleted_without_event
    ),
    "devices of deleted claims are not released": _skipped(AllocatedDevices, "remove_claim"),
    "devices stay free that a dry run of preemption freed": _skipped(HeldClaims, "restored"),
}
"""Planted bugs by the defect that they cause."""
