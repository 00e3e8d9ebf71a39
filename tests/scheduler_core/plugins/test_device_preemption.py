"""Preemption that frees devices: what is evicted, and how the preemptor waits for the devices."""

from __future__ import annotations

from msgspec.structs import replace

from tests.support.device_preemption import (
    deallocate,
    end_victims,
    free,
    gang_without_devices,
    held,
    holder,
    idle,
    pending,
    served,
    shared_by_two,
)
from tests.support.devices import claim, device, exactly, slice_of, with_group
from tests.support.gang_devices import claimant, gang, report
from tests.support.gang_preemption import evicted, small_node

IN_USE = "0/1 nodes are available: 1 cannot allocate all claims."


async def test_by_default_no_pod_is_evicted_for_its_devices() -> None:
    made, _, _ = shared_by_two(devices=False)
    async with made.running():
        await idle(made)
    assert evicted(made) == set()
    assert (
        made.condition.message
        == f"{IN_USE} preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )


async def test_the_preemptor_waits_until_the_claim_of_its_victims_is_deallocated() -> None:
    made, writer, victims = shared_by_two(devices=True)
    async with made.running():
        await idle(made)
        assert evicted(made) == {"v0", "v1"}
        for each in victims:
            made.scheduler.feed.pod_deleted(each)
        await idle(made)
        # Another event, while the devices are still in use: nothing else is evicted, and the pod keeps its node.
        report(made, writer, small_node("b"), slice_of([device("d0")], node="b"), held("other", "d0", "w", pool="b"))
        report(made, writer, holder("w", "b", "other"))
        made.clock.advance(60.0)
        await idle(made)
        assert evicted(made) == {"v0", "v1"}
        assert made.bound == {}
        assert "not eligible due to a resource claim of ended pods" in made.condition.message
        deallocate(made, writer, "shared")
        made.clock.advance(60.0)
        await idle(made)
    assert made.bound == {"high": "a"}
    assert evicted(made) == {"v0", "v1"}


async def test_a_claim_with_a_holder_of_equal_priority_frees_nothing() -> None:
    made, writer = served(devices=True)
    report(made, writer, small_node("a"), slice_of([device("d0")], node="a"), held("shared", "d0", "v0", "v1"))
    report(made, writer, holder("v0", "a", "shared"), holder("v1", "a", "shared", priority=1))
    report(made, writer, claim(exactly("r"), name="own"), pending("high", "own"))
    async with made.running():
        await idle(made)
    assert evicted(made) == set()


async def test_a_claim_that_a_pod_without_a_node_holds_frees_nothing() -> None:
    made, writer = served(devices=True)
    report(made, writer, small_node("a"), slice_of([device("d0")], node="a"), held("shared", "d0", "v0", "unknown"))
    report(made, writer, holder("v0", "a", "shared"), claim(exactly("r"), name="own"), pending("high", "own"))
    async with made.running():
        await idle(made)
    assert evicted(made) == set()


async def test_holders_on_other_nodes_are_evicted_for_a_device_of_the_network() -> None:
    made, writer = served(devices=True)
    network = slice_of([device("d0")], node="", name="net", pool="net", allNodes=True)
    report(made, writer, small_node("a", 1), small_node("b", 1), network, held("shared", "d0", "v0", "v1", pool="net"))
    report(made, writer, holder("v0", "b", "shared"), holder("v1", "b", "shared"), holder("idle", "a"))
    only_a = replace(pending("high", "own"), spec=replace(pending("high", "own").spec, node_selector={"zone": "a"}))
    report(made, writer, claim(exactly("r"), name="own"), only_a)
    async with made.running():
        await idle(made)
        assert evicted(made) == set()
        made.scheduler.feed.node_updated(small_node("a", 1), small_node("a", 1, zone="a"))
        made.clock.advance(60.0)
        await idle(made)
    assert evicted(made) == {"v0", "v1"}


async def test_a_gang_evicts_the_holders_whose_devices_it_needs_and_no_others() -> None:
    made, writer = served(devices=True)
    gang(made, 2)
    for name in ("a", "b"):
        report(made, writer, small_node(name, 4), slice_of([device("d0"), device("d1")], node=name))
    report(made, writer, held("c0", "d0", "v0", "v1"), held("c1", "d1", "kept", pool="a"))
    report(made, writer, held("c2", "d0", "v2", pool="b"), held("c3", "d1", "important", pool="b"))
    report(made, writer, holder("v0", "a", "c0"), holder("v1", "a", "c0"), holder("kept", "a", "c1", priority=1))
    report(made, writer, holder("v2", "b", "c2"), holder("important", "b", "c3", priority=9))
    for number in range(2):
        report(made, writer, *claimant(f"train-{number}", exactly("r"), priority=2, requests={"cpu": "100m"}))
    async with made.running():
        await idle(made)
        assert evicted(made) == {"v0", "v1", "v2"}
        for name, node, used in (("v0", "a", "c0"), ("v1", "a", "c0"), ("v2", "b", "c2")):
            made.scheduler.feed.pod_deleted(holder(name, node, used))
        made.clock.advance(60.0)
        await idle(made)
        assert made.bound == {}
        deallocate(made, writer, "c0")
        deallocate(made, writer, "c2")
        made.clock.advance(60.0)
        await idle(made)
    assert sorted(made.bound) == ["train-0", "train-1"]
    assert evicted(made) == {"v0", "v1", "v2"}


async def test_a_gang_evicts_the_holder_of_devices_for_the_claim_that_its_members_share() -> None:
    made, writer = served(devices=True)
    gang(made, 2)
    report(made, writer, small_node("a", 4), slice_of([device("d0"), device("d1")], node="a"))
    for number in range(2):
        report(made, writer, held(f"c{number}", f"d{number}", f"v{number}"), holder(f"v{number}", "a", f"c{number}"))
    report(made, writer, claim(exactly("r"), name="shared"))
    for number in range(2):
        report(made, writer, *claimant(f"train-{number}", shared=["shared"], priority=2, requests={"cpu": "100m"}))
    async with made.running():
        await idle(made)
        (victim,) = evicted(made)
        made.scheduler.feed.pod_deleted(holder(victim, "a", f"c{victim[1:]}"))
        deallocate(made, writer, f"c{victim[1:]}")
        made.clock.advance(60.0)
        await idle(made)
    assert sorted(made.bound) == ["train-0", "train-1"]
    assert evicted(made) == {victim}


async def test_no_pod_of_a_pod_group_is_evicted_for_devices_of_the_claim_of_its_group() -> None:
    """The devices stay in use when its pods are gone, and are free when the PodGroup has ended."""
    made, writer = served(devices=True)
    report(made, writer, small_node("a"), slice_of([device("d0")], node="a"))
    report(made, writer, with_group(held("shared", "d0"), "other"), holder("m0", "a", "shared"))
    report(made, writer, claim(exactly("r"), name="own"), pending("high", "own"))
    async with made.running():
        await idle(made)
        made.scheduler.feed.pod_deleted(holder("m0", "a", "shared"))
        made.clock.advance(60.0)
        await idle(made)
        assert (evicted(made), made.bound) == (set(), {})
        deallocate(made, writer, "shared")
        made.clock.advance(60.0)
        await idle(made)
    assert (evicted(made), made.bound) == (set(), {"high": "a"})


# -- devices of nominated pods ----------------------------------------------------------------------------------------


async def test_freed_devices_are_held_for_the_preemptor() -> None:
    """A pod of the same priority that is tried first does not get them; it gets what is left."""
    made, writer, victims = shared_by_two(devices=True)
    async with made.running():
        await idle(made)
        end_victims(made, writer, victims)
        # The preemptor is in backoff.
        report(made, writer, claim(exactly("r"), name="late"), pending("late", "late"))
        await idle(made)
        assert made.bound == {"high": "a"}
        report(made, writer, small_node("b"), slice_of([device("d0")], node="b"))
        made.clock.advance(60.0)
        await idle(made)
    assert made.bound == {"high": "a", "late": "b"}
    assert evicted(made) == {"v0", "v1"}


async def test_free_devices_that_the_preemptor_needs_beside_those_of_its_victims_are_held() -> None:
    made, writer = served(devices=True)
    report(made, writer, small_node("a"), slice_of([device(f"d{number}") for number in range(4)], node="a"))
    report(made, writer, held("c0", "d0", "v0"), holder("v0", "a", "c0"))
    report(made, writer, claim(exactly("r", count=3), name="own"), pending("high", "own"))
    for number in range(3):
        # In the queue behind the preemptor, so that they are tried before any eviction is sent.
        report(made, writer, claim(exactly("r"), name=f"c-{number}"), pending(f"low-{number}", f"c-{number}"))
    report(made, writer, held("c1", "d1", "v1"), holder("v1", "a", "c1", priority=1))
    async with made.running():
        await idle(made)
        assert len(evicted(made)) == 1
        assert made.bound == {}


async def test_a_pod_of_higher_priority_gets_devices_that_are_held_for_a_nominated_pod() -> None:
    made, writer, victims = shared_by_two(devices=True)
    async with made.running():
        await idle(made)
        end_victims(made, writer, victims)
        report(made, writer, claim(exactly("r"), name="top"), pending("top", "top", priority=2))
        await idle(made)
    assert made.bound == {"top": "a"}


async def test_a_pod_is_requeued_when_devices_are_not_held_any_more() -> None:
    made, writer = served(devices=True)
    report(made, writer, small_node("a"), slice_of([device("d0"), device("d1")], node="a"))
    report(made, writer, held("c0", "d0", "v0"), holder("v0", "a", "c0"))
    report(made, writer, claim(exactly("r", count=2), name="own"), pending("high", "own"))
    report(made, writer, claim(exactly("r"), name="late"), pending("late", "late"))
    async with made.running():
        await idle(made)
        assert made.bound == {}
        made.scheduler.feed.pod_deleted(pending("high", "own"))
        made.clock.advance(10.0)
        await idle(made)
    assert made.bound == {"late": "a"}


async def test_no_devices_are_held_for_a_nominated_pod_whose_profile_does_not_preempt_for_devices() -> None:
    made, writer = served(devices=False)
    report(made, writer, small_node("a"), slice_of([device("d0")], node="a"))
    high = pending("high", "own")
    high = replace(high, status=replace(high.status, nominated_node_name="a"))
    report(made, writer, replace(high, spec=replace(high.spec, node_selector={"zone": "none"})))
    report(made, writer, claim(exactly("r"), name="own"), claim(exactly("r"), name="c1"), pending("low", "c1"))
    async with made.running():
        await idle(made)
    assert made.bound == {"low": "a"}


async def test_freed_devices_are_held_for_the_members_of_a_gang() -> None:
    made, writer = gang_without_devices(devices=True)
    async with made.running():
        await idle(made)
        assert evicted(made) == {"v-a", "v-b"}
        for name in ("a", "b"):
            free(made, writer, name)
        for number in range(3):
            report(made, writer, claim(exactly("r"), name=f"low-{number}"))
            report(made, writer, pending(f"low-{number}", f"low-{number}", priority=1))
        await idle(made)
    assert sorted(made.bound) == ["train-0", "train-1"]
    assert evicted(made) == {"v-a", "v-b"}
