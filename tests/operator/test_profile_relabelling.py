"""Tests that a profile with a changed label goes live in another process, with its stored revisions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from bayplan.profiles.desired_profiles import ProfileOwnership
from bayplan.profiles.profile_controller import ControllerPorts, ProfileController
from bayplan.resources.scheduler_profile import SchedulerProfile
from bayplan.settings.profile_selection import ProfileSelection

from scheduler_core.in_tree import in_tree_registry
from scheduler_core.scheduler import Scheduler
from tests.support.fake_cluster_objects import FakeRevisions, FakeStatuses
from tests.support.manifests import Manifest, profile_manifest
from tests.support.presence import present
from tests.support.recording_writer import RecordingWriter
from tests.support.virtual_clock import VirtualClock

BROKEN: Manifest = {"percentageOfNodesToScore": 500}


class Process:
    """One of two operator processes over the same API."""

    def __init__(self, world: World, selector: str) -> None:
        self.scheduler = Scheduler(world.clock, RecordingWriter(), registry=in_tree_registry())
        self.notified = 0
        self.served = ProfileOwnership(ProfileSelection(selector))
        ports = ControllerPorts(world.revisions, world.statuses, world.clock, on_served_elsewhere=self._elsewhere)
        self.controller = ProfileController(self.scheduler, ports, served=self.served)

    def _elsewhere(self) -> None:
        self.notified += 1

    @property
    def serves(self) -> list[str]:
        """Return the scheduler names that are live in this process."""
        return sorted(instance.name for instance in self.scheduler.context.profiles)


@dataclass
class World:
    """Process for tier a and process for tier b."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    revisions: FakeRevisions = field(default_factory=FakeRevisions)
    statuses: FakeStatuses = field(default_factory=FakeStatuses)
    version: int = 0

    def __post_init__(self) -> None:
        self.a = Process(self, "tier=a")
        self.b = Process(self, "tier=b")

    async def apply(self, tier: str, spec: Manifest | None = None) -> None:
        """Apply the profile ``batch`` in both processes, and reconcile."""
        self.version += 1
        body = profile_manifest("batch", spec, resourceVersion=str(self.version), labels={"tier": tier})
        body["status"] = dict(self.statuses.statuses.get(("schedulerprofiles", "batch"), {}))
        for process in (self.a, self.b):
            process.controller.seen(SchedulerProfile, body)
        for _ in range(50):
            await asyncio.sleep(0)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    runs = [asyncio.create_task(process.controller.run()) for process in (world.a, world.b)]
    yield world
    for run in runs:
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run


async def test_a_label_moves_a_profile(world: World) -> None:
    """A profile is live only in the process whose selector matches it."""
    await world.apply("a")
    assert (world.a.serves, world.b.serves) == (["batch"], [])
    await world.apply("b")
    assert (world.a.serves, world.b.serves) == ([], ["batch"])
    assert world.b.served.serves("batch")
    assert world.a.served.serves("batch") is False


async def test_only_the_serving_process_writes(world: World) -> None:
    """Only the process that serves a profile writes its status and its revision."""
    await world.apply("a")
    assert len(world.revisions.stored) == 1
    assert [name for _, name, _ in world.statuses.patches] == ["batch"]


async def test_the_revision_of_the_other_process_is_used(world: World) -> None:
    """A profile that gets a new label and an invalid spec runs the revision that the other process stored."""
    await world.apply("a")
    good = present(world.a.scheduler.context.profiles.get("batch"))
    await world.apply("b", BROKEN)
    moved = present(world.b.scheduler.context.profiles.get("batch"))
    assert moved.revision == good.revision


async def test_both_processes_are_notified_of_a_move(world: World) -> None:
    """Both processes are notified when a profile moves, so that they update the statuses of its gangs."""
    await world.apply("a")
    before = world.a.notified, world.b.notified
    await world.apply("b")
    assert (world.a.notified, world.b.notified) == (before[0] + 1, before[1] + 1)
