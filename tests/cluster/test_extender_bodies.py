"""Request bodies that kube-scheduler and Bayplan send to the same extender about the same objects, compared as JSON.

Each scheduler is killed before the extender answers, so neither writes to the API server and the second one sees
the same objects as the first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane.launcher import ControlPlane
from tests.support.extender_cluster import BAYPLAN, KUBE_SCHEDULER, ExtenderCluster
from tests.support.extender_server import ExtenderServer, Reply, names_of
from tests.support.manifests import Manifest
from tests.support.tables import table

pytestmark = [pytest.mark.cluster, pytest.mark.kube_scheduler, pytest.mark.reference]

RICH: Manifest = {
    "tolerations": [{"key": "odd", "operator": "Exists", "tolerationSeconds": 30, "effect": "NoExecute"}],
    "volumes": [
        {"name": "e", "emptyDir": {"sizeLimit": "1.5Gi"}},
        {"name": "p", "projected": {"sources": [{"downwardAPI": {"items": []}}]}},
    ],
    "containers": [
        {
            "name": "c",
            "image": "registry.example.com/a:1",
            "command": ["sh", "-c", "<&> \u2028 ü"],
            "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "resources": {"requests": {"cpu": "0.25", "memory": "1e6"}, "limits": {"memory": "0.5Gi"}},
            "volumeMounts": [{"name": "e", "mountPath": "/e"}],
            "readinessProbe": {"httpGet": {"port": "http", "path": "/"}},
            "ports": [{"name": "http", "containerPort": 80}],
        }
    ],
    "initContainers": [{"name": "i", "image": "i", "restartPolicy": "Always"}],
    "affinity": {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "x", "operator": "Gt", "values": ["1"]}]}}
            ]
        }
    },
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "node", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
    ],
}


@pytest.fixture
def cluster(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[ExtenderCluster]:
    """Create a pod that fits nodes a and b, and a pod that fits node c if it preempts."""
    cluster = ExtenderCluster(control_plane, namespace, tmp_path)
    low, middle, high = (cluster.priority(name, value) for name, value in (("low", 1), ("mid", 10), ("high", 100)))
    annotations = {"note": "<&>"}
    cluster.node("a", labels={"free": "yes"}, annotations=annotations)
    cluster.node("b", labels={"free": "yes"})
    full = cluster.node("c", cpu="1")
    # kube-scheduler orders victims by their start; those without one it orders at random.
    for name, start in (("v1", "2026-01-01T00:00:00Z"), ("v2", "2026-01-02T00:00:00Z")):
        cluster.pod(name, {"cpu": "500m"}, priorityClassName=low, nodeName=full)
        cluster.set_start_time(name, start)
    cluster.pod("preemptor", {"cpu": "800m"}, priorityClassName=middle, nodeSelector={"node": "c", "for": namespace})
    cluster.pod("placed", priorityClassName=high, **RICH | {"nodeSelector": {"for": namespace, "free": "yes"}})
    yield cluster
    cluster.clean_up()


def recorded(cluster: ExtenderCluster, kind: str, *, node_cache_capable: bool) -> dict[str, Any]:
    """Return the bodies that a scheduler sends, by verb, up to a bind and a preempt that get no answer."""
    held = threading.Event()
    with ExtenderServer() as server:
        server.rules |= {
            "filter": lambda body: (
                {"NodeNames": body["NodeNames"]} if body["NodeNames"] is not None else {"Nodes": body["Nodes"]}
            ),
            "prioritize": lambda body: [{"Host": name, "Score": 10 * name.endswith("-b")} for name in names_of(body)],
            "bind": lambda _: Reply(b"{}", gate=held),
            "preempt": lambda _: Reply(b"{}", gate=held),
        }
        extender = {
            "urlPrefix": server.url,
            **{f"{verb}Verb": verb for verb in server.rules},
            "weight": 100,
            "httpTimeout": "60s",
            "nodeCacheCapable": node_cache_capable,
        }
        with cluster.scheduler(kind, [extender]):
            cluster.until(
                lambda: bool(server.bodies("bind") and server.bodies("preempt")), "bind and preempt were called"
            )
        held.set()
        return {verb: [_ordered(body) for body in server.bodies(verb)] for verb in server.rules}


def _ordered(body: Any) -> Any:
    """Sort candidates by name, since kube-scheduler finds them in parallel."""
    if body.get("NodeNames"):
        body["NodeNames"].sort()
    if body.get("Nodes"):
        body["Nodes"]["items"].sort(key=lambda node: node["metadata"]["name"])
    return body


@table("node_cache_capable", ("node-names", True), ("whole-nodes", False))
def test_bodies_are_kube_schedulers(cluster: ExtenderCluster, node_cache_capable: bool) -> None:
    """The bodies of filter, prioritize, preempt and bind have exactly the fields that kube-scheduler sends."""
    theirs = recorded(cluster, KUBE_SCHEDULER, node_cache_capable=node_cache_capable)
    ours = recorded(cluster, BAYPLAN, node_cache_capable=node_cache_capable)
    assert set(theirs) == {"filter", "prioritize", "bind", "preempt"}
    for verb, bodies in theirs.items():
        assert len(bodies) == 1, verb
        assert ours[verb] == bodies, verb
