"""Tests of ``make demo-dra``: a simulation of its objects gives the results that the demo shows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from bayplan.simulation.admission import admit
from bayplan.simulation.cluster_files import read_cluster_files
from bayplan.simulation.memory_cluster import installed_plugins
from bayplan.simulation.simulation import SimulationResult, simulate

from hack.controlplane.device_driver import slice_of
from hack.demo import devices
from hack.demo.manifests import DRIVER, Workload, device_class, node
from hack.demo.stage import PROFILES

WORKLOADS = (devices.TRAIN, devices.SHARED, devices.EITHER, devices.GANG, devices.IMPOSSIBLE)
LATE = {devices.LATE_MACHINE: devices.LATE_DEVICES}
FREE_FOR_THE_GANG = {"gpu-1": devices.MACHINES["gpu-1"][2:], "gpu-2": devices.MACHINES["gpu-2"]}
"""Devices of the gang's model, without the devices of the shared claim and of the second alternative."""

Machines = Mapping[str, Sequence[dict[str, Any]]]


def outcome(directory: Path, machines: Machines, *workloads: Workload) -> SimulationResult:
    """Simulate workloads on machines with these devices, with the demo's profile."""
    items = [device_class(), *(node(name) for name in machines)]
    items += [slice_of(DRIVER, name, *published) for name, published in machines.items()]
    items += [document for workload in workloads for document in workload.documents]
    path = directory / "objects.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8")
    files = [str(path), str(PROFILES / "pack.yaml")]
    return simulate(admit(read_cluster_files(files, installed_plugins().decoded_types())))


def nodes_of(result: SimulationResult, workload: Workload) -> list[str]:
    """Return the node of each pod; "" for none."""
    nodes = {pod.name: pod.node or "" for pod in result.pods}
    return [nodes[name] for name in workload.pod_names]


def allocated(result: SimulationResult) -> list[tuple[str, str, str]]:
    """Return request, pool and device of all allocations, sorted."""
    allocations = [claim.status.allocation for claim in result.claims]
    results = [each for allocation in allocations if allocation for each in allocation.devices.results]
    return sorted((each.request, each.pool, each.device) for each in results)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_no_pod_completes_by_itself(workload: Workload) -> None:
    """Pods have no owner: kwok would complete pods that a Job owns, which would free their devices."""
    assert [each["metadata"]["name"] for each in workload.documents if "ownerReferences" in each["metadata"]] == []


def test_a_claim_by_attribute(tmp_path: Path) -> None:
    """The claim is allocated one of the two devices of the model; without the model the pod is pending."""
    result = outcome(tmp_path, devices.MACHINES, devices.TRAIN)
    assert allocated(result) == [("gpu", "gpu-0", "a100-0")]
    assert len(devices.MACHINES["gpu-0"]) == 2
    without = {name: published for name, published in devices.MACHINES.items() if name != "gpu-0"}
    assert nodes_of(outcome(tmp_path, without, devices.TRAIN), devices.TRAIN) == [""]


def test_a_shared_claim(tmp_path: Path) -> None:
    """Both pods are scheduled to the node of the shared device."""
    result = outcome(tmp_path, devices.MACHINES, devices.SHARED)
    ((_, pool, device),) = allocated(result)
    assert device.startswith(devices.SMALL.name)
    assert nodes_of(result, devices.SHARED) == [pool, pool]


def test_the_first_alternative_runs_out(tmp_path: Path) -> None:
    """With one device of the first model for two pods, the second claim gets the second alternative."""
    machines = devices.MACHINES | {"gpu-0": devices.MACHINES["gpu-0"][1:]}
    requests = [request for request, _, _ in allocated(outcome(tmp_path, machines, devices.EITHER))]
    assert requests == [f"gpu/{devices.LARGE.name}", f"gpu/{devices.SMALL.name}"]


def test_the_gang_needs_the_late_devices(tmp_path: Path) -> None:
    """No claim of the gang is allocated without the devices of the late machine; all are allocated with them."""
    before = outcome(tmp_path, FREE_FOR_THE_GANG, devices.GANG)
    assert (before.gangs[0].placed, allocated(before)) == (0, [])
    after = outcome(tmp_path, FREE_FOR_THE_GANG | LATE, devices.GANG)
    assert (after.gangs[0].placed, len(set(allocated(after)))) == (devices.GANG.pods, devices.GANG.pods)


def test_the_impossible_claim(tmp_path: Path) -> None:
    """No device satisfies the claim even if all are free; the message is kube-scheduler's."""
    result = outcome(tmp_path, devices.MACHINES | LATE, devices.IMPOSSIBLE)
    assert nodes_of(result, devices.IMPOSSIBLE) == [""]
    assert "4 cannot allocate all claims" in (result.pods[0].reason or "")
