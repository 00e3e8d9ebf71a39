"""Nominations that are made or withdrawn while a group cycle waits for an extender."""

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
from tests.support.scripted_extender import ScriptedExtender, extended_profile, extender

PREEMPTOR = pod("preemptor", scheduler_name="other", priority=10, requests={"cpu": "4"}, nominated_node="n1")


def served(held: ScriptedExtender) -> Rig:
    """A profile with an extender, and another one whose pod is nominated to n1."""
    ports = SchedulerPorts(make_extender=lambda _, __: held)
    made = rig(defaults=default_plugins(), serve=False, ports=ports)
    made.serve(extended_profile(extender(preemptVerb="")), profile("other"))
    made.scheduler.group_feed.serve(GroupSource.BAYPLAN)
    made.add(node("n0"), node("n1"), PREEMPTOR)
    return made


def gang_comes(made: Rig) -> QueuedGang:
    """Add a gang and pop it after everything else."""
    made.scheduler.group_feed.group_changed(group(min_member=2))
    made.add(*members(2))
    while not isinstance(popped := made.pop(), QueuedGang):
        made.queue.failed(popped)
    return popped


@pytest.mark.parametrize(
    ("is_live", "nominated"), [pytest.param(True, "", id="goes-away"), pytest.param(False, "n1", id="comes-back")]
)
async def test_a_profile_that(is_live: bool, nominated: str) -> None:
    """Its pods' nominations at that time apply when the cycle has ended."""
    held = ScriptedExtender()
    made = served(held)
    if not is_live:
        made.scheduler.withdraw("other")
    entry = gang_comes(made)
    held.hold()
    cycle = asyncio.ensure_future(made.scheduler.cycles.gangs.schedule(entry))
    await made.until(lambda: made.context.suspension.is_on)
    if is_live:
        made.scheduler.withdraw("other")
    else:
        made.serve(profile("other"))
    assert made.queue.nominator.node_of(PREEMPTOR.metadata.uid) == nominated
    held.answer()
    assert len(await cycle) == 2
    assert made.queue.nominator.node_of(PREEMPTOR.metadata.uid) == nominated
    made.queue.close()
