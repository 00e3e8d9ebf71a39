"""Law: a search that continues in a copy of the process decides as one that is not interrupted."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import NoReturn

import pytest
from msgspec.structs import replace

from scheduler_core.config.plugin_set_types import Plugin as PluginEntry
from scheduler_core.config.plugin_set_types import Plugins, PluginSet
from scheduler_core.framework.extension_points import PermitPlugin, PermitResult
from scheduler_core.framework.queued_pod import Place, QueuedPod
from scheduler_core.framework.status import Code, Status
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, GroupSource, GroupTopology, PodGroup
from scheduler_core.plugins.default_preemption import DefaultPreemption
from scheduler_core.scheduler import SchedulerOptions, SchedulerPorts
from scheduler_core.step_counter import NO_LIMIT, StepCounter
from tests.support.builders import node, pod
from tests.support.cluster_state import cluster_state
from tests.support.gang_preemption import running_pod
from tests.support.gangs import add_groups, composite_group, group, leaf_group, member
from tests.support.injected_errors import raising
from tests.support.moved_searches import SLICE, Run, Slices
from tests.support.preemption import budget
from tests.support.scheduling import Rig, default_rig, rig
from tests.support.tables import table

GANG = "high"
EIGHT = {"cpu": "8", "pods": "110"}


def _nodes(made: Rig, draw: random.Random, count: int = 30) -> None:
    for number in range(count):
        labels = {"zone": f"z{number % 5}", "kubernetes.io/hostname": f"n{number}"}
        made.add(node(f"n{number}", labels=labels, allocatable={"cpu": "8", "pods": "110"}))
        for each in range(draw.choice((0, 4, 8, 8))):
            made.add(running_pod(f"v{number}-{each}", f"n{number}", priority=draw.choice((0, 0, 1, 20))))


def _topology(draw: random.Random) -> GroupTopology | None:
    if draw.random() < 0.5:
        return None
    return GroupTopology(draw.choice(("zone", "kubernetes.io/hostname")), is_required=draw.random() < 0.5)


def _gang(made: Rig, draw: random.Random) -> None:
    count = draw.randint(5, 40)
    quorum = count if draw.random() < 0.6 else draw.randint(1, count)
    add_groups(made, group(GANG, quorum, priority=9, topology=_topology(draw)))
    for number in range(count):
        cpu = draw.choice(("500m", f"{501 + number}m", "2"))
        selector = {"gpu": "yes"} if draw.random() < 0.02 else {}
        made.add(member(f"m{number}", GANG, priority=9, requests={"cpu": cpu}, node_selector=selector))


def _native(made: Rig, draw: random.Random) -> None:
    count = draw.randint(5, 40)
    key = GroupKey(GroupSource.NATIVE, "default", GANG)
    add_groups(made, PodGroup(key, "uid", count, priority=9, is_uniform=True))
    for number in range(count):
        cpu = draw.choice(("500m", f"{501 + number}m", "2"))
        made.add(pod(f"m{number}", group=GANG, priority=9, requests={"cpu": cpu}))


def _tree(made: Rig, draw: random.Random) -> None:
    leaves = draw.randint(2, 12)
    add_groups(made, composite_group("root", draw.randint(1, leaves), priority=9))
    add_groups(made, *(leaf_group(f"leaf{each}", "root", draw.randint(1, 3)) for each in range(leaves)))
    for number in range(leaves * 3):
        cpu = draw.choice(("500m", f"{501 + number}m", "2"))
        made.add(pod(f"m{number}", group=f"leaf{number % leaves}", priority=9, requests={"cpu": cpu}))


KINDS = {"gang": _gang, "native": _native, "tree": _tree}


def _filled(run: Run, kind: str, seed: int) -> Run:
    draw = random.Random(f"{kind}/{seed}")
    _nodes(run.made, draw)
    KINDS[kind](run.made, draw)
    return run


@pytest.mark.parametrize("kind", KINDS)
async def test_decisions_are_those_of_a_search_that_is_not_interrupted(kind: str) -> None:
    """Gangs with and without room are placed, preempt, or are reported, as without a copy."""
    moved = 0
    for seed in range(12):
        plain, background = (_filled(Run.begun(in_background=each), kind, seed) for each in (False, True))
        await plain.settle()
        await background.settle()
        assert background.decisions == plain.decisions, seed
        moved += background.used()
    assert moved > 8


@pytest.mark.parametrize("kind", KINDS)
async def test_a_copy_that_dies_changes_no_decision(kind: str) -> None:
    """If every copy is killed, the attempt runs with the state frozen."""
    for seed in range(4):
        plain = _filled(Run.begun(in_background=False), kind, seed)
        killed = _filled(Run.begun(in_background=True, kills=lambda _: True), kind, seed)
        await plain.settle()
        await killed.settle()
        assert killed.decisions == plain.decisions, seed
        counts = killed.counts
        assert (counts.used, counts.lost) == (0, counts.started)


async def test_pods_are_decided_during_a_search() -> None:
    """While the copy searches for a gang, a pod is bound that the gang does not need to wait for."""
    run = _filled(Run.begun(in_background=True), "gang", 1)
    bound: list[bool] = []

    def meanwhile() -> None:
        run.made.add(node("spare", labels={"spare": "yes"}), pod("other", node_selector={"spare": "yes"}))

    async with run.made.running():
        await run.made.until(lambda: run.processes is not None and run.processes.count > 0)
        meanwhile()
        await run.made.until(lambda: "other" in run.made.bound)
        bound.append(run.made.queue.readings.in_flight_count > 0)
    assert bound == [True]
    assert not run.made.context.suspension.is_on


def _changes(made: Rig, draw: random.Random) -> None:
    """Change what the search of a copy has read."""
    for _ in range(draw.randint(1, 4)):
        number = draw.randrange(30)
        match draw.randrange(5):
            case 0:
                row = made.columns.row_of(f"n{number}")
                gone = made.columns.nodes[row]
                if row >= 0 and gone is not None:
                    made.scheduler.feed.node_deleted(gone)
            case 1:
                row = made.columns.row_of(f"n{number}")
                for info in list(made.columns.pods[row].values())[:1]:
                    made.scheduler.feed.pod_deleted(info.pod)
            case 2:
                made.add(pod(f"other{draw.random()}", requests={"cpu": "3"}, priority=30))
            case 3:
                waiting = [queued for _, queued in made.queue.readings.places() if queued.info.pod.metadata.name != ""]
                made.scheduler.feed.pod_deleted(draw.choice(waiting).info.pod)
            case 4:
                name = f"late{draw.random()}"
                made.add(member(name, GANG, priority=9, requests={"cpu": "1"}))


@pytest.mark.parametrize("kind", KINDS)
async def test_results_that_do_not_hold_are_not_used(kind: str) -> None:
    """If nodes, pods and members change meanwhile, nothing stays assumed, no node is overcommitted, no pod is lost."""
    outdated = used = 0
    for seed in range(15):
        run, draw = _filled(Run.begun(in_background=True), kind, seed), random.Random(f"changes/{kind}/{seed}")
        await run.settle(partial(_changes, run.made, draw))
        made, nodes = run.made, run.made.columns
        assert (nodes.requested <= nodes.allocatable)[:, nodes.alive].all(), seed
        bound = list(made.bound)
        assert len(bound) == len({binding.name for binding in made.writer.bindings}), seed
        gangs = [gang for gang in made.queue.gangs.units() if gang.group is not None and gang.waiting]
        assert not any(gang.placed and len(gang.placed) < gang.group.min_member for gang in gangs if gang.group), seed
        assert cluster_state(made.context)["assumed"] == len(bound), seed
        counts = made.context.background.counts
        outdated, used = outdated + counts.outdated, used + counts.used
    assert outdated
    assert used


def _full_nodes(made: Rig, count: int = 30, pods: int = 8) -> None:
    """Add nodes of 8 CPUs that running pods use."""
    for number in range(count):
        made.add(node(f"n{number}", labels={"kubernetes.io/hostname": f"n{number}"}, allocatable=EIGHT))
        for each in range(pods):
            made.add(running_pod(f"v{number}-{each}", f"n{number}"))


def _add_gang(made: Rig, count: int = 20, milli: int = 500, topology: GroupTopology | None = None) -> None:
    """Add a gang whose members are all of different classes."""
    add_groups(made, group(GANG, count, priority=9, topology=topology))
    for number in range(count):
        made.add(member(f"m{number}", GANG, priority=9, requests={"cpu": f"{milli + number}m"}))


class OwnPreemption(DefaultPreemption):
    """Preemption that is not built in."""

    name = "OwnPreemption"
    may_fork = True


def _with_own_preemption(slice_steps: int) -> Run:
    defaults, own = default_plugins(), PluginEntry(name="OwnPreemption")
    entries = tuple(own if each.name == "DefaultPreemption" else each for each in defaults.multi_point.enabled)
    replaced = defaults.model_copy(update={"multi_point": PluginSet(enabled=entries)})
    run = Run.begun(in_background=True, slice_steps=slice_steps, plugins=[OwnPreemption], defaults=replaced)
    _full_nodes(run.made)
    _add_gang(run.made)
    return run


@pytest.mark.parametrize("slice_steps", [40, 150, 300, 600, 1000, 1500])
async def test_a_search_does_not_move_within_a_plugin_that_is_not_built_in(slice_steps: int) -> None:
    """The plugin could catch what ends the attempt; the gang preempts as with the built-in plugin."""
    run = _with_own_preemption(slice_steps)
    await run.settle()
    (gang,) = run.made.queue.gangs.units()
    assert gang.outcome is not None
    assert "raised" not in gang.outcome.message
    assert run.made.writer.deletions


async def test_a_cancellation_within_a_plugin_that_is_not_built_in_ends_the_scheduling_loop() -> None:
    """The cancellation arrives where a slice ends; it is no error of the plugin."""
    run = _with_own_preemption(40)
    instance, suspension = run.made.context.profiles.get("default-scheduler"), run.made.context.suspension
    assert instance is not None
    async with run.made.running():
        await run.until_moved()
        run.made.clock.advance(1.0)
        await run.made.until(lambda: suspension.is_on and instance.is_in_plugin)
    assert not suspension.is_on


def _relabeled(run: Run) -> None:
    """Let the nodes with room be a domain."""
    for number in range(30):
        old = run.made.node(f"n{number}")
        labels = {**old.metadata.labels, "zone": "large"}
        run.made.scheduler.feed.node_updated(old, replace(old, metadata=replace(old.metadata, labels=labels)))


EVENTS: dict[str, tuple[Callable[[Run], None], int, GroupTopology | None]] = {
    "activation": (lambda run: run.made.queue.activate([run.entry.uid]), 9000, None),
    "activation of a member": (lambda run: run.made.queue.activate(["uid-of-default-m3"]), 9000, None),
    "swapped profile": (lambda run: run.made.queue.profile_changed("default-scheduler"), 9000, None),
    "changed label of domains": (_relabeled, 500, GroupTopology("zone", is_required=True)),
}


@pytest.mark.parametrize("event", EVENTS)
async def test_a_gang_is_retried_after_what_happens_during_its_search(event: str) -> None:
    """The result rejects the gang, and what queueing hints do not cover requeues it all the same."""
    happens, milli, topology = EVENTS[event]
    run = Run.begun(in_background=True)
    _full_nodes(run.made, pods=0)
    for number in range(6):
        run.made.add(node(f"z{number}", labels={"zone": f"z{number % 2}"}, allocatable={"cpu": "1", "pods": "110"}))
    _add_gang(run.made, milli=milli, topology=topology)
    async with run.made.running():
        await run.until_moved()
        entry = run.entry
        assert (entry.place, entry.attempts) == (Place.IN_FLIGHT, 1)
        happens(run)
        await run.step(2)
        assert run.counts.outdated == 0
        assert entry.attempts > 1


@table(
    "group",
    ("root requires a second group", composite_group("root", 2, priority=9)),
    ("branch requires a second group", composite_group("branch", 2, "root", priority=9)),
    ("leaf requires more members", leaf_group("leaf0", "branch", 21)),
)
async def test_quorums_that_change_during_the_search_of_a_tree(group: PodGroup | CompositePodGroup) -> None:
    """The result places the members by an earlier quorum, and is not used."""
    run = Run.begun(in_background=True)
    _full_nodes(run.made, pods=0)
    add_groups(run.made, composite_group("root", priority=9), composite_group("branch", 1, "root", priority=9))
    add_groups(run.made, leaf_group("leaf0", "branch", 20), leaf_group("leaf1", "branch", 3))
    for leaf, count, cpu in (("leaf0", 20, "500m"), ("leaf1", 3, "9")):
        run.made.add(*(pod(f"{leaf}-{each}", group=leaf, priority=9, requests={"cpu": cpu}) for each in range(count)))
    async with run.made.running():
        await run.until_moved()
        add_groups(run.made, group)
        await run.step(12)
        assert run.counts.outdated == 1
        assert not run.made.bound


def _delete(run: Run, name: str) -> None:
    columns = run.made.columns
    (info,) = (each for pods in columns.pods for each in pods.values() if each.pod.metadata.name == name)
    run.made.scheduler.feed.pod_deleted(info.pod)


def _add_room(run: Run) -> None:
    for number in range(5):
        run.made.add(node(f"new{number}", allocatable={"cpu": "64", "pods": "110"}))


def _grow(run: Run) -> None:
    old = run.made.node("n29")
    status = replace(old.status, allocatable={**old.status.allocatable, "cpu": "64"})
    run.made.scheduler.feed.node_updated(old, replace(old, status=status))


def _end_pods(run: Run) -> None:
    for each in range(8):
        _delete(run, f"v29-{each}")


def _protect(run: Run) -> None:
    run.made.scheduler.workload_feed.added(budget("guard", {"app": "web"}, allowed=0))


ELSEWHERE = {
    "a disruption budget is added": _protect,
    "nodes are added": _add_room,
    "a node grows": _grow,
    "pods elsewhere end": _end_pods,
}


@pytest.mark.parametrize("event", ELSEWHERE)
async def test_a_preemption_is_planned_again_after_a_change_elsewhere(event: str) -> None:
    """Room that appears during the search saves the victims that it saves before the search."""
    happens, victims = ELSEWHERE[event], list[int]()
    for in_background in (False, True):
        run = Run.begun(in_background=in_background)
        _full_nodes(run.made)
        _add_gang(run.made)
        if not in_background:
            happens(run)
        async with run.made.running():
            if in_background:
                await run.until_moved()
                happens(run)
            await run.step(12)
            victims.append(len(run.made.writer.deletions))
            if in_background:
                assert run.counts.outdated == 1
    assert victims[1] <= victims[0]


class NoQuota(PermitPlugin):
    """Permit plugin that refuses all pods."""

    name = "NoQuota"
    may_fork = True

    def permit(self, state: object, pod: object, node_name: str) -> PermitResult:
        """Refuse the pod."""
        return PermitResult(Status(Code.UNSCHEDULABLE, ("no quota",)))


async def test_a_gang_that_permit_refuses_is_searched_once_elsewhere() -> None:
    """The attempt then runs with the state frozen, as a second copy would find the same nodes."""
    entries = (*default_plugins().multi_point.enabled, PluginEntry(name="NoQuota"))
    refusing = Plugins(multi_point=PluginSet(enabled=entries))
    run = Run.begun(in_background=True, plugins=[NoQuota], defaults=refusing)
    _full_nodes(run.made, pods=0)
    _add_gang(run.made)
    async with run.made.running():
        await run.until_moved()
        await run.made.until(lambda: run.entry.attempts == 1)
        run.made.clock.advance(1.0)
        await run.made.until(lambda: run.entry.attempts > 1 or run.entry.place is not Place.IN_FLIGHT)
        assert run.processes is not None
        assert run.processes.count == 1


class NoProcesses:
    """Processes that cannot be started."""

    count = 0

    def fork(self, done: object) -> None:
        """Raise the error of a system without memory."""
        self.count += 1
        raise OSError(errno.ENOMEM, "no memory")

    def stop(self) -> None:
        """Do nothing."""


async def test_one_process_is_tried_in_an_attempt() -> None:
    """If it cannot be started, the attempt runs with the state frozen, without a try and a warning in each slice."""
    processes = NoProcesses()
    ports = SchedulerPorts(journal=Slices(SLICE), processes=processes)
    options = SchedulerOptions(attempt_steps=NO_LIMIT >> 20)
    made = default_rig(options=options, ports=ports, groups=GroupSource)
    _full_nodes(made, pods=0)
    _add_gang(made)
    async with made.running():
        await made.until(lambda: len(made.bound) == 20)
    assert processes.count == 1


def _add_infeasible_gang(made: Rig, name: str, priority: int) -> None:
    add_groups(made, group(name, 12, priority=priority))
    for number in range(12):
        made.add(member(f"{name}{number}", name, priority=priority, requests={"cpu": f"{9000 + number}m"}))


def _has_in_flight(made: Rig, count: int) -> bool:
    return made.queue.readings.in_flight_count == count


async def test_searches_that_wait_begin_in_the_order_of_the_queue() -> None:
    """Among gangs whose searches wait for another one, the priority decides, not the arrival."""
    run = Run.begun(in_background=True)
    made, begun = run.made, run.counts
    _full_nodes(made, pods=0)
    async with made.running():
        for count, (name, priority) in enumerate((("first", 30), ("low", 1), ("middle", 5)), 1):
            _add_infeasible_gang(made, name, priority)
            await made.until(partial(_has_in_flight, made, count))
        assert begun.started == 1
        searched = [gang for gang in made.queue.gangs.units() if gang.key.name != "first"]
        before = {gang.key.name: gang.last_attempt for gang in searched}
        made.clock.advance(1.0)
        await made.until(lambda: begun.started == 2)
        assert next(gang.key.name for gang in searched if gang.last_attempt != before[gang.key.name]) == "middle"


async def test_a_result_whose_cycle_raises_before_it_begins_ends_its_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """No attempt stays in flight for the revision of the profile, and the gang is tried again."""
    run, draw = Run.begun(in_background=True), random.Random(1)
    _nodes(run.made, draw)
    _gang(run.made, draw)
    errors: list[BaseException] = [MemoryError()]
    async with run.made.running():
        await run.until_moved()
        monkeypatch.setattr(StepCounter, "begin_attempt", raising(errors, StepCounter.begin_attempt))
        await run.step(8)
    assert not errors
    assert [instance.in_flight for instance in run.made.context.profiles] == [0]
    assert run.made.bound


@table("may_fork", ("allowed", True), ("by default not", False))
def test_a_profile_with_another_plugin_moves_no_search_by_default(
    monkeypatch: pytest.MonkeyPatch, may_fork: bool
) -> None:
    """What a plugin that is not built in stores or activates in a copy would be lost, so it must allow copies."""
    monkeypatch.setattr(NoQuota, "may_fork", may_fork)
    made = rig(plugins=[NoQuota])
    assert next(iter(made.scheduler.context.profiles)).may_fork is may_fork


async def test_a_copy_that_cannot_be_prepared_ends() -> None:
    """It would continue as a second scheduler."""

    class Ended(BaseException):
        """The end of the copy."""

    def end(result: bytes | None) -> NoReturn:
        assert result is None
        raise Ended

    def fail() -> None:
        raise MemoryError

    made = rig()
    background, queued = made.context.background, QueuedPod(made.columns.compile_pod(pod("p")), 0.0, 0)
    background._processes = SimpleNamespace(fork=lambda _done: end)
    background._attempt = queued, SimpleNamespace(may_move=lambda: True, kind=lambda: "kind")
    background.on_copy.append(fail)
    with pytest.raises(Ended):
        background._move()
