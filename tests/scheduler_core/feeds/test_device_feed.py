"""Device events before and after the lists of device objects are complete."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler_core.model.devices import ResourceClaim
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.indexes.device_index import pools_of
from tests.support import devices as device_objects
from tests.support.builders import DEFAULT_ALLOCATABLE, node
from tests.support.injected_errors import raising
from tests.support.scheduling import default_rig
from tests.support.tables import table

NOT_LISTED = "the claims are not listed yet"


def decode(kind: Any, fields: dict[str, Any]) -> Any:
    """Decode an object from JSON, as it is received from the API server."""
    return msgspec.json.decode(msgspec.json.encode(fields), type=kind)


def claim_object() -> ResourceClaim:
    """Return a claim without requests."""
    claim: ResourceClaim = decode(ResourceClaim, {"metadata": {"name": "claim", "namespace": "default", "uid": "c"}})
    return claim


def pod_with_claim() -> Pod:
    spec = {"schedulerName": "default-scheduler", "resourceClaims": [{"name": "c", "resourceClaimName": "claim"}]}
    pod: Pod = decode(Pod, {"metadata": {"name": "pod", "namespace": "default", "uid": "p"}, "spec": spec})
    return pod


def test_a_pod_with_claims_waits_for_the_lists() -> None:
    """A pod with a known claim is gated until all lists of device objects are complete."""
    made = default_rig(node("n"))
    feed = made.scheduler.device_feed
    feed.withhold(NOT_LISTED)
    made.scheduler.feed.pod_added(pod_with_claim())
    feed.added(claim_object())
    assert made.queue.pop() is None
    feed.withhold("")
    assert made.queue.pop() is not None


RESOURCE = "example.com/gpu"


def pod_with_extended_resource() -> Pod:
    """Return a pod that requests an extended resource."""
    containers = [{"name": "main", "resources": {"requests": {RESOURCE: "1"}, "limits": {RESOURCE: "1"}}}]
    spec = {"schedulerName": "default-scheduler", "containers": containers}
    pod: Pod = decode(Pod, {"metadata": {"name": "pod", "namespace": "default", "uid": "p"}, "spec": spec})
    return pod


@pytest.mark.parametrize("outcome", ["", "the API is not served"])
def test_a_pod_with_a_resource_that_no_node_has_waits_for_the_lists(outcome: str) -> None:
    """The pod is queued when the lists are complete or cannot be completed."""
    made = default_rig(node("n"))
    feed = made.scheduler.device_feed
    feed.expect_lists(NOT_LISTED)
    made.scheduler.feed.pod_added(pod_with_extended_resource())
    assert made.queue.pop() is None
    feed.withhold(outcome)
    assert made.queue.pop() is not None


@table(
    "amounts, method",
    ("a node has the resource", {RESOURCE: "1"}, "expect_lists"),
    ("no lists are expected", {}, "withhold"),
)
def test_other_pods_with_a_resource_do_not_wait(amounts: dict[str, str], method: str) -> None:
    """A pod does not wait if a node has the extended resource or no lists are expected."""
    made = default_rig(node("n", allocatable={**DEFAULT_ALLOCATABLE, **amounts}))
    getattr(made.scheduler.device_feed, method)(NOT_LISTED)
    made.scheduler.feed.pod_added(pod_with_extended_resource())
    assert made.queue.pop() is not None


def test_a_new_node_with_the_resource_ends_the_wait() -> None:
    """The pod is queued before the lists are complete if a node with the resource is added."""
    made = default_rig(node("n"))
    made.scheduler.device_feed.expect_lists(NOT_LISTED)
    made.scheduler.feed.pod_added(pod_with_extended_resource())
    assert made.queue.pop() is None
    made.add(node("m", allocatable={**DEFAULT_ALLOCATABLE, RESOURCE: "1"}))
    assert made.queue.pop() is not None


def test_devices_of_a_claim_whose_change_is_interrupted_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim counts as one that cannot be decoded until the change is repeated."""
    made = default_rig()
    devices, feed = made.columns.devices, made.scheduler.device_feed
    claim = device_objects.allocated_claim({"device": "d0", "pool": "a"})
    index = type(devices.claims)
    monkeypatch.setattr(index, "_indexed", raising([MemoryError()], index._indexed))
    with pytest.raises(MemoryError):
        feed.added(claim)
    assert devices.unreadable_claims == {claim.key}
    feed.added(claim)
    assert devices.claims.get(claim.key) == claim
    assert devices.claims.in_pools(pools_of(claim)) == {claim.key}
    assert not devices.unreadable_claims
