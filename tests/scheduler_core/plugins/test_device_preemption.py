"""Preemption that frees devices: what is evicted, and how the preemptor waits for the devices."""

from __future__ import annotations

from msgspec.structs import replace

from tests.support.device_preemption import deallocate, held, holder, idle, pending, served, shared_by_two
from tests.support.devices import claim, device, exactly, slice_of
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
