"""Laws of the search for the nodes of a set of pods.

- A search that ends at any step, by its limit or by an exception, leaves nothing assumed and no node changed.
- An observer, and a second search, do not affect the result: a dry run finds the nodes that the next group cycle uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.dry_run_assembly import Explainers
from scheduler_core.framework.queued_pod import QueuedGang, QueuedPod
from scheduler_core.model.pod_group import GroupSource, GroupTopology
from scheduler_core.placement.engine import Observer, Policy, Verdict, at_once, place
from scheduler_core.placement.requests import Placement, PlacementRequest
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.scheduler import SchedulerOptions
from scheduler_core.step_counter import StepCounter
from tests.support.builders import pod
from tests.support.cluster_state import cluster_state
from tests.support.gang_preemption import add_gang, running_pod, small_node
from tests.support.gangs import add_groups, composite_group, group, leaf_group, member, members
from tests.support.scheduling import DEFAULT_NAME, Rig, default_rig

ZONE = GroupTopology("zone")


class _PlantedError(Exception):
    """An error of the scheduler itself."""


def _cluster(nodes: Sequence[int], running: int = 0) -> Rig:
    made = default_rig(options=SchedulerOptions(gang_reservation_seconds=0), groups=GroupSource)
    for number, cpus in enumerate(nodes):
        made.add(small_node(f"n{number}", cpus, zone=f"z{number % 2}"))
        made.add(*(running_pod(f"v{number}-{each}", f"n{number}") for each in range(min(running, cpus))))
    return made


def _plain(made: Rig) -> None:
    add_gang(made, *members(5), of=group(min_member=4))


def _in_domains(made: Rig) -> None:
    add_gang(made, *members(5), of=group(min_member=4, topology=ZONE))


def _mixed_sizes(made: Rig) -> None:
    pods = [member(f"train-{number}", requests={"cpu": cpu}) for number, cpu in enumerate("132132")]
    add_gang(made, *pods, of=group(min_member=6, topology=GroupTopology("zone", is_required=False)))


def _tree(made: Rig) -> None:
    add_groups(
        made,
        composite_group("root", 2),
        leaf_group("a", "root", 2, topology=GroupTopology("zone", prefers_allocated=True)),
        leaf_group("b", "root", 2),
        leaf_group("c", "root", 9),
    )
    for name, count in (("a", 3), ("b", 3), ("c", 9)):
        made.add(*(pod(f"{name}-{number}", group=name, requests={"cpu": "1"}) for number in range(count)))


def _preempting(made: Rig) -> None:
    add_gang(made, *members(5, priority=9), of=group(min_member=5, topology=ZONE, priority=9))


def _reserving(made: Rig) -> None:
    add_gang(made, *members(5), of=group(min_member=5, is_strict=True))


@dataclass(frozen=True)
class Row:
    """CPUs of the nodes, running pods on each, and the gang."""

    nodes: Sequence[int]
    running: int
    add: Callable[[Rig], None]

    def made(self) -> Rig:
        """Return the scheduler with the gang in its queue."""
        made = _cluster(self.nodes, self.running)
        self.add(made)
        return made


ROWS = {
    "a gang that fits": Row((2, 2, 2), 0, _plain),
    "a gang that does not fit": Row((1, 1, 1), 0, _plain),
    "a gang that fits in its second domain": Row((3, 2, 0, 2), 0, _in_domains),
    "a gang that fits in no domain": Row((2, 2, 1), 0, _in_domains),
    "members of several sizes": Row((4, 6, 2), 0, _mixed_sizes),
    "a tree that fits without one of its groups": Row((2, 2, 2), 0, _tree),
    "a tree that does not fit": Row((1, 1), 0, _tree),
    "a gang that preempts": Row((3, 3, 3, 3), 3, _preempting),
    "a gang for which nodes are reserved": Row((2, 2, 2), 2, _reserving),
}


async def _cycle(made: Rig) -> int:
    """Run one group cycle and release what it assumed; return how many members were assumed."""
    entry = made.pop()
    assert isinstance(entry, QueuedGang)
    attempts = await made.scheduler.cycles.gangs.schedule(entry)
    for attempt in attempts:
        made.scheduler.cycles.assumed.release(attempt)
    return len(attempts)


def _nodes_and_pods(made: Rig) -> dict[str, Any]:
    state = cluster_state(made.context)
    kept = {key: state[key] for key in state.keys() - {"gangs", "queue", "nominations", "start", "preemptions"}}
    return kept | {"overlays": len(made.columns.overlays)}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
async def test_a_search_that_is_given_up_leaves_nothing_assumed(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    """At whichever step the limit is reached, the cluster is as before; without it the search goes on to its end."""
    spends = 0
    original = StepCounter.spend

    def counted(self: StepCounter, steps: int = 1) -> None:
        nonlocal spends
        spends += 1
        original(self, steps)

    monkeypatch.setattr(StepCounter, "spend", counted)
    await _cycle(row.made())
    monkeypatch.undo()
    assert spends
    for last in range(spends):
        made = row.made()
        before, left = _nodes_and_pods(made), last

        def limited(self: StepCounter, steps: int = 1) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                self.limit = self.spent
            original(self, steps)

        monkeypatch.setattr(StepCounter, "spend", limited)
        gang = _gang(made)
        await _cycle(made)
        monkeypatch.undo()
        assert _nodes_and_pods(made) == before, last
        assert gang.outcome is not None
        assert "given up after" in gang.outcome.message, last


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
async def test_an_exception_leaves_nothing_assumed(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever member cannot be reserved because of an internal error, the cluster is as before."""
    reserves = 0
    original = AssumedPods.reserve

    def counted(self: AssumedPods, *args: Any) -> Any:
        nonlocal reserves
        reserves += 1
        return original(self, *args)

    monkeypatch.setattr(AssumedPods, "reserve", counted)
    await _cycle(row.made())
    monkeypatch.undo()
    for last in range(reserves):
        made = row.made()
        before, left = _nodes_and_pods(made), last

        def failing(self: AssumedPods, *args: Any) -> Any:
            nonlocal left
            left -= 1
            found = original(self, *args)
            if left < 0:
                raise _PlantedError
            return found

        monkeypatch.setattr(AssumedPods, "reserve", failing)
        await _cycle(made)
        monkeypatch.undo()
        assert _nodes_and_pods(made) == before, last


@dataclass
class _Counting(Observer):
    """Counts what it sees, and requires that members are assumed as they are reported."""

    made: Rig
    seen: list[int] = field(default_factory=list)

    def failed(
        self, request: PlacementRequest, found: Placement, order: Sequence[QueuedPod], tries: Sequence[Placement]
    ) -> None:
        assert self.made.context.cache.assumed_count == len(found.placed)
        assert {attempt.queued.uid for attempt in found.placed} <= {queued.uid for queued in order}
        self.seen.append(len(found.placed))


def _gang(made: Rig) -> Gang:
    return next(each.unit for each in made.queue.gangs if each.waiting)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(1, 6), st.integers(0, 2), st.integers(0, 2**16))
async def test_a_dry_run_finds_the_nodes_of_the_next_cycle(nodes: list[int], needed: int, kind: int, seed: int) -> None:
    """The explanation, a search with an observer, and the group cycle choose the same nodes or none."""
    random = Random(seed)
    made = _cluster(nodes, random.randint(0, 2))
    topology = (None, ZONE, GroupTopology("zone", prefers_allocated=True))[kind]
    add_gang(made, *members(needed + random.randint(0, 2)), of=group(min_member=needed, topology=topology))
    gang, instance = _gang(made), made.context.profiles.get(DEFAULT_NAME)
    assert instance is not None
    request = PlacementRequest.of(gang, instance)
    explained = Explainers(made.context, made.scheduler.cycles, made.scheduler.reservations).gangs.examine(
        request, gang, 3
    )
    # The explanation may leave a free row.
    before = cluster_state(made.context)
    world, counting = made.scheduler.cycles.world, _Counting(made)
    with world.dry_run(), made.scheduler.cycles.assumed.undone():
        found, rejection = at_once(place(request, world, Policy(lambda _: Verdict.TAKEN), counting))
        nodes_of = {} if found is None else {each.info.key: each.node_name for each in found.placed}
    assert len(counting.seen) == len(rejection.tries)
    assert cluster_state(made.context) == before
    entry = made.pop()
    assert isinstance(entry, QueuedGang)
    attempts = await made.scheduler.cycles.gangs.schedule(entry)
    live = {attempt.info.key: attempt.node_name for attempt in attempts}
    assert live == nodes_of
    assert live == (explained.placement or {})
