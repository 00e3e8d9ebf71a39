"""Gangs and the topology domains in which they are scheduled."""

from __future__ import annotations

from dataclasses import replace

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.model.devices import DeviceClass
from scheduler_core.model.node import Node
from scheduler_core.model.pod_group import GroupKey, GroupSource, GroupTopology, PodGroup
from tests.support.builders import PodFields, node, pod
from tests.support.devices import decoded, device, slice_of
from tests.support.gang_devices import device_rig, settled
from tests.support.gangs import group, member, members, settle, settle_gang
from tests.support.scheduling import DEFAULT_NAME, Rig, configured, default_rig, gang_rig, plugin_set
from tests.support.tables import table

ZONE = GroupTopology("zone")


def zones(**cpus_by_zone: int) -> list[Node]:
    """Return one node for each zone, with the given number of CPUs."""
    return [
        node(f"node-{zone}", labels={"zone": zone}, allocatable={"cpu": str(cpus), "pods": "99"})
        for zone, cpus in cpus_by_zone.items()
    ]


@table(
    "cpus_by_zone, is_required, expected",
    ("the smallest feasible domain", {"a": 8, "b": 4, "c": 2}, True, {"node-b"}),
    ("the only feasible domain", {"a": 8, "b": 3, "c": 2}, True, {"node-a"}),
    ("required and infeasible", {"a": 3, "b": 3, "c": 3}, True, set()),
    ("preferred, over several domains", {"a": 3, "b": 3}, False, {"node-a", "node-b"}),
)
async def test_domains(cluster: Rig, cpus_by_zone: dict[str, int], is_required: bool, expected: set[str]) -> None:
    """A gang is scheduled in one domain, the smallest feasible one; in several only if the constraint is preferred."""
    cluster.add(*zones(**cpus_by_zone))
    topology = GroupTopology("zone", is_required=is_required)
    await settle_gang(cluster, *members(4), of=group(min_member=4, topology=topology))
    assert set(cluster.bound.values()) == expected


async def test_a_domain_with_devices() -> None:
    """A domain has room for members with an extended resource that its devices provide, although no node offers it."""
    served = decoded({"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}}, DeviceClass)
    cluster, _ = device_rig()
    cluster.scheduler.device_feed.added(served)
    cluster.scheduler.device_feed.added(slice_of([device("gpu-0"), device("gpu-1")], node="node-b"))
    cluster.add(*zones(a=8, b=8, c=8))
    cluster.scheduler.group_feed.group_changed(group(min_member=2, topology=ZONE))
    cluster.add(*members(2, requests={"cpu": "1", "example.com/gpu": "1"}))
    await settled(cluster)
    assert set(cluster.bound.values()) == {"node-b"}


async def test_a_domain_for_an_ignored_resource() -> None:
    """A resource that the profile ignores does not limit the room of a domain."""
    cluster = gang_rig(serve=False)
    cluster.serve(configured(DEFAULT_NAME, "NodeResourcesFit", {"ignoredResources": ["example.com/tpu"]}))
    cluster.add(*zones(a=1, b=1, c=2))
    await settle_gang(
        cluster,
        *members(2, requests={"cpu": "1", "example.com/tpu": "1"}),
        of=group(min_member=2, topology=ZONE),
    )
    assert set(cluster.bound.values()) == {"node-c"}


WITHOUT_FIT = Plugins(filter=plugin_set(disabled=["NodeResourcesFit"]))
WITHOUT_PORTS = Plugins(filter=plugin_set(disabled=["NodePorts"]))


@table(
    "plugins, fields",
    ("resources", WITHOUT_FIT, {"requests": {"cpu": "2"}}),
    ("host ports", WITHOUT_PORTS, {"requests": {"cpu": "100m"}, "ports": [80]}),
)
async def test_a_domain_for_what_no_filter_counts(plugins: Plugins, fields: PodFields) -> None:
    """What no filter of the profile counts does not limit the room of a domain; the one with the fewest nodes is first.

    Zone ``a`` has too little of it; ``b`` and ``c`` have enough, and ``b`` accepts no pods.
    """
    cluster = gang_rig(serve=False)
    cluster.serve(ProfileConfig(scheduler_name=DEFAULT_NAME, plugins=plugins))
    cluster.add(*zones(a=1))
    for number in range(3):
        offered = {"cpu": "64", "pods": "99"}
        cluster.add(node(f"b{number}", labels={"zone": "b"}, allocatable=offered, unschedulable=True))
        cluster.add(node(f"c{number}", labels={"zone": "c"}, allocatable=offered))
    await settle_gang(cluster, *members(2, **fields), of=group(min_member=2, topology=ZONE))
    assert set(cluster.bound.values()) == {"node-a"}


@table(
    "plugins, expected",
    ("enabled", Plugins(), "node-b"),
    ("no filter", WITHOUT_FIT, "node-b"),
    ("disabled", Plugins(multi_point=plugin_set(disabled=["NodeResourcesFit"])), "node-a"),
)
async def test_the_allocated_share_is_a_score_of_node_resources_fit(plugins: Plugins, expected: str) -> None:
    """Without the plugin the domains of a native group differ only in the number of members, as in kube-scheduler."""
    cluster = default_rig(groups=[GroupSource.NATIVE], serve=False)
    cluster.serve(ProfileConfig(scheduler_name=DEFAULT_NAME, plugins=plugins))
    cluster.add(*zones(a=8, b=8))
    cluster.add(pod("busy", node_name="node-b", requests={"cpu": "4"}))
    key = GroupKey(GroupSource.NATIVE, "default", "train")
    native = PodGroup(key, "uid-train", 2, is_uniform=True, topology=replace(ZONE, prefers_allocated=True))
    await settle_gang(
        cluster, *(pod(f"m{number}", requests={"cpu": "1"}, group="train") for number in range(2)), of=native
    )
    assert set(cluster.bound.values()) == {expected}


async def test_a_node_that_changes_its_domain(cluster: Rig) -> None:
    """A changed node label requeues a gang that waits for a domain, although no plugin's queueing hint does."""
    cluster.add(*zones(a=2, b=2))
    await settle_gang(cluster, *members(4), of=group(min_member=4, topology=ZONE))
    assert cluster.bound == {}
    before, after = (
        node("node-b", labels={"zone": zone}, allocatable={"cpu": "2", "pods": "99"}) for zone in ("b", "a")
    )
    cluster.scheduler.feed.node_updated(before, after)
    await settle(cluster, after=20.0)
    assert set(cluster.bound.values()) == {"node-a", "node-b"}


async def test_the_narrowest_level_that_fits(cluster: Rig) -> None:
    """Members share a rack if one is feasible, and always share the zone."""
    cluster.add(
        *(
            node(f"{zone}-{rack}", labels={"zone": zone, "rack": rack}, allocatable={"cpu": str(cpus), "pods": "9"})
            for zone, rack, cpus in (("a", "1", 2), ("a", "2", 2), ("b", "1", 3), ("b", "2", 9))
        )
    )
    topology = GroupTopology("zone", levels=("rack",))
    await settle_gang(cluster, *members(3, "small"), of=group("small", min_member=3, topology=topology))
    assert set(cluster.bound.values()) == {"b-1"}
    await settle_gang(cluster, *members(4, "wide"), of=group("wide", min_member=4, topology=topology))
    assert {node for name, node in cluster.bound.items() if name.startswith("wide")} == {"b-2"}


async def test_later_members_are_scheduled_in_the_domain(cluster: Rig) -> None:
    """A later member is scheduled in the domain of the others, or waits."""
    cluster.add(*zones(a=3, b=9))
    await settle_gang(cluster, *members(2), of=group(min_member=2, topology=ZONE))
    assert set(cluster.bound.values()) == {"node-a"}
    await settle(cluster, member("train-8"))
    assert cluster.bound["train-8"] == "node-a"
    await settle(cluster, member("train-9"))
    assert "train-9" not in cluster.bound
    assert "1 node(s) were outside the gang's domain zone=a" in cluster.condition.message


async def test_a_node_that_enters_the_domain_of_a_late_member(cluster: Rig) -> None:
    """The node requeues the late member, although no plugin that rejected the member reads node labels."""
    cluster.add(*zones(a=2, b=9))
    await settle_gang(cluster, *members(2), of=group(min_member=2, topology=ZONE))
    cluster.add(member("train-9"))
    await settle(cluster)
    assert "train-9" not in cluster.bound
    before, after = (
        node("node-b", labels={"zone": zone}, allocatable={"cpu": "9", "pods": "99"}) for zone in ("b", "a")
    )
    cluster.scheduler.feed.node_updated(before, after)
    await settle(cluster, after=20.0)
    assert cluster.bound["train-9"] == "node-b"


async def test_another_scheduler_binds_the_member_that_determines_the_domain(cluster: Rig) -> None:
    """The first member by UID determines the domain in which a late member is attempted."""
    cluster.add(*zones(a=1, b=9))
    cluster.scheduler.group_feed.group_changed(group(min_member=1, topology=ZONE))
    await settle(cluster, member("train-1", node_name="node-a"), member("train-2"))
    assert "train-2" not in cluster.bound
    cluster.add(member("train-0", node_name="node-b"))
    await settle(cluster, after=20.0)
    assert cluster.bound["train-2"] == "node-b"


async def test_the_member_that_determines_the_domain_is_deleted(cluster: Rig) -> None:
    """A late member is attempted in the domain of the remaining members."""
    cluster.add(*zones(a=1, b=9))
    cluster.scheduler.group_feed.group_changed(group(min_member=1, topology=ZONE))
    first, second = member("train-0", node_name="node-a"), member("train-1", node_name="node-b")
    await settle(cluster, first, second, member("train-2"))
    assert "train-2" not in cluster.bound
    cluster.scheduler.feed.pod_deleted(first)
    await settle(cluster, after=20.0)
    assert cluster.bound["train-2"] == "node-b"


async def test_a_late_member_of_a_gang_in_two_domains(cluster: Rig) -> None:
    """A late member gets the domain of the first member by UID, in every process."""
    cluster.add(*zones(a=99, b=99))
    names = [f"train-{number}" for number in range(12)]
    for name in names:
        cluster.scheduler.group_feed.group_changed(group(name, min_member=2, topology=ZONE))
        cluster.add(member(f"{name}-0", name, node_name="node-b"), member(f"{name}-1", name, node_name="node-a"))
        cluster.add(member(f"{name}-2", name))
    await settle(cluster)
    assert set(cluster.bound.values()) == {"node-b"}


@table(
    "running, is_required, expected",
    ("too-small", {}, True, True),
    ("too-small-and-full", {"node-b": 3}, True, True),
    ("full", {"node-c": 4}, True, False),
    ("preferred", {}, False, False),
)
async def test_a_topology_that_no_domain_can_satisfy_is_reported(
    cluster: Rig, running: dict[str, int], is_required: bool, expected: bool
) -> None:
    """The message reports it only if no domain has room even without the pods that run there."""
    sizes = {"a": 2, "b": 3} | ({"c": 4} if "node-c" in running else {})
    cluster.add(*zones(**sizes))
    for name, count in running.items():
        cluster.add(*(pod(f"{name}-{each}", node_name=name, requests={"cpu": "1"}) for each in range(count)))
    topology = GroupTopology("zone", is_required=is_required)
    await settle_gang(
        cluster, *members(4, requests={"cpu": "1" if is_required else "2"}), of=group(min_member=4, topology=topology)
    )
    text = "no domain of zone has room for them even without other pods: the largest, zone=b, has room for 3"
    assert (text in cluster.condition.message) is expected
