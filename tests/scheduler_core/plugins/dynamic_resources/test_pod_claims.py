"""Lookup of a pod's claims and their device classes, and errors for missing ones."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from scheduler_core.errors import DeviceError
from scheduler_core.framework.status import Code
from scheduler_core.model.devices import ResourceClaim
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import Pod, ResourceClaimReference
from scheduler_core.plugins.dynamic_resources.pod_claims import claims_of_pod, class_rejection
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from tests.support.builders import pod
from tests.support.devices import alternative, claim, device_class, exactly, first_available, using, with_meta
from tests.support.presence import present
from tests.support.tables import table

USER = pod("p", namespace="ns", uid="uid-of-p")
OWNER = OwnerReference("Pod", "p", "uid-of-p", "v1", controller=True)


def index(*claims: ResourceClaim) -> DeviceIndex:
    """Return an index with claims and the class ``gpu``."""
    devices = DeviceIndex()
    devices.assign(device_class())
    for each in claims:
        devices.assign(each)
    return devices


def test_claims_in_the_order_of_the_pod() -> None:
    """Claims by name and by template are in the order of the spec; a template without a claim is skipped."""
    devices = index(claim(name="a"), claim(name="b"), with_meta(claim(name="made"), owner_references=(OWNER,)))
    user = using(USER, "b", "a", templates={"t": "made", "none": None})
    assert [each.metadata.name for each in claims_of_pod(user, devices)] == ["b", "a", "made"]


@table(
    "user, claims, message",
    ("missing", using(USER, "a"), [], 'could not find ResourceClaim "ns/a"'),
    (
        "being deleted",
        using(USER, "a"),
        [with_meta(claim(name="a"), deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))],
        'resourceclaim "a" is being deleted',
    ),
    (
        "not created yet",
        replace(using(USER, templates={"t": "made"}), status=USER.status),
        [],
        'pod "ns/p": ResourceClaim not created yet',
    ),
    (
        "of another pod",
        using(USER, templates={"t": "made"}),
        [claim(name="made")],
        "ResourceClaim ns/made was not created for Pod ns/p (Pod is not owner)",
    ),
    (
        "unknown source",
        replace(USER, spec=replace(USER.spec, resource_claims=(ResourceClaimReference(name="x"),))),
        [],
        'pod "ns/p", spec.resourceClaim "x": none of the supported fields are set',
    ),
    ("first", using(USER, "a", "b"), [claim(name="b")], 'could not find ResourceClaim "ns/a"'),
)
def test_claims_that_cannot_be_used(user: Pod, claims: list[ResourceClaim], message: str) -> None:
    """The error reports the first problem."""
    with pytest.raises(DeviceError) as caught:
        claims_of_pod(user, index(*claims))
    assert str(caught.value) == message


def test_claims_are_withheld() -> None:
    """Until all objects are listed, pods with claims are rejected and pods without claims are not."""
    devices = index(claim(name="a"))
    devices.withheld = "not listed"
    assert claims_of_pod(USER, devices) == []
    with pytest.raises(DeviceError, match="resource claims cannot be allocated: not listed"):
        claims_of_pod(using(USER, "a"), devices)


@table(
    "request_body, code, message",
    (
        "missing class",
        exactly("r", device_class_name="x"),
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
        "request r: device class x does not exist",
    ),
    (
        "class of an alternative",
        first_available("r", alternative("a"), alternative("b", device_class_name="x")),
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
        "request r/b: device class x does not exist",
    ),
    ("no class", exactly("r", device_class_name=""), Code.ERROR, "request r: unsupported request type"),
    (
        "unknown request",
        {"name": "r"},
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
        "resource claim ns/c0, request r: unknown request type",
    ),
)
def test_classes_that_cannot_be_used(request_body: dict[str, object], code: Code, message: str) -> None:
    """The pod is rejected before any node is evaluated."""
    rejection = present(class_rejection(claim(request_body), index()))
    assert (rejection.code, rejection.message) == (code, message)


def test_classes_that_exist() -> None:
    """class_rejection() returns None if all classes exist."""
    assert class_rejection(claim(exactly("r"), first_available("s", alternative("a"))), index()) is None
