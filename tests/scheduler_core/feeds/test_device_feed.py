"""Events of devices while their lists are not complete, and after that."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler_core.in_tree import default_plugins
from scheduler_core.model.device_claims import ResourceClaim
from scheduler_core.model.pod import Pod
from tests.support.builders import DEFAULT_ALLOCATABLE, node
from tests.support.scheduling import rig

NOT_LISTED = "the claims are not listed yet"


def decode(kind: Any, fields: dict[str, Any]) -> Any:
    """Decode an object as the API server would send it."""
    return msgspec.json.decode(msgspec.json.encode(fields), type=kind)


def a_claim() -> ResourceClaim:
    """A claim without requests."""
    claim: ResourceClaim = decode(ResourceClaim, {"metadata": {"name": "claim", "namespace": "default", "uid": "c"}})
    return claim


def a_pod() -> Pod:
    """A pod that names the claim."""
    spec = {"schedulerName": "default-scheduler", "resourceClaims": [{"name": "c", "resourceClaimName": "claim"}]}
    pod: Pod = decode(Pod, {"metadata": {"name": "pod", "namespace": "default", "uid": "p"}, "spec": spec})
    return pod


def test_a_pod_with_claims_waits_for_the_lists() -> None:
    """Its claim is known before, but nothing requeues the pod until all lists are complete."""
    made = rig(defaults=default_plugins())
    made.add(node("n"))
    feed = made.scheduler.device_feed
    feed.withhold(NOT_LISTED)
    made.scheduler.feed.pod_added(a_pod())
    feed.added(a_claim())
    assert made.queue.pop() is None
    feed.withhold("")
    assert made.queue.pop() is not None


RESOURCE = "example.com/gpu"


def a_pod_with_a_resource() -> Pod:
    """A pod that requests an extended resource."""
    containers = [{"name": "main", "resources": {"requests": {RESOURCE: "1"}, "limits": {RESOURCE: "1"}}}]
    spec = {"schedulerName": "default-scheduler", "containers": containers}
    pod: Pod = decode(Pod, {"metadata": {"name": "pod", "namespace": "default", "uid": "p"}, "spec": spec})
    return pod


@pytest.mark.parametrize("outcome", ["", "the API is not served"])
def test_a_pod_with_a_resource_that_no_node_offers_waits_for_the_lists(outcome: str) -> None:
    """It is tried when they are complete, or when it is known that they will not be."""
    made = rig(defaults=default_plugins())
    made.add(node("n"))
    feed = made.scheduler.device_feed
    feed.expect_lists(NOT_LISTED)
    made.scheduler.feed.pod_added(a_pod_with_a_resource())
    assert made.queue.pop() is None
    feed.withhold(outcome)
    assert made.queue.pop() is not None


@pytest.mark.parametrize(
    ("amounts", "method"),
    [
        pytest.param({RESOURCE: "1"}, "expect_lists", id="a node offers it"),
        pytest.param({}, "withhold", id="no lists are expected"),
    ],
)
def test_other_pods_with_a_resource_do_not_wait(amounts: dict[str, str], method: str) -> None:
    """A device plugin may provide the resource, and a reason can last for good."""
    made = rig(defaults=default_plugins())
    made.add(node("n", allocatable={**DEFAULT_ALLOCATABLE, **amounts}))
    getattr(made.scheduler.device_feed, method)(NOT_LISTED)
    made.scheduler.feed.pod_added(a_pod_with_a_resource())
    assert made.queue.pop() is not None


def test_a_new_node_that_offers_the_resource_ends_the_wait() -> None:
    """The pod is tried before the lists are complete."""
    made = rig(defaults=default_plugins())
    made.add(node("n"))
    made.scheduler.device_feed.expect_lists(NOT_LISTED)
    made.scheduler.feed.pod_added(a_pod_with_a_resource())
    assert made.queue.pop() is None
    made.add(node("m", allocatable={**DEFAULT_ALLOCATABLE, RESOURCE: "1"}))
    assert made.queue.pop() is not None
