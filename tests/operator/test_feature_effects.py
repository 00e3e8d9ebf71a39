"""Tests that each feature gate disables its own part and no other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bayplan.kube.credentials import ConfiguredAccess, Credentials
from bayplan.settings.feature_gates import GATES
from bayplan.settings.operator_settings import load_settings
from bayplan.wiring import Parts, build_parts

from scheduler_core.model.pod_group import GroupSource
from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import pod
from tests.support.gang_preemption import add_gang, evicted, running_pod, small_node, with_pod_groups
from tests.support.gangs import group, members, settle
from tests.support.scheduling import Rig, default_rig
from tests.support.tables import table


def _rig(options: SchedulerOptions) -> Rig:
    return default_rig(options=options)


def _enabled_gates(parts: Parts) -> Iterator[str]:
    """Yield the feature gates whose part the operator has."""
    read = {groups.source for groups in parts.groups.served}
    if {GroupSource.NATIVE, GroupSource.SCHEDULER_PLUGINS} <= read:
        yield "CompatiblePodGroups"
    if GroupSource.COMPOSITE in read:
        yield "CompositePodGroups"
    features = parts.scheduler.context.cache.columns.devices.hardware.features
    if features.derived_attributes:
        yield "DRADerivedAttributes"
    if features.compatibility_groups:
        yield "DRADeviceCompatibilityGroups"
    if features.list_type_attributes:
        yield "DRAListTypeAttributes"
    if features.optional_node_operations:
        yield "DRAOptionalNodeOperations"
    if parts.scheduler.options.group_claims:
        yield "DRAWorkloadResourceClaims"
    if parts.scheduler.context.options.gangs_backtrack:
        yield "GangDeviceBacktracking"
    if parts.scheduler.context.options.gangs_preempt:
        yield "GangPreemption"
    if parts.scheduler.options.deferred_resizes:
        yield "InPlacePodVerticalScalingSchedulerPreemption"
    if parts.kueue is not None:
        yield "KueueAdmissionCheck"
    if parts.reservations is not None:
        yield "NodeReservation"
    if parts.rebalancing is not None and parts.scheduler.options.plans_moves:
        yield "RebalancePlan"
    if parts.scheduler.context.options.reuses_results:
        yield "ResultCache"
    if GroupSource.VOLCANO in read:
        yield "VolcanoPodGroups"


NAMES = [gate.name for gate in GATES]
NEEDED_BY = {"CompatiblePodGroups": {"CompositePodGroups"}}
"""Gates that have no effect if another gate is off, by that gate."""


@pytest.mark.parametrize("off", [pytest.param("", id="none-off"), *(pytest.param(name, id=name) for name in NAMES)])
async def test_a_disabled_gate_removes_only_its_part(off: str) -> None:
    """The operator is built without the part of a disabled gate and the parts that need it."""

    async def reload() -> None:
        """Do nothing, because the credentials never change."""

    credentials = Credentials()
    credentials.host = "http://127.0.0.1:1"
    settings = load_settings({"serve_address": "", "feature_gates": {name: name != off for name in NAMES}})
    parts = build_parts(settings, ConfiguredAccess(credentials, reload))
    assert list(_enabled_gates(parts)) == [name for name in NAMES if name not in {off, *NEEDED_BY.get(off, ())}]


@table("on, victims", ("on", True, {"v0", "v1"}), ("off", False, set()))
async def test_gang_preemption_gate(on: bool, victims: set[str]) -> None:
    """A gang evicts no pod when the gate is off."""
    made = with_pod_groups(_rig(SchedulerOptions(gangs_preempt=on)))
    made.add(small_node("a"), running_pod("v0", "a"), running_pod("v1", "a"))
    add_gang(made, *members(2, priority=10), of=group(min_member=2))
    await settle(made)
    assert evicted(made) == victims


def test_single_pods_preempt_without_gang_preemption() -> None:
    """A single pod preempts when the gate GangPreemption is off."""
    made = _rig(SchedulerOptions(gangs_preempt=False))
    made.add(small_node("a", 1), running_pod("v0", "a"))
    made.add(pod("p", priority=10, requests={"cpu": "1"}))
    made.decide()
    assert evicted(made) == {"v0"}


@table("on, cached", ("on", True, 1), ("off", False, 0))
def test_result_cache_gate(on: bool, cached: int) -> None:
    """No result of a cycle is cached when the gate is off."""
    made = _rig(SchedulerOptions(reuses_results=on))
    made.add(small_node("a"), small_node("b"), *(pod(f"p{number}", requests={"cpu": "1m"}) for number in range(3)))
    for _ in range(3):
        assert made.decide() is not None
    (instance,) = made.context.profiles
    classes = instance.pod_classes
    assert (0 if classes is None else len(classes.stored())) == cached
