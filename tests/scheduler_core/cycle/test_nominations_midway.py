"""Nominations that begin or end while a group cycle waits for an extender."""

from __future__ import annotations

import asyncio

import pytest

from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.scheduler import SchedulerPorts
from tests.support.builders import node, pod
from tests.support.gangs import group, members
from tests.support.scheduling import Rig, profile, rig
from tests.support.scripted_extender import ScriptedExtender, extender, extender_profile

PREEMPTOR = pod("preemptor", scheduler_name="other", priority=10, requests={"cpu": "4"}, nominated_node="n1")


def rig_with_two_profiles(client: ScriptedExtender) -> Rig:
    """Return a scheduler with a profile with an extender, and another profile whose pod is nominated to n1."""
    ports = SchedulerPorts(make_extender=lambda _, __: client)
    made = rig(defaults=default_plugins(), serve=False, ports=ports)
    made.serve(extender_profile(extender(preemptVerb="")), profile("other"))
    made.scheduler.group_feed.serve(GroupSource.BAYPLAN)
    made.add(node("n0"), node("n1"), PREEMPTOR)
    return made


def pop_gang(made: Rig) -> QueuedGang:
    """Add a gang, and pop it after all other pods."""
    made.scheduler.group_feed.group_changed(group(min_member=2))
    made.add(*members(2))
    while not isinstance(popped := made.pop(), QueuedGang):
        made.queue.failed(popped)
    return popped


@pytest.mark.parametrize(
    ("is_live", "nominated"), [pytest.param(True, "", id="withdrawn"), pytest.param(False, "n1", id="live-again")]
)
async def test_a_profile_changes_during_a_group_cycle(is_live: bool, nominated: str) -> None:
    """Nominations that follow from a profile change during the cycle apply after it."""
    client = ScriptedExtender()
    made = rig_with_two_profiles(client)
    if not is_live:
        made.scheduler.withdraw("other")
    entry = pop_gang(made)
    client.hold()
    cycle = asyncio.ensure_future(made.scheduler.cycles.gangs.schedule(entry))
    await made.until(lambda: made.context.suspension.is_on)
    if is_live:
        made.scheduler.withdraw("other")
    else:
        made.serve(profile("other"))
    assert made.queue.nominator.node_of(PREEMPTOR.metadata.uid) == nominated
    client.release()
    assert len(await cycle) == 2
    assert made.queue.nominator.node_of(PREEMPTOR.metadata.uid) == nominated
    made.queue.close()
