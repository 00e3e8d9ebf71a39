"""Gangs whose claims are allocated for a node that the gang cannot use, as a failed bind leaves them behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from bayplan.simulation.admission import admit
from bayplan.simulation.cluster_files import read_cluster_files
from bayplan.simulation.simulation import simulate

DRIVER = "x.example.com"


def node(name: str, zone: str) -> list[dict[str, Any]]:
    """Return a node with one device and room for one member."""
    labels = {"kubernetes.io/hostname": name, "zone": zone}
    allocatable = {"cpu": "2", "memory": "8Gi", "pods": "110"}
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "g0"}, {"name": "g1"}]
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
    return [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        | {"status": {"capacity": allocatable, "allocatable": allocatable}},
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec},
    ]


def pod(name: str, cpu: str, node_name: str = "", claim: str = "") -> dict[str, Any]:
    """Return a running filler, or a member of the gang with a claim."""
    resources: dict[str, Any] = {"requests": {"cpu": cpu}}
    spec: dict[str, Any] = {"containers": [{"name": "m", "image": "x", "resources": resources}]}
    labels = {}
    if claim:
        labels["bayplan.dev/pod-group"] = "g"
        resources["claims"] = [{"name": "c"}]
        spec["resourceClaims"] = [{"name": "c", "resourceClaimName": claim}]
    metadata = {"name": name, "namespace": "d", "labels": labels}
    found = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return found | ({"status": {"phase": "Running"}} if node_name else {}) | {"spec": {**spec, "nodeName": node_name}}


def claim(name: str, device: str) -> dict[str, Any]:
    """Return a claim that is allocated on node a."""
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]
    results = [{"request": "r", "driver": DRIVER, "pool": "a", "device": device}]
    fields = [{"key": "metadata.name", "operator": "In", "values": ["a"]}]
    allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]}}
    metadata = {"name": name, "namespace": "d", "finalizers": ["resource.kubernetes.io/delete-protection"]}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata} | {
        "spec": {"devices": {"requests": requests}},
        "status": {"allocation": allocation},
    }


@pytest.mark.parametrize(
    "topology",
    [
        pytest.param({}, id="anywhere"),
        pytest.param({"topology": {"key": "zone", "mode": "Required"}}, id="one-required-zone"),
        pytest.param({"topology": {"key": "zone", "mode": "Preferred"}}, id="one-preferred-zone"),
    ],
)
def test_claims_of_a_full_node_are_deallocated(tmp_path: Path, topology: dict[str, Any]) -> None:
    """All members are placed where they fit, although their claims are allocated on a full node."""
    group = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "PodGroup", "metadata": {"name": "g", "namespace": "d"}}
    selector = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    device_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}}
    documents = [
        *(each for name, zone in (("a", "full"), ("b", "free"), ("c", "free")) for each in node(name, zone)),
        device_class | {"spec": {"selectors": selector}},
        claim("c0", "g0"),
        claim("c1", "g1"),
        pod("filler", "2", "a"),
        group | {"spec": {"minMember": 2, **topology}},
        pod("g-0", "2", claim="c0"),
        pod("g-1", "2", claim="c1"),
    ]
    file = tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    result = simulate(admit(read_cluster_files([str(file)])))
    assert sorted(each.node for each in result.pods if each.name.startswith("g-")) == ["b", "c"]
