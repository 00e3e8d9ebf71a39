"""Devices that are held for nominated pods: by which priority, and which pods are requeued when the hold ends."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from scheduler_core.cycle.nominated_devices import NominatedDevices
from scheduler_core.framework.cluster_events import Resource
from scheduler_core.framework.queued_pod import Place
from scheduler_core.model.node import NodeSpec
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.device_preemption import deallocate, free, full, held, holder, idle, pending, served
from tests.support.devices import claim, device, exactly, slice_of, using
from tests.support.gang_devices import report
from tests.support.gang_preemption import evicted, small_node
from tests.support.gangs import group, member
from tests.support.presence import present
from tests.support.recording_claim_writer import RecordingClaimWriter
from tests.support.scheduling import Rig


def create(made: Rig, writer: RecordingClaimWriter, name: str, priority: int) -> None:
    """Create a pod that needs a device."""
    report(made, writer, claim(exactly("r"), name=name), pending(name, name, priority=priority))


def gang_member(made: Rig, writer: RecordingClaimWriter, priority: int) -> Pod:
    """Create a gang of one member of priority 0, whose group has a priority, and which needs a device."""
    made.scheduler.group_feed.group_changed(group(min_member=1, namespace="ns", priority=priority))
    created = using(member("g0", namespace="ns", uid="g0", requests={"cpu": "100m"}, priority=0), "g0")
    report(made, writer, claim(exactly("r"), name="g0"), created)
    return created


def devices_of(made: Rig) -> NominatedDevices:
    return present(made.scheduler.cycles.freed.devices)


async def test_a_gang_counts_by_the_priority_of_its_group() -> None:
    """A nominated pod of higher priority than the members, and lower than the group, holds no device from the gang."""
    made, writer = full()
    create(made, writer, "q", 5)
    async with made.running():
        await idle(made)
        assert evicted(made) == {"v-a"}
        gang_member(made, writer, priority=100)
        await idle(made)
        free(made, writer)
        await idle(made)
        made.clock.advance(30.0)
        await idle(made)
    assert made.bound == {"g0": "a"}


async def test_a_dry_run_makes_each_choice_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its choices end with it: they may depend on hypothetical changes."""
    made, writer = full("ab")
    for name in ("p0", "p1"):
        create(made, writer, name, 2)
        await made.attempt()
    nodes, nominator = made.columns, made.queue.nominator
    for uid in list(nominator.node_by_uid):
        nominator.nominate(present(nominator.nomination_of(uid)), nominator.node_of(uid))
    chosen: list[str] = []
    original = NominatedDevices._choice

    def choice(self: NominatedDevices, nominated: PodInfo) -> object:
        chosen.append(nominated.pod.metadata.name)
        return original(self, nominated)

    monkeypatch.setattr(NominatedDevices, "_choice", choice)
    low = nodes.compile_pod(pending("low", "low", priority=0))
    for _ in range(2):
        with nodes.steps.dry_run():
            first, second = nodes.devices.held_from(low), nodes.devices.held_from(low)
        assert len(first) == 2
        assert first == second
    assert sorted(chosen) == ["p0", "p0", "p1", "p1"]
    assert nodes.devices.held_from(low) == first
    assert len(chosen) == 6


async def test_the_end_of_its_own_nomination_does_not_requeue_a_gang() -> None:
    """The event that its devices are free has the same exception as the one that its room is."""
    made, writer = full()
    gang_member(made, writer, priority=10)
    async with made.running():
        await idle(made)
        create(made, writer, "low", 0)
        await idle(made)
        (gang,) = made.queue.gangs
        entry = present(gang.entry)
        info = present(made.queue.nominator.nomination_of("g0"))
        before = entry.place
        assert before not in (Place.ACTIVE, Place.IN_FLIGHT)
        made.queue.nominator.withdraw("g0")
        made.scheduler.cycles.freed.nomination_ended(info, "a", exclude=entry.uid)
        assert entry.place is before


async def test_pods_are_requeued_when_the_group_has_a_lower_priority() -> None:
    made, writer = full()
    gang_member(made, writer, priority=10)
    async with made.running():
        await idle(made)
        create(made, writer, "other", 5)
        await idle(made)
        assert devices_of(made).end("g0") is None
        queued = present(made.queue.find("uid-of-ns-other"))
        made.clock.advance(400.0)
        await idle(made)
        assert queued.place is Place.UNSCHEDULABLE
        seen = _claim_events(made)
        made.scheduler.group_feed.group_changed(group(min_member=1, namespace="ns", priority=1, generation=2))
        assert seen == [("g0", 10)]
        await idle(made)


async def test_pods_are_requeued_when_a_pod_is_nominated_to_another_node() -> None:
    """At once, and not when a watch shows it; kube-scheduler holds no devices for nominated pods."""
    made, writer = full("ab")
    create(made, writer, "high", 2)
    async with made.running():
        await idle(made)
        nominator, uid = made.queue.nominator, "uid-of-ns-high"
        first = nominator.node_of(uid)
        create(made, writer, "low", 0)
        await idle(made)
        seen = _claim_events(made)
        before = small_node(first, 8)
        made.scheduler.feed.node_updated(before, replace(before, spec=NodeSpec(unschedulable=True)))
        made.queue.activate([uid])
        await idle(made)
        assert nominator.node_of(uid) not in ("", first)
    assert (uid, 2) in seen


@pytest.mark.parametrize("has_moved", [True, False])
async def test_pods_are_requeued_when_other_devices_are_chosen(has_moved: bool) -> None:
    """A pod that is nominated to the same node again has left its earlier devices to them."""
    made, writer = served(devices=True)
    report(made, writer, small_node("a", 8), slice_of([device("d0"), device("d1")], node="a"))
    high = holder("v0", "a", "of-0", priority=9)
    report(made, writer, held("of-0", "d0", "v0", pool="a"), high)
    report(made, writer, held("of-1", "d1", "v1", pool="a"), holder("v1", "a", "of-1"))
    create(made, writer, "p", 2)
    create(made, writer, "low", 0)
    async with made.running():
        await idle(made)
        nominator, uid, low = made.queue.nominator, "uid-of-ns-p", present(made.queue.find("uid-of-ns-low"))
        assert evicted(made) == {"v1"}
        (before,) = made.columns.devices.held_from(low.info)
        made.clock.advance(400.0)
        await idle(made)
        assert low.place is Place.UNSCHEDULABLE
        if has_moved:
            made.scheduler.feed.pod_deleted(high)
            deallocate(made, writer, "of-0")
        seen = _claim_events(made)
        nominator.nominate(present(nominator.nomination_of(uid)), "a")
        (after,) = made.columns.devices.held_from(low.info)
        assert (before != after) is has_moved
        assert seen == ([(uid, 2)] if has_moved else [])
        await idle(made)


async def test_pods_are_requeued_when_a_status_shows_that_a_nomination_was_withdrawn() -> None:
    """A preemption withdraws the nominations of pods of lower priority, and has their statuses changed."""
    made, writer = full()
    create(made, writer, "low", 2)
    async with made.running():
        await idle(made)
        create(made, writer, "lower", 0)
        await idle(made)
        uid = "uid-of-ns-low"
        waiting = present(made.queue.find(uid)).info.pod
        shown = replace(waiting, status=replace(waiting.status, nominated_node_name="a"))
        made.scheduler.feed.pod_updated(waiting, shown)
        made.queue.nominator.withdraw(uid)
        made.queue.nominator.written(uid, "")
        seen = _claim_events(made)
        made.scheduler.feed.pod_updated(shown, waiting)
        assert seen == [(uid, 2)]
        await idle(made)


def _claim_events(made: Rig) -> list[tuple[str, int | None]]:
    """Return a list to which the events of claims are added, each with the excluded UID and the highest priority."""
    seen: list[tuple[str, int | None]] = []
    original = made.queue.on_event

    def on_event(event: object, *given: object, exclude: str = "", max_priority: int | None = None) -> None:
        if event.resource is Resource.RESOURCE_CLAIM:  # type: ignore[attr-defined]
            seen.append((exclude, max_priority))
        original(event, *given, exclude=exclude, max_priority=max_priority)  # type: ignore[arg-type]

    made.queue.on_event = on_event  # type: ignore[method-assign,assignment]
    return seen
