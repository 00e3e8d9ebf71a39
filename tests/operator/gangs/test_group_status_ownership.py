"""Statuses of PodGroups while other processes write some of them, or have done so before."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from bayplan.gangs.group_status_ownership import OtherProcesses

from scheduler_core.queueing.gang_members import Gang
from tests.support.builders import pod
from tests.support.group_world import GroupWorld, running

NAME = "default-scheduler"


class Others:
    """Assignment of scheduler names to processes, and the status of the object."""

    def __init__(self) -> None:
        self.serves: dict[str, bool] = {}
        self.status: dict[str, Any] = {}

    @property
    def processes(self) -> OtherProcesses:
        return OtherProcesses(lambda _: self.status, self.serves.get)


@pytest.fixture
def others() -> Others:
    return Others()


@pytest.fixture
async def world(others: Others) -> AsyncIterator[GroupWorld]:
    async for made in running(GroupWorld(others=others.processes)):
        yield made


async def test_a_group_of_another_process(world: GroupWorld, others: Others) -> None:
    """Neither a status nor an event is written for it."""
    others.serves[NAME] = False
    world.shows()
    world.has("a", "b")
    await world.passes(30.0, step=0.5)
    assert world.statuses.sent == []
    assert world.writer.events == []


async def test_a_group_without_members_is_written_by_every_process(world: GroupWorld, others: Others) -> None:
    """Each process computes the same status."""
    others.serves[NAME] = False
    world.shows()
    await world.passes()
    assert world.sent() == ["Pending"]


async def test_a_group_that_moves_to_this_process(world: GroupWorld, others: Others) -> None:
    """The desired status is compared with that of the other process, not with the last one of this process."""
    world.shows()
    await world.passes()
    others.serves[NAME] = False
    world.has("a", "b", node="n")
    await world.passes()
    others.status = {**world.statuses.sent[0][1], "phase": "Running", "members": 7, "running": 7}
    others.serves[NAME] = True
    world.controller.reconcile_all()
    await world.passes(2.0)
    assert world.sent("members") == [0, 2]
    assert world.sent() == ["Pending"]


async def test_a_takeover_reads_the_current_status(world: GroupWorld, others: Others) -> None:
    """The first write of a new leader is compared with the status that the last leader wrote."""
    world.shows(status={"phase": "Pending"})
    others.status = {"phase": "Running", "members": 3}
    world.controller.take_over()
    await world.passes()
    assert world.sent() == ["Pending"]


@pytest.mark.parametrize(
    ("names", "serves", "is_anothers"),
    [
        pytest.param([], {}, False, id="no members"),
        pytest.param(["x"], {}, False, id="no process"),
        pytest.param(["x"], {"x": True}, False, id="this process"),
        pytest.param(["x"], {"x": False}, True, id="another process"),
        pytest.param(["b", "a"], {"a": True, "b": False}, False, id="the first name decides"),
        pytest.param(["b", "a"], {"b": False}, True, id="the first that is served decides"),
    ],
)
def test_which_process_writes_a_status(names: list[str], serves: dict[str, bool], is_anothers: bool) -> None:
    """All processes agree on the one that writes."""
    world = GroupWorld()
    gang = Gang(world.key(), 0.0)
    gang.pods = {name: pod(name, scheduler_name=name) for name in names}
    assert OtherProcesses(lambda _: None, serves.get).write(gang) is is_anothers
