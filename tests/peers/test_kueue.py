"""Gangs by owner beside real Kueue: it decides when a workload starts, and Bayplan places it all or nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hack.controlplane.api_client import ApiClient
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.peers import start_kueue
from tests.support.kueue_gangs import GROUP, KueueGangs
from tests.support.live_servers import CONTROLLERS, module_plane, peer_marks
from tests.support.operator_process import OperatorProcess
from tests.support.owned_gangs import NAMESPACE

pytestmark = peer_marks("kueue")

plane = module_plane(*CONTROLLERS, start_kueue)


@pytest.fixture
def world(plane: ControlPlane, operator: OperatorProcess) -> Iterator[KueueGangs]:
    """Create a profile with rows for Jobs and pod groups, a queue of six CPUs, and a node with room for four pods."""
    with ApiClient(plane) as api:
        world = KueueGangs(api, operator, NAMESPACE)
        world.profile({"gangs": {"fromOwners": [{"kind": "Job"}, {"kind": "KueuePodGroup"}]}})
        world.nodes("a", cpu="4")
        world.queue("team", 6)
        yield world
        plane.kubectl("delete", "jobs", "--all")
        plane.kubectl("delete", "workloads.kueue.x-k8s.io", "--all")
        world.remove_pods()
        world.clean_up_after_owners()


def test_a_job_in_a_queue(world: KueueGangs) -> None:
    """A Job that Kueue resumes is a gang of its parallelism; a second one waits in the queue without a PodGroup."""
    world.queued_job("first", "team", 4)
    world.until(lambda: world.is_bound("first", 4), "the admitted Job is bound")
    world.queued_job("second", "team", 3)
    world.until(lambda: world.quota_reserved("second") == "False", "Kueue has no quota for the second Job")
    assert world.sizes("first") == [4]
    assert world.nodes_of("second") == []
    assert world.groups("second") == []


def test_partial_admission(world: KueueGangs) -> None:
    """The PodGroup of a Job that Kueue admits with fewer pods has their number; all of them are bound."""
    world.queued_job("holds", "team", 2)
    world.until(lambda: world.is_bound("holds", 2), "a Job holds a third of the quota")
    world.nodes("b", cpu="4")
    world.queued_job("elastic", "team", 8, minimum=2)
    world.until(lambda: world.is_bound("elastic", 4), "the Job is bound with the pods that the quota allows")
    assert world.sizes("elastic") == [4]


def test_admitted_but_too_large(world: KueueGangs) -> None:
    """No pod of an admitted Job that does not fit on the nodes is bound, until there is room for all."""
    world.queued_job("large", "team", 6)
    world.until(lambda: world.sizes("large") == [6], "Kueue has admitted the Job")
    (group,) = world.groups("large")
    world.until_reason(group["metadata"]["name"], "Unschedulable")
    assert set(world.nodes_of("large")) == {""}
    world.nodes("b", cpu="2")
    world.until(lambda: world.is_bound("large", 6), "the Job is bound as a whole")


def test_a_pod_group(world: KueueGangs) -> None:
    """The pods of a pod group are a gang of its total count: bound together, and not at all if they do not fit."""
    world.pod_group("train", "team", 4)
    world.until(lambda: all(world.nodes_by_label(f"{GROUP}=train")), "the pod group is bound")
    assert world.sizes("train") == [4]
    world.pod_group("more", "team", 2)
    world.until(lambda: world.sizes("more") == [2], "Kueue has admitted the second pod group")
    (group,) = world.groups("more")
    world.until_reason(group["metadata"]["name"], "Unschedulable")
    assert set(world.nodes_by_label(f"{GROUP}=more")) == {""}
