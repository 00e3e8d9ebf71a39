"""Tests of the requests that write resource claims."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from bayplan.kube.http.connection import ApiConnection, ApiRequest, Lane
from bayplan.kube.writes.claim_writes import ClaimWrites
from msgspec.structs import replace

from scheduler_core.cycle.journal import Journal
from scheduler_core.model.devices import DELETE_PROTECTION, ClaimConsumer, ResourceClaim
from scheduler_core.model.pod import ExtendedResourceClaimStatus, ExtendedResourceRequest
from scheduler_core.plugins.dynamic_resources.pod_claims import claim_in_memory, with_requests
from tests.support.builders import pod
from tests.support.devices import DRIVER, allocated_claim, claim, exactly, with_meta
from tests.support.fake_api import FakeApi, Response, error_response
from tests.support.tables import table

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims"
CLAIM = f"{CLAIMS}/c0"
VERSION = {"uid": "c0", "resourceVersion": "7"}
WRITTEN = Response(body={"metadata": {"name": "c0", "namespace": "ns", "resourceVersion": "8"}})
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
CONSUMER = {"resource": "pods", "name": "p", "uid": "uid-of-p"}
STAMP = datetime(2026, 1, 1, tzinfo=UTC)
RESULT = {"request": "r", "driver": DRIVER, "pool": "n0", "device": "d"}
Write = Callable[[ClaimWrites, ResourceClaim], Awaitable[Any]]


@pytest.fixture
def writes(connection: ApiConnection) -> ClaimWrites:
    return ClaimWrites(connection, 5.0)


def allocated() -> ResourceClaim:
    """Return an allocated claim with one consumer, with resource version 7."""
    found = with_meta(allocated_claim({"device": "d"}, name="c0"), resource_version="7", finalizers=("f",))
    assert found.status.allocation is not None
    dated = replace(found.status.allocation, allocation_timestamp=STAMP)
    consumer = ClaimConsumer("pods", "p", "uid-of-p")
    return replace(found, status=replace(found.status, allocation=dated, reserved_for=(consumer,)))


@table(
    "write, path, body",
    (
        "finalizers",
        lambda writes, each: writes.write_finalizers(each),
        CLAIM,
        {"metadata": VERSION | {"finalizers": ["f"]}},
    ),
    (
        "allocation",
        lambda writes, each: writes.write_allocation(each),
        f"{CLAIM}/status",
        {
            "metadata": VERSION,
            "status": {
                "allocation": {"devices": {"results": [RESULT]}, "allocationTimestamp": "2026-01-01T00:00:00Z"},
                "reservedFor": [CONSUMER],
            },
        },
    ),
    (
        "reservation",
        lambda writes, each: writes.write_reservation(each),
        f"{CLAIM}/status",
        {
            "metadata": VERSION,
            "status": {"allocation": {"allocationTimestamp": "2026-01-01T00:00:00Z"}, "reservedFor": [CONSUMER]},
        },
    ),
    (
        "deallocation",
        lambda writes, each: writes.deallocate(each),
        f"{CLAIM}/status",
        {"metadata": VERSION, "status": {"allocation": None, "reservedFor": None, "devices": None}},
    ),
)
async def test_patches_of_a_version(
    api: FakeApi, writes: ClaimWrites, write: Write, path: str, body: dict[str, Any]
) -> None:
    """A patch has the UID and the version, so that it applies only to that version; other fields stay."""
    api.on("PATCH", path, WRITTEN)
    written = await write(writes, allocated())
    assert written is None or written.metadata.resource_version == "8"
    assert (api.received[0].headers["Content-Type"], api.received[0].json) == (MERGE, body)


async def test_end_of_a_reservation(api: FakeApi, writes: ClaimWrites) -> None:
    """The end of a reservation removes one consumer, whatever the version."""
    api.on("PATCH", f"{CLAIM}/status", WRITTEN)
    await writes.end_reservation(allocated(), "uid-of-p")
    removed = {"reservedFor": [{"$patch": "delete", "uid": "uid-of-p"}]}
    assert api.received[0].headers["Content-Type"] == STRATEGIC
    assert api.received[0].json == {"metadata": {"uid": "c0"}, "status": removed}


async def test_creation_for_extended_resources(api: FakeApi, writes: ClaimWrites) -> None:
    """The API server generates the name; the pod is the controller, and the claim is protected from its creation."""
    api.on("POST", CLAIMS, WRITTEN)
    user = pod("p", namespace="ns", uid="uid-of-p")
    requests = claim(exactly("container-0-request-0")).spec.devices.requests
    requested = with_requests(claim_in_memory(user, Journal().new_uid), requests)
    written = await writes.create(with_meta(requested, finalizers=(DELETE_PROTECTION,)))
    assert written.metadata.name == "c0"
    assert api.received[0].json["metadata"] == {
        "namespace": "ns",
        "generateName": "p-extended-resources-",
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "finalizers": ["resource.kubernetes.io/delete-protection"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-of-p", "controller": True}],
    }
    (request,) = api.received[0].json["spec"]["devices"]["requests"]
    assert (request["name"], request["exactly"]["deviceClassName"]) == ("container-0-request-0", "gpu")


@table("response", ("exists", Response()), ("gone", error_response(404, "no")))
async def test_deletion(api: FakeApi, writes: ClaimWrites, response: Response) -> None:
    """A deletion has the UID as precondition, and a missing claim is no error."""
    api.on("DELETE", CLAIM, response)
    await writes.delete(allocated())
    assert api.received[0].json == {"preconditions": {"uid": "c0"}}


async def test_status_of_a_pod(api: FakeApi, writes: ClaimWrites) -> None:
    """The claim and the mappings are in one patch of the pod with this UID."""
    path = "/api/v1/namespaces/ns/pods/p/status"
    api.on("PATCH", path, Response())
    mapping = ExtendedResourceRequest("main", "example.com/gpu", "container-0-request-0")
    await writes.write_extended_claim(
        pod("p", namespace="ns", uid="uid-of-p"), ExtendedResourceClaimStatus((mapping,), "c0")
    )
    mappings = [{"containerName": "main", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}]
    assert api.received[0].json == {
        "metadata": {"uid": "uid-of-p"},
        "status": {"extendedResourceClaimStatus": {"resourceClaimName": "c0", "requestMappings": mappings}},
    }


async def test_read(api: FakeApi, writes: ClaimWrites) -> None:
    """read() returns the claim from the API server."""
    api.on("GET", CLAIM, WRITTEN)
    assert (await writes.read(allocated())).metadata.resource_version == "8"


@table(
    "write, lane",
    ("finalizers", lambda writes, claim: writes.write_finalizers(claim), Lane.BINDS),
    ("allocation", lambda writes, claim: writes.write_allocation(claim), Lane.BINDS),
    ("reservation", lambda writes, claim: writes.write_reservation(claim), Lane.BINDS),
    ("deallocation", lambda writes, claim: writes.deallocate(claim), Lane.WRITES),
)
async def test_writes_before_a_bind_use_the_bind_lane(
    writes: ClaimWrites, monkeypatch: pytest.MonkeyPatch, write: Write, lane: Lane
) -> None:
    """Writes that a bind waits for use the lane of binds, so no event or status of another pod delays them."""
    lanes = []

    async def request(_: ApiConnection, sent: ApiRequest) -> bytes:
        lanes.append(sent.lane)
        return b'{"metadata": {"name": "c0", "namespace": "ns"}}'

    monkeypatch.setattr(ApiConnection, "request", request)
    await write(writes, allocated_claim(RESULT))
    assert lanes == [lane]
