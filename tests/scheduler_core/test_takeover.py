"""Takeover by a standby, which has received all events and scheduled no pod when it becomes the leader."""

from __future__ import annotations

from itertools import pairwise

import pytest

from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.model.pod import Pod
from scheduler_core.scheduler import Scheduler
from tests.support.builders import node, pod
from tests.support.recording_writer import RecordingWriter
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock


class Standby:
    """Scheduler without a live profile, which receives events."""

    def __init__(self) -> None:
        self.writer = RecordingWriter()
        self.scheduler = Scheduler(VirtualClock(), self.writer)
        self.scheduler.feed.node_added(node("n"))
        self.queue = self.scheduler.context.queue

    def deliver(self, *forms: Pod) -> None:
        """Deliver the addition of a pod, and its updates."""
        self.scheduler.feed.pod_added(forms[0])
        for old, new in pairwise(forms):
            self.scheduler.feed.pod_updated(old, new)

    def become_leader(self) -> None:
        """Make the default profile live."""
        self.scheduler.activate([self.scheduler.build(ProfileConfig(scheduler_name="default-scheduler"))])


@pytest.fixture
async def standby() -> Standby:
    return Standby()


@table(
    "forms, nominated",
    ("nominated before it was listed", [pod("p", nominated_node="n")], "n"),
    ("nominated by the leader", [pod("p"), pod("p", nominated_node="n")], "n"),
    ("cleared", [pod("p", nominated_node="n"), pod("p")], ""),
    ("bound by the leader", [pod("p", nominated_node="n"), pod("p", node_name="n")], ""),
)
async def test_nominations_are_those_of_the_api_server(standby: Standby, forms: list[Pod], nominated: str) -> None:
    """The new leader uses the nomination in the last status of each pod."""
    standby.deliver(*forms)
    standby.become_leader()
    assert (standby.queue.nominator.node_of(forms[0].metadata.uid) or "") == nominated


async def test_a_new_leader_writes_nothing(standby: Standby) -> None:
    """The new leader has bound pods in its cache and waiting pods in its queue, and writes nothing."""
    standby.deliver(pod("bound"), pod("bound", node_name="n"))
    standby.deliver(pod("waits"))
    standby.deliver(pod("gone"))
    standby.scheduler.feed.pod_deleted(pod("gone"))
    standby.become_leader()
    assert {each.info.key: place for place, each in standby.queue.readings.places()} == {"default/waits": "active"}
    assert [placed.info.key for placed in standby.scheduler.context.cache.placed_pods()] == ["default/bound"]
    assert (standby.writer.patches, standby.writer.events, standby.writer.bindings) == ([], [], [])
