"""The state of a standby that received all events and scheduled nothing, when it becomes the leader."""

from __future__ import annotations

from itertools import pairwise

import pytest

from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.model.pod import Pod
from scheduler_core.scheduler import Scheduler
from tests.support.builders import node, pod
from tests.support.recording_writer import RecordingWriter
from tests.support.virtual_clock import VirtualClock


class Standby:
    """A scheduler without a live profile, with its feed."""

    def __init__(self) -> None:
        self.writer = RecordingWriter()
        self.scheduler = Scheduler(VirtualClock(), self.writer)
        self.scheduler.feed.node_added(node("n"))
        self.queue = self.scheduler.context.queue

    def seen(self, *forms: Pod) -> None:
        """Add a pod, and update it."""
        self.scheduler.feed.pod_added(forms[0])
        for old, new in pairwise(forms):
            self.scheduler.feed.pod_updated(old, new)

    def leads(self) -> None:
        """Make its profile live."""
        self.scheduler.activate([self.scheduler.build(ProfileConfig(scheduler_name="default-scheduler"))])


@pytest.fixture
async def standby() -> Standby:
    return Standby()


@pytest.mark.parametrize(
    ("forms", "nominated"),
    [
        pytest.param([pod("p", nominated_node="n")], "n", id="nominated before it was seen"),
        pytest.param([pod("p"), pod("p", nominated_node="n")], "n", id="nominated by the leader"),
        pytest.param([pod("p", nominated_node="n"), pod("p")], "", id="cleared"),
        pytest.param([pod("p", nominated_node="n"), pod("p", node_name="n")], "", id="bound by the leader"),
    ],
)
async def test_nominations_are_those_of_the_api_server(standby: Standby, forms: list[Pod], nominated: str) -> None:
    """Whatever the leader nominated meanwhile and cleared, the last status counts."""
    standby.seen(*forms)
    standby.leads()
    assert (standby.queue.nominator.node_of(forms[0].metadata.uid) or "") == nominated


async def test_nothing_is_assumed_and_nothing_written(standby: Standby) -> None:
    """Pods that the leader has bound are on their nodes, waiting pods are tried, and nothing is written."""
    standby.seen(pod("bound"), pod("bound", node_name="n"))
    standby.seen(pod("waits"))
    standby.seen(pod("gone"))
    standby.scheduler.feed.pod_deleted(pod("gone"))
    standby.leads()
    assert {each.info.key: place for place, each in standby.queue.readings.places()} == {"default/waits": "active"}
    assert [placed.info.key for placed in standby.scheduler.context.cache.placed_pods()] == ["default/bound"]
    assert (standby.writer.patches, standby.writer.events, standby.writer.bindings) == ([], [], [])
