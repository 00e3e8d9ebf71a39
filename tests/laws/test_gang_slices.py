"""Law: the search of a gang runs in slices and within a number of steps, and its decision does not depend on slices."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType

import pytest

from scheduler_core.model.pod_group import GroupKey, GroupSource, GroupTopology, PodGroup
from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import node, pod
from tests.support.cluster_state import cluster_state
from tests.support.gang_preemption import running_pod
from tests.support.gangs import add_groups, composite_group, group, leaf_group, member
from tests.support.scheduling import Rig, default_rig

LONGEST = 100_000
"""Calls of Python and C functions between two turns of the event loop: about 20 ms."""
GANG = "high"


@dataclass
class Turns:
    """Counts the calls between two turns of the event loop."""

    calls: int = 0
    longest: int = 0
    count: int = 0
    task: asyncio.Task[None] | None = field(default=None)

    def note(self, _: FrameType, event: str, __: object) -> None:
        """Count a call."""
        self.calls += event in {"call", "c_call"}

    async def run(self) -> None:
        """Note every turn."""
        while True:
            self.calls = 0
            await asyncio.sleep(0)
            self.longest = max(self.longest, self.calls)
            self.count += 1


def _cluster(options: SchedulerOptions | None = None) -> Rig:
    made = default_rig(options=options, groups=GroupSource)
    for number in range(30):
        labels = {"zone": f"z{number % 5}", "kubernetes.io/hostname": f"n{number}"}
        made.add(node(f"n{number}", labels=labels, allocatable={"cpu": "8", "pods": "110"}))
        made.add(*(running_pod(f"v{number}-{each}", f"n{number}") for each in range(8)))
    return made


def _members(count: int) -> list[str]:
    return [f"{501 + each}m" for each in range(count)]


def _gang(made: Rig, topology: GroupTopology | None = None) -> None:
    add_groups(made, group(GANG, 150, priority=9, topology=topology))
    for number, cpu in enumerate(_members(150)):
        selector = {"gpu": "yes"} if number == 149 else {}
        made.add(member(f"m{number}", GANG, priority=9, requests={"cpu": cpu}, node_selector=selector))


def _native(made: Rig) -> None:
    add_groups(made, PodGroup(GroupKey(GroupSource.NATIVE, "default", GANG), "uid", 150, priority=9, is_uniform=True))
    made.add(
        *(pod(f"m{each}", group=GANG, priority=9, requests={"cpu": cpu}) for each, cpu in enumerate(_members(150)))
    )


def _tree(made: Rig) -> None:
    add_groups(made, composite_group("root", 150, priority=9))
    add_groups(made, *(leaf_group(f"leaf{each}", "root") for each in range(150)))
    cpus = enumerate(_members(150))
    made.add(*(pod(f"m{each}", group=f"leaf{each}", priority=9, requests={"cpu": cpu}) for each, cpu in cpus))


GANGS = {
    "different-members": _gang,
    "hostname": lambda made: _gang(made, GroupTopology("kubernetes.io/hostname", is_required=False)),
    "zone": lambda made: _gang(made, GroupTopology("zone", is_required=False)),
    "native": _native,
    "tree": _tree,
}


async def _decide(made: Rig, turns: Turns | None = None) -> None:
    """Run the scheduler until the gang is decided."""
    async with made.running():
        if turns is not None:
            turns.task = asyncio.create_task(turns.run())
            sys.setprofile(turns.note)
        try:
            await made.until(lambda: bool(made.writer.patches), rounds=100_000)
        finally:
            sys.setprofile(None)
            if turns is not None and turns.task is not None:
                turns.task.cancel()
        await made.scheduler.until_idle()


@pytest.mark.parametrize("add", GANGS.values(), ids=GANGS.keys())
async def test_the_event_loop_runs_during_the_cycle_of_a_gang(add: Callable[[Rig], None]) -> None:
    """Between two turns of the event loop, a cycle with 150 different members that preempt does little work."""
    made, turns = _cluster(), Turns()
    add(made)
    await _decide(made, turns)
    assert turns.longest <= LONGEST
    assert turns.count > made.context.steps.spent // made.context.steps.slice_steps


@pytest.mark.parametrize("add", GANGS.values(), ids=GANGS.keys())
async def test_a_gang_that_takes_too_many_steps_fails_alone(add: Callable[[Rig], None]) -> None:
    """It has the reason in its condition, nothing of it stays assumed, and another pod is bound."""
    made = _cluster(SchedulerOptions(attempt_steps=1_000))
    add(made)
    before = cluster_state(made.context)
    await _decide(made)
    assert re.search(r"given up after \d+ steps", made.condition.message)
    assert cluster_state(made.context)["assumed"] == before["assumed"] == 0
    assert cluster_state(made.context)["placed"] == before["placed"]
    made.add(node("spare", labels={"spare": "yes"}), pod("other", node_selector={"spare": "yes"}))
    async with made.running():
        await made.until(lambda: bool(made.bound))
    assert made.bound == {"other": "spare"}
