"""Law: the cost of an event or a cycle grows at most linearly with every size that a user controls.

Each row is one size. Its cost is counted at a size and at four times that size, in calls of Python and C functions and
in the peak of the allocated memory, which also shows arrays of one element for each pair. A cost that grows with the
square of the size would be 16 times as high.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import FrameType

import pytest

from scheduler_core.config.extender_config import Extender
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.explain_assembly import Explainers
from scheduler_core.gangs.placement_search import GroupCycle
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.pod_group import GroupSource, GroupTopology
from scheduler_core.ports import ExtenderVerdict
from scheduler_core.scheduler import SchedulerPorts
from tests.support.builders import node, pod
from tests.support.gangs import add_groups, composite_group, gang_of, group, leaf_group, members
from tests.support.scheduling import DEFAULT_NAME, Rig, rig
from tests.support.scripted_extender import ScriptedExtender

GROWTH = 4
TOLERATED = 1.4
"""How much steeper than linear a cost may grow, for sorting and for rehashing."""

Act = Callable[[], Awaitable[object]]
"""What is measured; its inputs are prepared."""


@dataclass
class Counter:
    """Counts calls while it is the profile function."""

    calls: int = 0

    def note(self, _: FrameType, event: str, __: object) -> None:
        """Count a call of a Python or C function."""
        self.calls += event in {"call", "c_call"}


async def _calls(prepare: Callable[[int], Act], size: int) -> int:
    act, counter = prepare(size), Counter()
    gc.collect()
    gc.disable()
    sys.setprofile(counter.note)
    try:
        await act()
    finally:
        sys.setprofile(None)
        gc.enable()
    return counter.calls


async def _peak(prepare: Callable[[int], Act], size: int) -> int:
    act = prepare(size)
    gc.collect()
    tracemalloc.start()
    try:
        await act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _made(**fields: object) -> Rig:
    made = rig(defaults=default_plugins(), **fields)  # type: ignore[arg-type] # arguments of rig
    for source in GroupSource:
        made.scheduler.group_feed.serve(source)
    return made


def _big_node() -> object:
    return node("big", allocatable={"cpu": "100k", "memory": "100Ti", "pods": "100k"})


async def _settle(made: Rig) -> None:
    async with made.running():
        await made.scheduler.until_idle()


# -- trees of groups ------------------------------------------------------------------------------------------------


def _chain(made: Rig, size: int) -> None:
    add_groups(made, *(composite_group(f"c{each}", 1, f"c{each - 1}" if each else "") for each in range(size)))


def _deep_tree(size: int) -> Act:
    made = _made()
    made.add(_big_node())  # type: ignore[arg-type] # a node

    async def act() -> None:
        _chain(made, size)
        add_groups(made, leaf_group("deep", f"c{size - 1}"))
        made.add(pod("deep-0", group="deep"))
        await _settle(made)
        assert made.bound == {"deep-0": "big"}

    return act


def _deep_tree_without_room(size: int) -> Act:
    made = _made()
    made.add(node("small", allocatable={"cpu": "1", "pods": "5"}))
    _chain(made, size)
    add_groups(made, leaf_group("deep", f"c{size - 1}"))
    made.add(pod("deep-0", group="deep", requests={"cpu": "2"}))

    async def act() -> None:
        await made.scheduler.cycles.gangs.schedule(made.pop())  # type: ignore[arg-type] # the entry of the tree
        assert "minCount (1) cannot be satisfied" in made.condition.message

    return act


def _root_of_deep_tree(size: int) -> Act:
    """The root is created last."""
    made = _made()
    add_groups(made, leaf_group("deep", f"c{size - 1}"))
    made.add(pod("deep-0", group="deep"))
    add_groups(made, *(composite_group(f"c{each}", 1, f"c{each - 1}") for each in range(1, size)))

    async def act() -> None:
        add_groups(made, composite_group("c0", 1))
        assert len(made.queue.gangs.forest.trees) == 1

    return act


def _circle(size: int) -> Act:
    """The last group makes a chain of parents a circle, below which are as many gangs."""
    made = _made()
    _chain(made, size)
    add_groups(made, *(leaf_group(f"leaf{each}", f"c{each}") for each in range(size)))
    for each in range(size):
        made.add(pod(f"p{each}", group=f"leaf{each}"))

    async def act() -> None:
        add_groups(made, composite_group("c0", 1, f"c{size - 1}"))
        assert not made.queue.gangs.forest.trees

    return act


def _wide_tree(size: int) -> Act:
    made = _made()
    made.add(_big_node())  # type: ignore[arg-type] # a node

    async def act() -> None:
        add_groups(made, composite_group("root", size))
        add_groups(made, *(leaf_group(f"leaf{each}", "root") for each in range(size)))
        made.add(*(pod(f"p{each}", group=f"leaf{each}", requests={"cpu": "1m"}) for each in range(size)))
        await _settle(made)
        assert len(made.bound) == size

    return act


def _wide_tree_deleted(size: int) -> Act:
    made = _made()
    add_groups(made, composite_group("root", size), *(leaf_group(f"leaf{each}", "root") for each in range(size)))
    made.add(*(pod(f"p{each}", group=f"leaf{each}", requests={"cpu": "1m"}) for each in range(size)))

    async def act() -> None:
        made.scheduler.group_feed.group_deleted(composite_group("root").key)
        assert not made.queue.gangs.forest.trees

    return act


def _comb(size: int) -> Act:
    """A chain of groups with one gang below each."""
    made = _made()
    made.add(_big_node())  # type: ignore[arg-type] # a node

    async def act() -> None:
        _chain(made, size)
        add_groups(made, *(leaf_group(f"leaf{each}", f"c{each}") for each in range(size)))
        made.add(*(pod(f"p{each}", group=f"leaf{each}", requests={"cpu": "1m"}) for each in range(size)))
        await _settle(made)
        assert len(made.bound) == size

    return act


# -- topology domains -----------------------------------------------------------------------------------------------


def _hosts(size: int, **fields: object) -> Rig:
    made = _made()
    labels = [{"kubernetes.io/hostname": f"n{each}"} for each in range(size)]
    made.add(*(node(f"n{each}", labels=label, **fields) for each, label in enumerate(labels)))  # type: ignore[arg-type]
    return made


async def _cycle_of_gang(made: Rig) -> None:
    await made.scheduler.cycles.gangs.schedule(made.pop())  # type: ignore[arg-type] # the entry of the gang


def _one_node_domains(size: int) -> Act:
    made = _hosts(size)
    add_groups(made, group(min_member=2, topology=GroupTopology("kubernetes.io/hostname")))
    made.add(*members(2, node_selector={"gpu": "yes"}))

    async def act() -> None:
        await _cycle_of_gang(made)
        assert f"the nearest of {size} domains tried" in made.condition.message

    return act


def _one_node_domains_of_a_tree(size: int) -> Act:
    made = _hosts(size)
    add_groups(made, composite_group("root", 1, topology=GroupTopology("kubernetes.io/hostname", is_required=True)))
    add_groups(made, leaf_group("leaf", "root", 2))
    made.add(*(pod(f"p{each}", group="leaf", node_selector={"gpu": "yes"}) for each in range(2)))

    async def act() -> None:
        await _cycle_of_gang(made)
        assert f"0/{size} placements are available" in made.condition.message

    return act


def _explained_one_node_domains(size: int) -> Act:
    made = _hosts(size)
    add_groups(made, group(min_member=2, topology=GroupTopology("kubernetes.io/hostname")))
    made.add(*members(2, node_selector={"gpu": "yes"}))

    async def act() -> None:
        gang, (instance,) = gang_of(made), made.context.profiles
        explainers = Explainers(made.context, made.scheduler.cycles, made.scheduler.reservations)
        entry = gang.entry
        assert entry is not None
        found = explainers.gangs.examine(GroupCycle(entry, gang, instance), 3)
        assert found.tried == size

    return act


# -- extenders ------------------------------------------------------------------------------------------------------


def _own_reasons(names: Sequence[str]) -> ExtenderVerdict:
    """Reject each node with its own reason."""
    return ExtenderVerdict((), {name: f"node {name} has {each} MiB left" for each, name in enumerate(names)}, {})


def _reasons(size: int) -> Act:
    client = ScriptedExtender(on_filter=_own_reasons)
    made = _made(serve=False, ports=SchedulerPorts(make_extender=lambda *_: client))
    extenders = (Extender(url_prefix="http://127.0.0.1:1", filter_verb="filter"),)
    made.serve(ProfileConfig(scheduler_name=DEFAULT_NAME, extenders=extenders))
    made.add(*(node(f"n{each}") for each in range(size)), pod("p"))

    async def act() -> None:
        assert await made.scheduler.cycles.extended.schedule(made.pop()) is None
        assert made.condition.message.count("MiB left") == size

    return act


@pytest.mark.parametrize(
    ("prepare", "size"),
    [
        pytest.param(_deep_tree, 300, id="depth-of-a-tree"),
        pytest.param(_deep_tree_without_room, 300, id="depth-of-an-infeasible-tree"),
        pytest.param(_root_of_deep_tree, 300, id="depth-of-a-tree-whose-root-is-created-last"),
        pytest.param(_circle, 100, id="length-of-a-circle-of-parents"),
        pytest.param(_wide_tree, 50, id="gangs-below-one-group"),
        pytest.param(_wide_tree_deleted, 50, id="gangs-below-a-deleted-group"),
        pytest.param(_comb, 50, id="depth-of-a-tree-with-a-gang-at-each-level"),
        pytest.param(_one_node_domains, 100, id="domains-of-one-node"),
        pytest.param(_one_node_domains_of_a_tree, 100, id="domains-of-one-node-for-a-tree"),
        pytest.param(_explained_one_node_domains, 100, id="domains-of-one-node-explained"),
        pytest.param(_reasons, 100, id="reasons-of-an-extender"),
    ],
)
async def test_costs_grow_at_most_linearly(prepare: Callable[[int], Act], size: int) -> None:
    """At four times the size, there are at most about four times as many calls, and as much memory is allocated."""
    await prepare(2)()
    few, many = await _calls(prepare, size), await _calls(prepare, size * GROWTH)
    assert many <= few * GROWTH * TOLERATED, f"{few} calls at {size}, {many} at {size * GROWTH}"
    low, high = await _peak(prepare, size), await _peak(prepare, size * GROWTH)
    assert high <= low * GROWTH * TOLERATED + 2**20, f"{low} bytes at {size}, {high} at {size * GROWTH}"
