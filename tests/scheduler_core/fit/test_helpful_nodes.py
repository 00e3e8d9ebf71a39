"""New nodes that would help pods and gangs that wait."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.dry_run_assembly import helpful_nodes
from scheduler_core.explain.findings import HelpfulNode, NewNodes
from scheduler_core.fit.helpful_nodes import node_shapes
from scheduler_core.fit.requests import FitRequest
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupTopology, PodGroup
from tests.support.builders import pod
from tests.support.devices import allocated_claim, claim, device, device_class, exactly, slice_of, using
from tests.support.gang_preemption import add_gang, running_pod, small_node
from tests.support.gangs import gang_of, group, members
from tests.support.scheduler_state import scheduler_state
from tests.support.scheduling import Rig, default_rig, gang_rig, plugin_set, profile
from tests.support.tables import table

ZONE = GroupTopology("zone")


@pytest.fixture
def cluster() -> Rig:
    """Return a scheduler with full nodes of two shapes: two with two CPUs in zone x, one with four in zone y."""
    made = gang_rig(small_node("a", 2, zone="x"), small_node("b", 2, zone="x"), small_node("c", 4, zone="y"))
    made.add(*(running_pod(f"v-{name}", name, cpus=cpus) for name, cpus in (("a", 2), ("b", 2), ("c", 4))))
    return made


def help_of(made: Rig, request: FitRequest, needed: int, limit: int | None = None) -> NewNodes:
    """Search new nodes for all pods of a request, and assert that nothing is changed."""
    before = scheduler_state(made.scheduler)
    with made.context.steps.dry_run(limit=limit):
        uids = {each.metadata.uid for each in request.pods}
        found = helpful_nodes(made.context, made.scheduler.reservations).find(request, uids, needed)
    assert scheduler_state(made.scheduler) == before
    return found


def _pod(cpus: int, **fields: Any) -> Pod:
    return pod("p", requests={"cpu": str(cpus)}, **fields)


@table(
    "waiting, helpful",
    ("the-smaller-one-first", _pod(2), (HelpfulNode("a", 1), HelpfulNode("c", 1))),
    ("only-the-larger-one", _pod(3), (HelpfulNode("c", 1),)),
    ("only-in-one-zone", _pod(1, node_selector={"zone": "y"}), (HelpfulNode("c", 1),)),
    ("no-label", _pod(1, node_selector={"zone": "z"}), ()),
    ("too-large", _pod(5), ()),
    ("gated", _pod(1, gates=("wait",)), ()),
)
def test_nodes_that_help_a_pod(cluster: Rig, waiting: Pod, helpful: tuple[HelpfulNode, ...]) -> None:
    """Nodes are listed whose copies the pod would be scheduled to."""
    cluster.add(waiting)
    found = help_of(cluster, FitRequest(pods=(waiting,)), 1)
    assert (found.helpful, found.is_complete) == (helpful, True)


def test_nodes_that_help_a_pod_whose_profile_counts_no_resources() -> None:
    """A pod that requests more than any node offers waits for its host port alone."""
    made = default_rig(serve=False)
    made.serve(profile(plugins=Plugins(multi_point=plugin_set(disabled=("NodeResourcesFit",)))))
    made.add(small_node("a", 2), pod("web", node_name="a", ports=[80]))
    waiting = _pod(5, ports=[80])
    made.add(waiting)
    assert help_of(made, FitRequest(pods=(waiting,)), 1).helpful == (HelpfulNode("a", 1),)


@table(
    "of, count, helpful",
    ("anywhere", group(min_member=5), 5, (HelpfulNode("c", 2), HelpfulNode("a", 3))),
    ("one-zone", group(min_member=5, topology=ZONE), 5, (HelpfulNode("c", 2), HelpfulNode("a", 3))),
    ("more-members-than-the-quorum", group(min_member=4), 6, (HelpfulNode("c", 1), HelpfulNode("a", 2))),
)
def test_nodes_that_help_a_gang(cluster: Rig, of: PodGroup, count: int, helpful: tuple[HelpfulNode, ...]) -> None:
    """The number is that for the whole quorum, which waits already."""
    waiting = members(count)
    add_gang(cluster, *waiting, of=of)
    gang = gang_of(cluster)
    found = help_of(cluster, FitRequest(pods=tuple(waiting), groups=(of,)), gang.needed)
    assert found.helpful == helpful


def test_running_members_set_the_zone(cluster: Rig) -> None:
    """Only nodes in the domain of the running members help the others."""
    of = group(min_member=3, topology=ZONE)
    waiting = members(3)[1:]
    add_gang(cluster, running_member(), *waiting, of=of)
    found = help_of(cluster, FitRequest(pods=tuple(waiting)), gang_of(cluster).needed)
    assert found.helpful == (HelpfulNode("a", 1),)


def running_member() -> Pod:
    return replace(members(1, node_name="a", requests={})[0])


def test_the_limit_of_steps(cluster: Rig) -> None:
    """A search that reaches the limit of its dry run is reported as incomplete."""
    cluster.add(_pod(2))
    assert help_of(cluster, FitRequest(pods=(_pod(2),)), 1, limit=2) == NewNodes(is_complete=False)


@table("zone, name", ("first", "x", "a"), ("second", "y", "b"))
def test_every_node_has_a_zone_of_its_own(zone: str, name: str) -> None:
    """A label that a pod selects is part of the shape, although each node has another value."""
    made = gang_rig(small_node("a", 2, zone="x"), small_node("b", 2, zone="y"))
    made.add(running_pod("v-a", "a", cpus=2), running_pod("v-b", "b", cpus=2))
    waiting = _pod(1, node_selector={"zone": zone})
    made.add(waiting)
    assert help_of(made, FitRequest(pods=(waiting,)), 1).helpful == (HelpfulNode(name, 1),)


def test_a_rare_pool_that_a_pod_selects() -> None:
    """More pools than shapes that are tried do not hide the pool of the pod."""
    made = gang_rig()
    for number in range(30):
        name = f"n{number}"
        made.add(small_node(name, 2, pool=f"p{number // 2}"), running_pod(f"v-{name}", name, cpus=2))
    waiting = _pod(1, node_selector={"pool": "p14"})
    made.add(waiting)
    assert help_of(made, FitRequest(pods=(waiting,)), 1).helpful == (HelpfulNode("n28", 1),)


def test_devices_are_part_of_the_shape() -> None:
    """A pod with a claim is helped by a copy of the node that has the device."""
    made = gang_rig(small_node("a", 2, zone="x"), small_node("b", 2, zone="x"))
    devices = made.columns.devices
    devices.assign(device_class())
    devices.assign(slice_of([device("gpu-0")], node="b", count=1))
    devices.assign(allocated_claim({"device": "gpu-0", "pool": "b"}))
    devices.assign(claim(exactly("gpu"), name="mine"))
    waiting = using(pod("p", namespace="ns", requests={"cpu": "1"}), "mine")
    made.add(waiting)
    assert help_of(made, FitRequest(pods=(waiting,)), 1).helpful == (HelpfulNode("b", 1),)


def test_each_number_that_is_tried_counts_the_members() -> None:
    """A search that fails at the first member takes steps for all, because each trial queues them again."""
    made = gang_rig()
    for number in range(8):
        made.add(small_node(f"n{number}", 50 + number), running_pod(f"v-{number}", f"n{number}", cpus=50 + number))
    of, waiting = group(min_member=1000), members(1000, node_selector={"zone": "none"})
    add_gang(made, *waiting, of=of)
    request, needed = FitRequest(pods=tuple(waiting), groups=(of,)), gang_of(made).needed
    assert not help_of(made, request, needed, limit=10_000).is_complete
    assert help_of(made, request, needed, limit=100_000) == NewNodes((), 8)


def _labelled(name: str, **labels: str) -> Node:
    made = small_node(name)
    return replace(made, metadata=replace(made.metadata, labels={**made.metadata.labels, **labels}))


def test_labels_of_one_node_make_no_shape() -> None:
    """Labels with a value for each node are ignored; the most frequent shape comes first."""
    made = default_rig()
    for number in range(6):
        made.add(_labelled(f"n{number}", serial=str(number), pool="large" if number < 2 else "small"))
    nodes = made.columns
    assert list(node_shapes(nodes, [nodes.compile_pod(_pod(1))])) == ["n2", "n0"]
