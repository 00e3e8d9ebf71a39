"""Tests of shadow profiles from their objects to their statuses, with a scheduler that has one profile."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from bayplan.profiles.desired_profiles import DesiredState, PluginConfigValidation, desired_state
from bayplan.profiles.profile_rollout import ShadowRollout
from bayplan.profiles.profile_status import AppliedProfile, Progress, profile_status, running_shadow, status_change

from scheduler_core.in_tree import in_tree_registry
from scheduler_core.metrics.scheduler_metrics import ProfileRecord
from tests.support.builders import node, pod
from tests.support.manifests import profile_manifest
from tests.support.scheduling import DEFAULT_NAME, Rig, default_rig
from tests.support.tables import table

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
_NO_PORTS = {"disabled": [{"name": "NodePorts"}]}
OPEN = {"plugins": {"filter": _NO_PORTS, "preFilter": _NO_PORTS}}


def desired(*specs: tuple[str, dict[str, Any]]) -> DesiredState:
    """Return the desired state of profiles by name and spec."""
    manifests = [profile_manifest(name, spec) for name, spec in specs]
    return desired_state(manifests, [], PluginConfigValidation(in_tree_registry()))


def apply_shadow(rollout: ShadowRollout, **spec: Any) -> AppliedProfile:
    """Apply the spec of one shadow and return its record."""
    (found,) = rollout.apply(desired(("next", {"shadowOf": DEFAULT_NAME, **spec})).shadows)
    return found


def status_of(world: Rig, found: AppliedProfile) -> dict[str, Any]:
    """Return the status that would be written."""
    running = running_shadow(world.scheduler, "next")
    return profile_status(found.findings, Progress(shadow=running), {}, NOW)


def reasons(status: dict[str, Any]) -> dict[str, str]:
    """Return the reason of each condition."""
    return {each["type"]: each["reason"] for each in status["conditions"]}


@pytest.fixture
def world() -> Rig:
    """Return a scheduler with two nodes."""
    return default_rig(node("a"), node("b"))


def test_a_shadow_claims_no_scheduler_name() -> None:
    """A live profile can have a shadow's name as its schedulerName without a conflict."""
    state = desired(("next", {"shadowOf": "batch"}), ("other", {"schedulerName": "next"}))
    assert {each.meta.name: each.holds_name for each in state.profiles} == {"next": False, "other": True}
    assert all(not each.problems for each in state.profiles)
    assert [each.meta.name for each in state.of_live_profiles().profiles] == ["other"]


@table(
    "spec, problem",
    (
        "schedulerName",
        {"shadowOf": "batch", "schedulerName": "x"},
        "spec.schedulerName: a shadow schedules no pods of its own; remove it, or shadowOf",
    ),
    ("sample", {"samplePercent": 5}, "spec.samplePercent: only a shadow has it; set shadowOf, or remove it"),
    (
        "range",
        {"shadowOf": "batch", "samplePercent": 0},
        "spec.samplePercent: input should be greater than or equal to 1",
    ),
)
def test_invalid_shadows(spec: dict[str, Any], problem: str) -> None:
    """A problem of a shadow names the field and the remedy."""
    (found,) = desired(("next", spec)).profiles
    assert problem.lower() in [str(each).lower() for each in found.problems] or problem.split(":", maxsplit=1)[0] in [
        each.path for each in found.problems
    ]


async def test_status_and_conditions(world: Rig) -> None:
    """The status has the results of the comparison, which are written with the other counts."""
    rollout = ShadowRollout(world.scheduler)
    found = apply_shadow(rollout, **OPEN)
    assert found.findings.live_revision
    before = status_of(world, found)
    assert reasons(before) == {"Accepted": "Valid", "Ready": "Shadow", "Comparing": "Comparing"}
    async with world.running():
        for number in range(3):
            world.add(pod(f"p{number}", ports=[80]))
            await world.until(lambda: world.queue.readings.is_idle and not world.scheduler.binding_count)
    status = status_of(world, found)
    shadow = status["shadow"]
    assert (shadow["decided"], shadow["compared"], shadow["agreed"], shadow["wouldPlace"]) == (3, 3, 2, 1)
    (difference,) = shadow["differences"]
    assert difference["kind"] == "WouldPlace"
    assert difference["pod"] == "default/p2"
    assert "schedulerName" not in status
    change = status_change(before, status)
    assert change.counts
    assert not change.at_once


def test_an_invalid_edit_does_not_end_a_running_shadow(world: Rig) -> None:
    """After an invalid edit the last valid revision of a shadow keeps running."""
    rollout = ShadowRollout(world.scheduler)
    good = apply_shadow(rollout).findings.live_revision
    broken = apply_shadow(rollout, plugins={"score": {"enabled": [{"name": "Nothing"}]}})
    assert [each.path for each in broken.findings.problems] == ["spec.plugins.score.enabled[0].name"]
    assert broken.findings.live_revision == good
    assert reasons(status_of(world, broken))["Ready"] == "LastGoodRevision"
    assert [shadow.instance.revision for shadow in world.scheduler.shadows] == [good]


def test_conditions_of_a_shadow_without_a_live_profile_or_a_revision(world: Rig) -> None:
    """Comparing is False with a reason if the live profile or a valid revision is missing."""
    rollout = ShadowRollout(world.scheduler)
    (found,) = rollout.apply(desired(("next", {"shadowOf": "missing"})).shadows)
    assert reasons(status_of(world, found))["Comparing"] == "NoLiveProfile"
    fresh = ShadowRollout(world.scheduler)
    broken = apply_shadow(fresh, plugins={"score": {"enabled": [{"name": "Nothing"}]}})
    assert reasons(status_of(world, broken)) | {"Stalled": ""} == {
        "Accepted": "InvalidSpec",
        "Ready": "NotLive",
        "Comparing": "NotRunning",
        "Stalled": "",
    }


def test_shadow_settings_and_deletion(world: Rig) -> None:
    """A new sample percentage restarts the comparison with the same instance, which is closed on deletion."""
    rollout = ShadowRollout(world.scheduler)
    apply_shadow(rollout)
    (first,) = world.scheduler.shadows
    apply_shadow(rollout, samplePercent=50)
    (second,) = world.scheduler.shadows
    assert first is not second
    assert first.instance is second.instance
    assert second.settings.sample_percent == 50
    rollout.apply(())
    assert list(world.scheduler.shadows) == []
    assert second.instance._closed
    assert world.context.metrics.records.get("next", ProfileRecord()) == ProfileRecord()
