"""The operator under exactly the rights that the chart gives it, on the real API server.

Why the chart's own service account and not a user in its place: so the bindings are tested too. No pod runs here; the
account's token is asked for as a kubelet asks for it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane.credentials import User, write_kubeconfig
from hack.controlplane.launcher import ControlPlane
from tests.charts.conftest import ROOT, Helm
from tests.support.operator_process import OperatorProcess

_REFUSED = re.compile(r"HTTP 403|forbidden|not enough permissions", re.IGNORECASE)
_GRANT_SECONDS = 20.0
_EDITS = 11  # one more than revisions are kept, so that the eldest is deleted
_API = "bayplan.dev/v1alpha1"


class Cluster:
    """One namespace of the control plane, and what is made for a test.

    Args:
        plane: The control plane.
        namespace: The namespace, whose name is also that of everything cluster-scoped.
    """

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane = plane
        self.name = namespace

    def apply(self, *objects: dict[str, Any]) -> None:
        """Apply objects as the administrator."""
        items = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.plane.kubectl("apply", f"--namespace={self.name}", "--filename=-", input=items)

    def wait(self, what: str, condition: str, *flags: str) -> None:
        """Wait until an object is in a condition."""
        command = ("wait", what, f"--for={condition}", f"--namespace={self.name}", "--timeout=20s", *flags)
        self.plane.kubectl(*command)

    def get(self, what: str, path: str, *flags: str) -> str:
        """A field of an object."""
        return self.plane.kubectl(
            "get", what, f"--namespace={self.name}", f"--output=jsonpath={{{path}}}", *flags
        ).strip()

    def wait_until_granted(self, account: str) -> None:
        """Wait until the API server has taken notice of both bindings of an account, which it does in its own time."""
        deadline = time.monotonic() + _GRANT_SECONDS
        for group, resource, namespace in (("", "nodes", ""), ("apps", "controllerrevisions", self.name)):
            attributes = {"verb": "list", "group": group, "resource": resource, "namespace": namespace}
            review = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {"user": f"system:serviceaccount:{self.name}:{account}", "resourceAttributes": attributes},
            }
            command = ("create", "--filename=-", "--output=jsonpath={.status.allowed}")
            while self.plane.kubectl(*command, input=json.dumps(review)) != "true":
                assert time.monotonic() < deadline, f"{account} may not list {resource}"

    def refusals(self) -> int:
        """How many requests of anybody the API server has refused for want of a right."""
        metrics = self.plane.kubectl("get", "--raw=/metrics")
        found = re.findall(r'^authorization_attempts_total\{result="(\S+)"\} (\S+)$', metrics, re.MULTILINE)
        assert "allowed" in dict(found)
        return sum(int(float(count)) for result, count in found if result != "allowed")


@pytest.fixture
def cluster(control_plane: ControlPlane, namespace: str) -> Iterator[Cluster]:
    """The control plane with the chart's custom resource definitions; what is cluster-scoped goes at the end."""
    cluster = Cluster(control_plane, namespace)
    crds = str(ROOT / "crds")
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={crds}")
    control_plane.kubectl("wait", "--for=condition=Established", f"--filename={crds}", "--timeout=20s")
    yield cluster
    control_plane.kubectl("delete", "--ignore-not-found", f"schedulerprofile/{namespace}", f"pluginconfig/{namespace}")
    control_plane.kubectl("delete", "--ignore-not-found", f"node/{namespace}")


@pytest.fixture
def operator(helm: Helm, cluster: Cluster, tmp_path: Path) -> Iterator[OperatorProcess]:
    """`bayplan run` with the chart's settings file and the chart's service account."""
    # Outside of a pod nothing tells the operator its own namespace.
    settings_values = {"namespace": cluster.name, "logFormat": "json", "leaderElection": {"leaderElect": True}}
    values = {"settings": settings_values, "fullnameOverride": cluster.name}
    manifests = helm.template(values, cluster.name)
    settings = tmp_path / "settings.yaml"
    settings.write_text(helm.documents(values, cluster.name)["ConfigMap"]["data"]["settings.yaml"])
    plane = cluster.plane
    plane.kubectl("apply", "--filename=-", input=manifests)
    cluster.wait_until_granted(cluster.name)
    token = plane.kubectl("create", "token", cluster.name, f"--namespace={cluster.name}").strip()
    kubeconfig = tmp_path / "kubeconfig"
    authority = (plane.state_dir / "certs" / "apiserver.crt").read_text()
    write_kubeconfig(kubeconfig, plane.url, authority, User(cluster.name, token=token))
    process = OperatorProcess(kubeconfig, tmp_path / "operator.log", [f"--settings={settings}"])
    yield process
    plane.kubectl("delete", "--ignore-not-found", "--filename=-", input=manifests)


def test_the_operator_needs_no_other_right(cluster: Cluster, operator: OperatorProcess) -> None:
    """Every kind of request that the operator makes is allowed by the chart's roles."""
    refused_before = cluster.refusals()
    with operator:
        operator.start()
        cluster.apply(_plugin_config(cluster.name), _profile(cluster.name), _node(cluster.name))
        cluster.wait(f"schedulerprofile/{cluster.name}", "condition=Ready")
        cluster.wait(f"pluginconfig/{cluster.name}", "condition=Valid")
        cluster.apply(_group("team"))
        cluster.wait("podgroups.bayplan.dev/team", "jsonpath={.status.phase}=Pending")
        cluster.apply(_pod("small", cluster.name, "1"), _pod("large", cluster.name, "100"))
        cluster.wait("pod/small", f"jsonpath={{.spec.nodeName}}={cluster.name}")
        cluster.wait("pod/large", "condition=PodScheduled=false")
        eldest = cluster.get("controllerrevisions", ".items[0].metadata.name")
        _edit_profile(cluster)
        # The new revision has tried the large pod again, and the repeated event is patched.
        selector = "--field-selector=reason=FailedScheduling,involvedObject.name=large"
        cluster.wait("events", "jsonpath={.series.count}", selector)
        cluster.wait(f"controllerrevision/{eldest}", "delete")
        code, _ = operator.terminate()
    assert code == 0
    assert [line for line in operator.log.splitlines() if _REFUSED.search(line)] == []
    assert cluster.refusals() == refused_before


def test_a_missing_right_is_seen(cluster: Cluster, operator: OperatorProcess) -> None:
    """The measure of the test above does count a refusal."""
    refused_before = cluster.refusals()
    cluster.plane.kubectl("delete", "clusterrolebinding", f"{cluster.name}:{cluster.name}")
    with operator:
        operator.start(wait=False)
        operator.until(lambda: _REFUSED.search(operator.log) is not None, "it tells of a refusal")
    assert cluster.refusals() > refused_before


def _edit_profile(cluster: Cluster) -> None:
    name = f"schedulerprofile/{cluster.name}"
    for seconds in range(20, 20 + _EDITS):
        patch = json.dumps({"spec": {"podMaxBackoffSeconds": seconds}})
        cluster.plane.kubectl("patch", name, "--type=merge", f"--patch={patch}")
        generation = cluster.get(name, ".metadata.generation")
        cluster.wait(name, f"jsonpath={{.status.observedGeneration}}={generation}")


def _plugin_config(name: str) -> dict[str, Any]:
    args = {"scoringStrategy": {"type": "MostAllocated"}}
    spec = {"plugin": "NodeResourcesFit", "args": args}
    return {"apiVersion": _API, "kind": "PluginConfig", "metadata": {"name": name}, "spec": spec}


def _profile(name: str) -> dict[str, Any]:
    spec = {"pluginConfigRefs": [{"name": name}]}
    return {"apiVersion": _API, "kind": "SchedulerProfile", "metadata": {"name": name}, "spec": spec}


def _group(name: str) -> dict[str, Any]:
    return {"apiVersion": _API, "kind": "PodGroup", "metadata": {"name": name}, "spec": {"minMember": 5}}


def _node(name: str) -> dict[str, Any]:
    resources = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": resources, "allocatable": resources},
    }


def _pod(name: str, node: str, cpu: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": node,
            # Other tests' nodes may be there too.
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [{"name": "main", "image": "example/none", "resources": {"requests": {"cpu": cpu}}}],
        },
    }
