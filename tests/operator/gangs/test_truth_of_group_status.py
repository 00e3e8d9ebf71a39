"""The status of a gang shows what its members wait for: no profile, a gate, a step of binding, another attempt."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from bayplan.gangs.group_phase import Phase, Tally, Verdict, evaluate_gang

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import PreBindPlugin, PreEnqueuePlugin
from scheduler_core.framework.queued_pod import Place
from scheduler_core.framework.status import SUCCESS, Status, error, unresolvable
from scheduler_core.gangs.gated_member_reports import REPORT_AFTER_SECONDS
from scheduler_core.model.pod import Pod, PodCondition, SchedulingGate
from scheduler_core.model.pod_group import GroupSource, GroupTopology
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.binding_gate import Gate
from tests.support.builders import node, pod
from tests.support.gang_preemption import add_gang, small_node, terminating_pod
from tests.support.gangs import LABEL, add_groups, composite_group, gang_of, group, leaf_group, member, members, settle
from tests.support.presence import present
from tests.support.scheduling import Rig, gang_rig, plugin_set, profile
from tests.support.tables import table

ZONE = "topology.kubernetes.io/zone"
NO_QUORUM = "waiting for minCount pods from a gang to appear in scheduling queue"
OF_ANOTHER = "for default/train-9: 0/1 nodes are available"


class FailsToPrepare(PreBindPlugin):
    """PreBind fails for the first member."""

    name = "FailsToPrepare"

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return error("volume is attached elsewhere") if pod.key.endswith("-0") else SUCCESS


class Closed(PreEnqueuePlugin):
    """PreEnqueue gates the first member."""

    name = "Closed"

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return unresolvable("waiting for a licence") if pod.key.endswith("-0") else SUCCESS


def verdict(made: Rig) -> Verdict:
    gang = gang_of(made)
    assert gang.group is not None
    return evaluate_gang(gang, Tally.of(gang), gang.group.min_member)


def rejected(pod: Pod, reason: str, message: str) -> Pod:
    """Return a pod with the condition of an earlier report."""
    condition = PodCondition("PodScheduled", "False", reason, message)
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=(condition,)))


async def test_a_member_whose_profile_is_not_served() -> None:
    """The status names the member and the schedulerName that no profile serves, until one does."""
    made = gang_rig(node("a"))
    add_gang(made, member("train-0"), member("train-1", scheduler_name="other"), of=group())
    await settle(made)
    found = verdict(made)
    assert (found.phase, found.reason) == (Phase.PENDING, "MembersNotReady")
    assert found.message == (
        '1 of 2 required members can be attempted. train-1: no profile serves schedulerName "other".'
    )
    made.serve(profile("other"))
    await settle(made)
    assert "can be attempted" not in verdict(made).message


async def test_members_that_a_plugin_gates() -> None:
    """The status names the members that a PreEnqueue plugin gates, and its reason."""
    made = gang_rig(plugins=[Closed], serve=False)
    made.serve(profile(plugins=Plugins(pre_enqueue=plugin_set("Closed"))))
    made.add(node("a"))
    add_gang(made, *members(3), of=group(min_member=3))
    await settle(made)
    assert verdict(made).message == "2 of 3 required members can be attempted. train-0: waiting for a licence."


@table("at, step", ("Permit", "permit", "Permit (Gate)"), ("PreBind", "preBind", "PreBind"))
async def test_members_that_are_being_bound(at: str, step: str) -> None:
    """The status names what the members wait for while they are bound."""
    made = gang_rig(plugins=[Gate], serve=False)
    made.serve(profile(plugins=Plugins(permit=plugin_set("Gate"), pre_bind=plugin_set("Gate"))))
    made.add(node("a"))
    Gate.stop_at(at)
    add_gang(made, *members(2), of=group())
    async with made.running():
        await made.until(lambda: len(gang_of(made).binding_steps) == 2)
        found = verdict(made)
        assert (found.reason, found.message) == (
            "Binding",
            f"All 2 required members have a node and are being bound. Waiting: train-0, train-1 for {step}.",
        )
        Gate.open(made.context.waiting)
        await made.until(lambda: len(made.bound) == 2)
    assert gang_of(made).binding_steps == {}


async def test_a_member_whose_preparation_fails() -> None:
    """After a failed PreBind the status names the member and the reason, instead of a wait for an attempt."""
    made = gang_rig(plugins=[FailsToPrepare], serve=False)
    made.serve(profile(plugins=Plugins(pre_bind=plugin_set("FailsToPrepare"))))
    made.add(node("a"))
    add_gang(made, *members(2), of=group())
    async with made.running():
        await made.until(lambda: bool(made.writer.patches) and not made.scheduler.binding_count)
    found = verdict(made)
    assert (found.reason, found.is_failure) == ("SchedulerError", True)
    assert found.message.startswith("default/train-0 could not be bound: ")
    assert found.message.endswith("volume is attached elsewhere; all members are tried again")


@pytest.mark.parametrize("topology", [None, GroupTopology(ZONE, is_required=False)], ids=["no topology", "preferred"])
async def test_the_message_of_a_scheduled_gang(topology: GroupTopology | None) -> None:
    """Only a gang with a topology is reported as placed over several domains."""
    made = gang_rig(*(small_node(zone, 1, **{ZONE: zone}) for zone in "ab"))
    add_gang(made, *members(2), of=group(topology=topology))
    await settle(made)
    made.scheduler.group_feed.serve(GroupSource.BAYPLAN)
    message = present(gang_of(made).outcome)
    assert ("several domains" in message.message) is (topology is not None)


def _scenario_of_ungated(made: Rig) -> str:
    gate = "Scheduling is blocked due to non-empty scheduling gates"
    add_gang(made, rejected(member("train-0"), "SchedulingGated", gate), of=group())
    return NO_QUORUM


def _scenario_of_restart(made: Rig) -> str:
    add_gang(made, rejected(member("train-0"), "Unschedulable", OF_ANOTHER), of=group())
    return NO_QUORUM


def _scenario_of_error(made: Rig) -> str:
    add_gang(made, rejected(member("train-0"), "SchedulerError", "default/train-9: plugin A raised"), of=group())
    return NO_QUORUM


def _scenario_of_gated_sibling(made: Rig) -> str:
    groups = composite_group("root"), leaf_group("leaf", "root", 2)
    for source in (GroupSource.NATIVE, GroupSource.COMPOSITE):
        made.scheduler.group_feed.serve(source)
    add_groups(made, *groups)
    first, second = (pod(f"train-{number}", group="leaf", priority=0) for number in range(2))
    gates = (SchedulingGate("example.com/later"),)
    second = msgspec.structs.replace(second, spec=msgspec.structs.replace(second.spec, scheduling_gates=gates))
    made.add(rejected(first, "Unschedulable", OF_ANOTHER), second)
    return "no member is scheduled while others are gated: train-1"


@pytest.mark.parametrize(
    "scenario",
    [_scenario_of_ungated, _scenario_of_restart, _scenario_of_error, _scenario_of_gated_sibling],
    ids=lambda each: each.__name__.removeprefix("_scenario_of_"),
)
async def test_an_outdated_condition_is_corrected(scenario: Callable[[Rig], str]) -> None:
    """A waiting member's condition does not stay as it was before its gate opened, or before another was deleted."""
    made = gang_rig(small_node("a", 1))
    message = scenario(made)
    await settle(made)
    made.writer.patches.clear()
    made.clock.advance(REPORT_AFTER_SECONDS)
    (condition,) = [patch.condition for patch in made.writer.patches if patch.name == "train-0"]
    assert condition is not None
    assert (condition.reason, condition.message) == ("SchedulingGated", message)


@pytest.mark.parametrize("is_shown", [True, False], ids=["shown by the watch", "not shown yet"])
async def test_the_condition_of_an_attempt_without_its_quorum(is_shown: bool) -> None:
    """The condition of the last attempt is corrected once when a member that it names is deleted."""
    made = gang_rig(small_node("a", 1))
    first, second = (member(f"train-{number}", requests={"cpu": "2"}) for number in range(2))
    add_gang(made, first, second, of=group())
    await settle(made)
    written = made.condition
    assert "default/train-0" in written.message
    if is_shown:
        shown = msgspec.structs.replace(second.status, conditions=(written,))
        made.scheduler.feed.pod_updated(second, msgspec.structs.replace(second, status=shown))
    made.scheduler.feed.pod_deleted(first)
    made.writer.patches.clear()
    for _ in range(3):
        made.clock.advance(REPORT_AFTER_SECONDS)
    assert [patch.condition.message for patch in made.writer.patches if patch.condition] == [NO_QUORUM]


def _deleted(made: Rig, leaving: Pod) -> None:
    made.scheduler.feed.pod_deleted(leaving)


def _terminating(made: Rig, leaving: Pod) -> None:
    made.scheduler.feed.pod_updated(leaving, terminating_pod(leaving))


def _bound_elsewhere(made: Rig, leaving: Pod) -> None:
    bound = msgspec.structs.replace(leaving, spec=msgspec.structs.replace(leaving.spec, node_name="b"))
    made.scheduler.feed.pod_updated(leaving, bound)


def _in_another_group(made: Rig, leaving: Pod) -> None:
    labels = {**leaving.metadata.labels, LABEL: "other"}
    moved = msgspec.structs.replace(leaving, metadata=msgspec.structs.replace(leaving.metadata, labels=labels))
    made.scheduler.feed.pod_updated(leaving, moved)


@pytest.mark.parametrize("leave", [_deleted, _terminating, _bound_elsewhere, _in_another_group])
async def test_a_rejected_gang_is_tried_again_without_a_member(leave: Callable[[Rig, Pod], None]) -> None:
    """A rejected gang is requeued when a member leaves: perhaps only that member was rejected."""
    made = gang_rig(small_node("a", 1))
    pods = members(4, requests={"cpu": "2"})
    add_gang(made, *pods, of=group(min_member=3))
    await settle(made)
    entry = present(gang_of(made).entry)
    before = entry.place
    leave(made, pods[0])
    assert (before, entry.place) == (Place.UNSCHEDULABLE, Place.BACKOFF)
