"""Tests of the translation of Bayplan's and scheduler-plugins' PodGroups."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from bayplan.gangs.group_translation import SchedulerPluginsGroup, from_bayplan, from_scheduler_plugins, recorded_run
from bayplan.resources.pod_group import GroupRunStatus
from bayplan.resources.pod_group import PodGroup as BayplanGroup
from bayplan.resources.resource_model import format_time

from scheduler_core.errors import ConfigError
from scheduler_core.model.pod_group import GroupKey, GroupRun, GroupSource, GroupTopology, PodGroup
from tests.support.tables import table

CREATED = "2026-11-21T09:00:00Z"
METADATA = {
    "name": "train",
    "namespace": "ml",
    "uid": "0b1c",
    "generation": 3,
    "resourceVersion": "77",
    "creationTimestamp": CREATED,
}


def expected(source: GroupSource, min_member: int, **more: Any) -> PodGroup:
    created = datetime(2026, 11, 21, 9, tzinfo=UTC)
    return PodGroup(GroupKey(source, "ml", "train"), "0b1c", min_member, created, 3, **more)


def bayplan(spec: dict[str, Any], priority: int | None = None) -> PodGroup:
    return from_bayplan(BayplanGroup.from_object({"metadata": METADATA, "spec": spec}), priority)


def plugins(spec: dict[str, Any] | None) -> PodGroup:
    body: dict[str, Any] = {"metadata": METADATA, "status": {"phase": "Pending"}}
    if spec is not None:
        body["spec"] = spec
    return from_scheduler_plugins(msgspec.json.decode(json.dumps(body), type=SchedulerPluginsGroup))


@table(
    "spec, more",
    ("minimal", {}, {}),
    ("timeout", {"scheduleTimeoutSeconds": 600}, {"schedule_timeout_seconds": 600.0}),
    (
        "amounts in the scheduler's units, without pods",
        {"minResources": {"cpu": "1500m", "memory": "1Gi", "example.com/gpu": 2, "pods": 4}},
        {"min_resources": {"cpu": 1500, "memory": 1 << 30, "example.com/gpu": 2}},
    ),
    ("required domain", {"topology": {"key": "zone"}}, {"topology": GroupTopology("zone")}),
    (
        "preferred domain with levels",
        {"topology": {"key": "zone", "levels": ["block", "rack"], "mode": "Preferred"}},
        {"topology": GroupTopology("zone", ("block", "rack"), is_required=False)},
    ),
    ("whole group", {"disruption": "Group"}, {"disrupts_whole": True}),
    ("strict", {"queueing": "Strict"}, {"is_strict": True}),
    ("healing is off", {"healing": {"holdSeconds": 0}}, {"hold_seconds": 0.0}),
    ("hold of 5 minutes", {"healing": {"holdSeconds": 300}}, {"hold_seconds": 300.0}),
    ("healing without a field", {"healing": {}}, {"hold_seconds": 60.0}),
)
def test_bayplan_groups(spec: dict[str, Any], more: dict[str, Any]) -> None:
    """Each field of Bayplan's own API is translated."""
    fields = {"is_fresh": True, "hold_seconds": 60.0, **more}
    assert bayplan({"minMember": 4, **spec}) == expected(GroupSource.BAYPLAN, 4, **fields)


@table(
    "spec, min_member, more",
    ("minimal", {"minMember": 3}, 3, {}),
    ("no spec", None, 1, {}),
    ("no minimum", {}, 1, {}),
    ("minimum below 1", {"minMember": -2}, 1, {}),
    (
        "amounts",
        {"minMember": 3, "minResources": {"cpu": 2, "memory": "1Ki"}},
        3,
        {"min_resources": {"cpu": 2000, "memory": 1024}},
    ),
    ("null amounts", {"minMember": 3, "minResources": None}, 3, {}),
    ("timeout", {"minMember": 3, "scheduleTimeoutSeconds": 10}, 3, {"schedule_timeout_seconds": 10.0}),
    ("timeout of 0", {"minMember": 3, "scheduleTimeoutSeconds": 0}, 3, {}),
)
def test_scheduler_plugins_groups(spec: dict[str, Any] | None, min_member: int, more: dict[str, Any]) -> None:
    """Each field of scheduler-plugins' API is translated, and numbers out of range are clamped."""
    assert plugins(spec) == expected(GroupSource.SCHEDULER_PLUGINS, min_member, **more)


def test_invalid_amounts_are_problems() -> None:
    """Each amount that cannot be parsed is a problem with its field."""
    with pytest.raises(ConfigError) as caught:
        plugins({"minMember": 3, "minResources": {"cpu": "four", "memory": "1Gi", "example.com/gpu": "x"}})
    assert [problem.path for problem in caught.value.problems] == [
        "spec.minResources.cpu",
        "spec.minResources.example.com/gpu",
    ]


def test_the_run_that_a_status_records_is_read_as_it_was_written() -> None:
    """A restarted operator gets the run that the former one wrote; a status that cannot be read has none."""
    run = GroupRun(("Job.batch/uid-1", "none"), 2, datetime(2026, 11, 21, 9, tzinfo=UTC))
    status = GroupRunStatus(controllers=run.controllers, succeeded=run.succeeded, since=run.since)
    written = {"run": status.model_dump(mode="json", by_alias=True, exclude_none=True)}
    assert written["run"]["since"] == "2026-11-21T09:00:00Z"
    assert recorded_run(written) == run
    assert recorded_run({}) is recorded_run({"run": {"succeeded": "many"}}) is None


@pytest.mark.parametrize("since", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+23:00", "2026-11-21T09:00:00"])
def test_a_run_whose_time_cannot_be_compared_is_none(since: str) -> None:
    """The API server accepts times that have no equal in UTC, and files contain times without a zone."""
    assert recorded_run({"run": {"succeeded": 1, "since": since}}) is None
    assert recorded_run({"run": {"since": "2026-11-21T09:00:00-02:00"}}) == GroupRun(
        since=datetime(2026, 11, 21, 11, tzinfo=UTC)
    )


@pytest.mark.parametrize(
    ("time", "written"),
    [
        ("9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59Z"),
        ("0001-01-01T00:00:00+23:00", "0001-01-01T00:00:00Z"),
        ("2026-11-21T09:00:00.5-02:00", "2026-11-21T11:00:00Z"),
    ],
)
def test_every_time_that_the_api_server_accepts_can_be_written_again(time: str, written: str) -> None:
    """A condition keeps the time that a user gave it."""
    assert format_time(datetime.fromisoformat(time)) == written
