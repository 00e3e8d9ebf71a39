"""Nominations that change during a cycle, an attempt or a profile swap."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest
from msgspec.structs import replace

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.failure_handler import Failure
from scheduler_core.framework.extension_points import PreEnqueuePlugin
from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.framework.status import SUCCESS, Status, unschedulable
from scheduler_core.scheduler import SchedulerPorts
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.gangs import group, members
from tests.support.presence import present
from tests.support.scheduling import BARE, DEFAULT_NAME, Rig, gang_rig, plugin_set, profile, rig
from tests.support.scripted_extender import ScriptedExtender, extender, extender_profile
from tests.support.tables import table

WEB = pod("web", priority=10, requests={"cpu": "3"}, nominated_node="n0")
LOW = pod("low", scheduler_name="other", requests={"cpu": "3"})
INFEASIBLE = Failure("no room", frozenset(["NodeResourcesFit"]), nominated_node="n0")


class DefaultProfileGate(PreEnqueuePlugin):
    """PreEnqueue plugin that rejects all pods of the default profile while it is closed."""

    name = "DefaultProfileGate"
    is_closed: ClassVar[bool] = False

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Reject a pod of the default profile while the gate is closed."""
        return unschedulable("closed") if self.is_closed and pod.pod.spec.scheduler_name == DEFAULT_NAME else SUCCESS


def made_with_nomination(place: str) -> Rig:
    """Return a scheduler with a nominated pod in the given queue place, which rejects a pod of lower priority."""
    DefaultProfileGate.is_closed = False
    made = rig(
        [DefaultProfileGate],
        defaults=Plugins(multi_point=plugin_set("DefaultProfileGate", "NodeResourcesFit", *BARE)),
        serve=False,
    )
    made.serve(profile(), profile("other"))
    made.add(node("n0"), WEB)
    made.pop()
    if place != "inFlight":
        fail(made)
    made.add(LOW)
    assert made.decide() is None
    if place == "active":
        made.queue.activate([WEB.metadata.uid])
    assert (made.place_of(WEB), made.place_of(LOW)) == (place, "unschedulable")
    return made


def fail(made: Rig) -> None:
    """Fail an attempt of the nominated pod that began with the first profile revision."""
    queued = present(made.queue.find(WEB.metadata.uid))
    revision = made.context.profiles.get(DEFAULT_NAME) or made.scheduler.build(profile())
    revision.begin()
    made.scheduler.cycles.failed.handle(Attempt(queued, queued.info, revision, 0.0), INFEASIBLE)


@pytest.mark.parametrize("place", ["active", "unschedulable", "inFlight"])
async def test_a_pod_that_a_new_revision_gates(place: str) -> None:
    """The nomination of a pod does not count while the new revision gates the pod, whatever its status is."""
    made = made_with_nomination(place)
    DefaultProfileGate.is_closed = True
    made.serve(profile())
    if place == "inFlight":
        fail(made)
    assert (made.place_of(WEB), made.place_of(LOW), len(made.queue.nominator)) == ("gated", "backoff", 0)
    made.scheduler.feed.pod_updated(WEB, replace(WEB, status=replace(WEB.status, phase="Pending")))
    assert not len(made.queue.nominator)
    DefaultProfileGate.is_closed = False
    made.add(node("n1", allocatable={"cpu": "1", "pods": "9"}))
    assert (made.place_of(WEB) != "gated", made.queue.nominator.node_of(WEB.metadata.uid)) == (True, "n0")


@pytest.mark.parametrize("place", ["active", "unschedulable", "inFlight"])
async def test_a_pod_whose_profile_is_withdrawn(place: str) -> None:
    """The nomination of a parked pod ends and requeues rejected pods; it counts again when the profile is live."""
    made = made_with_nomination(place)
    made.scheduler.withdraw(DEFAULT_NAME)
    if place == "inFlight":
        fail(made)
    assert (made.place_of(WEB), made.place_of(LOW), len(made.queue.nominator)) == ("parked", "backoff", 0)
    made.serve(profile())
    assert made.queue.nominator.node_of(WEB.metadata.uid) == "n0"


async def test_a_parked_pod_that_the_new_profile_gates() -> None:
    """The nomination of a parked pod that the new profile gates does not count, whatever its status is."""
    made = made_with_nomination("unschedulable")
    made.scheduler.withdraw(DEFAULT_NAME)
    DefaultProfileGate.is_closed = True
    made.serve(profile())
    made.scheduler.feed.pod_updated(WEB, replace(WEB, metadata=replace(WEB.metadata, labels={"a": "b"})))
    assert (made.place_of(WEB), len(made.queue.nominator)) == ("gated", 0)


PREEMPTOR = pod("preemptor", scheduler_name="other", priority=10, requests={"cpu": "4"}, nominated_node="n1")


def rig_with_two_profiles(client: ScriptedExtender) -> Rig:
    """Return a scheduler with a profile with an extender, and another profile whose pod is nominated to n1."""
    ports = SchedulerPorts(make_extender=lambda _, __: client)
    made = gang_rig(serve=False, ports=ports)
    made.serve(extender_profile(extender(preemptVerb="")), profile("other"))
    made.add(node("n0"), node("n1"), PREEMPTOR)
    return made


def pop_gang(made: Rig) -> QueuedGang:
    """Add a gang, and pop it after all other pods."""
    made.scheduler.group_feed.group_changed(group(min_member=2))
    made.add(*members(2))
    while not isinstance(popped := made.pop(), QueuedGang):
        made.queue.failed(popped)
    return popped


@table("is_live, nominated", ("withdrawn", True, ""), ("live-again", False, "n1"))
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
