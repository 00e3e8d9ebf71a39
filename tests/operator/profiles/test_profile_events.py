"""Tests of events about profiles and plugin configurations: one event for each change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bayplan.profiles.applied_profile import ProfileFindings
from bayplan.profiles.desired_profiles import desired_state
from bayplan.profiles.plugin_config_validation import PluginConfigValidation
from bayplan.profiles.profile_events import plugin_config_events, profile_events
from bayplan.profiles.profile_status import Progress, plugin_config_status, profile_status
from bayplan.resources.resource_model import ObjectMeta

from scheduler_core.errors import Problem
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.metrics.profile_metrics import LostBind
from tests.support.manifests import plugin_config_manifest

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
META = ObjectMeta(name="batch", uid="u", generation=1)
BAD = (Problem("spec.plugins", "is bad"),)
WORSE = (*BAD, Problem("spec.extenders", "are bad too"))
TAKEN = (Problem("spec.schedulerName", "is held by another"),)
LOST = Progress(lost_binds=1, last_lost_bind=LostBind("n/p", "ours", "theirs", NOW))


def status(progress: Progress | None = None, **fields: Any) -> dict[str, Any]:
    findings = {"generation": 1, "scheduler_name": "batch", "holds_name": True, "live_revision": "a", **fields}
    return profile_status(ProfileFindings(**findings), progress or Progress(), {}, NOW)


def events(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str]]:
    return [(event.type, event.reason) for event in profile_events(META, before, after)]


CASES = [
    pytest.param({}, status(), [("Normal", "Accepted"), ("Normal", "Activated")], id="new"),
    pytest.param({}, status(problems=BAD, live_revision=""), [("Warning", "Rejected")], id="new-and-bad"),
    pytest.param(
        {},
        status(problems=TAKEN, holds_name=False, live_revision=""),
        [("Warning", "SchedulerNameTaken")],
        id="name-taken",
    ),
    pytest.param(
        {},
        status(problems=TAKEN, holds_name=False, live_revision="", name_is_reserved=True),
        [("Warning", "SchedulerNameReserved")],
        id="name-reserved",
    ),
    pytest.param(status(), status(), [], id="nothing-new"),
    pytest.param(status(), status(Progress(active=5)), [], id="counts"),
    pytest.param(
        status(),
        status(generation=2, live_revision="b"),
        [("Normal", "Accepted"), ("Normal", "Activated")],
        id="another-revision",
    ),
    pytest.param(status(), status(generation=2), [("Normal", "Accepted")], id="an-edit-of-no-effect"),
    pytest.param(status(), status(live_revision="b"), [("Normal", "Activated")], id="by-a-plugin-config"),
    pytest.param(status(), status(generation=2, problems=BAD), [("Warning", "Rejected")], id="a-bad-edit"),
    pytest.param(status(problems=BAD), status(problems=BAD), [], id="still-bad"),
    pytest.param(status(problems=BAD), status(problems=WORSE), [("Warning", "Rejected")], id="bad-for-other-reasons"),
    pytest.param(status(problems=BAD), status(), [("Normal", "Accepted")], id="mended-by-others"),
    pytest.param(
        status(),
        status(problems=TAKEN, holds_name=False, live_revision=""),
        [("Warning", "SchedulerNameTaken"), ("Warning", "Withdrawn")],
        id="the-name-is-lost",
    ),
    pytest.param(status(), status(LOST), [("Warning", "BindLost")], id="a-rival"),
    pytest.param(status(LOST), status(LOST), [], id="still-a-rival"),
    pytest.param(status(LOST), status(), [], id="no-rival-any-more"),
]


@pytest.mark.parametrize(("before", "after", "expected"), CASES)
def test_profile_events(before: dict[str, Any], after: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    """A transition of the status is an event, and nothing else is."""
    assert events(before, after) == expected


def test_another_process_repeats_nothing() -> None:
    """A state that is in the status was recorded before, by any process."""
    before = status(problems=BAD)
    findings = ProfileFindings(1, "batch", holds_name=True, problems=BAD, live_revision="a")
    assert events(before, profile_status(findings, Progress(), before, NOW + timedelta(days=9))) == []


def test_a_swap_names_both_revisions() -> None:
    """The live revision and the one that it replaces."""
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
    """Valid, then invalid, then invalid for other reasons: one event for each."""
    statuses: list[dict[str, Any]] = [{}]
    reasons = []
    for args in ({}, {"no": 1}, {"no": 1}, {"nothing": 1}):
        manifest = plugin_config_manifest("pack", args=args)
        [judged] = desired_state([], [manifest], PluginConfigValidation(in_tree_registry())).plugin_configs
        statuses.append(plugin_config_status(judged, statuses[-1], NOW))
        reasons.append([event.reason for event in plugin_config_events(judged.meta, *statuses[-2:])])
    assert reasons == [["Valid"], ["Invalid"], [], ["Invalid"]]
