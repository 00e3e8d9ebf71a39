"""Gangs by owner with the real controller of LeaderWorkerSets: each replica is a gang of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hack.controlplane.api_client import ApiClient, status_of
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.peers import start_leader_worker_set
from tests.support.leader_worker_sets import SIZE, LeaderWorkerSets
from tests.support.live_servers import CONTROLLERS, module_plane, peer_marks
from tests.support.operator_process import OperatorProcess
from tests.support.owned_gangs import NAMESPACE

pytestmark = peer_marks("lws")

plane = module_plane(*CONTROLLERS, start_leader_worker_set)


@pytest.fixture
def world(plane: ControlPlane, operator: OperatorProcess) -> Iterator[LeaderWorkerSets]:
    """Create a profile with a row for LeaderWorkerSets, and a node with room for two replicas."""
    with ApiClient(plane) as api:
        world = LeaderWorkerSets(api, operator, NAMESPACE)
        world.profile({"gangs": {"fromOwners": [{"kind": "LeaderWorkerSet"}]}})
        world.nodes("a", cpu="8")
        yield world
        plane.kubectl("delete", "leaderworkersets", "--all")
        world.until(lambda: not world.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods"), "all pods are deleted")
        world.clean_up_after_owners()


def test_scaling_up_on_a_cluster_with_room_for_part(world: LeaderWorkerSets) -> None:
    """A LeaderWorkerSet that grows from two replicas to five gets the replicas that fit whole, and none in part."""
    world.leader_worker_set("serve", 2)
    world.until(lambda: world.bound_by_replica("serve") == [SIZE, SIZE], "both replicas are bound")
    assert world.sizes("serve") == [SIZE, SIZE]
    world.nodes("b", cpu="6")
    world.scale("serve", 5)
    world.until(lambda: len(world.replica_pods("serve")) == 5 * SIZE, "all pods exist")
    world.until(lambda: world.bound_by_replica("serve") == [0, 0, SIZE, SIZE, SIZE], "a third replica is bound")

    def waiting() -> list[str]:
        return [each["metadata"]["name"] for each in world.groups("serve") if status_of(each).get("scheduled", 0) == 0]

    # The status of the third replica is written after its pods are bound.
    world.until(lambda: len(waiting()) == 2, "two replicas are counted as waiting")
    for name in waiting():
        world.until_reason(name, "Unschedulable")
    assert world.bound_by_replica("serve") == [0, 0, SIZE, SIZE, SIZE]
    world.nodes("c", cpu="2")
    world.until(lambda: world.bound_by_replica("serve") == [0, SIZE, SIZE, SIZE, SIZE], "a fourth replica is bound")


def test_scaling_down(world: LeaderWorkerSets) -> None:
    """The PodGroup of a replica is deleted with its leader pod, and leaves its room to others."""
    world.leader_worker_set("serve", 2)
    world.until(lambda: world.bound_by_replica("serve") == [SIZE, SIZE], "both replicas are bound")
    world.leader_worker_set("other", 1)
    world.until(lambda: world.sizes("other") == [SIZE], "the other replica has a PodGroup")
    (group,) = world.groups("other")
    world.until_reason(group["metadata"]["name"], "Unschedulable")
    world.scale("serve", 1)
    world.until(lambda: world.sizes("serve") == [SIZE], "one PodGroup is deleted")
    world.until(lambda: world.bound_by_replica("other") == [SIZE], "the other replica is bound")


def test_workers_that_wait_for_their_leader(world: LeaderWorkerSets) -> None:
    """With startupPolicy LeaderReady the workers are no gang with their leader; the pods are held with this reason."""
    world.leader_worker_set("serve", 1, startupPolicy="LeaderReady")
    world.until(lambda: world.replica_pods("serve"), "the leader exists")
    (leader,) = world.replica_pods("serve")
    message = world.until_rejected(leader["metadata"]["name"], "spec.startupPolicy")
    assert "set LeaderCreated" in message
    assert world.groups("serve") == []
