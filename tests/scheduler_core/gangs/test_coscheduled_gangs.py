"""Gangs in a profile with Coscheduling, from the queue to the bind, and the groups that plugins see."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import msgspec

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.gangs.group_views import GangViews
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup
from tests.support.builders import PodFields, node, pod
from tests.support.gang_preemption import terminating_pod
from tests.support.presence import present
from tests.support.scheduling import BARE, Rig, configured, plugin_set, rig
from tests.support.tables import table

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OWN_ORDER = Plugins(multi_point=plugin_set("NodeResourcesFit", "Coscheduling", "DefaultBinder"))
OTHER_ORDER = Plugins(
    multi_point=plugin_set("NodeResourcesFit", "Coscheduling", *BARE), queue_sort=plugin_set(disabled=["Coscheduling"])
)
"""Plugins whose queue is ordered by another plugin than Coscheduling."""


def _rig(plugins: Plugins = OTHER_ORDER, **args: object) -> Rig:
    made = rig(defaults=Plugins(), serve=False, groups=[GroupSource.BAYPLAN])
    made.serve(configured("default-scheduler", "Coscheduling", args, plugins))
    return made


def _group(made: Rig, name: str, min_member: int) -> None:
    key = GroupKey(GroupSource.BAYPLAN, "default", name)
    made.scheduler.group_feed.group_changed(PodGroup(key, f"uid-of-{name}", min_member))


def _member(group: str, index: int, cpu: int = 1, **fields: object) -> Pod:
    labels = {"bayplan.dev/pod-group": group}
    pod_fields = PodFields(labels=labels, requests={"cpu": cpu}, **fields)  # type: ignore[typeddict-item]  # any field
    return pod(f"{group}-{index}", **pod_fields)


def _rig_with_gang(cpu: int, min_member: int, plugins: Plugins = OTHER_ORDER, **args: object) -> Rig:
    """Return a scheduler with one node and a gang of as many members as it needs, with one CPU each."""
    made = _rig(plugins, **args)
    made.add(node("n", allocatable={"cpu": cpu, "pods": 10}))
    _group(made, "train", min_member)
    made.add(*(_member("train", index) for index in range(min_member)))
    return made


async def _run(made: Rig, rounds: int = 200) -> None:
    """Run the scheduler without advancing the clock."""
    async with made.running():
        for _ in range(rounds):
            await asyncio.sleep(0)


async def _run_for(made: Rig, seconds: int) -> None:
    """Run the scheduler while time passes, second by second."""
    confirmed: set[str] = set()
    async with made.running():
        for _ in range(seconds):
            made.clock.advance(1)
            for _ in range(50):
                await asyncio.sleep(0)
            for name, node_name in made.bound.items():
                if name not in confirmed:
                    confirmed.add(name)
                    _confirm(made, name, node_name)


def _confirm(made: Rig, name: str, node_name: str) -> None:
    """Deliver the watch event of a bind."""
    placed = next(each.info.pod for each in made.context.cache.placed_pods() if each.info.pod.metadata.name == name)
    bound = msgspec.structs.replace(placed, spec=msgspec.structs.replace(placed.spec, node_name=node_name))
    made.scheduler.feed.pod_updated(placed, bound)


@table("plugins", ("own order", OWN_ORDER), ("order of another plugin", OTHER_ORDER))
async def test_a_gang_that_fits_is_bound_at_once(plugins: Plugins) -> None:
    """A feasible gang is bound without waiting for a backoff or a flush (#125, #364, #397, #450)."""
    made = _rig_with_gang(4, 3, plugins)
    await _run(made)
    assert sorted(made.bound) == ["train-0", "train-1", "train-2"]


async def test_members_below_the_quorum_are_not_attempted() -> None:
    """Members are gated until the last member is created, and are attempted then (#450, #682)."""
    made = _rig()
    made.add(node("n", allocatable={"cpu": 4, "pods": 10}))
    _group(made, "train", 3)
    members = [_member("train", index) for index in range(3)]
    made.add(*members[:2])
    await _run(made)
    assert [made.place_of(member) for member in members[:2]] == ["gated", "gated"]
    queued = present(made.queue.find(members[0].metadata.uid))
    assert (queued.attempts, queued.gated_by) == (0, "Coscheduling")
    made.add(members[2])
    await _run(made)
    assert len(made.bound) == 3


async def test_a_gang_that_does_not_fit_holds_nothing() -> None:
    """The infeasible member makes Permit reject the others, and their capacity is free for other pods (#930)."""
    made = _rig_with_gang(2, 3)
    await _run(made)
    assert (made.bound, len(made.context.waiting), made.context.cache.placed_pods()) == ({}, 0, [])
    made.add(pod("alone", requests={"cpu": 2}))
    await _run(made)
    assert made.bound == {"alone": "n"}


async def test_capacity_for_the_missing_member_requeues_the_gang() -> None:
    """The member that becomes feasible activates its siblings."""
    made = _rig_with_gang(2, 3)
    await _run(made)
    made.add(node("m", allocatable={"cpu": 1, "pods": 10}))
    await _run_for(made, 30)
    assert len(made.bound) == 3


@table("plugins", ("own order", OWN_ORDER), ("order of another plugin", OTHER_ORDER))
@table("percentage", ("rejected", 10), ("timeout", 100))
async def test_two_gangs_that_do_not_both_fit(plugins: Plugins, percentage: int) -> None:
    """One is bound as a whole, and no member of the other stays assumed, in any order of members (#114, #117)."""
    made = _rig(plugins, podGroupRejectPercentage=percentage, permitWaitingTimeSeconds=20)
    made.add(node("n", allocatable={"cpu": 3, "pods": 10}))
    _group(made, "a", 2)
    _group(made, "b", 2)
    for index in range(2):
        made.add(_member("a", index), _member("b", index))
    await _run_for(made, 120)
    assert sorted(made.bound) in (["a-0", "a-1"], ["b-0", "b-1"])
    assert made.columns.requested[0].max() <= 3000
    attempts = sum(queued.attempts for _, queued in made.queue.readings.places())
    assert attempts <= 60, "capacity released by its own members requeues the other gang in a loop (#682)"


async def test_a_permit_timeout_rejects_the_whole_gang() -> None:
    """The first Permit timeout also rejects the other members of the gang."""
    made = _rig_with_gang(2, 3, podGroupRejectPercentage=100, permitWaitingTimeSeconds=20)
    await _run(made)
    assert len(made.context.waiting) == 2
    async with made.running():
        made.clock.advance(20)
        await made.until(lambda: not made.context.cache.placed_pods())
    assert made.bound == {}


async def test_a_member_after_its_permit_timeout_does_not_count() -> None:
    """A member whose Permit timeout has passed does not count for the quorum, although it is still assumed (#930)."""
    made = _rig_with_gang(4, 2)
    first = present(made.decide())
    made.clock.advance(60)
    second = present(made.decide())
    assert await made.scheduler.cycles.binding.bind(first) is False
    assert await made.scheduler.cycles.binding.bind(second) is False
    assert made.bound == {}


async def test_a_member_that_is_being_deleted_does_not_count() -> None:
    """A terminating member does not count for the quorum, because the API server would reject its bind."""
    made = _rig()
    made.add(node("n", allocatable={"cpu": 4, "pods": 10}))
    _group(made, "train", 2)
    members = [_member("train", index) for index in range(3)]
    made.add(*members)
    first = present(made.decide())
    made.scheduler.feed.pod_updated(first.info.pod, terminating_pod(first.info.pod))
    second = present(made.decide())
    assert made.context.waiting.get(second.info.uid) is not None
    third = present(made.decide())
    assert [await made.scheduler.cycles.binding.bind(attempt) for attempt in (first, second, third)] == [
        False,
        True,
        True,
    ]


def test_members_that_plugins_get_for_a_group() -> None:
    """Plugins get the members by state; pods of other namespaces and APIs belong to other groups."""
    made = _rig()
    made.add(node("n", allocatable={"cpu": 9, "pods": 10}))
    _group(made, "train", 3)
    queued, bound, ending = (
        _member("train", 0),
        _member("train", 1, node_name="n"),
        _member("train", 2, node_name="n", deleted=NOW),
    )
    done = _member("train", 3, node_name="n", phase="Succeeded")
    others = [_member("train", 4, namespace="elsewhere"), pod("native", group="train"), pod("plain")]
    made.add(queued, bound, ending, done, *others)
    groups = GangViews(made.context.cache, made.queue)
    view = present(groups.group_of(queued))
    assert (view.known, view.succeeded, view.group is not None) == (4, 1, True)
    assert [member.metadata.name for member in view.members()] == ["train-0", "train-1"]
    assert [info.pod.metadata.name for info in view.assigned()] == ["train-1"]
    assert [info.pod.metadata.name for info in view.waiting()] == ["train-0"]
    found = [groups.group_of(other) for other in others]
    assert [None if each is None else str(each.key) for each in found] == ["elsewhere/train", "default/train", None]
    assert groups.get(GroupKey(GroupSource.SCHEDULER_PLUGINS, "default", "train")) is None
