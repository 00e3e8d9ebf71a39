"""Nominations of pods that a new revision of their profile gates, and of pods whose profile goes."""

from __future__ import annotations

from typing import ClassVar

import pytest
from msgspec.structs import replace

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.failure_handler import Failure
from scheduler_core.framework.extension_points import PreEnqueuePlugin
from scheduler_core.framework.status import SUCCESS, Status, unschedulable
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.scheduling import BARE, DEFAULT_NAME, Rig, plugin_set, profile, rig

WEB = pod("web", priority=10, requests={"cpu": "3"}, nominated_node="n0")
LOW = pod("low", scheduler_name="other", requests={"cpu": "3"})
NO_ROOM = Failure("no room", frozenset(["NodeResourcesFit"]), nominated_node="n0")


class Door(PreEnqueuePlugin):
    """Gates all pods of the default profile while it is closed."""

    name = "Door"
    is_closed: ClassVar[bool] = False

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Gate the pod while the door is closed."""
        return unschedulable("closed") if self.is_closed and pod.pod.spec.scheduler_name == DEFAULT_NAME else SUCCESS


def made_with_nomination(place: str) -> Rig:
    """Nominate a pod, put it in a place of the queue, and let a pod of lower priority keep off its node."""
    Door.is_closed = False
    made = rig([Door], defaults=Plugins(multi_point=plugin_set("Door", "NodeResourcesFit", *BARE)), serve=False)
    made.serve(profile(), profile("other"))
    made.add(node("n0"), WEB)
    made.pop()
    if place != "inFlight":
        fail(made)
    made.add(LOW)
    assert made.decide() is None
    if place == "active":
        made.queue.activate([WEB.metadata.uid])
    assert (made.place(WEB), made.place(LOW)) == (place, "unschedulable")
    return made


def fail(made: Rig) -> None:
    """Let the attempt of the nominated pod fail, which began with the first revision of its profile."""
    queued, instance = made.queue.find(WEB.metadata.uid), made.context.profiles.get(DEFAULT_NAME)
    assert queued is not None
    revision = instance or made.scheduler.build(profile())
    revision.begin()
    made.scheduler.cycles.failed.handle(Attempt(queued, queued.info, revision, 0.0), NO_ROOM)


@pytest.mark.parametrize("place", ["active", "unschedulable", "inFlight"])
async def test_a_pod_that_a_new_revision_gates(place: str) -> None:
    """Its nomination does not count while the gate is closed, whatever its status says, and counts after that."""
    made = made_with_nomination(place)
    Door.is_closed = True
    made.serve(profile())
    if place == "inFlight":
        fail(made)
    assert (made.place(WEB), made.place(LOW), len(made.queue.nominator)) == ("gated", "backoff", 0)
    made.scheduler.feed.pod_updated(WEB, replace(WEB, status=replace(WEB.status, phase="Pending")))
    assert not len(made.queue.nominator)
    Door.is_closed = False
    made.add(node("n1", allocatable={"cpu": "1", "pods": "9"}))
    assert (made.place(WEB) != "gated", made.queue.nominator.node_of(WEB.metadata.uid)) == (True, "n0")
    made.queue.close()


@pytest.mark.parametrize("place", ["active", "unschedulable", "inFlight"])
async def test_a_pod_whose_profile_goes(place: str) -> None:
    """Its nomination ends, and wakes pods of other profiles; it counts again when the profile returns."""
    made = made_with_nomination(place)
    made.scheduler.withdraw(DEFAULT_NAME)
    if place == "inFlight":
        fail(made)
    assert (made.place(WEB), made.place(LOW), len(made.queue.nominator)) == ("parked", "backoff", 0)
    made.serve(profile())
    assert made.queue.nominator.node_of(WEB.metadata.uid) == "n0"
    made.queue.close()


async def test_a_parked_pod_whose_profile_returns_with_a_closed_gate() -> None:
    """Its nomination does not count, whatever its status says."""
    made = made_with_nomination("unschedulable")
    made.scheduler.withdraw(DEFAULT_NAME)
    Door.is_closed = True
    made.serve(profile())
    made.scheduler.feed.pod_updated(WEB, replace(WEB, metadata=replace(WEB.metadata, labels={"a": "b"})))
    assert (made.place(WEB), len(made.queue.nominator)) == ("gated", 0)
    made.queue.close()
