"""Gangs by owner with the real controller of JobSets: users write only the JobSet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hack.controlplane.api_client import ApiClient
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.peers import start_job_set
from tests.support.live_servers import CONTROLLERS, module_plane, peer_marks
from tests.support.operator_process import OperatorProcess
from tests.support.owned_gangs import NAMESPACE, OwnedGangs

pytestmark = peer_marks("jobset")

VERSION = "jobset.x-k8s.io/v1alpha2"
SET = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
RESTARTS = "jobset.sigs.k8s.io/restart-attempt"

plane = module_plane(*CONTROLLERS, start_job_set)


class JobSets(OwnedGangs):
    """:class:`OwnedGangs` with JobSets of one driver pod and four workers."""

    def job_set(self, name: str, **spec: Any) -> None:
        """Create a JobSet: one Job of one pod, and two Jobs of two pods each."""
        jobs = [self._replicated("driver", 1, 1), self._replicated("workers", 2, 2)]
        self.namespaced_object("JobSet", name, VERSION, spec={"replicatedJobs": jobs, **spec})

    def _replicated(self, name: str, replicas: int, parallelism: int) -> dict[str, Any]:
        spec = {"parallelism": parallelism, "completions": parallelism, "backoffLimit": 0, "template": self.template()}
        return {"name": name, "replicas": replicas, "template": {"spec": spec}}

    def set_nodes(self, name: str, job: str = "", **labels: str) -> list[str]:
        """Return the node of each pod of a JobSet, or of one of its replicated jobs; "" for none."""
        wanted = {SET: name, **({REPLICATED_JOB: job} if job else {}), **labels}
        return self.nodes_by_label(",".join(f"{key}={value}" for key, value in wanted.items()))

    def is_set_bound(self, name: str, count: int, job: str = "", **labels: str) -> bool:
        """Return whether *count* such pods exist, and all are bound."""
        nodes = self.set_nodes(name, job, **labels)
        return len(nodes) == count and all(nodes)


def _world(plane: ControlPlane, operator: OperatorProcess, row: dict[str, str]) -> Iterator[JobSets]:
    with ApiClient(plane) as api:
        world = JobSets(api, operator, NAMESPACE)
        # A row for Jobs too: the pods of a JobSet are pods of Jobs, and the outer owner counts.
        world.profile({"gangs": {"fromOwners": [{"kind": "Job"}, row]}})
        world.nodes("a", cpu="4")
        yield world
        plane.kubectl("delete", "jobsets", "--all")
        world.clean_up_after_owners()


@pytest.fixture
def world(plane: ControlPlane, operator: OperatorProcess) -> Iterator[JobSets]:
    """Create a profile with a row for JobSets, and a node with room for four pods."""
    yield from _world(plane, operator, {"kind": "JobSet"})


@pytest.fixture
def parts(plane: ControlPlane, operator: OperatorProcess) -> Iterator[JobSets]:
    """Create a profile with a row for replicated jobs, and a node with room for four pods."""
    yield from _world(plane, operator, {"kind": "JobSet", "per": "ReplicatedJob"})


def test_a_job_set(world: JobSets) -> None:
    """All pods of all Jobs of a JobSet are one gang: none is bound until there is room for all."""
    world.job_set("train")
    world.until(lambda: world.sizes("train") == [5], "the JobSet has one PodGroup")
    (group,) = world.groups("train")
    (reference,) = group["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["name"]) == ("JobSet", "train")
    world.until_reason(group["metadata"]["name"], "Unschedulable")
    assert world.set_nodes("train") == [""] * 5
    world.nodes("b", cpu="1")
    world.until(lambda: world.is_set_bound("train", 5), "the JobSet is bound as a whole")


def test_replicated_jobs(parts: JobSets) -> None:
    """Each replicated job is a gang of its own: the workers wait for each other, and not for the driver."""
    parts.job_set("train")
    parts.until(lambda: parts.sizes("train") == [4], "the workers have a PodGroup, and the single driver has none")
    parts.until(lambda: len(parts.set_nodes("train")) == 5, "all pods exist")

    def bound() -> tuple[int, int]:
        return sum(map(bool, parts.set_nodes("train", "driver"))), sum(map(bool, parts.set_nodes("train", "workers")))

    parts.until(lambda: bound() in {(1, 0), (0, 4)}, "one of the gangs is bound")
    parts.nodes("b", cpu="1" if bound() == (0, 4) else "4")
    parts.until(lambda: bound() == (1, 4), "both are bound")


def test_a_restart(world: JobSets, plane: ControlPlane) -> None:
    """After a failure the JobSet creates all Jobs again; their pods are bound together or not at all."""
    world.nodes("b", cpu="1")
    world.job_set("train", failurePolicy={"maxRestarts": 2})
    world.until(lambda: world.is_set_bound("train", 5), "the JobSet is bound")
    pods = world.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=f"{SET}=train")
    plane.kubectl("cordon", f"{world.token}-b")
    failed = {"kind": "Pod", "metadata": {"name": pods[0]["metadata"]["name"], "namespace": NAMESPACE}}
    world.api.patch(failed, {"status": {"phase": "Failed"}}, subresource="status")
    world.until(lambda: len(world.set_nodes("train", **{RESTARTS: "1"})) == 5, "the JobSet has created new pods")
    (group,) = world.groups("train")
    world.until_reason(group["metadata"]["name"], "Unschedulable")
    assert world.set_nodes("train", **{RESTARTS: "1"}) == [""] * 5
    plane.kubectl("uncordon", f"{world.token}-b")
    world.until(lambda: world.is_set_bound("train", 5, **{RESTARTS: "1"}), "the new pods are bound as a whole")
    assert world.sizes("train") == [5]
