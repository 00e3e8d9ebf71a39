"""Workloads with devices: as many pods fit as the tables name, and bound pods are replaced in the steady state."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator

import pytest
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.timing import SystemClock

from benchmarks import device_hardware as hardware
from benchmarks.core_drain import Size, measure
from benchmarks.device_hardware import Objects
from benchmarks.device_workloads import DEVICE_WORKLOADS, IN_FLIGHT, STEADY_DEVICE_WORKLOADS
from benchmarks.end_to_end_drain import PodTurnover
from benchmarks.workloads import PODS_PATH, Document, Workload
from tests.support.fake_api import FakeApi, Response

NODES = 4


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """Start a scripted API server."""
    async with FakeApi() as api:
        yield api


@pytest.fixture
async def connection(api: FakeApi) -> AsyncIterator[ApiConnection]:
    """Open a connection to it."""
    async with ApiConnection(api, ConnectionOptions(), SystemClock()) as connection:
        yield connection


def in_memory(workload: Workload) -> Workload:
    """Return the workload with claims in place of their template, as kube-controller-manager creates them."""

    def others(nodes: int, pods: int) -> Objects:
        for path, document in workload.others(nodes, pods):
            if path != hardware.TEMPLATES_PATH:
                yield path, document
                continue
            spec = document["spec"]["spec"]["devices"]
            requests = [{key: value for key, value in each.items() if key != "name"} for each in spec["requests"]]
            more = {key: value for key, value in spec.items() if key != "requests"}
            for number in range(pods):
                yield hardware.claim(number, *requests, **more)

    def pod(number: int) -> Document:
        document = workload.pod(number)
        for reference in document["spec"].get("resourceClaims", ()):
            if reference.pop("resourceClaimTemplateName", None):
                reference["resourceClaimName"] = hardware.claim_name(number)
        return document

    return dataclasses.replace(workload, others=others, pod=pod, churn=False)


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("device-templates", 20),
        ("steady-empty", 40),
        ("steady-half", 20),
        ("steady-full", IN_FLIGHT),
        ("steady-selector", 40),
        ("steady-match", 8),
        ("steady-partitions", 2),
        ("steady-backtracking", 2),
        ("steady-capacity", 16),
    ],
)
async def test_unused_devices_fit_a_number_of_pods(name: str, fits: int) -> None:
    """Of one pod more than fit, one stays pending."""
    (workload,) = (each for each in STEADY_DEVICE_WORKLOADS if each.name == name)
    tried = dataclasses.replace(in_memory(workload), bound_of=lambda _pods: fits)
    assert (await measure(tried, Size(NODES, fits + 1))).created > 0


@pytest.mark.parametrize("workload", DEVICE_WORKLOADS, ids=lambda workload: workload.name)
async def test_backlogs_fit_exactly(workload: Workload) -> None:
    """Of one pod more than the backlog, one stays pending."""
    fits = hardware.NETWORK_DEVICES if workload.name == "device-network" else workload.at_most(NODES)
    tried = dataclasses.replace(in_memory(workload), bound_of=lambda _pods: fits)
    nodes = 10 * NODES if workload.name == "device-network" else NODES
    assert (await measure(tried, Size(nodes, fits + 1))).created > 0


def test_workload_names_are_unique() -> None:
    """Workloads are selected by name, so names are unique."""
    names = [each.name for each in (*DEVICE_WORKLOADS, *STEADY_DEVICE_WORKLOADS)]
    assert len(names) == len(set(names))
    assert all(each.in_flight == IN_FLIGHT for each in STEADY_DEVICE_WORKLOADS if each.name.startswith("steady-"))


async def test_bound_pods_are_replaced(api: FakeApi, connection: ApiConnection) -> None:
    """Each bound pod is deleted once, and the next one is created until none is left."""
    workload = next(each for each in STEADY_DEVICE_WORKLOADS if each.name == "steady-empty")
    turnover = PodTurnover(workload, IN_FLIGHT + 1)
    for number in range(2):
        api.on("DELETE", f"{PODS_PATH}/pod-{number:06d}", Response(body={}))
    api.on("POST", PODS_PATH, Response(201, body={}))
    await turnover.replace(connection, ["pod-000001"])
    await turnover.replace(connection, ["pod-000001", "pod-000000"])
    assert turnover.requests == {"DELETE pods": 2, "POST pods": 1}
    (created,) = api.requests("POST", PODS_PATH)
    assert json.loads(created.body)["metadata"]["name"] == f"pod-{IN_FLIGHT:06d}"


async def test_half_of_the_pods_are_deleted_for_churn(api: FakeApi, connection: ApiConnection) -> None:
    """The claims of deleted pods are deleted too, since no controller does so, and no pod is created."""
    workload = next(each for each in DEVICE_WORKLOADS if each.churn)
    turnover = PodTurnover(workload, 10)
    api.on("DELETE", f"{PODS_PATH}/pod-000004", Response(body={}))
    claim = f"{hardware.CLAIMS_PATH}/{hardware.claim_name(4)}"
    for method in ("DELETE", "PATCH"):
        api.on(method, claim, Response(body={}))
    await turnover.replace(connection, ["pod-000004", "pod-000002"])
    assert turnover.requests == {"DELETE pods": 1, "DELETE resourceclaims": 1, "PATCH resourceclaims": 1}
