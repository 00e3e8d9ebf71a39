"""Tests of gangs in simulations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from bayplan.simulation.admission import AdmittedCluster, admit
from bayplan.simulation.cluster_files import read_cluster_files
from bayplan.simulation.simulation import GangPlacement, Verdict, simulate

from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupTopology, PodGroup
from tests.support.gang_preemption import running_pod, small_node
from tests.support.gangs import group, members
from tests.support.presence import present
from tests.support.tables import table


def simulate_objects(*objects: Node | Pod | PodGroup) -> tuple[dict[str, GangPlacement], dict[str, str]]:
    """Return the placements of gangs, and the nodes of pending pods."""
    cluster = AdmittedCluster(
        nodes=tuple(each for each in objects if isinstance(each, Node)),
        pods=tuple(each for each in objects if isinstance(each, Pod)),
        groups=tuple(each for each in objects if isinstance(each, PodGroup)),
    )
    result = simulate(cluster)
    return {gang.name: gang for gang in result.gangs}, {pod.name: pod.node or "" for pod in result.pods}


def test_gangs_are_scheduled_completely_or_not() -> None:
    """If two gangs do not both fit, the older one is scheduled completely, and no member of the other."""
    gangs, nodes = simulate_objects(
        small_node("n", 3), group("a", 2), group("b", 2), *members(2, "a"), *members(2, "b")
    )
    assert (gangs["a"].placed, gangs["a"].phase, gangs["a"].reason) == (2, "Scheduled", None)
    assert (gangs["b"].placed, gangs["b"].phase) == (0, "Scheduling")
    assert present(gangs["b"].reason).startswith("1 of the 2 members that must be placed together fit; ")
    assert nodes == {"a-0": "n", "a-1": "n", "b-0": "", "b-1": ""}


def test_the_domain_of_a_gang() -> None:
    """The domain of a gang is the one in which all members are scheduled."""
    topology = GroupTopology("zone")
    gangs, _ = simulate_objects(
        small_node("a", 1, zone="a"), small_node("b", 2, zone="b"), group(min_member=2, topology=topology), *members(2)
    )
    assert (gangs["train"].domain, gangs["train"].placed) == ("zone=b", 2)


def test_a_gang_preempts() -> None:
    """A gang preempts running pods of lower priority."""
    gangs, nodes = simulate_objects(
        small_node("n"), running_pod("v0", "n"), running_pod("v1", "n"), group(min_member=2), *members(2, priority=9)
    )
    assert gangs["train"].placed == 2
    assert nodes == {"train-0": "n", "train-1": "n"}


@table(
    "objects, reason",
    ("too few members", (group(min_member=3), *members(2)), "2 of 3 members exist; 1 more is needed."),
    ("without its PodGroup", members(2), "the PodGroup is not in the files; its members wait for it"),
)
def test_gangs_that_are_not_attempted(objects: tuple[Pod | PodGroup, ...], reason: str) -> None:
    """A gang that is not attempted has a reason, and no member is scheduled."""
    gangs, nodes = simulate_objects(small_node("n", 9), *objects)
    assert gangs["train"].reason == reason
    assert set(nodes.values()) == {""}


def test_members_of_gangs_that_are_not_attempted_are_gated() -> None:
    """The verdict of a member of a gang that is not attempted is Gated."""
    cluster = AdmittedCluster(nodes=(small_node("n"),), pods=tuple(members(1)), groups=(group(min_member=2),))
    (pod,) = simulate(cluster).pods
    assert (pod.verdict, pod.reason) == (
        Verdict.GATED,
        "waits for gang default/train: 1 of 2 members exist; 1 more is needed.",
    )


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


@table(
    "topology",
    ("anywhere", {}),
    ("one-required-zone", {"topology": {"key": "zone", "mode": "Required"}}),
    ("one-preferred-zone", {"topology": {"key": "zone", "mode": "Preferred"}}),
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
    assert sorted(each.node or "" for each in result.pods if each.name.startswith("g-")) == ["b", "c"]
