"""Metrics of the allocation of devices.

Bounds, and what is observed when, follow kube-scheduler v1.37.1 (``plugins/dynamicresources/dynamicresources.go``). The
wait of a pod for binding conditions is observed for each of its devices, also for those without conditions.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler_core.framework.handle import BindingOutcome
from scheduler_core.metrics.histogram import Histogram, exponential_bounds
from scheduler_core.model.device_claims import ResourceClaim

BINDING_BOUNDS = exponential_bounds(0.1, 2, 14)
"""Seconds of waits for binding conditions: 0.1 s to 14 min."""
_SUCCESS, _FAILURE, _ERROR = "success", "failure", "error"


class DeviceMetrics:
    """Metrics of the allocation of devices.

    Attributes:
        claim_creations: Claims that were created for extended resources, by status.
        binding_waits: Seconds of waits for binding conditions, by profile, driver and status.
        conditional_devices: Allocated devices with binding conditions, by profile, driver and status.
        allocations: New allocations of claims that PreBind wrote, by profile and result.
    """

    def __init__(self) -> None:
        self.claim_creations: dict[str, int] = {}
        self.binding_waits: dict[tuple[str, str, str], Histogram] = {}
        self.conditional_devices: dict[tuple[str, str, str], int] = {}
        self.allocations: dict[tuple[str, str], int] = {}

    def claim_created(self, *, has_failed: bool) -> None:
        """Count the creation of a claim for extended resources."""
        status = _FAILURE if has_failed else _SUCCESS
        self.claim_creations[status] = self.claim_creations.get(status, 0) + 1

    def allocation_written(self, profile: str, *, has_failed: bool) -> None:
        """Count the write of a new allocation."""
        key = (profile, _ERROR if has_failed else _SUCCESS)
        self.allocations[key] = self.allocations.get(key, 0) + 1

    def binding_waited(
        self, profile: str, claims: Iterable[ResourceClaim], outcome: BindingOutcome, seconds: float
    ) -> None:
        """Count a wait for binding conditions."""
        for claim in claims:
            allocation = claim.status.allocation
            for result in () if allocation is None else allocation.devices.results:
                key = (profile, result.driver, outcome.value)
                waits = self.binding_waits.get(key)
                if waits is None:
                    waits = self.binding_waits[key] = Histogram(BINDING_BOUNDS)
                waits.observe(seconds)
                if result.binding_conditions:
                    self.conditional_devices[key] = self.conditional_devices.get(key, 0) + 1
