"""Queueing hints of DynamicResources for changes of claims and of the pod."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from scheduler_core.framework.cluster_events import Hint
from scheduler_core.model.devices import ResourceClaim, ResourceClaimStatus
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.dynamic_resources import DynamicResources
from tests.support.builders import pod
from tests.support.devices import allocated_claim, claim, using, with_meta
from tests.support.handles import FakeHandle
from tests.support.tables import table

USER = using(pod("p", namespace="ns", uid="uid-of-p"), "c0")
OWNED = with_meta(claim(name="made"), owner_references=(OwnerReference("Pod", "p", "uid-of-p", "v1", controller=True),))


def share(amount: str) -> ResourceClaim:
    """Return the claim of the pod with a share of a device."""
    return allocated_claim({"device": "d", "shareID": "s", "consumedCapacity": {"memory": amount}}, name="c0")


def reported(**state: Any) -> ResourceClaim:
    """Return the claim of the pod with a device status that its driver reports."""
    allocated = allocated_claim({"device": "d"}, name="c0")
    device = {"driver": "gpu.example.com", "pool": "n0", "device": "d", **state}
    decoded = msgspec.json.decode(msgspec.json.encode({"devices": [device]}), type=ResourceClaimStatus)
    return replace(allocated, status=replace(allocated.status, devices=decoded.devices))


def hints(*claims: ResourceClaim) -> DynamicResources:
    """Return the hints of a scheduler with these claims."""
    handle = FakeHandle()
    for each in claims:
        handle.nodes.devices.assign(each)
    return DynamicResources(None, handle)


@table(
    "stored, old, new, hint",
    ("a claim of the pod is created", [claim()], None, claim(), Hint.QUEUE),
    ("another claim is created", [claim()], None, claim(name="x"), Hint.SKIP),
    ("a claim of the pod is still missing", [], None, claim(name="x"), Hint.SKIP),
    ("another claim is deallocated", [claim()], allocated_claim({"device": "d"}), claim(name="held"), Hint.QUEUE),
    ("its claim is deallocated", [claim()], allocated_claim({"device": "d"}, name="c0"), claim(), Hint.QUEUE),
    ("its claim is allocated", [claim()], claim(), allocated_claim({"device": "d"}, name="c0"), Hint.QUEUE),
    ("same status", [claim()], claim(), with_meta(claim(), annotations={"a": "b"}), Hint.SKIP),
    ("the same amount in another notation", [claim()], share("1Gi"), share("1024Mi"), Hint.SKIP),
    ("another amount", [claim()], share("1Gi"), share("2Gi"), Hint.QUEUE),
    ("a driver reports data", [claim()], reported(), reported(data={"a": 1}), Hint.QUEUE),
    ("the same data", [claim()], reported(data={"a": 1}), reported(data={"a": 1}), Hint.SKIP),
    ("a driver reports a network", [claim()], reported(), reported(networkData={"interfaceName": "e"}), Hint.QUEUE),
    (
        "only the time of a condition differs",
        [claim()],
        reported(conditions=[{"type": "R", "status": "True", "lastTransitionTime": "2026-03-21T00:00:00Z"}]),
        reported(conditions=[{"type": "R", "status": "True", "lastTransitionTime": "2026-03-22T00:00:00Z"}]),
        Hint.QUEUE,
    ),
    ("an allocated claim is deleted", [claim()], allocated_claim({"device": "d"}), None, Hint.QUEUE),
    ("an unallocated claim is deleted", [claim()], claim(name="x"), None, Hint.SKIP),
    ("unknown object", [claim()], None, USER, Hint.QUEUE),
)
def test_change_of_a_claim(
    stored: list[ResourceClaim], old: ResourceClaim | None, new: object | None, hint: Hint
) -> None:
    """A change of a claim requeues the pod if it may satisfy the pod's claims; ``stored`` are the claims after it."""
    assert hints(*stored).after_claim_change(USER, old, new) is hint


@table(
    "stored, new, hint",
    ("all claims exist", [OWNED], using(USER, templates={"t": "made"}), Hint.QUEUE),
    ("the claim is not stored yet", [], using(USER, templates={"t": "made"}), Hint.SKIP),
    ("no claim is needed", [], using(USER, templates={"t": None}), Hint.QUEUE),
)
def test_change_of_the_pod(stored: list[ResourceClaim], new: Pod, hint: Hint) -> None:
    """The pod is requeued once all claims of its status exist."""
    assert hints(*stored).after_pod_update(USER, USER, new) is hint
