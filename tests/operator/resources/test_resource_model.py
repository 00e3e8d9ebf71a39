"""Tests of the base class of the custom resources: parsing objects, writing statuses, and times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from bayplan.resources.pod_group import PodGroup
from bayplan.resources.resource_model import format_time
from bayplan.resources.scheduler_profile import SchedulerProfile, SchedulerProfileStatus

from tests.support.manifests import profile_manifest
from tests.support.problems import problems_in

_AS_WRITTEN: dict[str, Any] = {"mode": "json", "by_alias": True, "exclude_none": True}


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        pytest.param(datetime(2026, 1, 31, 12, tzinfo=UTC), "2026-01-31T12:00:00Z", id="utc"),
        pytest.param(
            datetime(2026, 2, 1, 1, tzinfo=timezone(timedelta(hours=2))), "2026-01-31T23:00:00Z", id="another-zone"
        ),
        pytest.param(datetime(2026, 1, 31, 12, 0, 0, 999_999, tzinfo=UTC), "2026-01-31T12:00:00Z", id="microseconds"),
    ],
)
def test_format_time(moment: datetime, text: str) -> None:
    """Times are written in UTC and whole seconds."""
    assert format_time(moment) == text


def test_metadata_is_read_leniently() -> None:
    """Only the metadata fields that the operator uses are parsed, and unknown fields are ignored."""
    body = profile_manifest("batch", labels={"a": "b"}, managedFields=[{"x": 1}], deletionTimestamp=None)
    metadata = SchedulerProfile.from_object(body).metadata
    assert (metadata.name, metadata.uid, metadata.generation, metadata.namespace) == ("batch", "uid-of-batch", 1, "")
    assert metadata.creation_timestamp == datetime(2026, 1, 1, tzinfo=UTC)
    assert metadata.deletion_timestamp is None


@pytest.mark.parametrize(
    ("status", "revision"),
    [
        pytest.param({"activeRevision": "r1"}, "r1", id="valid"),
        pytest.param({"activeRevision": "r1", "fromTheFuture": {"x": 1}}, "r1", id="unknown-field"),
        pytest.param({"activeRevision": "r1", "pending": -1}, None, id="invalid-field"),
        pytest.param("garbage", None, id="not-a-mapping"),
        pytest.param({"activeRevision": "r1", "conditions": [{"type": "Ready"}]}, None, id="invalid-condition"),
        pytest.param({}, None, id="empty"),
        pytest.param(None, None, id="null"),
    ],
)
def test_an_invalid_status_is_ignored(status: object, revision: str | None) -> None:
    """An invalid status is ignored, and the spec is parsed."""
    body = {**profile_manifest(spec={"percentageOfNodesToScore": 5}), "status": status}
    read = SchedulerProfile.from_object(body)
    assert read.status.active_revision == revision
    assert read.spec.percentage_of_nodes_to_score == 5


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param({"metadata": {"name": "a"}}, "spec: is required; add it", id="no-spec"),
        pytest.param({"spec": {}}, "metadata: is required; add it", id="no-metadata"),
        pytest.param({"metadata": {}, "spec": {}}, "metadata.name: is required; add it", id="no-name"),
        pytest.param({"metadata": {"name": "a"}, "spec": None}, "spec: is required; add it", id="null-spec"),
        pytest.param(
            {"metadata": {"name": "a"}, "spec": {}, "specs": 1},
            'specs: unknown field; remove it or correct its name (did you mean "spec"?)',
            id="unknown-field",
        ),
    ],
)
def test_broken_objects(body: dict[str, Any], expected: str) -> None:
    """A missing or unknown field is reported with its path."""
    assert problems_in(lambda: SchedulerProfile.from_object(body)) == [expected]


@pytest.mark.parametrize("resource", [SchedulerProfile, PodGroup], ids=lambda resource: resource.definition.kind)
def test_document_of_an_empty_status(resource: type[SchedulerProfile | PodGroup]) -> None:
    """Unknown values are omitted, and zero counts are written."""
    spec = {"minMember": 1} if resource is PodGroup else {}
    document = resource.from_object({"metadata": {"name": "a"}, "spec": spec}).status.model_dump(**_AS_WRITTEN)
    assert None not in document.values()
    assert 0 in document.values()


def test_status_document() -> None:
    """A status is written in camelCase with times as strings."""
    status = SchedulerProfileStatus(active_revision="r1", last_scheduled_time=datetime(2026, 1, 31, tzinfo=UTC))
    document = status.model_dump(**_AS_WRITTEN)
    assert (document["activeRevision"], document["lastScheduledTime"]) == ("r1", "2026-01-31T00:00:00Z")
    assert document["queue"] == {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0}
    assert SchedulerProfile.from_object({**profile_manifest(), "status": document}).status == status
