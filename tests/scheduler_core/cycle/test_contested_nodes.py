"""Contested nodes: what contests a node, what is stored about it, and that pods avoid it for a while."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np
import pytest

from scheduler_core.cycle import contested_nodes
from scheduler_core.cycle.contested_nodes import CONTESTED_SECONDS, HELD_SECONDS, OTHER_RIVALS, is_overcommitted
from scheduler_core.errors import BoundElsewhereError
from scheduler_core.model.pod import Pod
from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import node, pod
from tests.support.gang_preemption import with_pod_groups
from tests.support.gangs import add_groups, group, members
from tests.support.presence import present
from tests.support.scheduling import Rig, default_rig, rig

AVOIDED_SECONDS = 10.0


def of_rival(name: str, node_name: str, cpu: str = "1", scheduler: str = "rival") -> Pod:
    """Return a pod that another scheduler has bound."""
    return pod(name, requests={"cpu": cpu}, node_name=node_name, scheduler_name=scheduler)


def scheduling(*, avoided_seconds: float = AVOIDED_SECONDS, reuses: bool = True) -> Rig:
    """Return a scheduler with the default plugins that schedules."""
    options = SchedulerOptions(contested_node_seconds=avoided_seconds, reuses_results=reuses)
    made = default_rig(options=options)
    made.context.contested.is_scheduling = True
    return made


def contested_names(made: Rig) -> list[str]:
    """Return the names of the contested nodes, the last one first."""
    return [each.name for each in made.context.contested.current()]


@dataclass
class Binding:
    """Attempt whose binding cycle runs as a task.

    Attributes:
        node_name: The chosen node.
    """

    node_name: str
    task: asyncio.Task[bool]

    @property
    def is_held(self) -> bool:
        return not self.task.done()


async def started(made: Rig, name: str, cpu: str = "1") -> Binding:
    """Schedule a pod, and let its binding cycle run until it waits or ends."""
    made.add(pod(name, requests={"cpu": cpu}))
    attempt = present(made.decide())
    task = asyncio.create_task(made.scheduler.cycles.binding.bind(attempt))
    for _ in range(20):
        await asyncio.sleep(0)
    return Binding(attempt.node_name, task)


async def overcommitted(made: Rig, name: str = "busy") -> None:
    """Bind a pod to a node of one CPU, and let a rival bind another one there."""
    made.add(node(name, allocatable={"cpu": "1", "pods": "10"}))
    ours = await started(made, f"ours-{name}")
    made.clock.advance(HELD_SECONDS)
    assert await ours.task
    assert ours.node_name == name
    made.add(of_rival(f"theirs-{name}", name))


async def test_a_bind_of_a_rival_that_overcommits_a_node_contests_it() -> None:
    """The node is stored with the rival, its pod, and the profile that has pods there."""
    made = scheduling()
    await overcommitted(made)
    (found,) = made.context.contested.current()
    assert (found.name, found.rivals, list(found.pods), found.count) == ("busy", ["rival"], ["default/theirs-busy"], 1)
    assert found.profiles == {"default-scheduler"}
    assert found.since == found.last == made.clock.wall()
    assert made.context.contested.by_rival() == made.context.contested.counts == {"rival": 1}
    assert is_overcommitted(made.columns, "busy")


@pytest.mark.parametrize(
    ("cpu", "allocatable"),
    [("1", {"cpu": "2", "pods": "10"}), ("0", {"cpu": "1", "pods": "10"})],
    ids=["there is room", "the pod requests nothing"],
)
def test_a_bind_that_fits_contests_no_node(cpu: str, allocatable: dict[str, str]) -> None:
    """Other schedulers may bind pods to nodes with room."""
    made = scheduling()
    made.add(node("n", allocatable=allocatable), of_rival("first", "n"), of_rival("second", "n", cpu))
    assert contested_names(made) == []
    assert not made.context.contested.avoided


def test_a_pod_too_many_contests_a_node() -> None:
    """The number of pods counts like a resource."""
    made = scheduling()
    made.add(
        node("n", allocatable={"cpu": "1", "pods": "1"}), of_rival("first", "n", "0"), of_rival("second", "n", "0")
    )
    assert contested_names(made) == ["n"]


def test_the_first_list_contests_no_node() -> None:
    """Before the scheduler runs, the order of pods does not show which one came last."""
    made = scheduling()
    made.context.contested.is_scheduling = False
    made.add(node("n", allocatable={"cpu": "1", "pods": "10"}), of_rival("first", "n"), of_rival("second", "n"))
    assert contested_names(made) == []
    assert is_overcommitted(made.columns, "n")


async def test_running_begins_to_observe() -> None:
    """The scheduling loop sets what the tests above set by hand."""
    made = rig()
    async with made.running():
        await made.until(lambda: made.context.contested.is_scheduling)


async def test_reduced_allocatable_amounts_contest_no_node() -> None:
    """A node that shrinks is overcommitted without a rival; a later version of a pod there changes nothing."""
    made = scheduling()
    large, small = (node("n", allocatable={"cpu": cpu, "pods": "10"}) for cpu in ("2", "1"))
    theirs = of_rival("theirs", "n")
    made.add(large, pod("ours", requests={"cpu": "1"}))
    assert await made.attempt() == "n"
    made.add(theirs)
    made.scheduler.feed.node_updated(large, small)
    made.scheduler.feed.pod_updated(theirs, of_rival("theirs", "n"))
    assert is_overcommitted(made.columns, "n")
    assert contested_names(made) == []


async def test_a_confirmed_bind_contests_no_node() -> None:
    """A pod of this process is no rival's, even if the node has shrunk between the bind and the watch event."""
    made = scheduling()
    large, small = (node("n", allocatable={"cpu": cpu, "pods": "10"}) for cpu in ("1", "500m"))
    ours = pod("ours", requests={"cpu": "1"})
    made.add(large, ours)
    assert await made.attempt() == "n"
    made.scheduler.feed.node_updated(large, small)
    made.scheduler.feed.pod_updated(ours, pod("ours", requests={"cpu": "1"}, node_name="n"))
    assert contested_names(made) == []


async def test_a_lost_bind_can_contest_the_rivals_node() -> None:
    """The rival is another client that binds pods of this profile's name."""
    made = scheduling()
    made.add(node("full", allocatable={"cpu": "1", "pods": "10"}), of_rival("first", "full"))
    made.add(node("free", allocatable={"cpu": "1", "pods": "10"}), pod("ours", requests={"cpu": "1"}))
    made.writer.fail_binds([BoundElsewhereError("bound already", "full")])
    assert not await made.attempt()
    (found,) = made.context.contested.current()
    assert (found.name, found.rivals, list(found.pods)) == ("full", ["default-scheduler"], ["default/ours"])


async def test_a_node_is_contested_for_a_while() -> None:
    """The duration is from the last bind that overcommitted the node; then it begins again."""
    made = scheduling()
    await overcommitted(made)
    since = made.clock.wall()
    made.clock.advance(CONTESTED_SECONDS - 1)
    made.add(of_rival("more", "busy"))
    made.clock.advance(CONTESTED_SECONDS - 1)
    (found,) = made.context.contested.current()
    assert (found.since, found.count, list(found.pods)) == (since, 2, ["default/theirs-busy", "default/more"])
    made.clock.advance(1)
    assert contested_names(made) == []
    assert made.context.contested.by_rival() == {"rival": 0}
    made.add(of_rival("again", "busy"))
    (found,) = made.context.contested.current()
    assert (found.since, found.count) == (made.clock.wall(), 1)


async def test_a_removed_node_is_not_contested() -> None:
    """A node that returns under the same name is another one."""
    made = scheduling()
    await overcommitted(made)
    made.scheduler.feed.node_deleted(node("busy"))
    assert contested_names(made) == []
    assert not made.context.contested.avoided


async def test_what_is_stored_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node that was overcommitted longest ago is dropped; the names of rivals beyond the limit are one."""
    monkeypatch.setattr(contested_nodes, "MAX_NODES", 2)
    monkeypatch.setattr(contested_nodes, "MAX_RIVALS", 2)
    made = scheduling()
    for name in ("a", "b"):
        await overcommitted(made, name)
    made.add(of_rival("again", "a", scheduler="second"))
    await overcommitted(made, "c")
    assert contested_names(made) == ["c", "a"]
    assert set(made.context.contested.avoided) == {"c", "a"}
    for number in range(20):
        made.add(of_rival(f"more{number}", "c", scheduler=f"scheduler-{number}"))
    found = made.context.contested.current()[0]
    assert (found.rivals, found.count, len(found.pods)) == (["rival", OTHER_RIVALS], 21, 5)
    assert made.context.contested.counts == {"rival": 3, "second": 1, OTHER_RIVALS: 20}


def with_pods_that_end(made: Rig) -> None:
    """Let the kubelet of the contested node reject both pods, so that the node has the most room."""
    for name, scheduler in (("ours-busy", "default-scheduler"), ("theirs-busy", "rival")):
        made.scheduler.feed.pod_deleted(of_rival(name, "busy", scheduler=scheduler))


async def attempts(made: Rig, *names: str) -> list[str]:
    """Schedule pods of one class; return their nodes."""
    found = []
    for name in names:
        made.add(pod(name, requests={"cpu": "100m"}))
        found.append(await made.attempt())
    return found


@pytest.mark.parametrize("reuses", [True, False])
async def test_pods_avoid_a_contested_node_for_a_while(*, reuses: bool) -> None:
    """The node with the best score is avoided until no rival has bound a pod there for the set time."""
    made = scheduling(reuses=reuses)
    await overcommitted(made)
    with_pods_that_end(made)
    for name in ("other", "third"):
        made.add(node(name, allocatable={"cpu": "1", "pods": "10"}), of_rival(f"{name}-load", name, "500m"))
    assert "busy" not in await attempts(made, "a", "b", "c")
    made.clock.advance(AVOIDED_SECONDS - 1)
    # It fits, and is a bind of the rival nevertheless.
    made.add(of_rival("small", "busy", "10m"))
    made.clock.advance(AVOIDED_SECONDS - 1)
    assert "busy" not in await attempts(made, "d", "e")
    made.clock.advance(1)
    assert await attempts(made, "f", "g") == ["busy", "busy"]


async def test_a_contested_node_is_used_if_only_such_nodes_are_feasible() -> None:
    """No pod waits because of a rival."""
    made = scheduling()
    await overcommitted(made)
    with_pods_that_end(made)
    assert await attempts(made, "a", "b", "c") == ["busy"] * 3


async def test_the_rows_of_avoided_nodes_follow_changes() -> None:
    """Rows that were determined for one decision are not used for nodes that came, ended or returned since then."""
    made = scheduling()
    contested, columns = made.context.contested, made.columns

    def avoided() -> set[str]:
        rows = np.flatnonzero(columns.alive)
        return {columns.node_name(row) for row in rows[~contested.others(rows)].tolist()}

    await overcommitted(made, "a")
    assert avoided() == {"a"}
    await overcommitted(made, "b")
    assert avoided() == {"a", "b"}
    made.scheduler.feed.node_deleted(node("a"))
    made.add(node("other"), node("a"))
    assert avoided() == {"b"}
    made.clock.advance(AVOIDED_SECONDS)
    assert avoided() == set()


async def test_without_the_setting_contested_nodes_have_no_effect_on_decisions() -> None:
    """With 0 the node with the best score is chosen, as kube-scheduler does."""
    made = scheduling(avoided_seconds=0.0)
    await overcommitted(made)
    with_pods_that_end(made)
    made.add(node("other", allocatable={"cpu": "1", "pods": "10"}), of_rival("load", "other", "500m"))
    assert contested_names(made) == ["busy"]
    assert await attempts(made, "a", "b") == ["busy", "busy"]


async def test_an_explanation_agrees() -> None:
    """A dry run avoids contested nodes as the attempt does, and shows the scores that plugins gave."""
    made = scheduling()
    await overcommitted(made)
    with_pods_that_end(made)
    made.add(node("other", allocatable={"cpu": "1", "pods": "10"}), of_rival("load", "other", "500m"))
    instance = present(made.context.profiles.get("default-scheduler"))
    info = made.columns.compile_pod(pod("waits", requests={"cpu": "100m"}))
    found = made.scheduler.cycles.examiner.examine(instance, info)
    totals = dict(zip(found.feasible, found.totals.tolist(), strict=True))
    assert totals["busy"] > totals["other"]
    assert (found.node, found.best) == ("other", ("other",))


async def contested_with_free(*names: str, cpu: str = "1") -> Rig:
    """Return a scheduler with a contested node that is full, and free nodes."""
    made = scheduling()
    await overcommitted(made)
    made.add(*(node(name, allocatable={"cpu": cpu, "pods": "10"}) for name in names))
    return made


async def test_every_second_bind_that_fills_a_node_is_held() -> None:
    """If no rival takes the room, the pod is bound after the stated time; the next pod does not wait."""
    made = await contested_with_free("a", "b", "c")
    first = await started(made, "first")
    second = await started(made, "second")
    third = await started(made, "third")
    assert (first.is_held, second.is_held, third.is_held) == (True, False, True)
    assert made.context.idle_binds.count == 2
    made.clock.advance(HELD_SECONDS)
    assert await first.task
    assert await second.task
    assert await third.task
    assert {each.node_name for each in (first, second, third)} == {"a", "b", "c"}
    assert made.context.idle_binds.count == 0


async def test_a_held_pod_gives_up_room_that_a_rival_takes() -> None:
    """No bind is sent, nothing is overcommitted or counted, and the pod is retried after backoff."""
    made = await contested_with_free("free")
    binds, counts = len(made.writer.bindings), dict(made.context.contested.counts)
    ours = await started(made, "ours")
    made.add(of_rival("theirs", "free"))
    made.clock.advance(HELD_SECONDS)
    assert not await ours.task
    assert len(made.writer.bindings) == binds
    assert not is_overcommitted(made.columns, "free")
    assert (made.context.contested.counts, contested_names(made)) == (counts, ["busy"])
    waits = pod("ours", requests={"cpu": "1"})
    assert made.place_of(waits) == "errorBackoff"
    assert present(made.writer.patches[-1].condition).message == "another scheduler has taken the room on node free"


@pytest.mark.parametrize(
    ("cpu", "is_bound", "is_reported"), [("1", True, False), ("2", False, False), ("3", False, True)]
)
async def test_a_held_pod_gives_up_only_what_a_rival_needs(cpu: str, *, is_bound: bool, is_reported: bool) -> None:
    """A rival's pod that fits beside it costs it nothing, and one that exceeds the node without it is reported."""
    made = scheduling()
    await overcommitted(made)
    made.add(node("free", allocatable={"cpu": "2500m", "pods": "10"}))
    ours = await started(made, "ours", cpu="1300m")
    assert ours.is_held
    made.add(of_rival("theirs", "free", cpu))
    made.clock.advance(HELD_SECONDS)
    assert await ours.task is is_bound
    assert ("free" in contested_names(made)) is is_reported


async def test_a_held_pod_gives_up_no_room_of_which_a_rival_exceeds_nothing() -> None:
    """The rival's pod exceeds the memory, of which the held pod requests none."""
    made = scheduling()
    await overcommitted(made)
    made.add(node("free", allocatable={"cpu": "1", "memory": "1Gi", "pods": "10"}))
    ours = await started(made, "ours")
    assert ours.is_held
    made.add(pod("theirs", node_name="free", requests={"memory": "2Gi"}, scheduler_name="rival"))
    made.clock.advance(HELD_SECONDS)
    assert await ours.task
    assert "free" in contested_names(made)


async def test_a_rival_whose_pod_ends_leaves_the_room() -> None:
    """A pod that has given up its room is retried, although the rival frees the room again."""
    made = await contested_with_free("free")
    ours = await started(made, "ours")
    theirs = of_rival("theirs", "free")
    made.add(theirs)
    made.scheduler.feed.pod_deleted(theirs)
    made.clock.advance(HELD_SECONDS)
    assert not await ours.task


@pytest.mark.parametrize("what", ["no contested node", "without the setting", "room for another pod"])
async def test_other_binds_are_not_held(what: str) -> None:
    """Binds are held only while a node is contested, by pods that fill their node."""
    made = scheduling(avoided_seconds=0.0 if what == "without the setting" else AVOIDED_SECONDS)
    if what != "no contested node":
        await overcommitted(made)
    made.add(node("free", allocatable={"cpu": "3" if what == "room for another pod" else "1", "pods": "10"}))
    assert not (await started(made, "ours")).is_held


async def test_binds_of_a_gang_are_not_held() -> None:
    """A member that gave up its room would leave a part of the gang bound."""
    made = with_pod_groups(await contested_with_free("a", "b"))
    add_groups(made, group())
    made.add(*members(2))
    async with made.running():
        await made.until(lambda: len(made.bound) == 3)
    assert set(made.bound.values()) == {"busy", "a", "b"}
