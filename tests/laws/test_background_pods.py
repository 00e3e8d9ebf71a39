"""Law: a search for one pod that continues in a copy of the process decides as one that is not interrupted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Unpack

import pytest
from msgspec.structs import replace

from scheduler_core.cycle.background_search import LONGEST_WAIT_SECONDS, MovedSearch, SearchMovedError
from scheduler_core.cycle.moved_pods import MovedPods
from scheduler_core.errors import ServerUnavailableError
from scheduler_core.framework.queued_pod import Place, QueuedPod
from scheduler_core.gangs.moved_search import ResultCheck
from scheduler_core.model.devices import ResourceClaim
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Binding
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.scheduler import SchedulerOptions
from scheduler_core.step_counter import NO_LIMIT, StepCounter
from tests.support.builders import PodFields, node, pod
from tests.support.devices import (
    DRIVER,
    Body,
    allocated_claim,
    claim,
    device,
    device_class,
    exactly,
    slice_of,
    taint_rule,
    using,
)
from tests.support.gang_devices import claimant, gang, owned, report
from tests.support.gang_preemption import running_pod
from tests.support.gangs import LABEL, group, member, members
from tests.support.injected_errors import raising
from tests.support.moved_searches import Run
from tests.support.preemption import budget

NODES = 20
UUID = f'device.attributes["{DRIVER}"].uuid'
MODEL = f'device.attributes["{DRIVER}"].model'
Wanted = list[Pod | ResourceClaim]


def _devices(number: int, count: int) -> list[Body]:
    return [
        device(
            f"d{each}",
            attributes={
                "uuid": {"string": f"u{number}-{each}"},
                "model": {"string": "ab"[each % 2]},
                "n": {"int": each},
            },
        )
        for each in range(count)
    ]


def device_nodes(run: Run, draw: random.Random) -> None:
    """Add nodes with devices of their own, and a pool that all nodes reach."""
    report(
        run.made, run.claims, *(node(f"n{number}", allocatable={"cpu": "8", "pods": "9"}) for number in range(NODES))
    )
    run.made.columns.devices.assign(device_class())
    for number in range(NODES):
        report(run.made, run.claims, slice_of(_devices(number, draw.randint(1, 4)), node=f"n{number}"))
    shared = slice_of(_devices(99, 2), name="fabric", node="", pool="fabric", allNodes=True)
    report(run.made, run.claims, shared)


def device_pods(run: Run, draw: random.Random) -> Iterator[Wanted]:
    """Return pods with claims whose selectors read each device: some have no room, some share a claim."""
    for number in range(8):
        user = pod(f"p{number}", namespace="ns", requests={"cpu": draw.choice(("1", "2", "9"))})
        model = draw.choice("ab")
        selectors = (f'{UUID} != "{number}"', f'{MODEL} == "{model}"')
        wanted = [exactly(f"r{each}", *selectors[: draw.randint(1, 2)]) for each in range(draw.randint(1, 2))]
        constraints = [{"requests": [], "matchAttribute": f"{DRIVER}/model"}] if draw.random() < 0.4 else []
        own = owned(user, *wanted, constraints=constraints)
        yield [own, using(user, templates={"gpu": own.metadata.name})]


def full_nodes(run: Run, draw: random.Random) -> None:
    """Add nodes that are full of pods, some of which are protected."""
    for number in range(NODES):
        labels = {"zone": f"z{number % 5}", "kubernetes.io/hostname": f"n{number}"}
        run.made.add(node(f"n{number}", labels=labels, allocatable={"cpu": "8", "pods": "110"}))
        for each in range(8):
            priority, app = draw.choice((0, 0, 1, 20)), draw.choice(("web", "db"))
            run.made.add(running_pod(f"v{number}-{each}", f"n{number}", priority=priority, labels={"app": app}))
    if draw.random() < 0.5:
        run.made.scheduler.workload_feed.added(budget("guard", {"app": "web"}, allowed=draw.randint(0, 2)))


def preemptors(run: Run, draw: random.Random) -> Iterator[Wanted]:
    """Return pods that are infeasible without a preemption."""
    for number in range(5):
        requests = {"cpu": draw.choice((f"{900 + number}m", "2", "9"))}
        yield [pod(f"p{number}", priority=draw.choice((5, 9)), requests=requests)]


KINDS: dict[str, tuple[Callable[[Run, random.Random], None], Callable[[Run, random.Random], Iterator[Wanted]]]] = {
    "devices": (device_nodes, device_pods),
    "preemption": (full_nodes, preemptors),
}


def _use(held: ResourceClaim) -> object:
    """Return the devices and consumers of a claim, without times."""
    found = held.status.allocation
    return found and (found.devices, found.node_selector), held.status.reserved_for


async def decided(
    kind: str, seed: int, *, in_background: bool, kills: bool = False, **begun: Any
) -> tuple[Run, list[object]]:
    """Schedule pods one by one, and return what was decided after each."""
    fill, pods = KINDS[kind]
    run = Run.begun(in_background=in_background, kills=lambda _: kills, **begun)
    draw = random.Random(f"{kind}/{seed}")
    fill(run, draw)
    found: list[object] = []
    async with run.made.running():
        for wanted in pods(run, draw):
            report(run.made, run.claims, *wanted)
            await run.rest()
            spent = run.made.context.steps.spent if begun else 0
            found.append((run.decisions, spent, {key: _use(each) for key, each in run.claims.claims.items()}))
            # A rejected pod would be retried after a time that depends on the duration of the search.
            for each in wanted:
                if isinstance(each, Pod) and each.metadata.name not in run.made.bound:
                    run.made.scheduler.feed.pod_deleted(each)
    return run, found


@pytest.mark.parametrize("kind", KINDS)
async def test_decisions_are_those_of_a_search_that_is_not_interrupted(kind: str) -> None:
    """Pods get the same nodes, devices, victims and messages as without a copy."""
    moved = 0
    for seed in range(8):
        _, plain = await decided(kind, seed, in_background=False)
        run, background = await decided(kind, seed, in_background=True)
        assert background == plain, seed
        moved += run.used()
    assert moved > 8


@pytest.mark.parametrize("kind", KINDS)
async def test_a_copy_that_dies_changes_no_decision(kind: str) -> None:
    """If every copy is killed, the attempt runs with the state frozen."""
    for seed in range(3):
        _, plain = await decided(kind, seed, in_background=False)
        run, killed = await decided(kind, seed, in_background=True, kills=True)
        assert killed == plain, seed
        counts = run.counts
        assert (counts.used, counts.lost) == (0, counts.started)
        assert counts.started


IN_PARTS: dict[str, Any] = {"slice_steps": NO_LIMIT, "part_steps": 5}


@pytest.mark.parametrize("limit", [NO_LIMIT >> 20, 300, 100, 40])
async def test_an_attempt_in_parts_decides_and_ends_as_one_that_is_not_interrupted(limit: int) -> None:
    """It takes the same steps, so that it is given up at the same point; no copy is made."""
    postponed = 0
    for seed in range(8):
        options = SchedulerOptions(gang_reservation_seconds=0.0, attempt_steps=limit)
        _, plain = await decided("devices", seed, in_background=False, options=options)
        run, parts = await decided("devices", seed, in_background=True, options=options, **IN_PARTS)
        assert parts == plain, seed
        assert run.counts.started == 0
        postponed += run.counts.postponed
    assert postponed > 30


# -- changes during a search ------------------------------------------------------------------------------------------


def _claimant(name: str, *selectors: str, **fields: Unpack[PodFields]) -> Wanted:
    fields["namespace"] = "ns"
    user = pod(name, **fields)
    own = owned(user, exactly("r", *(selectors or (f'{UUID} != "{name}"',))))
    return [own, using(user, templates={"gpu": own.metadata.name})]


def _some_device_nodes(run: Run) -> None:
    run.made.columns.devices.assign(device_class())
    for number in range(NODES):
        report(run.made, run.claims, node(f"n{number}", labels={"rack": "a"}, allocatable={"cpu": "8", "pods": "9"}))
        report(run.made, run.claims, slice_of(_devices(number, 3), node=f"n{number}"))


def _add_claimant(run: Run) -> None:
    report(run.made, run.claims, *_claimant("p0"))


def _devices_of(claims: Iterable[ResourceClaim]) -> list[tuple[str, str]]:
    found = [each.status.allocation for each in claims]
    return [(one.pool, one.device) for each in found if each is not None for one in each.devices.results]


def _take_devices(run: Run) -> None:
    """Another scheduler takes the first device of each node."""
    for number in range(NODES):
        taken = allocated_claim({"pool": f"n{number}", "device": "d0"}, name=f"rival{number}")
        run.made.columns.devices.assign(run.claims.store(taken))


def _taint_devices(run: Run) -> None:
    taint = {"key": "broken", "effect": "NoSchedule"}
    run.made.columns.devices.assign(taint_rule("broken", taint, {"device": "d0"}))


def _replace_slices(run: Run) -> None:
    for number in range(NODES):
        only = slice_of(_devices(number, 3)[1:], node=f"n{number}", generation=2)
        run.made.columns.devices.assign(only)


def _change_class(run: Run) -> None:
    index = f'device.attributes["{DRIVER}"].n'
    run.made.columns.devices.assign(device_class("gpu", f"{index} != 0"))


def _allocate_claim(run: Run) -> None:
    """Another scheduler allocates the claim of the pod."""
    stored = run.claims.claims["ns/claim-of-p0"]
    held = allocated_claim({"pool": "n3", "device": "d1"}, name="claim-of-p0")
    changed = replace(stored, status=held.status)
    run.made.columns.devices.assign(run.claims.store(changed))


DEVICE_CHANGES: dict[str, Callable[[Run], None]] = {
    "devices are taken": _take_devices,
    "devices are tainted": _taint_devices,
    "slices have other devices": _replace_slices,
    "the class selects other devices": _change_class,
    "the claim is allocated": _allocate_claim,
}


@pytest.mark.parametrize("change", DEVICE_CHANGES)
async def test_devices_that_changed_during_the_search_are_not_taken(change: str) -> None:
    """The pod gets devices that are free, and that its claim selects, when it is assumed."""
    run = Run.begun(in_background=True)
    _some_device_nodes(run)
    _add_claimant(run)
    await run.settle(partial(DEVICE_CHANGES[change], run))
    assert run.processes is not None
    assert run.processes.count
    assert "p0" in run.made.bound
    used = _devices_of(run.claims.claims.values())
    assert len(used) == len(set(used))
    ((_, own),) = _devices_of([run.claims.claims["ns/claim-of-p0"]])
    assert own != "d0"


def _remove_nodes(run: Run) -> None:
    for number in range(NODES - 1):
        gone = run.made.node(f"n{number}")
        run.made.scheduler.feed.node_deleted(gone)


def _cordon_nodes(run: Run) -> None:
    for number in range(NODES - 1):
        old = run.made.node(f"n{number}")
        run.made.scheduler.feed.node_updated(old, replace(old, spec=replace(old.spec, unschedulable=True)))


def _fill_nodes(run: Run) -> None:
    for number in range(NODES - 1):
        run.made.add(pod(f"late{number}", node_name=f"n{number}", requests={"cpu": "8"}))


NODE_CHANGES = {"nodes are deleted": _remove_nodes, "nodes are cordoned": _cordon_nodes, "nodes are full": _fill_nodes}


@pytest.mark.parametrize("change", NODE_CHANGES)
async def test_a_node_that_became_infeasible_is_not_used(change: str) -> None:
    """The pod gets the only node that is left."""
    run = Run.begun(in_background=True)
    _some_device_nodes(run)
    report(run.made, run.claims, *_claimant("p0", requests={"cpu": "1"}))
    await run.settle(partial(NODE_CHANGES[change], run))
    assert run.made.bound == {"p0": f"n{NODES - 1}"}
    counts = run.counts
    assert counts.used + counts.outdated == counts.started
    assert counts.outdated


def _delete_pod(run: Run) -> None:
    run.made.scheduler.feed.pod_deleted(run.queued("p0").info.pod)


def _bind_elsewhere(run: Run) -> None:
    old = run.queued("p0").info.pod
    run.made.scheduler.feed.pod_updated(old, replace(old, spec=replace(old.spec, node_name="n2")))


GONE = {"the pod is deleted": _delete_pod, "the pod is bound by another client": _bind_elsewhere}


@pytest.mark.parametrize("change", GONE)
async def test_a_pod_that_left_the_queue_is_not_bound(change: str) -> None:
    """Its result is dropped; no device stays in use, and no attempt in flight."""
    run = Run.begun(in_background=True)
    _some_device_nodes(run)
    _add_claimant(run)
    async with run.made.running():
        await run.until_moved()
        GONE[change](run)
        await run.step(3)
        assert not run.made.writer.bindings
        assert not _devices_of(run.claims.claims.values())
        assert [instance.in_flight for instance in run.made.context.profiles] == [0]
        assert not run.made.context.background.searched


async def test_an_attempt_is_not_in_flight_forever_if_its_end_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end that an exception interrupted is repeated, so that a replaced revision can close."""
    run, errors = Run.begun(in_background=True), list[BaseException]([MemoryError("no room")])
    _some_device_nodes(run)
    _add_claimant(run)
    async with run.made.running():
        await run.until_moved()
        _delete_pod(run)
        monkeypatch.setattr(FrameworkInstance, "end", raising(errors, FrameworkInstance.end))
        await run.step(3)
        assert not errors
        assert [instance.in_flight for instance in run.made.context.profiles] == [0]


async def test_a_changed_pod_is_searched_again() -> None:
    """A pod that is updated during its search gets a node for what it requests now."""
    run = Run.begun(in_background=True)
    _some_device_nodes(run)
    report(run.made, run.claims, *_claimant("p0", requests={"cpu": "1"}))

    def change() -> None:
        old = run.queued("p0").info.pod
        labels = {"kubernetes.io/hostname": "n7"}
        run.made.scheduler.feed.pod_updated(old, replace(old, spec=replace(old.spec, node_selector=labels)))

    old = run.made.node("n7")
    meta = replace(old.metadata, labels={"kubernetes.io/hostname": "n7"})
    run.made.scheduler.feed.node_updated(old, replace(old, metadata=meta))
    await run.settle(change)
    assert run.made.bound == {"p0": "n7"}
    assert run.counts.outdated == 1


def _join_gang(run: Run, name: str) -> None:
    old = run.queued(name).info.pod
    run.made.scheduler.feed.pod_updated(old, replace(old, metadata=replace(old.metadata, labels={LABEL: "train"})))


@pytest.mark.parametrize("name", ["p0", "p1"])
async def test_a_pod_that_joins_a_gang_during_the_search_is_not_bound_alone(name: str) -> None:
    """It waits for the quorum, whether its own search was in the copy, or it waited for that of another pod."""
    run = Run.begun(in_background=True, seconds=10.0)
    _some_device_nodes(run)
    gang(run.made, 3)
    async with run.made.running():
        report(run.made, run.claims, *_claimant("p0"))
        await run.until_moved()
        report(run.made, run.claims, *_claimant("p1"))
        await run.made.until(lambda: len(run.made.context.background.waiting) == 1)
        _join_gang(run, name)
        await run.step(60)
        assert run.queued(name).place is Place.GROUPED
    assert set(run.made.bound) == {"p0", "p1"} - {name}
    assert [instance.in_flight for instance in run.made.context.profiles] == [0]


def _lose_members(run: Run) -> None:
    for number in range(2):
        run.made.scheduler.feed.pod_deleted(_running_member(number))


def _delete_group(run: Run) -> None:
    run.made.scheduler.group_feed.group_deleted(group(namespace="ns").key)


UNWHOLE: dict[str, tuple[Callable[[Run], None], Place]] = {
    "other members are gone": (_lose_members, Place.GROUPED),
    "the PodGroup is gone": (_delete_group, Place.GATED),
}


def _running_member(number: int) -> Pod:
    return member(f"running-{number}", namespace="ns", node_name="n3")


@pytest.mark.parametrize("name", ["p0", "p1"])
@pytest.mark.parametrize("change", UNWHOLE)
async def test_a_member_whose_gang_breaks_up_during_the_search_is_not_bound_alone(change: str, name: str) -> None:
    """A further member of a complete gang waits with the gang, or is gated, if the gang is not complete any more."""
    run = Run.begun(in_background=True, seconds=10.0)
    _some_device_nodes(run)
    gang(run.made, 2)
    report(run.made, run.claims, *map(_running_member, range(2)))
    async with run.made.running():
        for each in ("p0", "p1"):
            wanted = exactly("r0", f'{UUID} != "0"')
            report(run.made, run.claims, *(claimant(each, wanted) if each == name else _claimant(each)))
            await run.until_moved()
        await run.made.until(lambda: len(run.made.context.background.waiting) == 1)
        breaks_up, place = UNWHOLE[change]
        breaks_up(run)
        await run.step(60)
        assert run.queued(name).place is place
    assert set(run.made.bound) == {"p0", "p1"} - {name}
    assert [instance.in_flight for instance in run.made.context.profiles] == [0]


async def test_a_nomination_during_the_search_counts_for_other_pods() -> None:
    """Another component nominates the pod to a node; pods of a lower priority are not scheduled there."""
    run = Run.begun(in_background=True, seconds=50.0)
    _some_device_nodes(run)
    async with run.made.running():
        report(run.made, run.claims, *_claimant("p0", f'{UUID} == "none"', priority=9, requests={"cpu": "8"}))
        await run.until_moved()
        old = run.queued("p0").info.pod
        status = replace(old.status, nominated_node_name="n3")
        run.made.scheduler.feed.pod_updated(old, replace(old, status=status))
        run.made.add(*(pod(f"late{number}", requests={"cpu": "8"}) for number in range(NODES)))
        await run.step(5)
        assert len(run.made.bound) == NODES - 1
        assert "n3" not in run.made.bound.values()


async def test_a_result_that_cannot_be_decoded_counts_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempt runs with the state frozen, and ends for the profile's revision."""
    run = Run.begun(in_background=True)
    assert run.processes is not None
    fork = run.processes.fork
    monkeypatch.setattr(run.processes, "fork", lambda done: fork(lambda _: done(b"\xc1damaged")))
    _some_device_nodes(run)
    _add_claimant(run)
    await run.settle()
    assert "p0" in run.made.bound
    counts = run.counts
    assert (counts.started, counts.lost, counts.used) == (1, 1, 0)
    assert [instance.in_flight for instance in run.made.context.profiles] == [0]


BASES = {"pod": (MovedPods, "basis"), "gang": (ResultCheck, "basis")}


@pytest.mark.parametrize("kind", BASES)
async def test_an_attempt_that_cannot_leave_is_requeued(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of its copy is dropped, nothing stays in flight, and the error is reported."""
    run = Run.begun(in_background=True, seconds=5.0)
    errors: list[BaseException] = [MemoryError("no room for the basis")]
    owner, name = BASES[kind]
    monkeypatch.setattr(owner, name, raising(errors, getattr(owner, name)))
    _some_device_nodes(run)
    async with run.made.running():
        if kind == "pod":
            _add_claimant(run)
        else:
            gang(run.made, 2)
            for number in range(2):
                report(run.made, run.claims, *claimant(f"m{number}", exactly("r", f'{UUID} != "{number}"')))
        await run.step(60)
        assert not errors
        assert len(run.made.bound) == (1 if kind == "pod" else 2)
        background = run.made.context.background
        assert not background.searched
        assert background.counts.used == background.counts.started - 1
        assert run.made.context.metrics.internal_errors == 1
        assert run.made.queue.readings.in_flight_count == 0
        assert [instance.in_flight for instance in run.made.context.profiles] == [0]


@pytest.mark.parametrize("kind", ["own search", "search of another pod"])
async def test_an_attempt_whose_move_is_interrupted_leaves_nothing_behind(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception while a plugin ends its dry run replaces the move; the next attempt binds, and its bind fails.

    The end of the search must not begin another attempt during the bind: the pod would not be requeued.
    """
    run = Run.begun(in_background=True, seconds=30.0)
    errors: list[BaseException] = []
    spend, answer = StepCounter.spend, asyncio.Event()

    def interrupted(steps: StepCounter, *counts: int) -> None:
        try:
            spend(steps, *counts)
        except SearchMovedError:
            if errors:
                raise errors.pop() from None
            raise

    async def refuse(_binding: Binding) -> None:
        await answer.wait()
        raise ServerUnavailableError("away")

    monkeypatch.setattr(StepCounter, "spend", interrupted)
    monkeypatch.setattr(run.made.writer, "bind", refuse)
    _some_device_nodes(run)
    async with run.made.running():
        if kind != "own search":
            report(run.made, run.claims, *_claimant("p1"))
            await run.until_moved()
        errors.append(MemoryError())
        _add_claimant(run)
        await run.made.until(lambda: not errors)
        run.made.context.steps.slice_steps = NO_LIMIT
        await run.step(5)
        assert run.made.context.cache.get("uid-of-ns-p0") is not None
        await run.step(40)
        answer.set()
        await run.step()
        assert run.queued("p0").place is Place.ERROR_BACKOFF
        assert not run.made.context.background.waiting
    assert [instance.in_flight for instance in run.made.context.profiles] == [0]


# -- reservations -----------------------------------------------------------------------------------------------------


def _reserve_good_devices(run: Run) -> None:
    """Add three nodes with matching devices, which a gang is to reserve, and two nodes with others."""
    run.made.columns.devices.assign(device_class())
    for number in range(5):
        is_good = number < 3
        allocatable = {"cpu": "8" if is_good else "2", "pods": "9"}
        report(run.made, run.claims, node(f"n{number}", allocatable=allocatable))
        model = {"string": "good" if is_good else "bad"}
        devices = [
            device(f"d{each}", attributes={"uuid": {"string": f"u{number}-{each}"}, "model": model})
            for each in range(3 if is_good else 80)
        ]
        report(run.made, run.claims, slice_of(devices, node=f"n{number}"))
        if is_good:
            run.made.add(running_pod(f"r{number}", f"n{number}", cpus=4))


@pytest.mark.parametrize("is_late", [False, pytest.param(True, id="after the result")])
@pytest.mark.parametrize("names", [["p0"], ["o0", "o1"]], ids=["pod", "gang"])
async def test_pods_are_retried_when_the_reservation_that_blocks_them_ends(names: list[str], is_late: bool) -> None:
    """The end of the reservation counts, whether it is during the search in a copy, or after its result."""
    run = Run.begun(in_background=True, seconds=5.0)
    made, groups = run.made, run.made.scheduler.group_feed
    assert run.processes is not None
    _reserve_good_devices(run)
    strict = group("train", min_member=3, is_strict=True)
    async with made.running():
        groups.group_changed(strict)
        made.add(*members(3, requests={"cpu": "8"}))
        await run.step(12)
        assert len(made.scheduler.reservations.by_gang) == 1
        if len(names) > 1:
            groups.group_changed(group("other", min_member=len(names), namespace="ns"))
        before = run.processes.count
        for name in names:
            user = pod(name, namespace="ns", requests={"cpu": "1"})
            if len(names) > 1:
                user = member(name, "other", namespace="ns", requests={"cpu": "1"})
            own = owned(user, exactly("r", f'{UUID} != "x" && {MODEL} == "good"'))
            report(made, run.claims, own, using(user, templates={"gpu": own.metadata.name}))
        await run.until_moved(before + 1)
        if is_late:
            await run.step(8)
        assert not made.bound
        groups.group_deleted(strict.key)
        await run.step(60)
    assert set(made.bound) == set(names)
    assert made.context.background.counts.outdated == (0 if is_late else 1)


# -- preemption -------------------------------------------------------------------------------------------------------


def _room(run: Run) -> None:
    run.made.add(node("new", allocatable={"cpu": "64", "pods": "110"}))


def _protect(run: Run) -> None:
    run.made.scheduler.workload_feed.added(budget("guard", {"app": "web"}, allowed=0))


def _end_pods(run: Run) -> None:
    columns = run.made.columns
    for info in list(columns.pods[columns.row_of("n5")].values()):
        run.made.scheduler.feed.pod_deleted(info.pod)


ELSEWHERE = {"a node is added": _room, "a budget is added": _protect, "pods elsewhere end": _end_pods}


@pytest.mark.parametrize("event", ELSEWHERE)
async def test_a_preemption_is_planned_again_after_a_change_elsewhere(event: str) -> None:
    """Room that appears during the search saves the victims."""
    run = Run.begun(in_background=True)
    for number in range(NODES):
        run.made.add(node(f"n{number}", allocatable={"cpu": "8", "pods": "110"}))
        for each in range(8):
            run.made.add(running_pod(f"v{number}-{each}", f"n{number}", labels={"app": "web"}))
    run.made.add(pod("p0", priority=9, requests={"cpu": "3"}))
    await run.settle(partial(ELSEWHERE[event], run))
    assert run.counts.outdated == 1
    if event != "a budget is added":
        assert not run.made.writer.deletions
        assert "p0" in run.made.bound


async def test_a_pod_is_retried_after_an_event_during_its_search() -> None:
    """The result rejects the pod; a node that was added meanwhile requeues it."""
    run = Run.begun(in_background=True)
    _some_device_nodes(run)
    report(run.made, run.claims, *_claimant("p0", f'{UUID} == "u50-1"'))
    async with run.made.running():
        await run.until_moved()
        report(run.made, run.claims, node("late", allocatable={"cpu": "64", "pods": "9"}))
        report(run.made, run.claims, slice_of(_devices(50, 3), node="late"))
        await run.step(30)
    assert run.made.bound == {"p0": "late"}


# -- searches that do not move ----------------------------------------------------------------------------------------


async def test_what_a_copy_computed_for_others_is_computed_here_for_the_next_pod_of_its_class() -> None:
    """Of three replicas, the first is searched in a copy, the second here, and the third uses what that stored."""
    run = Run.begun(in_background=True)
    _some_device_nodes(run)
    async with run.made.running():
        for number in range(3):
            report(run.made, run.claims, *_claimant(f"p{number}", f'{UUID} != "x"'))
            await run.rest()
    assert len(run.made.bound) == 3
    assert run.processes is not None
    assert run.processes.count == 1


async def test_a_claim_that_exhausts_its_steps_is_allocated_in_the_end() -> None:
    """Each attempt is given up with the number of its steps; what it has stored is not lost."""
    run = Run.begun(in_background=True, options=SchedulerOptions(attempt_steps=110))
    _some_device_nodes(run)
    _add_claimant(run)
    async with run.made.running():
        await run.until_moved()
        for _ in range(20):
            # Long enough for the flush of the unschedulable pods.
            run.made.clock.advance(400.0)
            await run.step(3)
    assert "p0" in run.made.bound
    messages = {each.condition.message for each in run.made.writer.patches if each.condition is not None}
    assert any("110 steps" in message for message in messages), messages


async def test_an_attempt_that_waits_too_long_runs_here() -> None:
    """While the copy of another pod searches for an hour, a pod waits a minute at most."""
    run = Run.begun(in_background=True, seconds=3600.0)
    _some_device_nodes(run)
    async with run.made.running():
        report(run.made, run.claims, *_claimant("p0"))
        await run.until_moved()
        report(run.made, run.claims, *_claimant("p1"))
        await run.made.until(lambda: len(run.made.context.background.waiting) == 1)
        run.made.clock.advance(LONGEST_WAIT_SECONDS - 1)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not run.made.bound
        run.made.clock.advance(2.0)
        await run.made.until(lambda: "p1" in run.made.bound)
        assert run.counts.started == 1
        assert "p0" not in run.made.bound


async def test_pods_are_served_between_attempts_that_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a copy ends, the attempts that waited for it do not all begin before the pods of the active queue."""
    run, order = Run.begun(in_background=True, seconds=30.0), list[str]()
    made, background, cycle = run.made, run.made.context.background, run.made.scheduler._cycle

    async def noted(queued: QueuedPod, ended: MovedSearch | None = None) -> None:
        order.append(queued.info.pod.metadata.name)
        await cycle(queued, ended)

    _some_device_nodes(run)
    async with made.running():
        report(made, run.claims, *_claimant("p0"))
        await run.until_moved()
        for number in range(1, 5):
            report(made, run.claims, *_claimant(f"p{number}", f'{UUID} == "x{number}"'))
        await made.until(lambda: len(background.waiting) == 4)
        monkeypatch.setattr(made.scheduler, "_cycle", noted)
        made.add(*(pod(f"late{number}") for number in range(3)))
        made.clock.advance(30.0)
        await made.until(lambda: len(background.waiting) < 3)
    assert order == ["p0", "p1", "late0", "late1", "late2", "p2"]


# -- gangs whose members need devices ---------------------------------------------------------------------------------


def _device_gang(run: Run, draw: random.Random) -> None:
    """Add a gang of members with claims; some share one, and some quorums are infeasible."""
    count = draw.randint(3, 8)
    gang(run.made, draw.choice((count, max(1, count - 2))))
    shared = claim(exactly("r", f'{MODEL} == "a"'), name="shared")
    report(run.made, run.claims, shared)
    for number in range(count):
        model = draw.choice("aab")
        wanted = [
            exactly(f"r{each}", f'{UUID} != "{number}" && {MODEL} == "{model}"') for each in range(draw.randint(1, 2))
        ]
        of_all = ["shared"] if draw.random() < 0.3 else []
        report(run.made, run.claims, *claimant(f"m{number}", *wanted, shared=[], requests={"cpu": "3"}))
        if of_all:
            report(run.made, run.claims, *claimant(f"s{number}", shared=of_all, requests={"cpu": "1"}))


def _gang_run(seed: int, *, in_background: bool, backtrack: bool, kills: bool = False) -> Run:
    draw = random.Random(f"gang/{seed}")
    options = SchedulerOptions(gangs_backtrack=backtrack, attempt_steps=1 << 40)
    run = Run.begun(in_background=in_background, options=options, kills=lambda _: kills)
    device_nodes(run, draw)
    _device_gang(run, draw)
    return run


@pytest.mark.parametrize("backtrack", [pytest.param(True, id="nodes and devices together"), False])
async def test_gangs_get_the_devices_of_a_search_that_is_not_interrupted(backtrack: bool) -> None:
    """Members get the same nodes and devices, or the gang is rejected, as without a copy."""
    moved = bound = 0
    for seed in range(8):
        plain, background = (_gang_run(seed, in_background=each, backtrack=backtrack) for each in (False, True))
        await plain.settle()
        await background.settle()
        assert background.decisions == plain.decisions, seed
        uses = [{key: _use(each) for key, each in run.claims.claims.items()} for run in (plain, background)]
        assert uses[0] == uses[1], seed
        moved, bound = moved + background.used(), bound + bool(background.made.bound)
    assert moved > 4
    assert bound > 2


@pytest.mark.parametrize("change", ["devices are taken", "devices are tainted", "slices have other devices"])
async def test_members_take_no_devices_that_changed_during_the_search(change: str) -> None:
    """The devices of all members are free, and distinct, when they are assumed."""
    run = Run.begun(in_background=True)
    _some_device_nodes(run)
    gang(run.made, 4)
    for number in range(4):
        report(run.made, run.claims, *claimant(f"m{number}", exactly("r", f'{UUID} != "{number}"')))
    await run.settle(partial(DEVICE_CHANGES[change], run))
    assert run.processes is not None
    assert run.processes.count
    assert len(run.made.bound) == 4
    used = _devices_of(run.claims.claims.values())
    assert len(used) == len(set(used))
    own = _devices_of(each for key, each in run.claims.claims.items() if key.startswith("ns/claim-of"))
    assert len(own) == 4
    assert all(device != "d0" for _, device in own)


async def test_evaluations_in_a_copy_are_counted() -> None:
    """Filter of the nodes and the search for devices are counted, wherever they ran."""
    found = []
    for in_background in (False, True):
        run = Run.begun(in_background=in_background)
        _some_device_nodes(run)
        report(run.made, run.claims, *_claimant("p0", f'{UUID} == "none"'))
        await run.settle()
        (instance,) = run.made.context.profiles
        tally = run.made.columns.devices.hardware.tally
        found.append((instance.evaluations.filter["DynamicResources"], instance.evaluations.pre_filter, tally.searches))
    (filtered, pods, searches), (filtered_in_copy, pods_in_copy, searches_in_copy) = found
    assert filtered_in_copy == filtered
    # PreFilter also ran before the search moved, and what it found is not in use any more.
    assert set(pods_in_copy) == set(pods)
    assert searches_in_copy == searches > 0
