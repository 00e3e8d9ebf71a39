"""Law: what a copy of the process has planned is not done if a cycle on the present state would not do it.

The changes here take room away, or have no queueing hint, so that no event would requeue the pod or the gang.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from scheduler_core.config.plugin_set_types import Plugin as PluginEntry
from scheduler_core.config.plugin_set_types import Plugins, PluginSet
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import Codes, FilterPlugin
from scheduler_core.framework.plugin import PodReads, Reads, Reuse
from scheduler_core.framework.status import Code, Status
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.affinity import LabelSelector
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.workloads import Namespace
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.affinities import anti_affinity_to, term
from tests.support.builders import node, pod
from tests.support.devices import (
    DRIVER,
    Body,
    allocated_claim,
    device,
    device_class,
    exactly,
    slice_of,
    taint_rule,
    using,
)
from tests.support.gang_devices import claimant, gang, owned, report
from tests.support.gang_preemption import running_pod
from tests.support.gangs import add_groups, group, member
from tests.support.moved_searches import Run
from tests.support.tables import table

NODES = 20
UUID = f'device.attributes["{DRIVER}"].uuid'
MODEL = f'device.attributes["{DRIVER}"].model'
Change = Callable[[Run], None]


def _devices(number: int, count: int, good: int = 0) -> list[Body]:
    return [
        device(
            f"d{each}",
            attributes={"uuid": {"string": f"u{number}-{each}"}, "model": {"string": "good" if each < good else "bad"}},
        )
        for each in range(count)
    ]


def _full(*, in_background: bool) -> Run:
    """Begin with nodes that are full of pods, and one free node for another zone."""
    run = Run.begun(in_background=in_background)
    made = run.made
    made.columns.devices.assign(device_class())
    made.scheduler.workload_feed.added(_namespace("a"))
    for number in range(NODES):
        labels = {"zone": f"z{number % 5}", "kubernetes.io/hostname": f"n{number}"}
        made.add(node(f"n{number}", labels=labels, allocatable={"cpu": "8", "pods": "110"}))
        report(made, run.claims, slice_of(_devices(number, 3), node=f"n{number}"))
        made.add(*(running_pod(f"v{number}-{each}", f"n{number}", labels={"app": "web"}) for each in range(8)))
    for number in range(5):
        made.add(node(f"spare{number}", labels={"zone": f"z{number}"}, allocatable={"cpu": "0", "pods": "110"}))
    made.add(node("free", labels={"zone": "free"}, allocatable={"cpu": "8", "pods": "110"}))
    made.add(pod("x", namespace="other", node_name="free", labels={"app": "x"}, priority=20))
    return run


def _namespace(team: str) -> Namespace:
    return Namespace(ObjectMeta(name="other", labels={"team": team}))


def _start_other_pods(run: Run) -> None:
    run.made.add(*(pod(f"y{each}", node_name=f"spare{each}", labels={"app": "y"}) for each in range(5)))


def _hold_nodes(run: Run) -> None:
    for number in range(NODES):
        found = run.made.node(f"n{number}")
        run.made.scheduler.feed.node_unreadable(found, "it cannot be decoded")


def _nominate_others(run: Run) -> None:
    fields = {"gates": ["g"], "priority": 20, "requests": {"cpu": "8"}}
    run.made.add(*(pod(f"h{each}", nominated_node=f"n{each}", **fields) for each in range(NODES)))  # type: ignore[arg-type]


def _take_devices(run: Run) -> None:
    for number in range(NODES):
        for each in range(3):
            rival = allocated_claim({"pool": f"n{number}", "device": f"d{each}"}, name=f"rival{number}-{each}")
            run.made.columns.devices.assign(run.claims.store(rival))


def _taint_devices(run: Run) -> None:
    rule = taint_rule("broken", {"key": "broken", "effect": "NoSchedule"}, {"driver": DRIVER})
    run.made.columns.devices.assign(rule)


def _rename_team(run: Run) -> None:
    run.made.scheduler.workload_feed.updated(_namespace("a"), _namespace("b"))


CHANGES: dict[str, Change] = {
    "other pods start": _start_other_pods,
    "nodes are held": _hold_nodes,
    "others are nominated": _nominate_others,
    "devices are taken": _take_devices,
    "devices are tainted": _taint_devices,
    "labels of a namespace change": _rename_team,
}


def _add_pod(run: Run) -> None:
    """Add a pod that needs devices and a preemption; the pod on the free node keeps it away from there."""
    selector = LabelSelector({"team": "a"})
    terms = (term("x", "zone", selector=selector), term("y", "zone"))
    affinity = anti_affinity_to(*terms)
    waiting = pod("p0", namespace="ns", priority=9, requests={"cpu": "3"}, affinity=affinity)
    own = owned(waiting, exactly("r", f'{UUID} != "x"'))
    report(run.made, run.claims, own, using(waiting, templates={"gpu": own.metadata.name}))


def _add_gang(run: Run) -> None:
    gang(run.made, 2)
    for number in range(2):
        wanted = exactly("r", f'{UUID} != "x"')
        report(run.made, run.claims, *claimant(f"m{number}", wanted, priority=9, requests={"cpu": "3"}))


async def _evicted(add: Change, change: Change, *, in_background: bool) -> tuple[list[str], int]:
    """Return who is evicted, and the number of results that were not used."""
    run = _full(in_background=in_background)
    async with run.made.running():
        if not in_background:
            change(run)
        add(run)
        if in_background:
            await run.until_moved()
            change(run)
            await run.step(8)
        else:
            for _ in range(80):
                await asyncio.sleep(0)
    return sorted(each.name for each in run.made.writer.deletions), run.counts.outdated


@table("add", ("pod", _add_pod), ("gang", _add_gang))
@pytest.mark.parametrize("change", CHANGES)
async def test_nobody_is_evicted_whom_a_cycle_would_not_evict(add: Change, change: str) -> None:
    """After a change during the search, the victims are those of a cycle on the changed state."""
    evicted, outdated = await _evicted(add, CHANGES[change], in_background=True)
    expected, _ = await _evicted(add, CHANGES[change], in_background=False)
    assert (evicted == expected or not evicted, bool(outdated) or evicted == expected) == (True, True), (
        evicted,
        expected,
    )


@table("add", ("pod", _add_pod), ("gang", _add_gang))
async def test_without_a_change_the_plan_is_carried_out(add: Change) -> None:
    """The victims of the copy are evicted if nothing changes."""
    evicted, outdated = await _evicted(add, lambda _: None, in_background=True)
    assert evicted
    assert not outdated


async def test_members_never_share_a_device() -> None:
    """A member whose devices are searched again may take those that the copy has found for a later member."""
    run = Run.begun(in_background=True)
    made, devices = run.made, run.made.columns.devices
    devices.assign(device_class())
    for number in range(2):
        labels = {"kubernetes.io/hostname": f"n{number}"}
        made.add(node(f"n{number}", labels=labels, allocatable={"cpu": "8", "pods": "9"}))
        report(made, run.claims, slice_of(_devices(number, 80, good=1 - number), node=f"n{number}"))
    report(made, run.claims, slice_of(_devices(9, 1, good=1), name="fabric", node="", pool="zfabric", allNodes=True))
    gang(made, 2)
    for number in range(2):
        wanted = exactly("r", f'{UUID} != "x" && {MODEL} == "good"')
        selector = {"kubernetes.io/hostname": f"n{number}"}
        report(made, run.claims, *claimant(f"m{number}", wanted, node_selector=selector))

    def take_one() -> None:
        devices.assign(run.claims.store(allocated_claim({"pool": "n0", "device": "d0"}, name="rival")))

    await run.settle(take_one)
    used = [
        (result.pool, result.device)
        for each in run.claims.claims.values()
        if each.status.allocation is not None
        for result in each.status.allocation.devices.results
    ]
    assert len(set(used)) == len(used)
    assert made.bound == {}


CAPACITY = 4000
MEMBERS = 12


def _arrive(run: Run, draw: random.Random, amounts: dict[str, int]) -> None:
    """Start pods on some nodes, with room for them or without priority over those that run there."""
    for number in draw.sample(range(NODES), draw.choice((1, 3, 8))):
        used = sum(amount for name, amount in amounts.items() if name.endswith(f"-on-{number}"))
        name, milli = f"new-on-{number}", min(draw.choice((0, 100, 500)), CAPACITY - used)
        amounts[name] = milli
        labels = {"app": draw.choice(("x", "web"))}
        priority = draw.choice((0, 20))
        requests = {"cpu": f"{milli}m"}
        run.made.add(pod(name, node_name=f"n{number}", priority=priority, labels=labels, requests=requests))


async def _planned_beside_arrivals(seed: int) -> tuple[int, int]:
    """Check the plan that is carried out; return the numbers of results that were used, and that were not."""
    draw, amounts = random.Random(seed), dict[str, int]()
    run = Run.begun(in_background=True)
    made = run.made
    for number in range(NODES):
        labels = {"kubernetes.io/hostname": f"n{number}"}
        made.add(node(f"n{number}", labels=labels, allocatable={"cpu": f"{CAPACITY}m", "pods": "110"}))
        for each in range(4):
            name, milli = f"v{each}-on-{number}", draw.choice((700, 900, 1000))
            amounts[name] = milli
            priority, requests = draw.choice((0, 1)), {"cpu": f"{milli}m"}
            made.add(pod(name, node_name=f"n{number}", priority=priority, requests=requests))
    add_groups(made, group("g", MEMBERS, priority=9))
    wanted = {f"m{number}": draw.choice((1100, 1500, 2100)) + number for number in range(MEMBERS)}
    for name, milli in wanted.items():
        made.add(member(name, "g", priority=9, requests={"cpu": f"{milli}m"}))
    async with made.running():
        await run.until_moved()
        _arrive(run, draw, amounts)
        await run.step(12)
    victims = {each.name for each in made.writer.deletions}
    nodes = {uid: name for uid, name in made.queue.nominator.node_by_uid.items() if uid.startswith("uid-of-default-m")}
    assert len(nodes) in (0, MEMBERS), seed
    assert bool(victims) == bool(nodes), seed
    used: Counter[str] = Counter()
    for name, milli in amounts.items():
        if name not in victims:
            used[f"n{name.rpartition('-')[2]}"] += milli
    for uid, name in nodes.items():
        used[name] += wanted[uid.removeprefix("uid-of-default-")]
    assert all(used[name] <= CAPACITY for name in nodes.values()), seed
    for name in victims:
        assert used[f"n{name.rpartition('-')[2]}"] + amounts[name] > CAPACITY, (seed, name)
    counts = made.context.background.counts
    return counts.used, counts.outdated


async def test_a_plan_beside_arriving_pods_has_room_and_no_needless_victim() -> None:
    """Pods that arrive on its nodes do not make a plan outdated unless a member does not fit beside them."""
    found = [await _planned_beside_arrivals(seed) for seed in range(30)]
    assert sum(used for used, _ in found) > 20
    assert any(outdated for _, outdated in found)


class Guided(FilterPlugin):
    """Filter that rejects nodes with more than 3 pods, unless one of them is a guide; no event requeues its pods."""

    name = "Guided"
    may_fork = True
    reuse = Reuse(filter=Reads.PODS, pod=PodReads.NOTHING, prepares_once=True)
    reasons = (Status(Code.UNSCHEDULABLE, ("too many pods",)),)
    events = ()

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes:
        """Return 1 for nodes with too many pods and no guide."""
        numbers = np.arange(nodes.size)[rows]
        found = np.zeros(len(numbers), dtype=np.int16)
        for position, row in enumerate(numbers.tolist()):
            there = nodes.pods[row].values() if row < len(nodes.pods) else ()
            found[position] = len(there) > 3 and not any(each.pod.metadata.name.startswith("guide") for each in there)
        return found


@pytest.mark.parametrize("guides", [0, NODES])
async def test_a_pod_that_makes_victims_needless_saves_them(guides: int) -> None:
    """Of pods that were added, filters find out that a member is feasible beside the victims; no event does."""
    entries = (*default_plugins().multi_point.enabled, PluginEntry(name="Guided"))
    run = Run.begun(in_background=True, plugins=[Guided], defaults=Plugins(multi_point=PluginSet(enabled=entries)))
    made = run.made
    for number in range(NODES):
        made.add(node(f"n{number}", allocatable={"cpu": "4", "pods": "110"}))
        made.add(*(pod(f"v{number}-{each}", node_name=f"n{number}") for each in range(4)))
    add_groups(made, group("g", MEMBERS, priority=9))
    made.add(*(member(f"m{each}", "g", priority=9, requests={"cpu": f"{100 + each}m"}) for each in range(MEMBERS)))
    async with made.running():
        await run.until_moved()
        made.add(*(pod(f"guide{number}", node_name=f"n{number}") for number in range(guides)))
        await run.step(12)
    counts = made.context.background.counts
    assert (bool(made.writer.deletions), bool(counts.outdated)) == (not guides, bool(guides))
