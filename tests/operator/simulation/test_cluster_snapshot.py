"""Tests of a snapshot of a cluster from one list of each resource, against a scripted API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from bayplan.kube.http.api_request import UnauthorizedError
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.served_apis import NOT_SERVED, REQUIRED
from bayplan.kube.timing import SystemClock
from bayplan.kube.watches.cluster_informers import STORAGE, WORKLOADS
from bayplan.simulation.cluster_snapshot import take_snapshot

from scheduler_core.errors import ForbiddenError
from scheduler_core.scheduler import SchedulerOptions
from tests.support.fake_api import FakeApi, Response, error_response
from tests.support.manifests import profile_manifest
from tests.support.tables import table

CUSTOM = "/apis/bayplan.dev/v1alpha1/"
DEVICES = "/apis/resource.k8s.io/v1/"


def listed(*items: Any) -> Response:
    """Return a complete list."""
    return Response(body={"metadata": {}, "items": list(items)})


def named(name: str, **fields: Any) -> dict[str, Any]:
    """Return an object with this name."""
    return {"metadata": {"name": name, "uid": name, **fields.pop("meta", {})}, **fields}


def serve_devices(api: FakeApi) -> None:
    """Serve the resources of devices in version v1."""
    api.on("GET", DEVICES.removesuffix("/"), Response(body={"resources": [{"name": name} for name in REQUIRED]}))


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    """Return a cluster with one node, one running pod and one profile."""
    async with FakeApi() as api:
        for path in (*WORKLOADS, *STORAGE, f"{CUSTOM}pluginconfigs"):
            api.on("GET", path, listed())
        amounts = {"cpu": "4", "memory": "1Gi", "pods": "9"}
        api.on("GET", "/api/v1/nodes", listed(named("n", status={"allocatable": amounts})))
        running = named("p", meta={"namespace": "shop"}, spec={"nodeName": "n"}, status={"phase": "Running"})
        api.on("GET", "/api/v1/pods", listed(running))
        api.on("GET", f"{CUSTOM}schedulerprofiles", listed(profile_manifest("batch")))
        yield api


@pytest.fixture
async def connection(api: FakeApi) -> AsyncIterator[ApiConnection]:
    async with ApiConnection(api, ConnectionOptions(), SystemClock()) as connection:
        yield connection


async def test_each_resource_is_listed_once(api: FakeApi, connection: ApiConnection) -> None:
    """The scheduler has nodes, pods and profiles, and each resource was listed once and not watched."""
    snapshot = await take_snapshot(connection, SchedulerOptions())
    context = snapshot.scheduler.context
    assert (context.cache.columns.count, len(context.cache), list(snapshot.pods)) == (1, 1, ["shop/p"])
    assert [instance.name for instance in context.profiles] == ["batch"]
    assert snapshot.notices == []
    paths = [seen.path for seen in api.received]
    assert len(paths) == len(set(paths))
    assert {seen.method for seen in api.received} == {"GET"}
    assert not any("watch" in seen.query for seen in api.received)


@table(
    "path, response, notice",
    (
        "forbidden resource",
        "/api/v1/services",
        error_response(403, "no"),
        "services cannot be listed; decisions are made as if there were none: ",
    ),
    ("unreadable object", "/api/v1/services", listed(named("s"), {"metadata": 5}), "1 of the services cannot be"),
    ("unreadable pod", "/api/v1/pods", listed({"metadata": 5}), "1 of the pods cannot be read"),
    (
        "invalid profile",
        f"{CUSTOM}schedulerprofiles",
        listed(profile_manifest("bad", {"plugins": {"score": {"enabled": [{"name": "Nope"}]}}})),
        "profile bad is invalid and ignored (the operator may run an older one): ",
    ),
    (
        "no custom resources",
        f"{CUSTOM}pluginconfigs",
        error_response(404, "no such resource"),
        "Bayplan's custom resources are not installed; the default profile is used",
    ),
)
async def test_unreadable_resources_are_reported(
    api: FakeApi, connection: ApiConnection, path: str, response: Response, notice: str
) -> None:
    """An unreadable resource or object is omitted and reported in a notice."""
    api.on("GET", path, response)
    snapshot = await take_snapshot(connection, SchedulerOptions())
    assert len(snapshot.notices) == 1
    assert snapshot.notices[0].startswith(notice)


async def test_devices_and_claims_are_loaded(api: FakeApi, connection: ApiConnection) -> None:
    """Devices and claims are loaded from a server that does not serve DeviceTaintRules."""
    serve_devices(api)
    api.on("GET", f"{DEVICES}deviceclasses", listed(named("gpu")))
    api.on("GET", f"{DEVICES}resourceclaims", listed(named("c", meta={"namespace": "shop", "uid": "u"})))
    spec = {"driver": "d", "nodeName": "n", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}}
    api.on("GET", f"{DEVICES}resourceslices", listed(named("s", spec={**spec, "devices": [{"name": "d0"}]})))
    snapshot = await take_snapshot(connection, SchedulerOptions())
    known = snapshot.scheduler.context.cache.columns.devices
    assert (list(known.classes), [each.key for each in known.claims]) == (["gpu"], ["shop/c"])
    assert [each.name for each in known.hardware.inventory.slices()] == ["s"]
    assert (known.withheld, snapshot.notices) == ("", [])


async def test_pods_with_claims_are_gated_without_the_claims(api: FakeApi, connection: ApiConnection) -> None:
    """Pods with claims are gated if claims cannot be listed; only a missing permission has a notice."""
    snapshot = await take_snapshot(connection, SchedulerOptions())
    assert (snapshot.scheduler.context.cache.columns.devices.withheld, snapshot.notices) == (NOT_SERVED, [])
    serve_devices(api)
    for plural in ("deviceclasses", "resourceslices"):
        api.on("GET", f"{DEVICES}{plural}", listed())
    api.on("GET", f"{DEVICES}resourceclaims", error_response(403, "no"))
    snapshot = await take_snapshot(connection, SchedulerOptions())
    assert snapshot.scheduler.context.cache.columns.devices.withheld == "resourceclaims cannot be listed"
    assert [each.partition(":")[0] for each in snapshot.notices] == [
        "resourceclaims cannot be listed; pods with resource claims are gated"
    ]


async def test_forbidden_nodes_are_an_error(api: FakeApi, connection: ApiConnection) -> None:
    """If nodes cannot be listed, the error is raised."""
    api.on("GET", "/api/v1/nodes", error_response(403, "no"))
    with pytest.raises(ForbiddenError):
        await take_snapshot(connection, SchedulerOptions())


async def test_an_expired_token_is_an_error(api: FakeApi, connection: ApiConnection) -> None:
    """Rejected credentials are no missing permission: decisions without the kind would be wrong."""
    api.on("GET", "/api/v1/services", error_response(401, "Unauthorized"))
    with pytest.raises(UnauthorizedError, match="renew its token or kubeconfig"):
        await take_snapshot(connection, SchedulerOptions())


@table(
    "version, spec, priority",
    ("bayplan", "bayplan.dev/v1alpha1", {"minMember": 2, "priorityClassName": "high"}, 7),
    ("scheduler-plugins", "scheduling.x-k8s.io/v1alpha1", {"minMember": 2}, None),
    ("native", "scheduling.k8s.io/v1alpha2", {"schedulingPolicy": {"gang": {"minCount": 2}}}, None),
)
async def test_groups_are_loaded(
    api: FakeApi, connection: ApiConnection, version: str, spec: dict[str, Any], priority: int | None
) -> None:
    """PodGroups of every served API are loaded."""
    api.on("GET", f"/apis/{version}", Response(body={"resources": [{"name": "podgroups"}]}))
    api.on("GET", f"/apis/{version}/podgroups", listed(named("train", meta={"namespace": "ml"}, spec=spec)))
    api.on("GET", "/apis/scheduling.k8s.io/v1/priorityclasses", listed(named("high", value=7)))
    snapshot = await take_snapshot(connection, SchedulerOptions())
    (gang,) = snapshot.scheduler.context.queue.gangs
    assert gang.group is not None
    assert (str(gang.key), gang.group.min_member, gang.group.priority) == ("ml/train", 2, priority)
    assert snapshot.scheduler.context.queue.gangs.obstacle(gang.key) == ""
    assert snapshot.notices == []


@table(
    "version, response, notice",
    (
        "forbidden bayplan groups",
        "bayplan.dev/v1alpha1",
        error_response(403, "no"),
        "pods that name a PodGroup of bayplan.dev are shown as gated: the PodGroups of bayplan.dev cannot be ",
    ),
    (
        "forbidden scheduler-plugins groups",
        "scheduling.x-k8s.io/v1alpha1",
        error_response(403, "no"),
        "pods that name a PodGroup of scheduling.x-k8s.io are shown as gated: the PodGroups of ",
    ),
    (
        "invalid bayplan group",
        "bayplan.dev/v1alpha1",
        listed(named("train", meta={"namespace": "ml"}, spec={"minMember": 0})),
        "PodGroup ml/train of bayplan.dev is invalid and ignored: spec.minMember: ",
    ),
    (
        "invalid native group",
        "scheduling.k8s.io/v1alpha2",
        listed(named("train", meta={"namespace": "ml"}, spec={})),
        "PodGroup ml/train of scheduling.k8s.io is invalid and ignored: spec.schedulingPolicy: ",
    ),
)
async def test_unreadable_groups_are_reported(
    api: FakeApi, connection: ApiConnection, version: str, response: Response, notice: str
) -> None:
    """Unreadable PodGroups are reported in a notice."""
    api.on("GET", f"/apis/{version}", Response(body={"resources": [{"name": "podgroups"}]}))
    api.on("GET", f"/apis/{version}/podgroups", response)
    api.on("GET", "/apis/scheduling.k8s.io/v1/priorityclasses", listed())
    snapshot = await take_snapshot(connection, SchedulerOptions())
    assert [each.startswith(notice) for each in snapshot.notices] == [True]
