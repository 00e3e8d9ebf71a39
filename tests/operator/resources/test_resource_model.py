"""Tests of the base class of the custom resources: parsing objects, writing statuses, and times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.pod_group import PodGroup, PodGroupSpec
from bayplan.resources.resource_model import (
    MAX_DEPTH,
    MAX_KEY_LENGTH,
    MAX_TEXT_LENGTH,
    MAX_VALUES,
    bound_problems,
    format_time,
)
from bayplan.resources.scheduler_profile import SchedulerProfile, SchedulerProfileStatus

from scheduler_core.errors import ConfigError
from tests.support.manifests import plugin_config_manifest, profile_manifest
from tests.support.problems import problems_in
from tests.support.tables import table

_AS_WRITTEN: dict[str, Any] = {"mode": "json", "by_alias": True, "exclude_none": True}


@table(
    "moment, text",
    ("utc", datetime(2026, 1, 31, 12, tzinfo=UTC), "2026-01-31T12:00:00Z"),
    ("another-zone", datetime(2026, 2, 1, 1, tzinfo=timezone(timedelta(hours=2))), "2026-01-31T23:00:00Z"),
    ("microseconds", datetime(2026, 1, 31, 12, 0, 0, 999_999, tzinfo=UTC), "2026-01-31T12:00:00Z"),
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


@table(
    "status, revision",
    ("valid", {"activeRevision": "r1"}, "r1"),
    ("unknown-field", {"activeRevision": "r1", "fromTheFuture": {"x": 1}}, "r1"),
    ("invalid-field", {"activeRevision": "r1", "pending": -1}, None),
    ("not-a-mapping", "garbage", None),
    ("invalid-condition", {"activeRevision": "r1", "conditions": [{"type": "Ready"}]}, None),
    ("empty", {}, None),
    ("null", None, None),
)
def test_an_invalid_status_is_ignored(status: object, revision: str | None) -> None:
    """An invalid status is ignored, and the spec is parsed."""
    body = {**profile_manifest(spec={"percentageOfNodesToScore": 5}), "status": status}
    read = SchedulerProfile.from_object(body)
    assert read.status.active_revision == revision
    assert read.spec.percentage_of_nodes_to_score == 5


@table(
    "body, expected",
    ("no-spec", {"metadata": {"name": "a"}}, "spec: is required; add it"),
    ("no-metadata", {"spec": {}}, "metadata: is required; add it"),
    ("no-name", {"metadata": {}, "spec": {}}, "metadata.name: is required; add it"),
    ("null-spec", {"metadata": {"name": "a"}, "spec": None}, "spec: is required; add it"),
    (
        "unknown-field",
        {"metadata": {"name": "a"}, "spec": {}, "specs": 1},
        'specs: unknown field; remove it or correct its name (did you mean "spec"?)',
    ),
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


def nested(levels: int) -> Any:
    document: Any = 1
    for _ in range(levels):
        document = {"a": document}
    return document


@table(
    "document",
    ("null", None),
    ("maximum depth", nested(MAX_DEPTH)),
    ("maximum text length", {"a": "x" * MAX_TEXT_LENGTH}),
    ("maximum key length", {"x" * MAX_KEY_LENGTH: 1}),
    ("maximum number of values", {"a": [0] * (MAX_VALUES - 2)}),
    ("largest numbers", {"a": [2**64 - 1, -(2**63), True, 1e300]}),
)
def test_within_bounds(document: object) -> None:
    """Values within the bounds have no problems."""
    assert bound_problems(document, "spec") == ()


@table(
    "document, path, message",
    ("deep", nested(MAX_DEPTH + 1), "spec" + ".a" * MAX_DEPTH, "nested deeper than 32 levels"),
    ("long text", {"b": "x" * (MAX_TEXT_LENGTH + 1)}, "spec.b", "at most 65,536 characters"),
    ("long key", {"b": {"x" * 400: 1}}, "spec.b", "name of over 317 characters"),
    ("number as a key", {"b": {1: 2}}, "spec.b", "strings as field names"),
    ("many values", {"b": [[0] * 5000, [0] * 5000]}, "spec.b[1]", "more than 10,000 values"),
    ("long list", {"b": [0] * 200_000}, "spec.b", "at most 10,000 entries, not 200,000"),
    ("large number", {"b": [1, 2**64]}, "spec.b[1]", "at most 64 bits"),
    ("number that Python does not print", {"b": -(10**5000)}, "spec.b", "at most 64 bits"),
)
def test_out_of_bounds(document: object, path: str, message: str) -> None:
    """A value out of bounds is reported by its path and not quoted at length."""
    (problem,) = bound_problems(document, "spec")
    assert problem.path == path
    assert message in problem.message
    assert len(problem.message) < 200


def test_the_number_of_problems_is_bounded() -> None:
    """At most eight values out of bounds are reported."""
    assert len(bound_problems([2**70] * 9000, "spec")) == 8


def test_a_deeply_nested_spec_is_rejected() -> None:
    """Args with thousands of levels are a problem and not a RecursionError."""
    body = {"metadata": {"name": "deep"}, "spec": {"plugin": "NodeResourcesFit", "args": nested(5000)}}
    with pytest.raises(ConfigError) as raised:
        PluginConfig.from_object(body)
    assert raised.value.problems[0].path.startswith("spec.args.a.a.")


@table(
    "args",
    ("empty", {}),
    ("built-in", {"scoringStrategy": {"type": "MostAllocated"}}),
    ("anything", {"snake_case": [1, 2.5, None, {"deep": True}]}),
)
def test_entry(args: dict[str, Any]) -> None:
    """The entry for a profile's pluginConfig has the unchanged args."""
    entry = PluginConfig.from_object(plugin_config_manifest(plugin="Own", args=args)).entry()
    assert (entry.name, entry.args) == ("Own", args)


def test_args_may_be_omitted() -> None:
    """A PluginConfig without args has the plugin's defaults."""
    body = {"metadata": {"name": "plain"}, "spec": {"plugin": "Own", "args": None}}
    assert PluginConfig.from_object(body).entry().args == {}


def group(name: str = "training", **spec: Any) -> PodGroup:
    return PodGroup.from_object({"metadata": {"name": name, "namespace": "ml"}, "spec": {"minMember": 4, **spec}})


def test_defaults() -> None:
    """Only minMember is required."""
    assert group().spec == PodGroupSpec(min_member=4, disruption="Pod", queueing="BestEffort")


def test_all_fields() -> None:
    """Every field is parsed and written back unchanged."""
    spec: dict[str, Any] = {
        "minMember": 4,
        "minResources": {"cpu": 64, "memory": "256Gi", "example.com/gpu": "500m", "pods": "+1e3"},
        "scheduleTimeoutSeconds": 600,
        "priorityClassName": "training.high",
        "topology": {"key": "zone", "levels": ["example.com/block", "example.com/rack"], "mode": "Preferred"},
        "disruption": "Group",
        "queueing": "Strict",
    }
    read = group(**spec)
    assert read.spec.document() == spec
    assert read.metadata.namespace == "ml"


@table("length, expected", ("maximum-length-of-a-label", 63, []), ("longer", 64, ["metadata.name"]))
def test_length_of_the_name(length: int, expected: list[str]) -> None:
    """A name longer than a label value is rejected, because no pod could belong to the group."""
    found = problems_in(lambda: group("g" * length))
    assert [problem.partition(": ")[0] for problem in found] == expected


@table(
    "field, value",
    ("line-end", "priorityClassName", "a\n"),
    ("long-key", "topology", {"key": "k" * 10_000}),
    ("long-level", "topology", {"key": "k", "levels": ["l" * 10_000]}),
    ("many-levels", "topology", {"key": "k", "levels": ["l"] * 10_000}),
    ("long-amount", "minResources", {"cpu": "9" * 10_000}),
    ("large-number", "minResources", {"cpu": 10**5_000}),
    ("long-exponent", "minResources", {"cpu": "1e" + "9" * 100}),
)
def test_hostile_texts(field: str, value: object) -> None:
    """A hostile string is rejected once and not quoted at length."""
    spec: dict[str, Any] = {field: value}
    (found,) = problems_in(lambda: group(**spec))
    assert found.startswith(f"spec.{field}")
    assert len(found) < 250
