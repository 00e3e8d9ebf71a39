"""Devices of held room: other pods do not get them, and get the rest of the node."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from scheduler_core.gangs.held_room import WORKLOAD_LABEL, HeldPod, HeldRoom, Holder, OwnPods, Terms, admitted_workload
from scheduler_core.model.pod import Pod
from tests.support.device_preemption import deallocate, held, idle, pending, served
from tests.support.devices import claim, device, exactly, slice_of, using
from tests.support.gang_devices import report
from tests.support.gang_preemption import small_node
from tests.support.gangs import group, indexed
from tests.support.presence import present
from tests.support.recording_claim_writer import RecordingClaimWriter
from tests.support.scheduling import Rig


def claiming(name: str, index: int, *claims: str, node_name: str = "") -> Pod:
    """Return a member of the indexed Job that uses claims."""
    fields = {"namespace": "ns", "uid": name, "requests": {"cpu": "100m"}, "node_name": node_name, "priority": 1}
    return using(indexed(name, index, **fields), *claims)


def training(devices: int) -> tuple[Rig, RecordingClaimWriter]:
    """Return a scheduler with a gang of two members on nodes ``a`` and ``b``, each with the device ``d0`` there."""
    made, writer = served(devices=False)
    made.scheduler.group_feed.group_changed(group(min_member=2, namespace="ns", hold_seconds=60.0, priority=1))
    for number, name in enumerate("ab"):
        shown = [device(f"d{each}") for each in range(devices if name == "a" else 1)]
        report(made, writer, small_node(name, 8), slice_of(shown, node=name))
        report(made, writer, held(f"of-{number}", "d0", f"train-{number}", pool=name))
        report(made, writer, claiming(f"train-{number}", number, f"of-{number}", node_name=name))
    return made, writer


def lose(made: Rig, writer: RecordingClaimWriter) -> None:
    """Delete the member on node ``a``; then its claim loses its devices."""
    made.scheduler.feed.pod_deleted(_first(made))
    deallocate(made, writer, "of-0")


async def test_devices_of_a_lost_member_are_held_for_its_replacement() -> None:
    """Others get the devices of the node that it did not have."""
    made, writer = training(devices=2)
    lose(made, writer)
    async with made.running():
        for number in range(2):
            report(made, writer, claim(exactly("r"), name=f"c{number}"), pending(f"other-{number}", f"c{number}"))
        await idle(made)
        assert made.bound == {"other-0": "a"}
        assert _devices(writer, "c0") == ["d1"]
        report(made, writer, claim(exactly("r"), name="of-again"), claiming("train-again", 0, "of-again"))
        await idle(made)
    assert made.bound == {"other-0": "a", "train-again": "a"}
    assert _devices(writer, "of-again") == ["d0"]


async def test_a_pod_of_higher_priority_gets_the_devices() -> None:
    made, writer = training(devices=1)
    lose(made, writer)
    async with made.running():
        report(made, writer, claim(exactly("r"), name="c"), pending("urgent", "c", priority=2))
        await idle(made)
    assert made.bound == {"urgent": "a"}


async def test_pods_are_requeued_when_the_devices_are_not_held_any_more() -> None:
    made, writer = training(devices=1)
    lose(made, writer)
    async with made.running():
        report(made, writer, claim(exactly("r"), name="c"), pending("other", "c"))
        await idle(made)
        assert made.bound == {}
        assert made.condition.message.startswith("0/2 nodes are available: 2 cannot allocate all claims.")
        made.clock.advance(61.0)
        await idle(made)
        made.clock.advance(10.0)
        await idle(made)
    assert made.bound == {"other": "a"}


async def test_without_known_devices_other_pods_with_claims_do_not_get_the_node() -> None:
    """The claim was deleted before the pod was reported as lost."""
    made, writer = training(devices=2)
    deallocate(made, writer, "of-0")
    made.scheduler.device_feed.deleted(writer.claims["ns/of-0"])
    made.scheduler.feed.pod_deleted(_first(made))
    async with made.running():
        report(made, writer, claim(exactly("r"), name="c"), pending("other", "c"))
        await idle(made)
    assert made.bound == {}
    assert "node(s) were reserved for Pod ns/train-0" in made.condition.message


def _first(made: Rig) -> Pod:
    (gang,) = made.queue.gangs
    return gang.pods["train-0"]


def _devices(writer: RecordingClaimWriter, name: str) -> list[str]:
    allocation = writer.claims[f"ns/{name}"].status.allocation
    return [] if allocation is None else [each.device for each in allocation.devices.results]


async def test_each_pod_of_a_holder_gets_devices_whichever_it_takes() -> None:
    """A pod takes one slot and perhaps the devices of another one; others get none of them."""
    made, writer = served(devices=False)
    report(made, writer, small_node("a", 8), slice_of([device(f"d{number}") for number in range(3)], node="a"))
    nodes = made.columns
    planned = [nodes.compile_pod(pending(f"slot-{number}", "template", priority=1)) for number in range(2)]
    found = [held(f"of-{number}", f"d{number}").status.allocation for number in range(2)]
    slots = [HeldPod(info, "", "a", (present(each),)) for info, each in zip(planned, found, strict=True)]
    holder = Holder("NodeReservation", "ns", "r", "uid-of-r", OwnPods("ns", (("team", "ml"),)))
    assert made.scheduler.reservations.hold(HeldRoom(holder, slots, nodes))
    async with made.running():
        for name, labels in (("other-0", {}), ("own-0", {"team": "ml"}), ("other-1", {}), ("own-1", {"team": "ml"})):
            report(made, writer, claim(exactly("r"), name=f"of-{name}"), _labelled(pending(name, f"of-{name}"), labels))
            await idle(made)
        assert made.bound == {"other-0": "a", "own-0": "a", "own-1": "a"}
        assert [_devices(writer, f"of-{name}") for name in made.bound] == [["d2"], ["d0"], ["d1"]]


def _labelled(user: Pod, labels: dict[str, str]) -> Pod:
    return replace(user, metadata=replace(user.metadata, labels=labels))


@pytest.mark.parametrize(("labels", "is_blocked"), [({WORKLOAD_LABEL: "uid-of-other"}, True), ({}, False)])
async def test_an_admitted_workload_gets_no_devices_of_another_one(labels: dict[str, str], is_blocked: bool) -> None:
    """Whatever its priority is, as for other room; a pod that is not admitted passes by a higher priority."""
    made, writer = served(devices=False)
    report(made, writer, small_node("a", 8), slice_of([device("d0")], node="a"))
    nodes = made.columns
    devices = (present(held("of", "d0").status.allocation),)
    slot = HeldPod(nodes.compile_pod(pending("slot", "template", priority=1)), "", "a", devices)
    room = HeldRoom(admitted_workload("ns", "w", "uid-of-w"), [slot], nodes, Terms(is_admitted=True))
    assert made.scheduler.reservations.hold(room)
    async with made.running():
        report(made, writer, claim(exactly("r"), name="c"), _labelled(pending("other", "c", priority=5), labels))
        await idle(made)
    assert (made.bound == {}) is is_blocked
