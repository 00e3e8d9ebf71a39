"""Room that is held, for admitted workloads and others: which pods it blocks, who takes it, and when it ends."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.dry_run_assembly import fit_search
from scheduler_core.fit.fit_search import FitAnswer, FitVerdict
from scheduler_core.fit.requests import FitRequest
from scheduler_core.gangs.held_room import (
    POD_SET_LABEL,
    WORKLOAD_LABEL,
    EndReason,
    HeldPod,
    HeldRoom,
    Holder,
    OwnPods,
    Terms,
    admitted_workload,
)
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.scheduler_options import SchedulerOptions
from tests.support.affinities import anti_affinity_to, app
from tests.support.builders import pod
from tests.support.gang_preemption import running_pod, small_node
from tests.support.gangs import group, settle
from tests.support.presence import present
from tests.support.scheduling import Rig, gang_rig
from tests.support.tables import table

JOB = admitted_workload("default", "job", "uid-of-job")
OTHER = admitted_workload("default", "other", "uid-of-other")
RESERVED = "node(s) were reserved for Workload default/job"


@pytest.fixture
def cluster() -> Rig:
    """Return a scheduler with two nodes of two CPUs."""
    return cluster_of(2, 2)


def cluster_of(*cpus: int, reuses: bool = True) -> Rig:
    """Return a scheduler with nodes of so many CPUs, named ``a``, ``b`` and so on."""
    return gang_rig(
        *(small_node(name, count) for name, count in zip("abcdef", cpus, strict=False)),
        options=SchedulerOptions(reuses_results=reuses),
    )


def pod_of(workload: Holder, name: str, cpus: int = 1, pod_set: str = "main", **fields: Any) -> Pod:
    """Return a pod of an admitted workload."""
    labels = {WORKLOAD_LABEL: workload.uid, POD_SET_LABEL: pod_set, **fields.pop("labels", {})}
    return pod(name, requests={"cpu": str(cpus)}, labels=labels, **fields)


def fit(made: Rig, *pods: Pod) -> FitAnswer:
    """Return whether pods that do not exist would fit."""
    return fit_search(made.context, made.scheduler.reservations).answer(FitRequest(pods=pods))


def hold(made: Rig, workload: Holder, *pods: Pod) -> bool:
    """Hold the room that a dry run finds for pods of a workload."""
    found = fit(made, *pods)
    chosen = found.chosen
    assert chosen is not None, found
    ends = frozenset(info.uid for info in (*chosen.victims, *chosen.awaited))
    slots = [
        HeldPod(info, info.pod.metadata.labels[POD_SET_LABEL], chosen.nodes[info.uid])
        for info in found.infos
        if info.uid in chosen.nodes
    ]
    room = HeldRoom(workload, slots, made.columns, Terms(ends, is_admitted=True))
    return made.scheduler.reservations.hold(room)


def pods_of(workload: Holder, count: int, cpus: int = 1, **fields: Any) -> list[Pod]:
    """Return pods of a workload as the dry run gets them."""
    return [pod_of(workload, f"fit-{workload.name}-{number}", cpus, **fields) for number in range(count)]


async def bound(made: Rig, *pods: Pod) -> dict[str, str]:
    """Add pods, schedule all that are active, and return the nodes by name."""
    made.add(*pods)
    for _ in range(len(pods)):
        if made.queue.readings.is_idle:
            break
        await made.attempt()
    return {each.metadata.name: made.bound.get(each.metadata.name, "") for each in pods}


@table(
    "later, expected",
    ("fits beside", {"requests": {"cpu": "1"}}, True),
    ("needs the room", {"requests": {"cpu": "2"}}, False),
    ("higher priority", {"requests": {"cpu": "2"}, "priority": 1}, True),
    (
        "higher priority of another admitted workload",
        {"requests": {"cpu": "2"}, "priority": 1, "labels": {WORKLOAD_LABEL: OTHER.uid}},
        False,
    ),
    (
        "label of the workload in another namespace",
        {"requests": {"cpu": "2"}, "namespace": "else", "labels": {WORKLOAD_LABEL: JOB.uid}},
        False,
    ),
)
async def test_pods_between_admission_and_the_pods(later: dict[str, Any], expected: bool) -> None:
    """Only pods that fit beside the held room get a node, and pods of higher priority."""
    cluster = cluster_of(3)
    assert hold(cluster, JOB, *pods_of(JOB, 2))
    found = await bound(cluster, pod("later", **later))
    assert (found["later"] == "a") is expected
    if not expected:
        assert RESERVED in cluster.condition.message


async def test_the_pods_get_the_room(cluster: Rig) -> None:
    """The pods of the workload are scheduled although others wait for the same room; then these get the rest."""
    assert hold(cluster, JOB, *pods_of(JOB, 3))
    early = [pod(f"early-{number}", requests={"cpu": "1"}) for number in range(4)]
    assert len([node for node in (await bound(cluster, *early)).values() if node]) == 1
    own = await bound(cluster, *(pod_of(JOB, f"own-{number}") for number in range(3)))
    assert all(own.values())
    assert cluster.scheduler.reservations.held.settle() == [JOB]
    assert not len(cluster.scheduler.reservations.held)


async def test_small_pods_leave_room_for_the_large_one() -> None:
    """A pod of the workload does not use the room of a pod of another pod set that comes later."""
    cluster = cluster_of(4, 2)
    wanted = [pod_of(JOB, "fit-large", 4, "large"), pod_of(JOB, "fit-small", 1, "small")]
    assert hold(cluster, JOB, *wanted)
    found = await bound(cluster, pod_of(JOB, "small", 1, "small"), pod_of(JOB, "large", 4, "large"))
    assert found == {"small": "b", "large": "a"}


def test_two_workloads_do_not_count_on_the_same_room(cluster: Rig) -> None:
    """What is held for one workload does not exist for another one, whatever its priority is."""
    assert hold(cluster, JOB, *pods_of(JOB, 3))
    assert fit(cluster, *pods_of(OTHER, 1, priority=5)).verdict is FitVerdict.FITS_NOW
    assert fit(cluster, *pods_of(OTHER, 2, priority=5)).verdict is FitVerdict.DOES_NOT_FIT
    cluster.scheduler.reservations.held.end(JOB.uid)
    assert fit(cluster, *pods_of(OTHER, 4)).verdict is FitVerdict.FITS_NOW


def test_room_that_has_gone_is_not_held(cluster: Rig) -> None:
    """Room that was taken since the dry run is not held: by a pod, or by the room of another workload."""
    nodes = cluster.context.cache.columns
    taken = [HeldPod(nodes.compile_pod(each), "main", "a") for each in pods_of(JOB, 2)]
    other = [HeldPod(nodes.compile_pod(each), "main", "a") for each in pods_of(OTHER, 1)]
    reservations = cluster.scheduler.reservations
    assert reservations.hold(HeldRoom(JOB, taken, nodes, Terms(is_admitted=True)))
    assert not reservations.hold(HeldRoom(OTHER, other, nodes, Terms(is_admitted=True)))
    reservations.held.end(JOB.uid)
    assert reservations.hold(HeldRoom(OTHER, other, nodes, Terms(is_admitted=True)))
    cluster.add(running_pod("running", "a"))
    assert not reservations.hold(HeldRoom(JOB, taken, nodes, Terms(is_admitted=True)))
    assert [held.holder for held in reservations.held] == [OTHER]


async def test_the_end_activates_the_pods_that_it_blocked(cluster: Rig) -> None:
    """A pod that waits because of held room is tried again when the workload is deleted."""
    assert hold(cluster, JOB, *pods_of(JOB, 4))
    waiting = pod("waiting", requests={"cpu": "1"})
    assert await bound(cluster, waiting) == {"waiting": ""}
    assert cluster.place_of(waiting) == "unschedulable"
    cluster.scheduler.reservations.held.end(JOB.uid)
    assert cluster.place_of(waiting) in ("active", "backoff")


async def test_room_after_evictions() -> None:
    """The room of victims is held, and the pods of the workload evict them."""
    cluster = cluster_of(2)
    cluster.add(running_pod("low", "a", priority=0), running_pod("high", "a", priority=20))
    assert hold(cluster, JOB, *pods_of(JOB, 1, priority=10))
    assert fit(cluster, *pods_of(OTHER, 1, priority=10)).verdict is not FitVerdict.FITS_AFTER_EVICTIONS
    assert await bound(cluster, pod_of(JOB, "own", priority=10)) == {"own": ""}
    assert [deletion.name for deletion in cluster.writer.deletions] == ["low"]


async def test_pods_that_ended_get_no_room_again(cluster: Rig) -> None:
    """A slot that was taken for good is not held again when its pod ends."""
    assert hold(cluster, JOB, *pods_of(JOB, 2))
    first = pod_of(JOB, "first")
    node_name = (await bound(cluster, first))["first"]
    held = cluster.scheduler.reservations.held
    assert held.settle() == []
    cluster.scheduler.feed.pod_deleted(running_pod("first", node_name))
    room = present(held.of(JOB.uid))
    assert room.free == 1


async def test_anti_affinity_within_the_workload() -> None:
    """Each pod gets a node although pods of other workloads match the same labels later."""
    cluster = gang_rig(*(small_node(name, 4, zone=name) for name in "abc"))
    apart = anti_affinity_to("web")
    wanted: dict[str, Any] = {"labels": {"app": "web"}, "affinity": apart}
    assert hold(cluster, JOB, *pods_of(JOB, 2, **wanted))
    others = await bound(cluster, *(pod(f"other-{number}", labels=app("web").match_labels) for number in range(3)))
    own = await bound(cluster, *(pod_of(JOB, f"own-{number}", **wanted) for number in range(2)))
    assert all(own.values())
    assert len(set(own.values())) == 2
    assert len({node for node in others.values() if node}) == 1


async def test_members_of_a_gang(cluster: Rig) -> None:
    """A gang of the workload is placed as a whole in the room that is held for its pods."""
    cluster.scheduler.group_feed.group_changed(group(min_member=4))
    assert hold(cluster, JOB, *pods_of(JOB, 4))
    blocked = await bound(cluster, pod("blocked", requests={"cpu": "1"}))
    assert blocked == {"blocked": ""}
    own = [pod_of(JOB, f"own-{number}", labels={"bayplan.dev/pod-group": "train"}) for number in range(4)]
    cluster.add(*own)
    async with cluster.running():
        await cluster.until(lambda: len(cluster.bound) == 4)
    assert cluster.scheduler.reservations.held.settle() == [JOB]


Sizes = st.lists(st.integers(1, 3), min_size=1, max_size=5)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), Sizes, Sizes, st.randoms(use_true_random=False))
async def test_no_pod_takes_the_room(cpus: list[int], own: list[int], others: list[int], order: Any) -> None:
    """If a workload fits, all of its pods get nodes, whatever pods of its priority are created between them."""
    cluster = cluster_of(*cpus)
    wanted = [pod_of(JOB, f"fit-{number}", count, f"set-{count}") for number, count in enumerate(own)]
    if fit(cluster, *wanted).verdict is not FitVerdict.FITS_NOW:
        return
    assert hold(cluster, JOB, *wanted)
    mine = [pod_of(JOB, f"own-{number}", count, f"set-{count}") for number, count in enumerate(own)]
    rivals = [pod(f"rival-{number}", requests={"cpu": str(count)}) for number, count in enumerate(others)]
    created: list[Pod] = [*mine, *rivals]
    order.shuffle(created)
    found: dict[str, str] = {}
    for each in created:
        found |= await bound(cluster, each)
    assert all(found[each.metadata.name] for each in mine), found
    _no_overcommit(cluster, [*mine, *rivals], cpus, found)


@given(
    st.lists(st.integers(1, 9), min_size=3, max_size=6),
    st.lists(st.integers(1, 2), min_size=1, max_size=4),
    st.lists(st.integers(1, 2), min_size=6, max_size=20),
    st.integers(0, 20),
)
async def test_reused_results_beside_held_room(cpus: list[int], own: list[int], later: list[int], end: int) -> None:
    """Pods get the nodes that full cycles choose, while room is held and after its end."""
    twins = [cluster_of(*cpus, reuses=reuses) for reuses in (True, False)]
    wanted = [pod_of(JOB, f"fit-{number}", count, f"set-{count}") for number, count in enumerate(own)]
    if fit(twins[0], *wanted).verdict is not FitVerdict.FITS_NOW:
        return
    for each in twins:
        assert hold(each, JOB, *wanted)
    for number, count in enumerate(later):
        if number == end:
            for each in twins:
                each.scheduler.reservations.held.end(JOB.uid)
        created = pod(f"later-{number}", requests={"cpu": str(count)})
        reusing, full = [await bound(each, created) for each in twins]
        assert reusing == full


async def test_results_are_reused_beside_held_room() -> None:
    """While room is held, further pods of a class need no full cycle, although their class fits on blocked nodes."""
    cluster = cluster_of(8, 8, 8, 8, 8)
    assert hold(cluster, JOB, *pods_of(JOB, 1, 8))
    (room,) = cluster.scheduler.reservations.held
    (held_on,) = room.reservation.plan.node_names
    found = await bound(cluster, *(pod(f"later-{number}", requests={"cpu": "4"}) for number in range(8)))
    assert set(found.values()) == set("abcde") - {held_on}
    assert sum(each.reused for each in cluster.context.metrics.profiles.values()) >= 4


# -- holders of any kind ------------------------------------------------------------------------------------------


_TERMS = Terms()


def reservation_of(name: str, pods: OwnPods) -> Holder:
    """Return a holder that is no workload of Kueue."""
    return Holder("NodeReservation", "default", name, f"uid-of-{name}", pods)


@table(
    "kind, namespace, expected",
    ("of a namespace", "Pod", "default", "Pod default/a"),
    ("of the cluster", "RebalancePlan", "", "RebalancePlan a"),
)
def test_messages_name_the_holder(kind: str, namespace: str, expected: str) -> None:
    assert Holder(kind, namespace, "a", "uid-of-a", OwnPods("default")).key.holder == expected


def hold_on(made: Rig, holder: Holder, *slots: tuple[str, str], terms: Terms = _TERMS, **fields: Any) -> HeldRoom:
    """Hold one CPU for each slot, a slot class and a node."""
    nodes = made.columns
    held = [
        HeldPod(nodes.compile_pod(pod(f"held-{number}", requests={"cpu": "1"}, **fields)), *slot)
        for number, slot in enumerate(slots)
    ]
    room = HeldRoom(holder, held, nodes, terms)
    assert made.scheduler.reservations.hold(room)
    return room


def _index(each: Pod) -> str:
    return each.metadata.labels.get("index", "")


OWNED = (OwnerReference("Job", "train", "uid-of-train", controller=True),)
TRAIN = GroupKey(GroupSource.BAYPLAN, "default", "train")
IN_TRAIN = {"bayplan.dev/pod-group": "train"}


@table(
    "own, fields, expected",
    ("label", OwnPods("default", (("app", "train"),)), {"labels": {"app": "train"}}, True),
    ("other value", OwnPods("default", (("app", "train"),)), {"labels": {"app": "web"}}, False),
    ("other namespace", OwnPods("default", (("app", "a"),)), {"labels": {"app": "a"}, "namespace": "else"}, False),
    ("second label differs", OwnPods("default", (("app", "a"), ("tier", "b"))), {"labels": {"app": "a"}}, False),
    ("owner", OwnPods("default", owner_uid="uid-of-train"), {"owners": OWNED}, True),
    ("no owner", OwnPods("default", owner_uid="uid-of-train"), {}, False),
    ("group", OwnPods("default", group=TRAIN), {"labels": IN_TRAIN}, True),
    ("no group", OwnPods("default", group=TRAIN), {}, False),
    ("condition", OwnPods("default", matches=lambda each: each.metadata.name == "later"), {}, True),
    ("condition not met", OwnPods("default", matches=lambda each: each.metadata.name == "it"), {}, False),
)
async def test_only_pods_of_the_holder_use_the_room(own: OwnPods, fields: dict[str, Any], expected: bool) -> None:
    """A pod that meets every condition gets the room; pods of the same priority wait."""
    cluster = cluster_of(1)
    cluster.scheduler.group_feed.group_changed(group(min_member=1))
    hold_on(cluster, reservation_of("room", own), ("", "a"))
    found = await bound(cluster, pod("later", requests={"cpu": "1"}, **fields))
    assert (found["later"] == "a") is expected
    if not expected:
        assert "node(s) were reserved for NodeReservation default/room" in cluster.condition.message


async def test_a_member_and_the_slots_of_other_members() -> None:
    """The reason of nodes with slots of other members of the same group names these, not the group alone."""
    cluster = cluster_of(1, 1)
    cluster.scheduler.group_feed.group_changed(group(min_member=1))
    own = OwnPods("default", group=TRAIN, slot_class=_index)
    hold_on(cluster, Holder("PodGroup", "default", "train", "uid-of-room", own), ("0", "a"), ("1", "b"))
    cluster.scheduler.feed.node_deleted(small_node("b", 1))
    await settle(cluster, pod("later", requests={"cpu": "1"}, labels={**IN_TRAIN, "index": "1"}))
    assert "node(s) were reserved for other members of PodGroup default/train" in cluster.condition.message
    await settle(cluster, pod("other", requests={"cpu": "1"}))
    assert "node(s) were reserved for PodGroup default/train" in cluster.condition.message


@table(
    "priority, labels, expected",
    ("same", 5, {}, False),
    ("higher", 6, {}, True),
    ("admitted", 6, {WORKLOAD_LABEL: "x"}, True),
)
async def test_pods_of_higher_priority_pass(priority: int, labels: dict[str, str], expected: bool) -> None:
    """Room is held against pods of at most the priority of its slots, also against pods that Kueue has admitted."""
    cluster = cluster_of(1)
    hold_on(cluster, reservation_of("room", OwnPods("default", (("app", "a"),))), ("", "a"), priority=5)
    found = await bound(cluster, pod("later", requests={"cpu": "1"}, priority=priority, labels=labels))
    assert (found["later"] == "a") is expected


@table("cpus, expected", ("the slot stands", (4, 1), "b"), ("the node of the slot has gone", (4,), "a"))
async def test_slots_are_preferred(cpus: tuple[int, ...], expected: str) -> None:
    """A pod gets the node of its slot although another node has a better score, and another node if it has gone."""
    cluster = cluster_of(4, 1)
    terms = Terms(prefers_slots=True)
    own = OwnPods("default", (("app", "train"),), slot_class=_index)
    room = hold_on(cluster, reservation_of("room", own), ("0", "a"), ("1", "b"), terms=terms)
    if len(cpus) == 1:
        cluster.scheduler.feed.node_deleted(small_node("b", 1))
    for number in range(2):
        # Results of this class are reused.
        await bound(cluster, pod(f"first-{number}", requests={"cpu": "1"}))
    found = await bound(cluster, pod("own", requests={"cpu": "1"}, labels={"app": "train", "index": "1"}))
    assert found == {"own": expected}
    assert cluster.scheduler.reservations.held.of(room.holder.uid) is room
    assert [str(slot.pod_class) for slot in room.free_slots] == ["0"]


async def test_room_ends_after_its_time() -> None:
    """Room blocks others until its time is over, not longer; then the pods that it blocked are tried."""
    cluster, ends = cluster_of(1), list[EndReason]()
    terms = Terms(until=cluster.clock.now() + 60, on_end=ends.append)
    room = hold_on(cluster, reservation_of("room", OwnPods("default", (("app", "a"),))), ("", "a"), terms=terms)
    waiting = pod("waiting", requests={"cpu": "1"})
    assert await bound(cluster, waiting) == {"waiting": ""}
    held = cluster.scheduler.reservations.held
    cluster.clock.advance(59.9)
    assert (len(held), ends) == (1, [])
    held.extend(room.holder.uid, cluster.clock.now() + 10)
    cluster.clock.advance(9.8)
    assert (len(held), ends) == (1, [])
    cluster.clock.advance(0.2)
    assert (len(held), ends) == (0, [EndReason.EXPIRED])
    assert cluster.place_of(waiting) in ("active", "backoff")
    assert not cluster.scheduler.reservations.by_gang


async def test_room_ends_when_its_pods_are_bound() -> None:
    """The holder is notified within a second after the last bind."""
    cluster, ends = cluster_of(4), list[EndReason]()
    own = OwnPods("default", (("app", "a"),))
    hold_on(cluster, reservation_of("room", own), ("", "a"), ("", "a"), terms=Terms(on_end=ends.append))
    for number in range(2):
        assert ends == []
        await bound(cluster, pod(f"own-{number}", requests={"cpu": "1"}, labels={"app": "a"}))
        cluster.clock.advance(1)
    assert ends == [EndReason.CONSUMED]
    assert not len(cluster.scheduler.reservations.held)


async def test_a_bind_that_fails_keeps_the_slot() -> None:
    """The slot of an assumed pod is not given up before its bind has succeeded."""
    cluster = cluster_of(1)
    own = OwnPods("default", (("app", "a"),))
    room = hold_on(cluster, reservation_of("room", own), ("", "a"), terms=Terms(on_end=lambda _: None))
    cache, held = cluster.context.cache, cluster.scheduler.reservations.held
    info = cache.columns.compile_pod(pod("own", requests={"cpu": "1"}, labels={"app": "a"}))
    cache.assume(info, "a")
    cluster.clock.advance(2)
    assert (held.of(room.holder.uid), room.free) == (room, 0)
    cache.forget(info)
    assert (held.of(room.holder.uid), room.free) == (room, 1)
    assert await bound(cluster, pod("later", requests={"cpu": "1"})) == {"later": ""}


@pytest.mark.parametrize("fails", [True, False])
async def test_room_that_is_held_while_a_pod_is_assumed(fails: bool) -> None:
    """A pod of the holder whose bind fails afterwards takes a slot like others; one that is bound needs none."""
    cluster = cluster_of(3)
    cache, held = cluster.context.cache, cluster.scheduler.reservations.held
    own = pod("own", requests={"cpu": "1"}, labels={"app": "a"})
    info = cache.columns.compile_pod(own)
    cache.assume(info, "a")
    of_app = OwnPods("default", (("app", "a"),))
    room = hold_on(cluster, reservation_of("room", of_app), ("", "a"), ("", "a"), terms=Terms(on_end=lambda _: None))
    if fails:
        cache.forget(info)
    else:
        cluster.add(pod("own", requests={"cpu": "1"}, labels={"app": "a"}, node_name="a"))
    cluster.clock.advance(2)
    assert (held.of(room.holder.uid), room.free) == (room, 2)
    cache.assume(info, "a") if fails else None
    cluster.clock.advance(2)
    assert (held.of(room.holder.uid), room.free) == (room, 1 if fails else 2)


async def test_a_pod_takes_one_slot() -> None:
    """A pod that may use the room of two holders takes a slot of one of them, that on its node if there is one."""
    cluster = cluster_of(1, 1)
    own = OwnPods("default", (("app", "a"),))
    terms = Terms(on_end=lambda _: None, prefers_slots=True)
    first = hold_on(cluster, reservation_of("first", own), ("", "a"), terms=terms)
    second = hold_on(cluster, reservation_of("second", own), ("", "b"), terms=terms)
    nodes = await bound(cluster, pod("own-0", requests={"cpu": "1"}, labels={"app": "a"}))
    cluster.clock.advance(1)
    left = {"a": second, "b": first}[nodes["own-0"]]
    assert list(cluster.scheduler.reservations.held) == [left]
    cluster.clock.advance(5)
    assert (list(cluster.scheduler.reservations.held), left.free) == ([left], 1)


async def test_a_dry_run_that_evicts_a_pod_leaves_it_its_slot(cluster: Rig) -> None:
    """The slot that a pod on another node has taken is the same after a search that removes the pod."""
    own = OwnPods("default", (("app", "train"),))
    first = hold_on(cluster, reservation_of("first", own), ("main", "b"))
    cluster.add(running_pod("other", "b"), running_pod("taker", "a", labels={"app": "train"}))
    held = cluster.scheduler.reservations.held
    assert held.of(first.holder.uid) is first
    second = hold_on(cluster, reservation_of("second", own), ("main", "a"))
    assert ([*first.taken], first.free, second.free) == (["uid-of-default-taker"], 0, 1)
    assert fit(cluster, pod("large", requests={"cpu": "2"}, priority=9)).verdict is FitVerdict.FITS_AFTER_EVICTIONS
    assert held.of(first.holder.uid) is first
    assert ([*first.taken], first.free, second.free) == (["uid-of-default-taker"], 0, 1)


async def test_a_pod_takes_the_slot_that_covers_it() -> None:
    """Of two holders whose pods it is, it uses the room of the one whose slot is large enough."""
    cluster = cluster_of(3)
    own, nodes = OwnPods("default", (("app", "train"),)), cluster.context.cache.columns
    rooms = []
    for name, cpus in (("small", 1), ("large", 2)):
        info = nodes.compile_pod(pod(f"held-{name}", requests={"cpu": str(cpus)}))
        rooms.append(HeldRoom(reservation_of(name, own), [HeldPod(info, "", "a")], nodes))
        assert cluster.scheduler.reservations.hold(rooms[-1])
    made = pod("own", requests={"cpu": "2"}, labels={"app": "train"})
    assert await bound(cluster, made) == {"own": "a"}
    held = cluster.scheduler.reservations.held
    assert [present(held.of(room.holder.uid)).free for room in rooms] == [1, 0]


def test_a_pod_on_a_node_whose_labels_change_takes_a_slot(cluster: Rig) -> None:
    """A pod that got the labels of a holder later has a slot, and the room has one fewer."""
    room = hold_on(cluster, reservation_of("r", OwnPods("default", (("app", "train"),))), ("main", "a"))
    before, after = running_pod("web", "a"), running_pod("web", "a", labels={"app": "train"})
    cluster.add(before)
    held = cluster.scheduler.reservations.held
    assert held.settle() == []
    assert room.free == 1
    cluster.scheduler.feed.pod_updated(before, after)
    assert held.settle() == [room.holder]


def test_a_pod_on_a_node_that_loses_the_labels_gives_its_slot_back(cluster: Rig) -> None:
    """Its other changes leave it the slot."""
    room = hold_on(cluster, reservation_of("r", OwnPods("default", (("app", "train"),))), ("main", "a"))
    own = {"app": "train"}
    versions = [running_pod("web", "a", labels=labels) for labels in (own, {**own, "tier": "1"}, {"tier": "1"})]
    cluster.add(versions[0])
    held, feed, free = cluster.scheduler.reservations.held, cluster.scheduler.feed, list[int]()
    for before, now in pairwise(versions):
        free.append(present(held.of(room.holder.uid)).free)
        feed.pod_updated(before, now)
    assert [*free, present(held.of(room.holder.uid)).free] == [0, 0, 1]


def test_no_pods_are_stored_without_room(cluster: Rig) -> None:
    """The versions of pods that may use no room are stored only while there is room to compare them with."""
    room = hold_on(cluster, reservation_of("r", OwnPods("default", (("app", "train"),))), ("main", "a"))
    cluster.add(running_pod("web", "b"), running_pod("own", "a", labels={"app": "train"}))
    held = cluster.scheduler.reservations.held
    assert present(held.of(room.holder.uid)).free == 0
    assert any(held._strangers.values())
    held.end(room.holder.uid)
    assert not held._strangers
    assert not held._on_row


def test_room_of_higher_priority_displaces() -> None:
    """Room is held beside that of at least its priority; room of a lower priority does not stand any more."""
    cluster = cluster_of(2)
    own = OwnPods("default", (("app", "a"),))
    low = hold_on(cluster, reservation_of("low", own), ("", "a"), ("", "a"), priority=1)
    reservations, nodes = cluster.scheduler.reservations, cluster.context.cache.columns
    equal = [HeldPod(nodes.compile_pod(pod("equal", requests={"cpu": "1"}, priority=1)), "", "a")]
    assert not reservations.hold(HeldRoom(reservation_of("equal", own), equal, nodes))
    assert reservations.stands(low)
    high = hold_on(cluster, reservation_of("high", own), ("", "a"), priority=2)
    assert (reservations.stands(low), reservations.stands(high)) == (False, True)


def test_room_of_the_lower_priority_is_lost_among_admitted_workloads() -> None:
    """Room of admitted workloads is held beside each other; if one node has less, only one of them loses it."""
    cluster = cluster_of(2)
    own = OwnPods("default", (("app", "a"),))
    high, low = (
        hold_on(
            cluster, reservation_of(f"of-{priority}", own), ("", "a"), priority=priority, terms=Terms(is_admitted=True)
        )
        for priority in (2, 1)
    )
    reservations = cluster.scheduler.reservations
    assert (reservations.stands(high), reservations.stands(low)) == (True, True)
    cluster.add(running_pod("web", "a"))
    assert (reservations.stands(high), reservations.stands(low)) == (True, False)


def _no_overcommit(cluster: Rig, pods: Iterable[Pod], cpus: list[int], found: dict[str, str]) -> None:
    used = dict.fromkeys("abcdef", 0)
    nodes = cluster.context.cache.columns
    for each in pods:
        if found[each.metadata.name]:
            used[found[each.metadata.name]] += nodes.compile_pod(each).requests.accounted["cpu"] // 1000
    assert all(used[name] <= count for name, count in zip("abcdef", cpus, strict=False)), used
