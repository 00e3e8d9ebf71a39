"""Tests of PodGroup statuses that several processes can write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from bayplan.gangs.group_status import OtherProcesses

from scheduler_core.queueing.gang_members import Gang
from tests.support.builders import pod
from tests.support.group_world import GroupWorld, running

NAME = "default-scheduler"


class OtherProcessesState:
    """Assignment of scheduler names to processes, and the status of the object."""

    def __init__(self) -> None:
        self.serves: dict[str, bool] = {}
        self.status: dict[str, Any] = {}

    @property
    def processes(self) -> OtherProcesses:
        return OtherProcesses(lambda _: self.status, self.serves.get)


@pytest.fixture
def others() -> OtherProcessesState:
    return OtherProcessesState()


@pytest.fixture
async def world(others: OtherProcessesState) -> AsyncIterator[GroupWorld]:
    async for made in running(GroupWorld(others=others.processes)):
        yield made


async def test_the_group_of_another_process_is_not_written(world: GroupWorld, others: OtherProcessesState) -> None:
    """No status and no event is written for a group of another process."""
    others.serves[NAME] = False
    world.add_group()
    world.add_members("a", "b")
    await world.advance(30.0, step=0.5)
    assert world.statuses.sent == []
    assert world.writer.events == []


async def test_a_group_without_members_is_written_by_every_process(
    world: GroupWorld, others: OtherProcessesState
) -> None:
    """Every process writes the same status of a group without members."""
    others.serves[NAME] = False
    world.add_group()
    await world.advance()
    assert world.sent() == ["Pending"]


async def test_a_group_that_moves_to_this_process_is_compared_again(
    world: GroupWorld, others: OtherProcessesState
) -> None:
    """After a group moves to this process, its status is compared with that of the other process."""
    world.add_group()
    await world.advance()
    others.serves[NAME] = False
    world.add_members("a", "b", node="n")
    await world.advance()
    others.status = {**world.statuses.sent[0][1], "phase": "Running", "members": 7, "running": 7}
    others.serves[NAME] = True
    world.controller.reconcile_all()
    await world.advance(2.0)
    assert world.sent("members") == [0, 2]
    assert world.sent() == ["Pending"]


async def test_a_takeover_reads_the_current_status(world: GroupWorld, others: OtherProcessesState) -> None:
    """The first write of a new leader is compared with the status that the last leader wrote."""
    world.add_group(status={"phase": "Pending"})
    others.status = {"phase": "Running", "members": 3}
    world.controller.take_over()
    await world.advance()
    assert world.sent() == ["Pending"]


@pytest.mark.parametrize(
    ("names", "serves", "is_of_another_process"),
    [
        pytest.param([], {}, False, id="no members"),
        pytest.param(["x"], {}, False, id="no process"),
        pytest.param(["x"], {"x": True}, False, id="this process"),
        pytest.param(["x"], {"x": False}, True, id="another process"),
        pytest.param(["b", "a"], {"a": True, "b": False}, False, id="first name decides"),
        pytest.param(["b", "a"], {"b": False}, True, id="first served name decides"),
    ],
)
def test_which_process_writes_a_status(names: list[str], serves: dict[str, bool], is_of_another_process: bool) -> None:
    """All processes agree on the process that writes the status."""
    world = GroupWorld()
    gang = Gang(world.key(), 0.0)
    gang.pods = {name: pod(name, scheduler_name=name) for name in names}
    assert OtherProcesses(lambda _: None, serves.get).write(gang) is is_of_another_process
