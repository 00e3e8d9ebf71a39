"""Two processes serve a part of the profiles each, by ``--profiles``; a profile moves between them by its label."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane.api_client import ApiClient, Manifest, address, condition_of, status_of
from hack.controlplane.launcher import ControlPlane
from tests.scenarios.scenario import node_manifest, pod_manifest
from tests.support.failover import ONE, TWO, failover_plane, logged_changes
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
NAMESPACE = "shared"
A, B, CONFIG = "profile-a", "profile-b", "packing"
MOVED = "profile-moved"
_WAIT_SECONDS = 90.0
_QUIET_SECONDS = 3.0


class Cluster:
    """A node, two profiles, and the processes ``one`` for tier a and ``two`` for tier b."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self.plane = plane
        self.api = ApiClient(plane)
        self.one, self.two = (
            OperatorProcess(
                plane.kubeconfig_for(user), directory / f"{user}.log", ["--leader-elect", f"--profiles=tier={tier}"]
            )
            for user, tier in ((ONE, "a"), (TWO, "b"))
        )

    def begin(self) -> None:
        """Create the objects, then start both processes."""
        self.api.create({"kind": "Namespace", "metadata": {"name": NAMESPACE}})
        self.api.create(node_manifest("shared", {"cpu": "64", "pods": "500"}))
        self.create("PluginConfig", CONFIG, {"plugin": "NodeResourcesFit", "args": {}})
        refers = {"pluginConfigRefs": [{"name": CONFIG}]}
        self.create("SchedulerProfile", A, refers, labels={"tier": "a"})
        self.create("SchedulerProfile", B, refers, labels={"tier": "b"})
        for process in (self.one, self.two):
            process.start()
            process.until(lambda process=process: "Scheduling: " in process.log, "the process leads")  # type: ignore[misc]  # a default

    def create(self, kind: str, name: str, spec: Manifest, **metadata: Any) -> None:
        """Create a custom resource of Bayplan."""
        self.api.create(_custom(kind, name, **metadata) | {"spec": spec})

    def pods(self, scheduler: str, *names: str, group: str = "") -> None:
        """Create pods of a profile."""
        labels = {"bayplan.dev/pod-group": group} if group else {}
        fields = {"cpu": "10m", "labels": labels, "spec": {"schedulerName": scheduler}}
        self.api.create_all(pod_manifest(name, NAMESPACE, fields) for name in names)

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Poll until a condition holds."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"not in time: {what}\n{self.one.log[-2000:]}\n{self.two.log[-2000:]}")
            time.sleep(0.05)

    def writers(self, what: str, *names: str) -> dict[str, set[str]]:
        """Return the users that made a kind of request for objects, by the objects' names."""
        found: dict[str, set[str]] = {name: set() for name in names}
        for change in logged_changes(self.plane):
            name = change.name.rpartition("/")[2]
            if change.operation == what and name in found and change.code < 300:
                found[name].add(change.user)
        return found

    def bound_by(self, *names: str) -> dict[str, set[str]]:
        """Wait until pods are bound, and return the users that bound each."""
        self.until(lambda: all(self.writers("pods/binding create", *names).values()), f"{', '.join(names)} are bound")
        return self.writers("pods/binding create", *names)

    def revisions(self, profile: str) -> list[str]:
        """Return the names of the ControllerRevisions of a profile."""
        found = self.plane.kubectl("get", "controllerrevisions", "--output=name", "--namespace=default").split()
        return [name for name in found if name.startswith(f"controllerrevision.apps/{profile}-")]

    def is_ready(self, profile: str) -> bool:
        """Return whether a profile's condition Ready is True."""
        return condition_of(self.stored("SchedulerProfile", profile), "Ready").get("status") == "True"

    def stored(self, kind: str, name: str) -> Manifest:
        return self.api.get(address(_custom(kind, name, namespace=NAMESPACE)))


def _custom(kind: str, name: str, **metadata: Any) -> Manifest:
    return {"apiVersion": "bayplan.dev/v1alpha1", "kind": kind, "metadata": {"name": name, **metadata}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start both processes."""
    directory = tmp_path_factory.mktemp("plane")
    with failover_plane(directory) as plane:
        cluster = Cluster(plane, directory)
        with closing(cluster.api), cluster.one, cluster.two:
            cluster.begin()
            yield cluster


def test_both_lead_at_once(cluster: Cluster) -> None:
    """Each selector has its own Lease, whose name is logged."""
    found = cluster.plane.kubectl("get", "leases", "--output=jsonpath={.items[*].metadata.name}", "--namespace=default")
    names = sorted(name for name in found.split() if name.startswith("bayplan"))
    assert len(names) == 2
    for process, tier in ((cluster.one, "a"), (cluster.two, "b")):
        assert f"Serving the SchedulerProfiles that match tier={tier}" in process.log
        assert sum(f"Leading: Lease default/{name}" in process.log for name in names) == 1


def test_each_process_serves_its_own_profiles(cluster: Cluster) -> None:
    """Pods, status and revisions of a profile are written by one process only."""
    cluster.pods(A, "own-a1", "own-a2")
    cluster.pods(B, "own-b1", "own-b2")
    assert cluster.bound_by("own-a1", "own-a2", "own-b1", "own-b2") == {
        "own-a1": {ONE},
        "own-a2": {ONE},
        "own-b1": {TWO},
        "own-b2": {TWO},
    }
    cluster.until(lambda: all(cluster.writers("schedulerprofiles/status patch", A, B).values()), "both are reported")
    assert cluster.writers("schedulerprofiles/status patch", A, B) == {A: {ONE}, B: {TWO}}
    cluster.until(lambda: [len(cluster.revisions(each)) for each in (A, B)] == [1, 1], "each has a revision")


def test_shared_objects_are_not_rewritten(cluster: Cluster) -> None:
    """Both processes write equal statuses for a shared PluginConfig and an empty group; one writes a gang's status."""
    for name in ("empty", "gang"):
        cluster.create("PodGroup", name, {"minMember": 2}, namespace=NAMESPACE)
    cluster.pods(A, "gang-1", "gang-2", group="gang")

    def status(name: str) -> Manifest:
        return status_of(cluster.stored("PodGroup", name))

    cluster.until(lambda: status("gang").get("scheduled") == 2, "it is bound")
    cluster.until(lambda: status("empty").get("phase") == "Pending", "it is reported")
    cluster.until(lambda: _is_quiet(cluster), "nothing is written any more")
    assert status_of(cluster.stored("PluginConfig", CONFIG))["referencedBy"] == [A, B]
    late = [one for one in logged_changes(cluster.plane) if one.operation == "podgroups/status patch"]
    gangs = [one.user for one in late if one.name.endswith("/gang")]
    # Until its members are read, the gang is an empty group, whose status every process writes.
    assert gangs.count(TWO) <= 1
    assert gangs.count(ONE) >= 1


def _is_quiet(cluster: Cluster) -> bool:
    before = _patches(cluster)
    # The wait proves that no status is written in the meantime.
    time.sleep(_QUIET_SECONDS)
    return _patches(cluster) == before


def _patches(cluster: Cluster) -> int:
    statuses = ("podgroups/status patch", "pluginconfigs/status patch")
    return sum(one.operation in statuses for one in logged_changes(cluster.plane))


def test_an_older_claim_holds_in_every_process(cluster: Cluster) -> None:
    """A profile of tier b that claims the schedulerName of a tier a profile is rejected by the process of tier b."""
    cluster.create("SchedulerProfile", "rival", {"schedulerName": A}, labels={"tier": "b"})
    accepted: Manifest = {}

    def is_decided() -> bool:
        nonlocal accepted
        accepted = condition_of(cluster.stored("SchedulerProfile", "rival"), "Accepted")
        return bool(accepted)

    cluster.until(is_decided, "the profile has the condition")
    assert (accepted["status"], accepted["reason"]) == ("False", "SchedulerNameTaken")
    assert A in accepted["message"]
    cluster.plane.kubectl("delete", "schedulerprofile", "rival")


def test_status_and_explain_report_the_selector(cluster: Cluster) -> None:
    """Status has the process's selector; explain of another process's pod refers to that process."""
    assert json.loads(cluster.two.get("/debug/status")[1])["selector"] == "tier=b"
    cluster.pods(A, "explained")
    cluster.bound_by("explained")
    path = f"/debug/explain?namespace={NAMESPACE}&pod=explained"
    cluster.until(lambda: cluster.two.get(path)[0] == 200, "the pod is in the informer")
    assert f"another process serves {A}, query that one" in cluster.two.get(path)[1]
    assert "another process" not in cluster.one.get(path)[1]


def test_a_label_moves_a_profile_live(cluster: Cluster) -> None:
    """When its label changes, a profile moves to the other process; pods created meanwhile are bound once."""
    cluster.create("SchedulerProfile", MOVED, {}, labels={"tier": "a"})
    cluster.until(lambda: cluster.is_ready(MOVED), "the profile is ready")
    pods = [f"moving-{index}" for index in range(40)]
    cluster.pods(MOVED, *pods[:20])
    cluster.plane.kubectl("label", "schedulerprofile", MOVED, "tier=b", "--overwrite")
    cluster.pods(MOVED, *pods[20:])
    by = cluster.bound_by(*pods)
    assert all(len(users) == 1 for users in by.values())
    cluster.until(lambda: f"scheduler name {MOVED}: no longer served" in cluster.one.log, "the profile is released")
    cluster.pods(MOVED, "moved")
    assert cluster.bound_by("moved") == {"moved": {TWO}}
    cluster.until(lambda: cluster.is_ready(MOVED), "the profile is ready again")
    cluster.until(lambda: len(cluster.revisions(MOVED)) == 1, "it has a revision")
