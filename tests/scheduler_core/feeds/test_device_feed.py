"""Events of devices while their lists are not complete, and after that."""

from __future__ import annotations

from typing import Any

import msgspec

from scheduler_core.in_tree import default_plugins
from scheduler_core.model.device_claims import ResourceClaim
from scheduler_core.model.pod import Pod
from tests.support.builders import node
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
