"""Statuses of PodGroups when other processes write some of them, or have done so until now."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from bayplan.gangs.neighbours import Neighbours

from scheduler_core.queueing.gang import Gang
from tests.support.builders import pod
from tests.support.group_world import GroupWorld, running

NOBODYS = "default-scheduler"


class Others:
    """Who serves which name, and what stands in the object."""

    def __init__(self) -> None:
        self.serves: dict[str, bool] = {}
        self.shown: dict[str, Any] = {}

    @property
    def neighbours(self) -> Neighbours:
        return Neighbours(lambda _: self.shown, self.serves.get)


@pytest.fixture
def others() -> Others:
    return Others()


@pytest.fixture
async def world(others: Others) -> AsyncIterator[GroupWorld]:
    world = GroupWorld()
    world.controller.neighbours = others.neighbours
    async for made in running(world):
        yield made


async def test_a_group_of_anothers_pods_is_left_to_it(world: GroupWorld, others: Others) -> None:
    """Neither a status nor an event is written of it."""
    others.serves[NOBODYS] = False
    world.shows()
    world.has("a", "b")
    await world.passes(30.0, step=0.5)
    assert world.statuses.sent == []
    assert world.writer.events == []


async def test_a_group_without_members_is_everybodys(world: GroupWorld, others: Others) -> None:
    """Each process finds the same of it."""
    others.serves[NOBODYS] = False
    world.shows()
    await world.passes()
    assert world.sent() == ["Pending"]


async def test_a_group_that_becomes_ours_is_written_over_what_stands(world: GroupWorld, others: Others) -> None:
    """What the other process has written is what differs, not what this one knew before."""
    world.shows()
    await world.passes()
    others.serves[NOBODYS] = False
    world.has("a", "b", node="n")
    await world.passes()
    others.shown = {**world.statuses.sent[0][1], "phase": "Running", "members": 7, "running": 7}
    others.serves[NOBODYS] = True
    world.controller.look_again()
    await world.passes(2.0)
    assert world.sent("members") == [0, 2]
    assert world.sent() == ["Pending"]


async def test_a_takeover_reads_what_stands(world: GroupWorld, others: Others) -> None:
    """A standby knew the status of long ago; the first write over it is by what the last leader left."""
    world.shows(status={"phase": "Pending"})
    others.shown = {"phase": "Running", "members": 3}
    world.controller.take_over()
    await world.passes()
    assert world.sent() == ["Pending"]


@pytest.mark.parametrize(
    ("names", "serves", "is_anothers"),
    [
        pytest.param([], {}, False, id="no members"),
        pytest.param(["x"], {}, False, id="nobody's"),
        pytest.param(["x"], {"x": True}, False, id="ours"),
        pytest.param(["x"], {"x": False}, True, id="another's"),
        pytest.param(["b", "a"], {"a": True, "b": False}, False, id="the first name decides"),
        pytest.param(["b", "a"], {"b": False}, True, id="the first that is served decides"),
    ],
)
def test_whose_a_gang_is(names: list[str], serves: dict[str, bool], is_anothers: bool) -> None:
    """All processes come to the same answer, each from its own side."""
    world = GroupWorld()
    gang = Gang(world.key(), 0.0)
    gang.pods = {name: pod(name, scheduler_name=name) for name in names}
    assert Neighbours(lambda _: None, serves.get).write(gang) is is_anothers
