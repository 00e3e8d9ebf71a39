"""Binding conditions: devices of a claim are ready, failed, or past the timeout."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from msgspec.structs import replace

from scheduler_core.errors import DeviceError
from scheduler_core.model.devices import AllocatedDeviceStatus, ResourceClaim
from scheduler_core.plugins.dynamic_resources.pod_claims import (
    has_binding_conditions,
    is_past_binding_timeout,
    is_ready_for_binding,
)
from tests.support.devices import DRIVER, allocated_claim, claim
from tests.support.presence import present
from tests.support.tables import table

CONDITIONAL = {"device": "d", "bindingConditions": ["ready", "warm"], "bindingFailureConditions": ["broken"]}
ALLOCATED = datetime.fromisoformat("2026-01-01T00:00:00Z")


def reporting(of: ResourceClaim, device: str = "d", **conditions: str) -> ResourceClaim:
    """Return the claim with the conditions of a device; ``conditions`` are statuses by type."""
    body = {
        "driver": DRIVER,
        "pool": "n0",
        "device": device,
        "conditions": [
            {"type": kind, "status": status, "reason": "Why", "message": "what"} for kind, status in conditions.items()
        ],
    }
    status = msgspec.json.decode(msgspec.json.encode(body), type=AllocatedDeviceStatus)
    return replace(of, status=replace(of.status, devices=(*of.status.devices, status)))


@table(
    "subject, is_ready",
    ("not allocated", claim(), False),
    ("no conditions", allocated_claim({"device": "d"}), True),
    ("no conditions reported", allocated_claim(CONDITIONAL), False),
    (
        "conditions of another device",
        reporting(allocated_claim(CONDITIONAL), "other", ready="True", warm="True"),
        False,
    ),
    ("one of two conditions", reporting(allocated_claim(CONDITIONAL), ready="True"), False),
    ("one is False", reporting(allocated_claim(CONDITIONAL), ready="True", warm="False"), False),
    ("both conditions", reporting(allocated_claim(CONDITIONAL), ready="True", warm="True"), True),
    (
        "failure condition is False",
        reporting(allocated_claim(CONDITIONAL), ready="True", warm="True", broken="False"),
        True,
    ),
    (
        "one device of two",
        reporting(allocated_claim(CONDITIONAL, {**CONDITIONAL, "device": "e"}), ready="True", warm="True"),
        False,
    ),
)
def test_ready(subject: ResourceClaim, is_ready: bool) -> None:
    """All binding conditions of all devices must be True."""
    assert is_ready_for_binding(subject) is is_ready


def test_failure() -> None:
    """A failure condition that is True is an error, even if all other conditions are True."""
    with pytest.raises(DeviceError) as caught:
        is_ready_for_binding(reporting(allocated_claim(CONDITIONAL), ready="True", warm="True", broken="True"))
    assert str(caught.value) == 'device binding failed: claim=held, reason=Why, message="what"'


@table(
    "conditions, stamped, seconds, is_late",
    ("late", CONDITIONAL, True, 61, True),
    ("at the limit", CONDITIONAL, True, 60, False),
    ("without a timestamp", CONDITIONAL, False, 61, False),
    ("without conditions", {"device": "d"}, True, 61, False),
)
def test_timeout(conditions: dict[str, object], stamped: bool, seconds: int, is_late: bool) -> None:
    """The timeout runs from the timestamp of an allocation with binding conditions."""
    subject = allocated_claim(conditions)
    allocation = present(subject.status.allocation)
    assert has_binding_conditions(subject) is ("bindingConditions" in conditions)
    dated = replace(allocation, allocation_timestamp=ALLOCATED if stamped else None)
    subject = replace(subject, status=replace(subject.status, allocation=dated))
    assert is_past_binding_timeout(subject, 60.0, ALLOCATED + timedelta(seconds=seconds)) is is_late


def test_timeout_after_the_last_representable_date() -> None:
    """An allocation at the end of the year 9999 is not late, and raises nothing."""
    subject = allocated_claim(CONDITIONAL)
    allocation = present(subject.status.allocation)
    dated = replace(allocation, allocation_timestamp=datetime.max.replace(tzinfo=UTC))
    subject = replace(subject, status=replace(subject.status, allocation=dated))
    assert not is_past_binding_timeout(subject, 60.0, ALLOCATED)
