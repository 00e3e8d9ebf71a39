"""Planted bugs in the allocation of devices; see :mod:`tests.simulation.planted_bugs`.

Each breaks one law: a device is allocated once, counters and capacities are kept, a bound pod has its devices, nothing
is lost, and what is given up is free again.
"""

from __future__ import annotations

from typing import Any

from scheduler_core.devices import counters
from scheduler_core.devices.allocated_devices import AllocatedDevices, PoolUsage
from scheduler_core.errors import ServerUnavailableError, WriteTimeoutError
from scheduler_core.framework.cluster_events import Resource
from scheduler_core.plugins import dynamic_resources
from scheduler_core.plugins.dynamic_resources import DynamicResources
from scheduler_core.plugins.dynamic_resources.claim_binding import ClaimBinder
from scheduler_core.plugins.dynamic_resources.pod_binding import PodBinding
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from tests.simulation.planted_bugs import Bug, Original, _deaf, _patched, _skipped


def _unwritten(original: Original) -> Original:
    del original

    async def nothing(*_: Any) -> None:
        return None

    return nothing


def _without_shares(original: Original) -> Original:
    def change(self: PoolUsage, result: Any, sign: int, revision: int, *, shares_count: bool) -> None:
        if result.share_id is None:
            original(self, result, sign, revision, shares_count=shares_count)

    return change


def _nothing_consumed(original: Original) -> Original:
    del original
    return lambda *_: iter(())


def _come_back(original: Original) -> Original:
    del original
    return DeviceIndex.assign_claim


def _taken_for_failure(original: Original) -> Original:
    async def write(self: ClaimBinder, *given: Any) -> Any:
        try:
            return await original(self, *given)
        except (WriteTimeoutError, ServerUnavailableError) as error:
            raise RuntimeError("not read again") from error

    return write


def _nothing_needed(original: Original) -> Original:
    del original
    return lambda _: None


def _only_deleted(original: Original) -> Original:
    del original

    async def delete(plugin: DynamicResources, claim: Any, pod: Any, binder: ClaimBinder) -> None:
        del plugin, pod
        await binder.delete(claim)

    return delete


DEVICE_BUGS: dict[str, Bug] = {
    "devices of allocations in flight are free": _skipped(AllocatedDevices, "put_in_flight"),
    "counters of allocated devices are free": lambda: _patched(counters, "_consumed", _nothing_consumed),
    "shares of devices are not counted": lambda: _patched(PoolUsage, "change", _without_shares),
    "claims are not written before the bind": lambda: _patched(PodBinding, "write_claims", _unwritten),
    "claims are not read after they were deallocated": lambda: _patched(PodBinding, "read_claims", _unwritten),
    "an allocation in flight never ends": _skipped(DeviceIndex, "end_allocation"),
    "written allocations stay in flight": _skipped(PodBinding, "end_allocations"),
    "a deleted claim comes back with the answer to a write": lambda: _patched(DeviceIndex, "claim_written", _come_back),
    "a doubtful allocation is taken for a failure": lambda: _patched(ClaimBinder, "_write", _taken_for_failure),
    "the preparation of devices is not awaited": lambda: _patched(PodBinding, "wait_for_drivers", _unwritten),
    "DynamicResources is deaf to slices": _deaf(DynamicResources, Resource.RESOURCE_SLICE),
    "DynamicResources is deaf to claims": _deaf(DynamicResources, Resource.RESOURCE_CLAIM),
    "devices are given before claims are listed": lambda: _patched(dynamic_resources, "require_lists", _nothing_needed),
    "a deleted claim of an earlier attempt wakes nobody": lambda: _patched(
        DynamicResources, "_delete_stale", _only_deleted
    ),
    "devices of deleted claims stay in use": _skipped(AllocatedDevices, "remove_claim"),
}
"""Planted bugs by the defect that they cause."""
