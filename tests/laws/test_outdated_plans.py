"""Law: what a copy of the process has planned is not done if a cycle on the present state would not do it.

The changes here take room away, or have no queueing hint, so that no event would requeue the pod or the gang.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from scheduler_core.model.affinity import LabelSelector
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.workloads import Namespace
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
from tests.support.moved_searches import Run

NODES = 20
UUID = f'device.attributes["{DRIVER}"].uuid'
MODEL = f'device.attributes["{DRIVER}"].model'
Change = Callable[[Run], None]


def _devices(number: int, count: int, good: int = 0) -> list[Body]:
    return [
        device(
            f"d{each}",
            attributes={
                "uuid": {"string": f"u{number}-{each}"},
                "model": {"string": "good" if each < good else "bad"},
            },
        )
        for each in range(count)
    ]


def _full(*, in_background: bool) -> Run:
    """Begin with nodes that are full of pods, and one free node for another zone."""
    run = Run.begun(in_background=in_background)
    made = run.made
    made.context.cache.columns.devices.assign(device_class())
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
    columns = run.made.context.cache.columns
    for number in range(NODES):
        found = columns.nodes[columns.row_of(f"n{number}")]
        assert found is not None
        run.made.scheduler.feed.node_unreadable(found, "it cannot be decoded")


def _nominate_others(run: Run) -> None:
    fields = {"gates": ["g"], "priority": 20, "requests": {"cpu": "8"}}
    run.made.add(*(pod(f"h{each}", nominated_node=f"n{each}", **fields) for each in range(NODES)))  # type: ignore[arg-type]


def _take_devices(run: Run) -> None:
    for number in range(NODES):
        for each in range(3):
            rival = allocated_claim({"pool": f"n{number}", "device": f"d{each}"}, name=f"rival{number}-{each}")
            run.made.context.cache.columns.devices.assign(run.claims.store(rival))


def _taint_devices(run: Run) -> None:
    rule = taint_rule("broken", {"key": "broken", "effect": "NoSchedule"}, {"driver": DRIVER})
    run.made.context.cache.columns.devices.assign(rule)


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
    return sorted(each.name for each in run.made.writer.deletions), run.made.context.background.counts.outdated


@pytest.mark.parametrize("add", [pytest.param(_add_pod, id="pod"), pytest.param(_add_gang, id="gang")])
@pytest.mark.parametrize("change", CHANGES)
async def test_nobody_is_evicted_whom_a_cycle_would_not_evict(add: Change, change: str) -> None:
    """After a change during the search, the victims are those of a cycle on the changed state."""
    evicted, outdated = await _evicted(add, CHANGES[change], in_background=True)
    expected, _ = await _evicted(add, CHANGES[change], in_background=False)
    assert (evicted == expected or not evicted, bool(outdated) or evicted == expected) == (True, True), (
        evicted,
        expected,
    )


@pytest.mark.parametrize("add", [pytest.param(_add_pod, id="pod"), pytest.param(_add_gang, id="gang")])
async def test_without_a_change_the_plan_is_carried_out(add: Change) -> None:
    """The victims of the copy are evicted if nothing changes."""
    evicted, outdated = await _evicted(add, lambda _: None, in_background=True)
    assert evicted
    assert not outdated


async def test_members_never_share_a_device() -> None:
    """A member whose devices are searched again may take those that the copy has found for a later member."""
    run = Run.begun(in_background=True)
    made, devices = run.made, run.made.context.cache.columns.devices
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
