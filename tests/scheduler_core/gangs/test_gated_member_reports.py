"""Reports about pods that are gated because their PodGroup is missing: condition, event and log."""

from __future__ import annotations

import logging

import msgspec
import pytest

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.gangs.gated_member_reports import REPORT_AFTER_SECONDS
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.model.pod_group import GroupSource
from tests.support.builders import node, pod
from tests.support.gangs import group, key, member, members, settle, settle_gang
from tests.support.scheduling import BARE, Rig, gang_rig, plugin_set, profile, rig
from tests.support.tables import table

REFUSED = "the API server refused"
MISSING = (
    'waiting for pods\'s pod group "train" to appear in scheduling queue: no valid PodGroup default/train of '
    "bayplan.dev exists; create or correct it, or create the pod without label bayplan.dev/pod-group"
)


@pytest.fixture
def cluster(cluster: Rig) -> Rig:
    """Return a scheduler for PodGroups of Bayplan's own API, with one node."""
    cluster.add(node("a"))
    return cluster


def reported(made: Rig) -> list[tuple[str, str, str]]:
    """Advance the clock until reports are due; return pod, reason and message of the conditions that are written."""
    made.writer.patches.clear()
    made.clock.advance(REPORT_AFTER_SECONDS)
    patches = [(patch.name, patch.condition) for patch in made.writer.patches]
    return [(name, each.reason, each.message) for name, each in patches if each is not None]


def with_condition(reported_pod: Pod, message: str) -> Pod:
    """Return the pod with the condition of an earlier report."""
    condition = PodCondition("PodScheduled", "False", "SchedulingGated", message)
    return msgspec.structs.replace(
        reported_pod, status=msgspec.structs.replace(reported_pod.status, conditions=(condition,))
    )


async def test_a_missing_group(cluster: Rig) -> None:
    """Each member gets an event and a condition with reason SchedulingGated, for which autoscalers add no nodes."""
    await settle(cluster, *members(2))
    assert cluster.bound == {}
    assert reported(cluster) == [(f"train-{number}", "SchedulingGated", MISSING) for number in range(2)]
    events = [(event.regarding.name, event.reason, event.note) for event in cluster.writer.events]
    assert events == [(f"train-{number}", "FailedScheduling", MISSING) for number in range(2)]


async def test_a_misspelt_group(cluster: Rig) -> None:
    """Event and condition name the group of the namespace that the members may mean."""
    cluster.scheduler.group_feed.group_changed(group("trian"))
    cluster.scheduler.group_feed.group_changed(group("render"))
    await settle(cluster, member("train-0"))
    assert reported(cluster) == [("train-0", "SchedulingGated", f'{MISSING} (did you mean "trian"?)')]


async def test_a_group_that_is_created_before_the_report(cluster: Rig) -> None:
    """Nothing is reported if the group is created before reports are due, and the members are bound."""
    cluster.add(*members(2))
    cluster.scheduler.group_feed.group_changed(group())
    await settle(cluster)
    assert reported(cluster) == []
    assert set(cluster.bound) == {"train-0", "train-1"}


async def test_a_condition_that_exists_is_not_written_again(cluster: Rig) -> None:
    """A new leader does not write a condition that the previous leader has written."""
    cluster.add(with_condition(member("train-0"), MISSING))
    assert reported(cluster) == []
    assert cluster.writer.events == []


async def test_the_reason_changes(cluster: Rig) -> None:
    """The condition changes with the reason: unreadable group, missing group, group without quorum."""
    feed = cluster.scheduler.group_feed
    feed.withhold(GroupSource.BAYPLAN, REFUSED)
    waiting = member("train-0")
    cluster.add(waiting)
    unreadable = f'pod group "train" cannot be read: {REFUSED}'
    assert reported(cluster) == [("train-0", "SchedulingGated", unreadable)]
    feed.serve(GroupSource.BAYPLAN)
    assert reported(cluster) == [("train-0", "SchedulingGated", MISSING)]
    cluster.scheduler.feed.pod_updated(waiting, with_condition(waiting, MISSING))
    feed.group_changed(group())
    quorum = "waiting for minCount pods from a gang to appear in scheduling queue"
    assert reported(cluster) == [("train-0", "SchedulingGated", quorum)]
    feed.group_deleted(key())
    # The watch has not shown the last condition yet, so the pod as last seen does not prove that this one stands.
    assert reported(cluster) == [("train-0", "SchedulingGated", MISSING)]
    cluster.scheduler.feed.pod_updated(waiting, with_condition(waiting, quorum))
    feed.group_changed(group())
    feed.group_deleted(key())
    assert reported(cluster) == [("train-0", "SchedulingGated", MISSING)]


@table(
    "withheld, lines",
    ("unreadable API", REFUSED, ["pods that name a PodGroup of bayplan.dev are not scheduled"]),
    ("two missing groups", "", [f"pods that name PodGroup default/{name} of bayplan.dev are not" for name in "ab"]),
)
def test_the_log_has_one_line_for_each_cause(
    cluster: Rig, caplog: pytest.LogCaptureFixture, withheld: str, lines: list[str]
) -> None:
    """The log has one line for each cause, however many pods are affected and however often they are checked."""
    if withheld:
        cluster.scheduler.group_feed.withhold(GroupSource.BAYPLAN, withheld)
    with caplog.at_level(logging.WARNING):
        for number in range(2):
            cluster.add(*(member(f"{name}-{number}", name) for name in "ab"))
            reported(cluster)
            cluster.serve(profile(percentage=50 + number))
    logged = [record.getMessage() for record in caplog.records if record.name.endswith("gated_member_reports")]
    assert len(logged) == len(lines)
    assert all(line in text for line, text in zip(lines, logged, strict=True))


def test_many_members_are_reported_in_batches(cluster: Rig) -> None:
    """Members of a large gang are reported in batches, so that the event loop is not blocked."""
    cluster.add(*members(600))
    reports = []
    while found := reported(cluster):
        reports.append(len(found))
    assert sum(reports) == 600


BY_PERMIT = Plugins(
    multi_point=plugin_set("SchedulingGates", "Coscheduling", *BARE), queue_sort=plugin_set(disabled=["Coscheduling"])
)


@pytest.mark.parametrize("plugins", [None, BY_PERMIT], ids=["in one cycle", "by Permit"])
def test_scheduling_gates_are_reported_first(plugins: Plugins | None) -> None:
    """A missing group is reported after the pod's own scheduling gates are removed, however gangs are scheduled."""
    made = rig(defaults=Plugins() if plugins else default_plugins(), serve=False, groups=[GroupSource.BAYPLAN])
    made.serve(profile(plugins=plugins))
    gated = member("train-0", gates=["example.com/later"])
    made.add(gated)
    assert reported(made) == []
    made.scheduler.feed.pod_updated(gated, member("train-0"))
    assert reported(made) == [("train-0", "SchedulingGated", MISSING)]


def test_nothing_is_reported_without_a_profile() -> None:
    """Without a live profile nothing is written to the pods, because they may belong to another scheduler."""
    made = gang_rig(member("train-0"), serve=False)
    assert reported(made) == []


async def test_a_later_member_waits_for_the_group(cluster: Rig) -> None:
    """A member beyond the quorum waits while the group is deleted, and is bound when the group exists again."""
    await settle_gang(cluster, *members(2), of=group())
    cluster.scheduler.group_feed.group_deleted(key())
    await settle(cluster, member("train-2"))
    assert "train-2" not in cluster.bound
    cluster.scheduler.group_feed.group_changed(group())
    await settle(cluster)
    assert "train-2" in cluster.bound


def test_a_passed_gate_is_not_counted(cluster: Rig) -> None:
    """A pod that passed a gate and waits with its gang is not counted as unschedulable by the gate's plugin."""
    cluster.add(member("train-0"), pod("plain"))
    assert cluster.queue.readings.unschedulable_by["GangScheduling", "default-scheduler"] == 1
    cluster.scheduler.group_feed.group_changed(group())
    assert cluster.queue.readings.unschedulable_by["GangScheduling", "default-scheduler"] == 0
