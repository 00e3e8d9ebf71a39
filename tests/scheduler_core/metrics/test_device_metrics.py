"""Metrics of device allocation, recorded by DynamicResources in PreBind."""

from __future__ import annotations

import pytest
from bayplan.serving.bayplan_metrics import metrics_registry
from msgspec.structs import replace
from prometheus_client import generate_latest

from scheduler_core.devices.search import SearchLimits
from scheduler_core.errors import AllocationTimeoutError, ClusterWriteError, DeviceError
from scheduler_core.metrics.scheduler_metrics import BINDING_BOUNDS
from scheduler_core.model.devices import AllocatedDeviceStatus, ResourceClaim, ResourceClaimStatus
from scheduler_core.model.meta import ObjectCondition
from scheduler_core.plugins.dynamic_resources.claim_binding import ClaimBinder, PodBinding
from scheduler_core.plugins.dynamic_resources.node_allocation import PodDevices
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.support.builders import pod
from tests.support.devices import DRIVER, allocated_claim, allocator, claim, cluster, device, exactly, slice_of
from tests.support.handles import FakeHandle
from tests.support.presence import present
from tests.support.recording_claim_writer import RecordingClaimWriter
from tests.support.scheduling import rig
from tests.support.tables import table
from tests.support.virtual_clock import AutoAdvanceClock

CONDITIONAL = {"device": "d0", "bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}


def reporting(of: ResourceClaim, condition: str) -> ResourceClaim:
    """Return the claim with a condition of its device ``d0`` set to True."""
    status = AllocatedDeviceStatus(DRIVER, "n0", "d0", None, (ObjectCondition(condition, "True"),))
    return replace(of, status=replace(of.status, devices=(status,)))


class World:
    """A pod in PreBind with one claim.

    Args:
        known: The claim as the scheduler read it.
        is_stored: Whether the claim still exists in the cluster.
    """

    def __init__(self, known: ResourceClaim, *, is_stored: bool = True) -> None:
        self.columns = NodeColumns()
        self.writer = RecordingClaimWriter()
        self.handle = FakeHandle(nodes=self.columns, clock=AutoAdvanceClock())
        self.metrics = self.handle.device_metrics
        self.claim = self.writer.store(known)
        if is_stored:
            self.columns.devices.assign(self.claim)
        user = self.columns.compile_pod(pod("p", namespace="ns"))
        self.attempt = PodDevices(user, self.columns, lambda: "share", claims=[self.claim])
        self.attempt.pending = [None]
        binder = ClaimBinder(self.handle, self.writer)
        self.binding = PodBinding(self.handle, binder, self.attempt, "n0")


@table(
    "known, is_stored, status, seconds",
    ("ready", reporting(allocated_claim(CONDITIONAL), "ready"), True, "success", 0.0),
    ("failed", reporting(allocated_claim(CONDITIONAL), "broken"), True, "failure", 0.0),
    ("too late", allocated_claim(CONDITIONAL), True, "timeout", 600.0),
    ("claim deleted", allocated_claim(CONDITIONAL), False, "error", 0.0),
)
async def test_waits_for_binding_conditions(
    known: ResourceClaim, status: str, seconds: float, *, is_stored: bool
) -> None:
    """The wait is observed once for each device of the pod; only devices with binding conditions are counted."""
    allocation = present(known.status.allocation)
    plain = replace(allocation.devices.results[0], device="d1", binding_conditions=(), binding_failure_conditions=())
    results = (*allocation.devices.results, plain)
    known = replace(
        known,
        status=replace(
            known.status, allocation=replace(allocation, devices=replace(allocation.devices, results=results))
        ),
    )
    world = World(known, is_stored=is_stored)
    try:
        await world.binding.wait_for_drivers(600)
    except DeviceError:
        assert status != "success"
    key = ("default-scheduler", DRIVER, status)
    assert world.metrics.conditional_devices == {key: 1}
    waits = world.metrics.binding_waits
    assert set(waits) == {key}
    assert (waits[key].count, waits[key].total) == (2, 2 * seconds)


async def test_a_claim_that_is_deallocated_during_the_wait() -> None:
    """The wait ends with an error when the claim is deallocated, because no driver will report its devices."""
    world = World(allocated_claim(CONDITIONAL))
    world.columns.devices.assign(world.writer.store(replace(world.claim, status=ResourceClaimStatus())))
    with pytest.raises(DeviceError, match="claim ns/held got deallocated elsewhere in the meantime"):
        await world.binding.wait_for_drivers(600)
    assert {key[-1] for key in world.metrics.binding_waits} == {"error"}


async def test_a_pod_without_binding_conditions_does_not_wait() -> None:
    """No wait is observed for devices without binding conditions."""
    world = World(allocated_claim({"device": "d0"}))
    await world.binding.wait_for_drivers(600)
    assert not world.metrics.binding_waits


@pytest.mark.parametrize("fault", [None, ClusterWriteError("refused")])
async def test_new_allocations_are_counted_by_result(fault: ClusterWriteError | None) -> None:
    """Each written allocation counts once, under its result."""
    world = World(claim())
    world.attempt.pending = [allocated_claim({"device": "d0"}).status.allocation]
    if fault is not None:
        world.writer.failures.append(fault)
        with pytest.raises(ClusterWriteError):
            await world.binding.write_claims()
    else:
        await world.binding.write_claims()
    assert world.metrics.allocations == {("default-scheduler", "success" if fault is None else "error"): 1}


def test_searches_are_counted() -> None:
    """A search that reaches its step limit counts as given up."""
    devices = cluster(slice_of([device(f"d{number}") for number in range(4)]))
    wanted = [claim(exactly("r", count=3))]
    assert allocator(devices, wanted).find("n0", {}) is not None
    assert (devices.tally.searches, devices.tally.given_up) == (1, 0)
    before = devices.tally.steps
    assert before >= 3
    with pytest.raises(AllocationTimeoutError):
        allocator(devices, [claim(exactly("r", count=4))], limits=SearchLimits(lambda: 0.0, max_steps=2)).find("n0", {})
    assert (devices.tally.searches, devices.tally.given_up) == (2, 1)
    assert devices.tally.steps > before


def test_families_and_bounds_are_those_of_kube_scheduler() -> None:
    """Names, labels and buckets equal kube-scheduler's: 14 buckets from 0.1 s, each twice the previous one."""
    made = rig()
    devices = made.context.metrics.devices
    devices.claim_created(has_failed=False)
    devices.claim_created(has_failed=True)
    devices.allocation_written("pack", has_failed=False)
    text = generate_latest(metrics_registry(made.scheduler, {})).decode()
    labels = 'admin_access="false",owner_api_group="",owner_api_kind="Pod"'
    for status in ("success", "failure"):
        assert f'dynamic_resource_allocation_resourceclaim_creates_total{{{labels},status="{status}"}} 1.0' in text
    assert 'bayplan_device_allocations_total{profile="pack",result="success"} 1.0' in text
    assert "# TYPE scheduler_dra_bindingconditions_wait_duration_seconds histogram" in text
    assert "# TYPE scheduler_dra_bindingconditions_allocations_total counter" in text
    assert "bayplan_device_searches_given_up_total 0.0" in text
    assert tuple(pytest.approx(0.1 * 2**power) for power in range(14)) == BINDING_BOUNDS
