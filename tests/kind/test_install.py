"""The chart in a kind cluster, from installation to uninstallation.

The tests run in order and share one release: each starts in the state that the one before leaves.
"""

from __future__ import annotations

import json
import time

import pytest

from tests.kind.conftest import NAMESPACE, RELEASE, Release

# The first test includes the time to create the cluster and build the image.
pytestmark = pytest.mark.timeout(1200)
_PROFILE = "schedulerprofile/e2e"
_TAKEOVER_SECONDS = 60.0
_POLL_SECONDS = 0.5


def test_both_replicas_are_ready(release: Release) -> None:
    """Two pods run on two nodes and are ready."""
    path = "--output=jsonpath={range .items[*]}{.spec.nodeName} {.status.containerStatuses[0].ready}{'\\n'}{end}"
    lines = release.kubectl("get", "pods", f"--namespace={NAMESPACE}", path).split("\n")[:-1]
    nodes, ready = zip(*(line.split() for line in lines), strict=True)
    assert ready == ("true", "true")
    assert len(set(nodes)) == 2


def test_the_default_profile_is_live(release: Release) -> None:
    """The chart's default profile is ready; the operator creates it at the first installation."""
    release.kubectl("wait", "schedulerprofile/bayplan", "--for=create", "--timeout=60s")
    release.kubectl("wait", "schedulerprofile/bayplan", "--for=condition=Ready", "--timeout=60s")


def test_a_profile_schedules(release: Release) -> None:
    """A profile is applied, and kubelets run the pods that name it."""
    _apply_profile(release, "NodeResourcesFit")
    release.kubectl("wait", _PROFILE, "--for=condition=Ready", "--timeout=60s")
    _run_pods(release, "first", 5)


def test_a_broken_edit_keeps_the_last_good_revision(release: Release) -> None:
    """An unknown plugin is rejected with its name, and pods are scheduled as before."""
    revision = _field(release, ".status.activeRevision")
    _apply_profile(release, "NodeResourcesFitt")
    release.kubectl("wait", _PROFILE, "--for=condition=Accepted=false", "--timeout=60s")
    assert "NodeResourcesFitt" in _field(release, '.status.conditions[?(@.type=="Accepted")].message')
    assert _field(release, '.status.conditions[?(@.type=="Ready")].status') == "True"
    assert _field(release, ".status.activeRevision") == revision
    _run_pods(release, "second", 5)


def test_the_standby_takes_over(release: Release) -> None:
    """When the leader's pod is deleted without grace, the standby leads and schedules pods."""
    before = release.leader()
    release.kubectl("delete", f"pod/{before}", f"--namespace={NAMESPACE}", "--grace-period=0", "--force")
    deadline = time.monotonic() + _TAKEOVER_SECONDS
    while _leader_or_none(release) in {before, None}:
        assert time.monotonic() < deadline, f"no replica has taken over from {before}"
        time.sleep(_POLL_SECONDS)
    _run_pods(release, "third", 5)


def test_an_upgrade_changes_settings(release: Release) -> None:
    """An upgrade with other values replaces the pods one by one, and scheduling continues."""
    release.upgrade("--set=settings.logFormat=json")
    log = release.kubectl("logs", f"deployment/{RELEASE}", f"--namespace={NAMESPACE}", "--tail=1")
    assert json.loads(log)
    _run_pods(release, "fourth", 5)


def test_uninstalling_keeps_the_users_objects(release: Release) -> None:
    """Uninstalling deletes the operator's objects; definitions, profiles and pods stay."""
    release.helm("uninstall", RELEASE, "--wait")
    owned = "deployments,services,serviceaccounts,configmaps,roles,rolebindings"
    selector = f"--selector=app.kubernetes.io/instance={RELEASE}"
    assert release.kubectl("get", owned, f"--namespace={NAMESPACE}", selector, "--output=name") == ""
    assert release.kubectl("get", "clusterroles,clusterrolebindings", selector, "--output=name") == ""
    assert release.kubectl("get", _PROFILE, "--output=name") == "schedulerprofile.bayplan.dev/e2e\n"
    assert len(release.kubectl("get", "pods", "--selector=batch=first", "--output=name").split()) == 5


def _apply_profile(release: Release, plugin: str) -> None:
    spec = {"plugins": {"score": {"enabled": [{"name": plugin, "weight": 5}], "disabled": [{"name": plugin}]}}}
    manifest = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "SchedulerProfile", "metadata": {"name": "e2e"}}
    release.kubectl("apply", "--filename=-", input=json.dumps(manifest | {"spec": spec}))


def _run_pods(release: Release, batch: str, count: int) -> None:
    """Create pods and wait until kubelets have started them; they use the pause image, which every node has."""
    path = "--output=jsonpath={.items[0].status.images[*].names[*]}"
    pause = next(name for name in release.kubectl("get", "nodes", path).split() if "/pause:" in name)
    container = {"name": "main", "image": pause, "resources": {"requests": {"cpu": "10m"}}}
    spec = {"schedulerName": "e2e", "containers": [container]}
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{batch}-{number}", "labels": {"batch": batch}},
            "spec": spec,
        }
        for number in range(count)
    ]
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": pods})
    release.kubectl("apply", "--filename=-", input=listed)
    release.kubectl("wait", "pods", f"--selector=batch={batch}", "--for=condition=Ready", "--timeout=120s")


def _field(release: Release, path: str) -> str:
    return release.kubectl("get", _PROFILE, f"--output=jsonpath={{{path}}}").strip()


def _leader_or_none(release: Release) -> str | None:
    """Return the leader, or None while the Lease names a deleted pod."""
    try:
        return release.leader()
    except ValueError:
        return None
