"""Tests of statuses: conditions, and which differences are written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bayplan.extenders.circuit_breaker import CircuitState
from bayplan.extenders.http_extender import ExtenderState
from bayplan.profiles.applied_profile import ProfileFindings
from bayplan.profiles.desired_profiles import desired_state
from bayplan.profiles.plugin_config_validation import PluginConfigValidation
from bayplan.profiles.profile_status import (
    Progress,
    plugin_config_status,
    profile_status,
    status_change,
)
from bayplan.resources.conditions import problems_message

from scheduler_core.errors import Problem
from scheduler_core.framework.plugin_set_merge import ResolvedPlugin
from scheduler_core.in_tree import in_tree_registry
from tests.support.manifests import plugin_config_manifest, profile_manifest

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
BAD = (Problem("spec.plugins", "is bad"),)
TAKEN = (Problem("spec.schedulerName", "is held"),)


def found(**fields: Any) -> ProfileFindings:
    return ProfileFindings(**{"generation": 3, "scheduler_name": "batch", "holds_name": True, **fields})


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}


STALLED = ("Stalled", "InvalidSpec")
CASES = [
    pytest.param(found(live_revision="r1"), ("True", "Valid"), ("True", "Live"), None, id="live"),
    pytest.param(
        found(live_revision="r1", problems=BAD),
        ("False", "InvalidSpec"),
        ("True", "LastGoodRevision"),
        STALLED,
        id="broken",
    ),
    pytest.param(found(problems=BAD), ("False", "InvalidSpec"), ("False", "NotLive"), STALLED, id="never-good"),
    pytest.param(
        found(problems=TAKEN, holds_name=False),
        ("False", "SchedulerNameTaken"),
        ("False", "NotLive"),
        ("Stalled", "SchedulerNameTaken"),
        id="name-taken",
    ),
    pytest.param(
        found(problems=TAKEN, holds_name=False, name_is_reserved=True),
        ("False", "SchedulerNameReserved"),
        ("False", "NotLive"),
        ("Stalled", "SchedulerNameReserved"),
        id="name-reserved",
    ),
    pytest.param(
        found(problems=TAKEN + BAD, holds_name=False),
        ("False", "InvalidSpec"),
        ("False", "NotLive"),
        STALLED,
        id="both",
    ),
    pytest.param(
        found(live_revision="r1", waiting_for=("x",)),
        ("True", "Valid"),
        ("True", "WaitingForQueueSort"),
        ("Reconciling", "WaitingForQueueSort"),
        id="waiting-live",
    ),
    pytest.param(
        found(waiting_for=("x",)),
        ("True", "Valid"),
        ("False", "WaitingForQueueSort"),
        ("Reconciling", "WaitingForQueueSort"),
        id="waiting-new",
    ),
]


@pytest.mark.parametrize(("findings", "accepted", "ready", "under_way"), CASES)
def test_conditions(
    findings: ProfileFindings, accepted: tuple[str, str], ready: tuple[str, str], under_way: tuple[str, str] | None
) -> None:
    """Accepted is about the current spec, Ready about what runs; those of kstatus are present only while true."""
    found_conditions = conditions(profile_status(findings, Progress(), {}, NOW))
    rare = {} if under_way is None else {under_way[0]: ("True", under_way[1])}
    assert found_conditions == {
        "Accepted": accepted,
        "Ready": ready,
        "Contested": ("False", "Uncontested"),
        **rare,
    }


@pytest.mark.parametrize(("findings", "accepted", "ready", "under_way"), CASES)
def test_every_bad_condition_says_what_to_do(
    findings: ProfileFindings, accepted: tuple[str, str], ready: tuple[str, str], under_way: tuple[str, str] | None
) -> None:
    """Each message is a sentence, has the validated generation, and contains a remedy if it is False."""
    del accepted, ready, under_way
    status = profile_status(findings, Progress(), {}, NOW)
    for one in status["conditions"]:
        assert one["message"].endswith(".")
        assert one["observedGeneration"] == status["observedGeneration"] == 3
    messages = {one["type"]: one["message"] for one in status["conditions"] if one["status"] == "False"}
    remedies = ("is held.", "Correct the spec", "see condition Accepted", "Set the same", "No other client")
    assert all(any(remedy in message for remedy in remedies) for message in messages.values()), messages


def test_kstatus_conditions_are_removed() -> None:
    """A corrected spec has no Stalled condition; the times of the others stay."""
    broken = profile_status(found(live_revision="r1", problems=BAD), Progress(), {}, NOW)
    mended = profile_status(found(live_revision="r1"), Progress(), broken, NOW + timedelta(hours=1))
    assert set(conditions(mended)) == {"Accepted", "Ready", "Contested"}
    assert status_change(broken, mended).at_once


def test_those_that_disagree_are_named() -> None:
    """A profile that waits for another QueueSort names the others."""
    status = profile_status(found(waiting_for=("x", "y")), Progress(), {}, NOW)
    assert "x, y" in status["conditions"][1]["message"]


def test_transition_times_are_kept() -> None:
    """A condition with the same status keeps its time; one that changed has the current time."""
    first = profile_status(found(live_revision="r1"), Progress(), {}, NOW)
    second = profile_status(found(live_revision="r1", problems=BAD), Progress(), first, NOW + timedelta(hours=1))
    times = {one["type"]: one["lastTransitionTime"] for one in second["conditions"]}
    assert (times["Accepted"], times["Ready"]) == ("2026-01-01T13:00:00Z", "2026-01-01T12:00:00Z")


def test_counts_and_plugins() -> None:
    """Counts are summed; weights are at score only, empty points are left out."""
    resolved = {"filter": (ResolvedPlugin("A"),), "score": (ResolvedPlugin("B", 2),), "permit": ()}
    progress = Progress(1, 2, 3, 4, scheduled=9, last_scheduled=NOW, last_error="ns/p: no")
    status = profile_status(found(live_revision="r1", resolved=resolved), progress, {}, NOW)
    assert status["pending"] == 10
    assert status["queue"] == {"active": 1, "backoff": 2, "unschedulable": 3, "gated": 4}
    assert (status["scheduledTotal"], status["lastScheduledTime"]) == (9, "2026-01-01T12:00:00Z")
    assert status["lastError"] == "ns/p: no"
    assert status["plugins"] == [
        {"point": "filter", "plugins": [{"name": "A"}]},
        {"point": "score", "plugins": [{"name": "B", "weight": 2}]},
    ]


def test_the_same_findings_differ_in_nothing() -> None:
    """A repeated reconcile with the same result writes nothing, however much later."""
    first = profile_status(found(live_revision="r1", problems=BAD), Progress(), {}, NOW)
    second = profile_status(found(live_revision="r1", problems=BAD), Progress(), first, NOW + timedelta(days=1))
    assert status_change(first, second).patch == {}


@pytest.mark.parametrize(
    ("written", "wanted", "patch", "at_once", "counts"),
    [
        pytest.param({"pending": 1}, {"pending": 2}, {"pending": 2}, False, True, id="counts"),
        pytest.param({"activeRevision": "a"}, {"activeRevision": "b"}, {"activeRevision": "b"}, True, False, id="live"),
        pytest.param({"activeRevision": "a"}, {}, {"activeRevision": None}, True, False, id="removed"),
        pytest.param({}, {"pending": 0}, {"pending": 0}, False, False, id="first-counts"),
        pytest.param(
            {"pending": 1, "conditions": [1]},
            {"pending": 2, "conditions": [2]},
            {"pending": 2, "conditions": [2]},
            True,
            True,
            id="both",
        ),
    ],
)
def test_differences(
    written: dict[str, Any], wanted: dict[str, Any], patch: dict[str, Any], at_once: bool, counts: bool
) -> None:
    """Only differences are sent, and counts are distinguished from the rest."""
    change = status_change(written, wanted)
    assert (change.patch, change.at_once, change.counts) == (patch, at_once, counts)


def test_one_problem_is_plain_and_several_are_numbered() -> None:
    """The message is one line, whatever the problems contain."""
    assert problems_message([Problem("spec.a", "one\ntwo")]) == "spec.a: one two"
    several = problems_message([Problem("spec.a", "x"), Problem("spec.b", "y")])
    assert several == "2 problems: (1) spec.a: x (2) spec.b: y"


def test_a_message_is_bounded() -> None:
    """Beyond the bound problems are counted, and a long one is cut."""
    message = problems_message([Problem(f"spec.p{index}", "x" * 900) for index in range(9)])
    assert len(message) <= 4200
    assert message.endswith(" and 5 more")
    assert len(problems_message([Problem("", "x" * 9999)])) == 4096


def test_plugin_config_status() -> None:
    """A PluginConfig's status says whether it is valid and which profiles refer to it."""
    profile = profile_manifest("a", {"pluginConfigRefs": [{"name": "pack"}]})
    state = desired_state(
        [profile], [plugin_config_manifest("pack", "Nothing")], PluginConfigValidation(in_tree_registry())
    )
    status = plugin_config_status(state.plugin_configs[0], {}, NOW)
    assert conditions(status) == {"Valid": ("False", "InvalidSpec")}
    assert status["conditions"][0]["message"].startswith('spec.plugin: there is no plugin "Nothing"')
    assert (status["referencedBy"], status["referenceCount"]) == (["a"], 1)


def test_an_unreadable_status_is_ignored() -> None:
    """Conditions of another version do not stop the operator."""
    status = profile_status(found(live_revision="r"), Progress(), {"conditions": [{"type": 7}]}, NOW)
    assert conditions(status)["Ready"] == ("True", "Live")


def _circuit(state: str, error: str) -> dict[str, Any]:
    return {"extenders": [{"urlPrefix": "http://x", "state": state, "lastError": error}]}


EXTENDERS = [
    pytest.param({}, _circuit("Closed", ""), True, id="new-extender"),
    pytest.param(_circuit("Closed", "a"), _circuit("Open", "a"), True, id="opens"),
    pytest.param(_circuit("Closed", "a"), _circuit("Closed", "b"), False, id="another-error"),
    pytest.param(_circuit("Open", "a"), {"extenders": []}, True, id="no-extender-any-more"),
]


@pytest.mark.parametrize(("written", "wanted", "at_once"), EXTENDERS)
def test_a_circuit_is_written_at_once(written: dict[str, Any], wanted: dict[str, Any], at_once: bool) -> None:
    """An error without a change of the circuit waits with the counts."""
    change = status_change(written, wanted)
    assert (change.patch, change.at_once, change.counts) == (wanted, at_once, not at_once)


def test_extenders_in_the_status() -> None:
    """With state, time and error, the error cut to the API's limit."""
    states = (
        ExtenderState("http://a", CircuitState.CLOSED, "", None),
        ExtenderState("http://b", CircuitState.OPEN, "x" * 9000, NOW),
    )
    status = profile_status(found(live_revision="r1"), Progress(extenders=states), {}, NOW)
    closed, opened = status["extenders"]
    assert closed == {"urlPrefix": "http://a", "state": "Closed"}
    assert (opened["state"], opened["since"], len(opened["lastError"])) == ("Open", "2026-01-01T12:00:00Z", 4096)
