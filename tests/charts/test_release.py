"""A release on a real API server with Helm 3 and 4: installed, run, tested, upgraded, uninstalled and installed again.

kwok runs the pods. No container runs, so the operator runs beside the cluster. It starts with the arguments, the
settings and the service account token of the installed Deployment, which kubectl reads back.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane.api_client import ApiClient
from hack.controlplane.installed_operator import InstalledOperator
from hack.controlplane.launcher import ControlPlane, ControlPlaneError
from tests.charts.conftest import CHART, Helm
from tests.scenarios.scenario import node_manifest, pod_manifest
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.kwok, pytest.mark.timeout(300)]
_NAMESPACE = "bayplan-system"
_DEFINITIONS = tuple(
    f"crd/{name}.bayplan.dev"
    for name in ("nodereservations", "pluginconfigs", "podgroups", "rebalanceplans", "schedulerprofiles")
)
# Every kind that the chart renders by default; kubectl's category "all" has only some of them.
_KINDS = (
    "configmap,deployment,service,serviceaccount,poddisruptionbudget,role,rolebinding,clusterrole,clusterrolebinding,"
    "schedulerprofile"
)


@dataclass(frozen=True)
class Release:
    """A release named ``bayplan``.

    Args:
        helm: The Helm that installs it.
    """

    helm: Helm
    plane: ControlPlane

    def run(self, *args: str) -> str:
        """Run Helm, which must succeed."""
        given = (*args, f"--namespace={_NAMESPACE}")
        answer = self.helm.run(*given, kubeconfig=self.plane.kubeconfig)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def install(self, *flags: str) -> str:
        """Install the release without waiting for pods, which no kubelet starts here; return the notes."""
        output = self.run("install", "bayplan", str(CHART), "--create-namespace", "--wait=false", *flags)
        return output[output.index("NOTES:") :]

    def test(self, *flags: str) -> subprocess.CompletedProcess[str]:
        """Run `helm test`."""
        given = ("test", "bayplan", f"--namespace={_NAMESPACE}", *flags)
        return self.helm.run(*given, kubeconfig=self.plane.kubeconfig)

    def pods(self) -> list[str]:
        """Return the names of the pods in the release's namespace."""
        return self.plane.kubectl("get", "pods", f"--namespace={_NAMESPACE}", "--output=name").split()

    def get(self, what: str) -> Any:
        """Return an object as JSON."""
        return json.loads(self.plane.kubectl("get", what, f"--namespace={_NAMESPACE}", "--output=json"))

    def objects(self) -> set[str]:
        """Return the objects of the release as ``kind/name``."""
        selector = "--selector=app.kubernetes.io/instance=bayplan"
        listed = self.plane.kubectl("get", _KINDS, selector, f"--namespace={_NAMESPACE}", "--output=name").split()
        return {name.partition("/")[0].partition(".")[0] + "/" + name.partition("/")[2] for name in listed}

    def operator(self, directory: Path) -> OperatorProcess:
        """Return the operator of the Deployment under its service account; its files are written to *directory*."""
        kubeconfig, (command, *flags) = InstalledOperator(self.plane, _NAMESPACE, "bayplan").prepared(directory)
        assert command == "run"
        return OperatorProcess(kubeconfig, directory / "operator.log", flags, secure=True)


@pytest.fixture
def release(each_helm: Helm, empty_plane: ControlPlane) -> Iterator[Release]:
    """Return a release for an empty control plane without Bayplan's definitions."""
    empty_plane.reset(definitions=True)
    empty_plane.start_kwok()
    yield Release(each_helm, empty_plane)
    # Helm's definitions are not those of kubectl apply.
    empty_plane.reset(definitions=True)


def test_a_release_from_install_to_uninstall(release: Release, tmp_path: Path) -> None:
    """The release binds pods after installation and upgrade; uninstalling keeps definitions and profiles."""
    notes = release.install("--set=defaultProfile.spec.percentageOfNodesToScore=50")
    assert "schedulerName: bayplan" in notes
    installed = release.objects()
    assert {"deployment/bayplan", "poddisruptionbudget/bayplan"} <= installed
    assert release.test("--timeout=3s").returncode != 0, "nothing schedules the test's pod yet"
    with release.operator(tmp_path / "old") as old:
        old.start()
        # Helm cannot create it together with its definition.
        release.plane.kubectl("wait", "schedulerprofile/bayplan", "--for=create", "--timeout=60s")
        release.plane.kubectl("wait", "schedulerprofile/bayplan", "--for=condition=Ready", "--timeout=60s")
        installed |= {"schedulerprofile/bayplan"}
        assert release.objects() == installed
        _until_bound(release, "one")
        tested = release.test("--timeout=60s")
        assert tested.returncode == 0, tested.stderr
        assert release.pods() == [], "Helm deletes the pod of the test"
        _upgrade(release)
        with release.operator(tmp_path / "new") as new:
            # The new replica is ready while the old one leads, so a rolling update can continue.
            new.start()
            assert "standby" in new.get("/readyz")[1]
            assert old.terminate()[0] == 0
            _until_bound(release, "two")
            assert new.terminate()[0] == 0
    spec = {"percentageOfNodesToScore": 50, "podMaxBackoffSeconds": 42}
    assert _profile_fields(release) == spec, "an upgrade keeps edits and the values of the installation"
    assert release.objects() == installed
    release.run("uninstall", "bayplan")
    assert release.objects() == {"schedulerprofile/bayplan"}
    assert "schedulerprofiles.bayplan.dev" in release.plane.kubectl("get", "crds", "--output=name")
    assert _profile_fields(release) == spec
    release.install()
    assert release.objects() == installed


def test_definitions_that_are_not_kept(release: Release) -> None:
    """`crds.keep: false` deletes the definitions with the release; a second release leaves them alone."""
    release.install("--set=crds.keep=false", "--set=defaultProfile.enabled=false")
    second = ("install", "second", str(CHART), "--wait=false", "--set=defaultProfile.enabled=false")
    refused = release.helm.run(*second, f"--namespace={_NAMESPACE}", kubeconfig=release.plane.kubeconfig)
    assert "invalid ownership metadata" in refused.stderr
    release.run(*second, "--set=crds.enabled=false")
    release.run("uninstall", "second")
    assert "podgroups.bayplan.dev" in release.plane.kubectl("get", "crds", "--output=name")
    release.run("uninstall", "bayplan")
    _until_definitions_are_deleted(release.plane)
    assert release.plane.kubectl("get", "crds", "--output=name") == ""


def _until_definitions_are_deleted(plane: ControlPlane) -> None:
    """Wait for the end of the definitions' deletion.

    kube-apiserver 1.37 gives up for minutes on a deletion that meets a definition whose storage is not ready yet
    ("could not list instances: storage is (re)initializing"); a change of the definition makes it try again.
    """
    for attempt in range(6):
        try:
            # By name, because `kubectl wait --all` fails if the last definition is gone already.
            plane.kubectl("wait", *_DEFINITIONS, "--for=delete", "--timeout=10s")
        except ControlPlaneError:
            for definition in plane.kubectl("get", "crds", "--output=name").split():
                with suppress(ControlPlaneError):  # it is deleted meanwhile
                    plane.kubectl("annotate", definition, f"tests/attempt={attempt}", "--overwrite")
        else:
            return


def _upgrade(release: Release) -> None:
    """Upgrade with other values after the profile was edited by hand."""
    before = release.get("deployment/bayplan")["spec"]["template"]["metadata"]["annotations"]
    patch = json.dumps({"spec": {"podMaxBackoffSeconds": 42}})
    release.plane.kubectl("patch", "schedulerprofile/bayplan", "--type=merge", f"--patch={patch}")
    release.run(
        *("upgrade", "bayplan", str(CHART), "--wait=false", "--reset-then-reuse-values"),
        *("--set=settings.logFormat=json", "--set=replicaCount=3"),
    )
    deployment = release.get("deployment/bayplan")["spec"]
    assert deployment["replicas"] == 3
    assert deployment["template"]["metadata"]["annotations"] != before
    assert yaml.safe_load(release.get("configmap/bayplan")["data"]["settings.yaml"])["logFormat"] == "json"


def _until_bound(release: Release, name: str) -> None:
    """Create a pod and a node for it, and wait until the pod is bound."""
    spec = {"schedulerName": "bayplan", "nodeSelector": {"kubernetes.io/hostname": name}}
    with closing(ApiClient(release.plane)) as api:
        api.create(node_manifest(name, {}))
        api.create(pod_manifest(name, "default", {"spec": spec}))
    release.plane.kubectl("wait", f"pod/{name}", f"--for=jsonpath={{.spec.nodeName}}={name}", "--timeout=60s")


def _profile_fields(release: Release) -> dict[str, Any]:
    """Return the fields of the default profile that the test sets."""
    spec = release.get("schedulerprofile/bayplan")["spec"]
    return {name: spec[name] for name in ("percentageOfNodesToScore", "podMaxBackoffSeconds") if name in spec}
