"""Bayplan's admission check beside real Kueue: Workloads are admitted only if they fit, and their room is held."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
import yaml

from hack.controlplane import binaries
from hack.controlplane.api_client import ApiClient, address, condition_of
from hack.controlplane.installed_operator import Account
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.peers import start_job_set, start_kueue, start_leader_worker_set
from hack.controlplane.servers import Options
from tests.charts.conftest import Helm
from tests.charts.rights import granted, refused, used
from tests.support.kueue_checks import KueueChecks
from tests.support.kueue_gangs import GROUP, VERSION
from tests.support.live_servers import CONTROLLERS, module_plane, peer_marks
from tests.support.operator_process import OperatorProcess
from tests.support.owned_gangs import NAMESPACE
from tests.support.tables import table

pytestmark = peer_marks("kueue", "jobset", "lws")

RELEASE = "admission"

plane = module_plane(
    *CONTROLLERS,
    start_job_set,
    start_leader_worker_set,
    partial(start_kueue, gates=["ElasticJobsViaWorkloadSlices"]),
    lambda plane: plane.kubectl("create", "namespace", RELEASE),
    options=Options(audit=True, feature_gates={"WatchList": False}),
)
"""It streams no lists, so that the right to list is used."""


@pytest.fixture(scope="module")
def manifests(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Apply the chart's objects with the feature gate, and return them."""
    values = {"fullnameOverride": RELEASE, "settings": {"featureGates": {"KueueAdmissionCheck": True}}}
    helm = Helm(binaries.resolve(["helm"])["helm"], tmp_path_factory.mktemp("helm"))
    manifests = helm.template(values, RELEASE)
    plane.kubectl("apply", "--filename=-", input=manifests)
    return manifests


@pytest.fixture(scope="module")
def account(plane: ControlPlane, manifests: str) -> Account:
    """Return the chart's service account after the API server applies its bindings."""
    assert manifests
    account = Account(plane, RELEASE, RELEASE)
    account.wait_until_granted()
    return account


@pytest.fixture(scope="module")
def operator(account: Account, manifests: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """Start an operator with the settings and the rights of the chart."""
    folder = tmp_path_factory.mktemp("operator")
    (files,) = (one["data"] for one in yaml.safe_load_all(manifests) if one and one["kind"] == "ConfigMap")
    settings = folder / "settings.yaml"
    settings.write_text(files[settings.name])
    kubeconfig = account.write_kubeconfig(folder / "kubeconfig")
    with OperatorProcess(kubeconfig, folder / "operator.log", [f"--settings={settings}"], secure=True) as operator:
        operator.start()
        yield operator


@pytest.fixture
def world(plane: ControlPlane, operator: OperatorProcess) -> Iterator[KueueChecks]:
    """Create a profile."""
    with ApiClient(plane) as api:
        world = KueueChecks(api, operator, NAMESPACE)
        world.profile({})
        yield world
        plane.kubectl("delete", "jobs,jobsets,leaderworkersets", "--all")
        plane.kubectl("delete", "workloads.kueue.x-k8s.io", "--all")
        world.remove_pods()
        world.clean_up()


def test_a_fragmented_cluster(world: KueueChecks, plane: ControlPlane) -> None:
    """Kueue alone admits Jobs that fit on no node; with the check it admits none, and the check states the miss."""
    world.nodes("a", "b", "c", cpu="4")
    world.plain_pods("fill-0", "fill-1", "fill-2", cpu=3)
    world.until(lambda: all(world.node_of(f"fill-{number}") for number in range(3)), "each node has one CPU left")
    world.queue("alone", 12)
    check = world.checked_queue("checked", 12)
    manifest = {"apiVersion": VERSION, "kind": "AdmissionCheck", "metadata": {"name": check}}

    def described(job: str) -> str:
        names = plane.kubectl("get", "workloads.kueue.x-k8s.io", "--output=name").split()
        (name,) = (each for each in names if f"/job-{job}-" in each)
        return plane.kubectl("describe", name)

    def is_active() -> bool:
        return condition_of(world.api.get(address(manifest)), "Active").get("status") == "True"

    world.until(is_active, "the check is active")
    alone, checked = [f"alone-{number}" for number in range(3)], [f"checked-{number}" for number in range(3)]
    for name in alone:
        world.sized_job(name, "alone", 1, cpu=2)
    for name in checked:
        world.sized_job(name, "checked", 1, cpu=2)
    world.until(lambda: len(world.admitted_without_nodes(*alone)) == 3, "Kueue alone admits what cannot be placed")
    world.until(lambda: all(world.check_of(name).get("retryCount", 0) >= 1 for name in checked), "all were answered")
    assert not any(map(world.is_admitted, checked))
    assert "0 of 1 pods fit now" in world.operator.log
    world.until(lambda: "0 of 1 pods fit now" in described("checked-0"), "kubectl describe shows the reason")
    plane.kubectl("delete", "jobs", *alone)
    world.until(lambda: not any(map(world.nodes_of, alone)), "the Jobs of the other queue are gone")
    world.remove("Pod", "fill-0")
    world.until(lambda: sum(map(world.is_admitted, checked)) == 2, "two fit on the free node")
    world.until(lambda: not world.admitted_without_nodes(*checked), "all that is admitted is bound")
    assert sum(map(world.is_admitted, checked)) == 2


def test_two_workloads_with_quota(world: KueueChecks, plane: ControlPlane) -> None:
    """Of two Workloads for which there is quota but room for one, one runs; the other one follows when it ends."""
    world.nodes("a", cpu="4")
    world.checked_queue("team", 8)
    world.sized_job("first", "team", 3)
    world.sized_job("second", "team", 3)

    def running() -> list[str]:
        return [name for name in ("first", "second") if world.is_bound(name, 3)]

    world.until(lambda: len(running()) == 1, "one of them is bound as a whole")
    (name,) = running()
    other = "second" if name == "first" else "first"
    world.until(lambda: world.check_of(other).get("retryCount", 0) >= 1, "the other one was answered")
    assert not world.is_admitted(other)
    plane.kubectl("delete", "job", name)
    world.until(lambda: world.is_bound(other, 3), "the other one is bound")


def test_quota_of_a_workload_that_does_not_fit(world: KueueChecks) -> None:
    """A Workload that does not fit does not keep the quota: a later one of the same priority gets it and runs."""
    world.nodes("a", cpu="4")
    world.checked_queue("team", 6)
    world.sized_job("large", "team", 1, cpu=5)
    world.until(lambda: world.quota_reserved("large") == "True", "the large Job has quota")
    world.sized_job("small", "team", 3)
    world.until(lambda: world.is_bound("small", 3), "the small Job is bound")
    assert world.check_of("large")["retryCount"] >= 1
    assert not world.is_admitted("large")


def test_after_evictions(world: KueueChecks) -> None:
    """A Job that fits after evictions which its profile allows is admitted, and evicts the pods."""
    world.nodes("a", cpu="4")
    high = world.cluster_object("PriorityClass", "high", "scheduling.k8s.io/v1", value=1000)
    world.plain_pods("low-0", "low-1", cpu=2)
    world.until(lambda: world.node_of("low-0") and world.node_of("low-1"), "the node is full")
    world.checked_queue("team", 8)
    world.sized_job("urgent", "team", 2, priorityClassName=high)
    world.until(lambda: world.is_bound("urgent", 2), "the Job is bound")
    assert "after the end of 1 pods" in world.check_of("urgent")["message"]


@table("other, fit", ("room-for-both", 3, True), ("room-for-one", 5, False))
def test_two_gangs_that_evict(world: KueueChecks, plane: ControlPlane, other: int, fit: bool) -> None:
    """Two gangs with quota evict the same pods: each is bound as a whole or not at all, and neither waits forever."""
    profile = {"kind": "SchedulerProfile", "apiVersion": "bayplan.dev/v1alpha1", "metadata": {"name": world.token}}
    world.api.patch(profile, {"spec": {"gangs": {"fromOwners": [{"kind": "Job"}]}}})
    world.nodes("a", "b", cpu="4")
    high = world.cluster_object("PriorityClass", "high", "scheduling.k8s.io/v1", value=1000)
    small = [f"low-{number}" for number in range(8)]
    world.plain_pods(*small, cpu=1)
    world.until(lambda: all(map(world.node_of, small)), "the nodes are full")
    world.checked_queue("one", 8)
    world.checked_queue("two", 8)
    sizes = {"first": 5, "second": other}
    world.sized_job("first", "one", 5, priorityClassName=high)
    world.sized_job("second", "two", other, priorityClassName=high)

    def bound() -> list[str]:
        return [name for name, size in sizes.items() if world.is_bound(name, size)]

    if fit:
        world.until(lambda: len(bound()) == 2, "both are bound, each as a whole")
        return
    world.until(lambda: len(bound()) == 1, "one of them is bound as a whole")
    (name,) = bound()
    waits = next(each for each in sizes if each != name)
    world.until(lambda: world.check_of(waits).get("retryCount", 0) >= 1, "the other one was answered")
    assert not any(world.nodes_of(waits))
    assert sum(world.exists(each) for each in small) == 3
    plane.kubectl("delete", "job", name)
    world.until(lambda: bound() == [waits], "the other one is bound as a whole")


def test_room_of_a_workload_without_pods(world: KueueChecks) -> None:
    """Other pods do not take the room of an admitted Workload, after a restart neither; its deletion frees the room."""
    world.nodes("a", cpu="4")
    world.checked_queue("team", 8)
    world.workload("expected", "team", 3, cpu=1)
    world.until(lambda: world.is_admitted("expected"), "the Workload is admitted")
    world.plain_pods("small", cpu=1)
    world.until(lambda: world.node_of("small"), "a pod is bound beside the room")
    world.plain_pods("rival", cpu=1)
    world.until_rejected("rival", "reserved for Workload default/expected")
    world.operator.terminate()
    world.operator.start()
    world.plain_pods("late", cpu=1)
    world.until_rejected("late", "reserved for Workload default/expected")
    assert not world.node_of("rival")
    world.remove("Workload", "expected", VERSION)
    world.until(lambda: world.node_of("rival") and world.node_of("late"), "the room is free")


@table(
    "kind, selector",
    ("job-set", "JobSet", "jobset.sigs.k8s.io/jobset-name=train"),
    ("pod-group", "KueuePodGroup", f"{GROUP}=train"),
    ("replica", "LeaderWorkerSet", "leaderworkerset.sigs.k8s.io/name=train"),
)
def test_a_gang_with_a_topology(world: KueueChecks, kind: str, selector: str) -> None:
    """A gang is admitted only if one zone has room for all its pods, as the row of the profile requires."""
    profile = {"kind": "SchedulerProfile", "apiVersion": "bayplan.dev/v1alpha1", "metadata": {"name": world.token}}
    world.api.patch(profile, {"spec": {"gangs": {"fromOwners": [{"kind": kind, "topology": {"key": "zone"}}]}}})
    world.nodes("a", cpu="3", zone="x")
    world.nodes("b", cpu="3", zone="y")
    world.checked_queue("team", 9)
    if kind == "JobSet":
        world.queued_job_set("train", "team", jobs=2, parallelism=2)
    elif kind == "LeaderWorkerSet":
        world.queued_replica("train", "team", 4)
    else:
        world.pod_group("train", "team", 4)
    world.until(lambda: world.check_of("train").get("retryCount", 0) >= 1, "the Workload was answered")
    assert "0 of 4 pods fit now" in world.operator.log
    assert not world.is_admitted("train")
    world.nodes("c", cpu="1", zone="y")
    world.until(lambda: len([each for each in world.nodes_by_label(selector) if each]) == 4, "the gang is bound")
    assert {each.removeprefix(f"{world.token}-") for each in world.nodes_by_label(selector)} == {"b", "c"}


@table("owners", ("pods", []), ("gang", [{"kind": "Job"}]))
def test_an_elastic_job(world: KueueChecks, plane: ControlPlane, owners: list[dict[str, str]]) -> None:
    """A Job that grows gets room for its new pods; if they do not fit, those that run stay, and the others follow."""
    profile = {"kind": "SchedulerProfile", "apiVersion": "bayplan.dev/v1alpha1", "metadata": {"name": world.token}}
    world.api.patch(profile, {"spec": {"gangs": {"fromOwners": owners}}})
    world.nodes("a", cpu="4")
    world.checked_queue("team", 12)
    world.elastic_job("train", "team", 2)
    world.until(lambda: world.is_bound("train", 2), "both pods are bound")
    world.change_job("train", parallelism=3)
    world.until(lambda: world.is_bound("train", 3), "the new pod is bound")
    first = world.pod_uids("train")
    world.change_job("train", parallelism=6)
    world.until(
        lambda: "3 pods run, and the others wait for room" in world.messages_of("train"), "the miss is reported"
    )
    assert first <= world.pod_uids("train")
    world.nodes("b", cpu="4")
    world.until(lambda: world.is_bound("train", 6), "all are bound")
    assert first <= world.pod_uids("train")
    world.change_job("train", parallelism=1)
    world.until(lambda: world.is_bound("train", 1), "the Job has shrunk")
    if not owners:  # Of a gang, the room of deleted members is held for replacements.
        world.plain_pods("other", cpu=4)
        world.until(lambda: world.node_of("other"), "the room is free")


def test_the_rights_of_the_chart(world: KueueChecks, plane: ControlPlane, account: Account, manifests: str) -> None:
    """The feature gate of the chart grants what the check needs, and each of these rights is used."""
    world.nodes("a", cpu="4")
    world.checked_queue("team", 8)
    world.sized_job("fits", "team", 3)
    world.until(lambda: world.is_bound("fits", 3), "the Job is bound")
    world.sized_job("waits", "team", 3)
    world.until(lambda: world.check_of("waits").get("retryCount", 0) >= 1, "the other Job was answered")
    rights = granted((one for one in yaml.safe_load_all(manifests) if one), RELEASE, RELEASE)
    of_check = [right for right in rights if right.group == "kueue.x-k8s.io"]
    assert len(of_check) == 8

    def unused() -> list[str]:
        requested = used(plane.audit_events(), account.user)
        return [str(right) for right in of_check if not any(map(right.covers, requested))]

    world.until(lambda: not unused(), "the audit log has a request for each right")
    assert refused(plane.audit_events(), account.user) == set()
