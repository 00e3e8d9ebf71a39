"""Binding conditions: an allocated device may have to be prepared before its pod is bound, and that may fail.

Follows kube-scheduler v1.37.1, ``plugins/dynamicresources/dynamicresources.go`` (``isClaimReadyForBinding``,
``isClaimTimeout``), and KEP-5007.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from scheduler_core.errors import DeviceBindingFailedError
from scheduler_core.model.devices import AllocatedDeviceStatus, DeviceRequestResult, ResourceClaim


def has_binding_conditions(claim: ResourceClaim) -> bool:
    """Return whether a device of the claim's allocation has binding conditions."""
    return any(result.binding_conditions for result in _results(claim))


def is_ready_for_binding(claim: ResourceClaim) -> bool:
    """Return whether all devices of an allocated claim are ready; a claim without an allocation is not.

    Raises:
        DeviceBindingFailedError: The driver reports that it failed to prepare a device.
    """
    if claim.status.allocation is None:
        return False
    for result in _results(claim):
        if not result.binding_conditions:
            continue
        status = _device_status(claim, result)
        if status is None:
            return False
        true = {condition.type: condition for condition in status.conditions if condition.status == "True"}
        for name in result.binding_failure_conditions:
            if name in true:
                raise DeviceBindingFailedError(
                    f"device binding failed: claim={claim.metadata.name}, reason={true[name].reason}, "
                    f'message="{true[name].message}"'
                )
        if not true.keys() >= set(result.binding_conditions):
            return False
    return True


def is_past_binding_timeout(claim: ResourceClaim, timeout_seconds: float, now: datetime) -> bool:
    """Return whether the devices of a claim with binding conditions were allocated too long ago."""
    allocation = claim.status.allocation
    if allocation is None or allocation.allocation_timestamp is None or not has_binding_conditions(claim):
        return False
    return allocation.allocation_timestamp + timedelta(seconds=timeout_seconds) < now


def _results(claim: ResourceClaim) -> Sequence[DeviceRequestResult]:
    allocation = claim.status.allocation
    return () if allocation is None else allocation.devices.results


def _device_status(claim: ResourceClaim, result: DeviceRequestResult) -> AllocatedDeviceStatus | None:
    device = (result.driver, result.pool, result.device)
    return next((each for each in claim.status.devices if (each.driver, each.pool, each.device) == device), None)
