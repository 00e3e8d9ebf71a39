"""Tests of the events about profiles and plugin configurations: one event for each change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from bayplan.profiles.desired_profiles import PluginConfigValidation, desired_state
from bayplan.profiles.profile_status import (
    ContestedPods,
    ProfileFindings,
    Progress,
    plugin_config_status,
    profile_status,
)
from bayplan.profiles.status_publisher import plugin_config_events, profile_events
from bayplan.resources.resource_model import ObjectMeta

from scheduler_core.errors import Problem
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.metrics.scheduler_metrics import LostBind, ProfileRecord
from scheduler_core.queueing.sub_queues import QueueCounts
from tests.support.manifests import plugin_config_manifest
from tests.support.tables import table

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
META = ObjectMeta(name="batch", uid="u", generation=1)
BAD = (Problem("spec.plugins", "is bad"),)
WORSE = (*BAD, Problem("spec.extenders", "are bad too"))
NAME_TAKEN = (Problem("spec.schedulerName", "is held by another"),)
LOST_BIND = Progress(ProfileRecord(lost_binds=1, last_lost_bind=LostBind("n/p", "ours", "theirs", NOW)))


def status(progress: Progress | None = None, **fields: Any) -> dict[str, Any]:
    findings = {"generation": 1, "scheduler_name": "batch", "holds_name": True, "live_revision": "a", **fields}
    return profile_status(ProfileFindings(**findings), progress or Progress(), {}, NOW)


def events(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str]]:
    return [(event.type, event.reason) for event in profile_events(META, before, after)]


OF_NODES = Progress(contested_pods=ContestedPods(1, "n", "rival", "n/p"))


@table(
    "before, after, expected",
    ("contested-nodes", status(), status(OF_NODES), [("Warning", "NodesContested")]),
    ("contested-nodes-still", status(OF_NODES), status(OF_NODES), []),
    ("new", {}, status(), [("Normal", "Accepted"), ("Normal", "Activated")]),
    ("new-and-invalid", {}, status(problems=BAD, live_revision=""), [("Warning", "Rejected")]),
    (
        "name-taken",
        {},
        status(problems=NAME_TAKEN, holds_name=False, live_revision=""),
        [("Warning", "SchedulerNameTaken")],
    ),
    (
        "name-reserved",
        {},
        status(problems=NAME_TAKEN, holds_name=False, live_revision="", name_is_reserved=True),
        [("Warning", "SchedulerNameReserved")],
    ),
    ("unchanged", status(), status(), []),
    ("counts", status(), status(Progress(waiting=QueueCounts(active=5))), []),
    (
        "another-revision",
        status(),
        status(generation=2, live_revision="b"),
        [("Normal", "Accepted"), ("Normal", "Activated")],
    ),
    ("edit-without-effect", status(), status(generation=2), [("Normal", "Accepted")]),
    ("edit-of-a-plugin-config", status(), status(live_revision="b"), [("Normal", "Activated")]),
    ("invalid-edit", status(), status(generation=2, problems=BAD), [("Warning", "Rejected")]),
    ("still-invalid", status(problems=BAD), status(problems=BAD), []),
    ("invalid-for-other-reasons", status(problems=BAD), status(problems=WORSE), [("Warning", "Rejected")]),
    ("valid-again-without-an-edit", status(problems=BAD), status(), [("Normal", "Accepted")]),
    (
        "name-lost",
        status(),
        status(problems=NAME_TAKEN, holds_name=False, live_revision=""),
        [("Warning", "SchedulerNameTaken"), ("Warning", "Withdrawn")],
    ),
    ("bind-lost", status(), status(LOST_BIND), [("Warning", "BindLost")]),
    ("still-contested", status(LOST_BIND), status(LOST_BIND), []),
    ("no-longer-contested", status(LOST_BIND), status(), []),
)
def test_profile_events(before: dict[str, Any], after: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    """Each transition of the status is recorded as one event, and nothing else is."""
    assert events(before, after) == expected


def test_a_restart_repeats_no_event() -> None:
    """A state that is in the status was recorded before and is not recorded again."""
    before = status(problems=BAD)
    findings = ProfileFindings(1, "batch", holds_name=True, problems=BAD, live_revision="a")
    assert events(before, profile_status(findings, Progress(), before, NOW + timedelta(days=9))) == []


def test_activated_names_both_revisions() -> None:
    """The event Activated names the live revision and the previous one."""
    _, activated = profile_events(META, status(), status(generation=2, live_revision="b"))
    assert activated.note == "Revision b is live, a before."
    regarding = activated.regarding
    assert (regarding.kind, regarding.name, regarding.uid, regarding.namespace) == (
        "SchedulerProfile",
        "batch",
        "u",
        "",
    )
    assert regarding.api_version == "bayplan.dev/v1alpha1"


def test_plugin_config_events() -> None:
    """A PluginConfig has one event when it becomes valid, becomes invalid, or is invalid for other reasons."""
    statuses: list[dict[str, Any]] = [{}]
    reasons = []
    for args in ({}, {"no": 1}, {"no": 1}, {"nothing": 1}):
        manifest = plugin_config_manifest("pack", args=args)
        [desired] = desired_state([], [manifest], PluginConfigValidation(in_tree_registry())).plugin_configs
        statuses.append(plugin_config_status(desired, statuses[-1], NOW))
        reasons.append([event.reason for event in plugin_config_events(desired.meta, *statuses[-2:])])
    assert reasons == [["Valid"], ["Invalid"], [], ["Invalid"]]
