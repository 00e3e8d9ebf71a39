"""Simulated device drivers, which prepare allocated devices with binding conditions after a while, or fail."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scheduler_core.model.devices import (
    AllocatedDeviceStatus,
    DeviceRequestResult,
    ResourceClaim,
)
from scheduler_core.model.meta import ObjectCondition
from tests.simulation.cluster_objects import happens
from tests.simulation.device_api import DeviceApi
from tests.simulation.device_objects import RESOURCE_CLAIMS

if TYPE_CHECKING:
    from tests.simulation.cluster_steps import StepContext

_MAXIMUM_SECONDS = 12.0
"""Maximum time that a driver takes; the operator checks every 5 s."""


class DevicePreparation:
    """Drivers that prepare devices."""

    def __init__(self, context: StepContext, api: DeviceApi) -> None:
        self._server = context.server
        self._network = context.network
        self._seed = context.seed
        self._api = api

    def written(self, claim: ResourceClaim) -> None:
        """Start to prepare the devices of a new allocation."""
        if any(result.binding_conditions for result in results_of(claim)):
            rng = random.Random(f"{self._seed}/prepare {claim.metadata.uid} {self._server.version}")
            self._network.loop.call_later(_MAXIMUM_SECONDS * rng.random() ** 2, self._report, rng, claim)

    def _report(self, rng: random.Random, claim: ResourceClaim) -> None:
        current = self._api.claim(claim.metadata.name)
        if current is None or current.metadata.uid != claim.metadata.uid or results_of(current) != results_of(claim):
            return
        if current.status.devices:
            # It was allocated again with the same devices, and the report of one of the two allocations is written.
            return
        names = "binding_failure_conditions" if happens(rng, 0.2) else "binding_conditions"
        devices = tuple(
            AllocatedDeviceStatus(
                each.driver,
                each.pool,
                each.device,
                each.share_id,
                tuple(ObjectCondition(name, "True") for name in getattr(each, names)),
            )
            for each in results_of(current)
            if each.binding_conditions
        )
        self._network.log(f"devices of claim {claim.metadata.uid}: {names}")
        self._server.put(RESOURCE_CLAIMS, replace(current, status=replace(current.status, devices=devices)))


def results_of(claim: ResourceClaim) -> tuple[DeviceRequestResult, ...]:
    """Return the allocated devices of a claim."""
    return () if claim.status.allocation is None else claim.status.allocation.devices.results


def unprepared(claim: ResourceClaim) -> Iterator[str]:
    """Yield the devices of a claim whose driver has not prepared them."""
    for result in results_of(claim):
        device = (result.driver, result.pool, result.device)
        true = {
            condition.type
            for each in claim.status.devices
            for condition in each.conditions
            if (each.driver, each.pool, each.device) == device and condition.status == "True"
        }
        if not true >= set(result.binding_conditions) or true & set(result.binding_failure_conditions):
            yield f"{result.pool}/{result.device}"
