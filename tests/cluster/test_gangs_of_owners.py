"""Gangs by owner on a real API server with the controllers of Kubernetes: users write only their Job or CronJob."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hack.controlplane.api_client import ApiClient
from hack.controlplane.launcher import ControlPlane
from tests.support.live_servers import CONTROLLERS, module_plane
from tests.support.operator_process import OperatorProcess
from tests.support.owned_gangs import NAMESPACE, OwnedGangs

pytestmark = [pytest.mark.cluster, pytest.mark.kwok, pytest.mark.controllers, pytest.mark.timeout(180)]

plane = module_plane(*CONTROLLERS)


@pytest.fixture
def world(plane: ControlPlane, operator: OperatorProcess) -> Iterator[OwnedGangs]:
    """Create a profile with a row for Jobs, and a node with room for four pods."""
    with ApiClient(plane) as api:
        world = OwnedGangs(api, operator, NAMESPACE)
        world.profile({"gangs": {"fromOwners": [{"kind": "Job"}]}})
        world.nodes("a", cpu="4")
        yield world
        plane.kubectl("delete", "jobs,cronjobs", "--all")
        world.clean_up_after_owners()


def test_a_job(world: OwnedGangs, plane: ControlPlane) -> None:
    """A Job gets a PodGroup with its parallelism; kubectl shows it; it is deleted with the Job."""
    world.batch_job("train", 4)
    world.until(lambda: world.is_bound("train", 4), "the gang is bound")
    (group,) = world.groups("train")
    name = group["metadata"]["name"]
    (reference,) = group["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["name"], reference["controller"]) == ("Job", "train", True)
    world.until_reason(name, "Scheduled")
    world.until(lambda: world.counts(name) == (4, 4, 4), "all members run")
    header, row = plane.kubectl("get", "bpg", name, "-o", "wide").splitlines()
    shown = dict(zip(header.split(), row.split(), strict=False))
    assert [shown[column] for column in ("NAME", "PHASE", "MIN", "PODS", "BOUND", "REASON")] == [
        name,
        "Running",
        "4",
        "4",
        "4",
        "Scheduled",
    ]
    plane.kubectl("delete", "job", "train", "--wait=false")
    world.until(lambda: not world.groups("train"), "the garbage collector has deleted the PodGroup")


def test_a_job_that_does_not_fit(world: OwnedGangs) -> None:
    """No pod of a Job that does not fit as a whole is bound; it follows a smaller parallelism."""
    world.batch_job("large", 6, completions=None)
    world.until(lambda: world.sizes("large") == [6], "the PodGroup exists")
    (group,) = world.groups("large")
    world.until_reason(group["metadata"]["name"], "Unschedulable")
    assert set(world.nodes_of("large")) == {""}
    world.change_job("large", parallelism=4)
    world.until(lambda: world.sizes("large") == [4], "the PodGroup has the new size")
    world.until(lambda: world.is_bound("large", 4), "the smaller gang is bound")


def test_a_job_that_grows(world: OwnedGangs) -> None:
    """The pods that a larger parallelism adds are bound together or not at all."""
    world.batch_job("elastic", 2, completions=None)
    world.until(lambda: world.is_bound("elastic", 2), "the gang is bound")
    world.change_job("elastic", parallelism=5)
    world.until(lambda: world.sizes("elastic") == [5], "the PodGroup has the new size")
    (group,) = world.groups("elastic")
    name = group["metadata"]["name"]
    world.until(lambda: world.reason(name) in {"Partial", "Unschedulable"}, "the added pods do not fit")
    world.nodes("b", cpu="4")
    world.until(lambda: world.is_bound("elastic", 5), "the larger gang is bound")


def test_a_suspended_job(world: OwnedGangs) -> None:
    """A suspended Job has no PodGroup until it is resumed, perhaps with another parallelism, as Kueue does."""
    world.batch_job("waits", 8, completions=8, suspend=True)
    world.batch_job("other", 2)
    world.until(lambda: world.is_bound("other", 2), "another Job is bound")
    assert world.groups("waits") == []
    world.change_job("waits", parallelism=2)
    world.change_job("waits", suspend=False)
    world.until(lambda: world.is_bound("waits", 2), "the resumed Job is bound")
    assert world.sizes("waits") == [2]


def test_runs_of_a_cron_job(world: OwnedGangs, plane: ControlPlane) -> None:
    """Each run of a CronJob is a gang of its own: the second waits as a whole for the end of the first."""
    job = {"spec": {"parallelism": 3, "completions": 3, "template": world.template()}}
    schedule = {"schedule": "0 0 1 1 *", "jobTemplate": job, "concurrencyPolicy": "Allow"}
    world.namespaced_object("CronJob", "nightly", "batch/v1", spec=schedule)
    for run in ("nightly-1", "nightly-2"):
        plane.kubectl("create", "job", run, "--from=cronjob/nightly")
    world.until(lambda: world.sizes("nightly-") == [3, 3], "each run has a PodGroup")
    world.until(lambda: sum(world.is_bound(run, 3) for run in ("nightly-1", "nightly-2")) == 1, "one run is bound")
    bound, waits = sorted(("nightly-1", "nightly-2"), key=lambda run: not world.is_bound(run, 3))
    (group,) = world.groups(waits)
    world.until_reason(group["metadata"]["name"], "Unschedulable")
    assert set(world.nodes_of(waits)) == {""}
    plane.kubectl("delete", "job", bound, "--wait=false")
    world.until(lambda: world.is_bound(waits, 3), "the other run is bound")


def test_single_pods_and_opt_out(world: OwnedGangs) -> None:
    """A Job of one pod needs no PodGroup, and one with the label bayplan.dev/gang: "false" has none."""
    world.batch_job("single", 1)
    template = world.template()
    template["metadata"]["labels"] = {"bayplan.dev/gang": "false"}
    world.until(lambda: world.is_bound("single", 1), "the single pod is bound")
    world.batch_job("loose", 5, template=template)
    world.until(lambda: sum(map(bool, world.nodes_of("loose"))) >= 3, "pods that are no gang are bound one by one")
    assert world.groups("single") == world.groups("loose") == []


def test_the_operator_restarts(world: OwnedGangs) -> None:
    """A restarted operator counts the members that it bound before, and needs no further PodGroup."""
    world.batch_job("stays", 4)
    world.until(lambda: world.is_bound("stays", 4), "the gang is bound")
    (group,) = world.groups("stays")
    world.until_reason(group["metadata"]["name"], "Scheduled")
    world.operator.kill()
    world.operator.start()
    world.until(lambda: world.counts(group["metadata"]["name"]) == (4, 4, 4), "the members are counted again")
    assert [each["metadata"]["uid"] for each in world.groups("stays")] == [group["metadata"]["uid"]]
    assert world.reason(group["metadata"]["name"]) == "Scheduled"


def test_a_job_that_is_deleted_without_its_pods(world: OwnedGangs, plane: ControlPlane) -> None:
    """The pods that stay are in no gang any more, and the PodGroup is deleted."""
    world.batch_job("orphan", 2)
    world.until(lambda: world.is_bound("orphan", 2), "the gang is bound")
    plane.kubectl("delete", "job", "orphan", "--cascade=orphan")
    world.until(lambda: not world.groups("orphan"), "the PodGroup is deleted")
    assert world.is_bound("orphan", 2)
    plane.kubectl("delete", "pods", "--selector=batch.kubernetes.io/job-name=orphan", "--force", "--grace-period=0")
