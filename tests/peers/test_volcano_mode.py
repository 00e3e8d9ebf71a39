"""The gang mode of the real LeaderWorkerSet controller, which creates a PodGroup of Volcano for each replica."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from hack.controlplane.api_client import ApiClient, Manifest, status_of
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.peers import start_leader_worker_set
from tests.support.leader_worker_sets import SIZE, LeaderWorkerSets
from tests.support.live_servers import CONTROLLERS, VOLCANO_GROUPS, definitions, module_plane, peer_marks
from tests.support.operator_process import OperatorProcess
from tests.support.owned_gangs import NAMESPACE

pytestmark = peer_marks("lws")

GROUPS = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{NAMESPACE}/podgroups"
OPERATOR_FLAGS = ("--feature-gates=VolcanoPodGroups=true",)

plane = module_plane(
    *CONTROLLERS,
    definitions(VOLCANO_GROUPS),
    partial(start_leader_worker_set, configuration={"gangSchedulingManagement": {"schedulerProvider": "volcano"}}),
)


@pytest.fixture
def world(plane: ControlPlane, operator: OperatorProcess) -> Iterator[LeaderWorkerSets]:
    """Create a profile without rows of owners, and a node with room for one and a half replicas."""
    with ApiClient(plane) as api:
        world = LeaderWorkerSets(api, operator, NAMESPACE)
        world.profile({})
        world.nodes("a", cpu="6")
        yield world
        plane.kubectl("delete", "leaderworkersets", "--all")
        world.until(lambda: not world.api.items(GROUPS), "the PodGroups are deleted with their leaders")
        world.clean_up_after_owners()


def test_a_group_for_each_replica(world: LeaderWorkerSets) -> None:
    """Each replica is bound as a whole; the PodGroups that the controller created have the phase and the counts."""
    world.leader_worker_set("serve", 2)
    world.until(lambda: world.bound_by_replica("serve") == [0, SIZE], "one replica is bound")

    def phases() -> list[tuple[str, int]]:
        statuses: list[Manifest] = [status_of(each) for each in world.api.items(GROUPS)]
        return sorted((status.get("phase", ""), status.get("running", 0)) for status in statuses)

    world.until(lambda: phases() == [("Inqueue", 0), ("Running", SIZE)], "the statuses are written")
    world.nodes("b", cpu="2")
    world.until(lambda: world.bound_by_replica("serve") == [SIZE, SIZE], "both replicas are bound")
    world.until(lambda: phases() == [("Running", SIZE), ("Running", SIZE)], "both run")
