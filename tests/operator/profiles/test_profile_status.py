"""Tests of statuses: conditions, and which differences are written."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bayplan.extenders.http_extender import CircuitState, ExtenderReading
from bayplan.profiles.desired_profiles import PluginConfigValidation, desired_state
from bayplan.profiles.profile_status import (
    CONTESTED_SECONDS,
    ContestedPods,
    ProfileFindings,
    Progress,
    contested_pods,
    plugin_config_status,
    profile_status,
    status_change,
)
from bayplan.resources.conditions import problems_message

from scheduler_core.cycle.contested_nodes import ContestedNode
from scheduler_core.errors import Problem
from scheduler_core.framework.registry import ResolvedPlugin
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.metrics.scheduler_metrics import LostBind, ProfileRecord
from scheduler_core.queueing.sub_queues import QueueCounts
from tests.support.manifests import plugin_config_manifest, profile_manifest
from tests.support.tables import table

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
BAD = (Problem("spec.plugins", "is bad"),)
NAME_TAKEN = (Problem("spec.schedulerName", "is held"),)


def findings_of(**fields: Any) -> ProfileFindings:
    return ProfileFindings(**{"generation": 3, "scheduler_name": "batch", "holds_name": True, **fields})


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}


STALLED = ("Stalled", "InvalidSpec")

CASES = [
    pytest.param(findings_of(live_revision="r1"), ("True", "Valid"), ("True", "Live"), None, id="live"),
    pytest.param(
        findings_of(live_revision="r1", problems=BAD),
        ("False", "InvalidSpec"),
        ("True", "LastGoodRevision"),
        STALLED,
        id="invalid",
    ),
    pytest.param(findings_of(problems=BAD), ("False", "InvalidSpec"), ("False", "NotLive"), STALLED, id="never-valid"),
    pytest.param(
        findings_of(problems=NAME_TAKEN, holds_name=False),
        ("False", "SchedulerNameTaken"),
        ("False", "NotLive"),
        ("Stalled", "SchedulerNameTaken"),
        id="name-taken",
    ),
    pytest.param(
        findings_of(problems=NAME_TAKEN, holds_name=False, name_is_reserved=True),
        ("False", "SchedulerNameReserved"),
        ("False", "NotLive"),
        ("Stalled", "SchedulerNameReserved"),
        id="name-reserved",
    ),
    pytest.param(
        findings_of(problems=NAME_TAKEN + BAD, holds_name=False),
        ("False", "InvalidSpec"),
        ("False", "NotLive"),
        STALLED,
        id="name-taken-and-invalid",
    ),
    pytest.param(
        findings_of(live_revision="r1", waiting_for=("x",)),
        ("True", "Valid"),
        ("True", "WaitingForQueueSort"),
        ("Reconciling", "WaitingForQueueSort"),
        id="waiting-live",
    ),
    pytest.param(
        findings_of(waiting_for=("x",)),
        ("True", "Valid"),
        ("False", "WaitingForQueueSort"),
        ("Reconciling", "WaitingForQueueSort"),
        id="waiting-new",
    ),
]


@pytest.mark.parametrize(("findings", "accepted", "ready", "kstatus"), CASES)
def test_conditions(
    findings: ProfileFindings, accepted: tuple[str, str], ready: tuple[str, str], kstatus: tuple[str, str] | None
) -> None:
    """Accepted is about the spec, Ready about the live revision; kstatus conditions are present only while true.

    Each message is a sentence with the validated generation, and has a remedy if the condition is False.
    """
    status = profile_status(findings, Progress(), {}, NOW)
    rare_conditions = {} if kstatus is None else {kstatus[0]: ("True", kstatus[1])}
    assert conditions(status) == {
        "Accepted": accepted,
        "Ready": ready,
        "Contested": ("False", "Uncontested"),
        **rare_conditions,
    }
    for one in status["conditions"]:
        assert one["message"].endswith(".")
        assert one["observedGeneration"] == status["observedGeneration"] == 3
    messages = {one["type"]: one["message"] for one in status["conditions"] if one["status"] == "False"}
    remedies = ("is held.", "Correct the spec", "see condition Accepted", "Set the same", "No other client")
    assert all(any(remedy in message for remedy in remedies) for message in messages.values()), messages


def test_kstatus_conditions_are_removed() -> None:
    """A corrected spec has no condition Stalled, and the change is written at once."""
    invalid = profile_status(findings_of(live_revision="r1", problems=BAD), Progress(), {}, NOW)
    corrected = profile_status(findings_of(live_revision="r1"), Progress(), invalid, NOW + timedelta(hours=1))
    assert set(conditions(corrected)) == {"Accepted", "Ready", "Contested"}
    assert status_change(invalid, corrected).at_once


def test_transition_times_are_kept() -> None:
    """A condition with an unchanged status keeps its transition time."""
    first = profile_status(findings_of(live_revision="r1"), Progress(), {}, NOW)
    second = profile_status(findings_of(live_revision="r1", problems=BAD), Progress(), first, NOW + timedelta(hours=1))
    times = {one["type"]: one["lastTransitionTime"] for one in second["conditions"]}
    assert (times["Accepted"], times["Ready"]) == ("2026-01-01T13:00:00Z", "2026-01-01T12:00:00Z")


def test_counts_and_plugins() -> None:
    """Pending counts are summed, only score plugins have weights, and empty extension points are left out."""
    resolved = {
        "filter": (ResolvedPlugin("A"),),
        "score": (ResolvedPlugin("B", 2), ResolvedPlugin("C", 1)),
        "permit": (),
    }
    progress = Progress(ProfileRecord(scheduled=9, last_scheduled=NOW, last_error="ns/p: no"), QueueCounts(1, 2, 3, 4))
    status = profile_status(findings_of(live_revision="r1", resolved=resolved), progress, {}, NOW)
    assert status["pending"] == 10
    assert status["queue"] == {"active": 1, "backoff": 2, "unschedulable": 3, "gated": 4}
    assert (status["scheduledTotal"], status["lastScheduledTime"]) == (9, "2026-01-01T12:00:00Z")
    assert status["lastError"] == "ns/p: no"
    assert status["resolvedPlugins"] == {"filter": "A", "score": "B=2, C=1"}


@table("seconds, is_degraded", ("now", 0, True), ("recently", 299, True), ("long-ago", 300, False))
def test_a_profile_whose_plugin_raises_is_degraded(seconds: int, is_degraded: bool) -> None:
    """The condition is present for five minutes after an error, with the error; the profile stays Ready."""
    at = NOW - timedelta(seconds=seconds)
    progress = Progress(ProfileRecord(faults=3, last_fault="plugin Mine raised KeyError", last_fault_at=at))
    before = profile_status(
        findings_of(live_revision="r1"), Progress(ProfileRecord(faults=1, last_fault="x", last_fault_at=NOW)), {}, at
    )
    status = profile_status(findings_of(live_revision="r1"), progress, before, NOW)
    found = {each["type"]: each for each in status["conditions"]}
    assert found["Ready"]["status"] == "True"
    assert ("Degraded" in found) == is_degraded
    if is_degraded:
        assert found["Degraded"]["reason"] == "AttemptsFail"
        assert "3 attempts have failed with an error" in found["Degraded"]["message"]
        assert "plugin Mine raised KeyError" in found["Degraded"]["message"]
        assert not status_change(before, status).at_once


def test_a_failed_write_to_the_cluster_degrades_no_profile() -> None:
    """The last error may be one of the cluster, which correcting a plugin does not end."""
    progress = Progress(ProfileRecord(errors=1, last_error="HTTP 500", last_error_at=NOW))
    status = profile_status(findings_of(live_revision="r1"), progress, {}, NOW)
    assert "Degraded" not in {each["type"] for each in status["conditions"]}
    assert status["lastError"] == "HTTP 500"


@table(
    "written, wanted, patch, at_once, counts",
    ("counts", {"pending": 1}, {"pending": 2}, {"pending": 2}, False, True),
    ("live", {"activeRevision": "a"}, {"activeRevision": "b"}, {"activeRevision": "b"}, True, False),
    ("removed", {"activeRevision": "a"}, {}, {"activeRevision": None}, True, False),
    ("first-counts", {}, {"pending": 0}, {"pending": 0}, False, False),
    (
        "both",
        {"pending": 1, "conditions": [1]},
        {"pending": 2, "conditions": [2]},
        {"pending": 2, "conditions": [2]},
        True,
        True,
    ),
)
def test_differences(
    written: dict[str, Any], wanted: dict[str, Any], patch: dict[str, Any], at_once: bool, counts: bool
) -> None:
    """Only differences are written, and counts are distinguished from other fields."""
    change = status_change(written, wanted)
    assert (change.patch, change.at_once, change.counts) == (patch, at_once, counts)


def test_several_problems_are_numbered() -> None:
    """The message is one line, and several problems are numbered."""
    assert problems_message([Problem("spec.a", "one\ntwo")]) == "spec.a: one two"
    several = problems_message([Problem("spec.a", "x"), Problem("spec.b", "y")])
    assert several == "2 problems: (1) spec.a: x (2) spec.b: y"


def test_a_message_is_bounded() -> None:
    """Problems beyond the bound are counted, and a long problem is cut."""
    message = problems_message([Problem(f"spec.p{index}", "x" * 900) for index in range(9)])
    assert len(message) <= 4200
    assert message.endswith(" and 5 more")
    assert len(problems_message([Problem("", "x" * 9999)])) == 4096


def test_plugin_config_status() -> None:
    """The status of a PluginConfig reports its validity and the profiles that refer to it."""
    profile = profile_manifest("a", {"pluginConfigRefs": [{"name": "pack"}]})
    state = desired_state(
        [profile], [plugin_config_manifest("pack", "Nothing")], PluginConfigValidation(in_tree_registry())
    )
    status = plugin_config_status(state.plugin_configs[0], {}, NOW)
    assert conditions(status) == {"Valid": ("False", "InvalidSpec")}
    assert status["conditions"][0]["message"].startswith('spec.plugin: there is no plugin "Nothing"')
    assert (status["referencedBy"], status["referenceCount"]) == (["a"], 1)


def test_an_unreadable_status_is_ignored() -> None:
    """Unreadable conditions in the status are ignored."""
    status = profile_status(findings_of(live_revision="r"), Progress(), {"conditions": [{"type": 7}]}, NOW)
    assert conditions(status)["Ready"] == ("True", "Live")


def _circuit(state: str, error: str) -> dict[str, Any]:
    return {"extenders": [{"urlPrefix": "http://x", "state": state, "lastError": error}]}


@table(
    "written, wanted, at_once",
    ("new-extender", {}, _circuit("Closed", ""), True),
    ("circuit-opens", _circuit("Closed", "a"), _circuit("Open", "a"), True),
    ("another-error", _circuit("Closed", "a"), _circuit("Closed", "b"), False),
    ("extender-removed", _circuit("Open", "a"), {"extenders": []}, True),
)
def test_a_circuit_is_written_at_once(written: dict[str, Any], wanted: dict[str, Any], at_once: bool) -> None:
    """A change of the circuit is written at once; an error alone is written with the counts."""
    change = status_change(written, wanted)
    assert (change.patch, change.at_once, change.counts) == (wanted, at_once, not at_once)


def test_extenders_in_the_status() -> None:
    """The status has the state, time and error of each extender, with the error cut to the API's limit."""
    states = (
        ExtenderReading("http://a", CircuitState.CLOSED, "", None),
        ExtenderReading("http://b", CircuitState.OPEN, "x" * 9000, NOW),
    )
    status = profile_status(findings_of(live_revision="r1"), Progress(extenders=states), {}, NOW)
    closed, opened = status["extenders"]
    assert closed == {"urlPrefix": "http://a", "state": "Closed"}
    assert (opened["state"], opened["since"], len(opened["lastError"])) == ("Open", "2026-01-01T12:00:00Z", 4096)


LIVE = ProfileFindings(generation=3, scheduler_name="batch", holds_name=True, live_revision="r1")


def progress_with_lost_binds(count: int, seconds_ago: float = 0.0) -> Progress:
    """Return the progress of a process that has lost binds to another client."""
    last = LostBind(f"n/p{count}", "ours", "theirs", NOW - timedelta(seconds=seconds_ago))
    return Progress(ProfileRecord(lost_binds=count, last_lost_bind=last))


def condition_of(status: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in status["conditions"] if one["type"] == "Contested")
    return found


def status_after(written: dict[str, Any], progress: Progress, seconds: float) -> dict[str, Any]:
    return profile_status(LIVE, progress, written, NOW + timedelta(seconds=seconds))


def test_the_message_names_the_pod_and_both_nodes() -> None:
    """The message has the last lost bind, the number of lost binds, and the remedy."""
    condition = condition_of(profile_status(LIVE, progress_with_lost_binds(3), {}, NOW))
    assert (condition["status"], condition["reason"]) == ("True", "BindsLostToRival")
    for words in ("3 pods", "n/p3 to node theirs", "to ours", "event Scheduled", "stop the other scheduler"):
        assert words in condition["message"]


def test_the_first_loss_has_no_count() -> None:
    """The message about the first lost bind has no count."""
    message = condition_of(profile_status(LIVE, progress_with_lost_binds(1), {}, NOW))["message"]
    assert message.startswith(
        "Another client has bound pod n/p1 to node theirs, while this profile was binding it to ours."
    )


@table(
    "seconds, status",
    ("at once", 0, "True"),
    ("before the end", CONTESTED_SECONDS - 1, "True"),
    ("at the end", CONTESTED_SECONDS, "False"),
)
def test_the_condition_ends_ten_minutes_after_the_last_loss(seconds: float, status: str) -> None:
    """Ten minutes after the last lost bind the condition is False, and the count stays."""
    status_now = profile_status(LIVE, progress_with_lost_binds(1, seconds), {}, NOW)
    assert (condition_of(status_now)["status"], status_now["lostBinds"]) == (status, 1)


def test_the_condition_survives_a_restart() -> None:
    """A process that has lost no bind keeps the condition of the status until its end."""
    written = profile_status(LIVE, progress_with_lost_binds(2), {}, NOW)
    restarted = status_after(written, Progress(), 300)
    assert condition_of(restarted) == condition_of(written)
    assert condition_of(status_after(restarted, Progress(), CONTESTED_SECONDS))["status"] == "False"


@table("text", ("not-a-time", "soon"), ("not-a-string", 7))
def test_an_unreadable_time_is_ignored(text: object) -> None:
    """An unreadable time in the status counts as no lost bind."""
    assert condition_of(status_after({"lastLostBindTime": text}, Progress(), 0))["status"] == "False"


def test_a_further_loss_is_written_with_the_counts() -> None:
    """A further lost bind is written together with the counts, so a rival does not cause a write for each pod."""
    first = profile_status(LIVE, progress_with_lost_binds(1), {}, NOW)
    change = status_change(first, status_after(first, progress_with_lost_binds(2), 1))
    assert (change.at_once, change.counts) == (False, True)
    assert condition_of({"conditions": change.patch["conditions"]})["message"] != condition_of(first)["message"]


def test_the_first_loss_is_written_at_once() -> None:
    """The start and the end of the condition are written at once."""
    uncontested = profile_status(LIVE, Progress(), {}, NOW)
    begun = status_after(uncontested, progress_with_lost_binds(1), 0)
    assert status_change(uncontested, begun).at_once
    assert status_change(begun, status_after(begun, progress_with_lost_binds(1), CONTESTED_SECONDS)).at_once


OF_NODES = ContestedPods(3, "n7", "default-scheduler", "n/p")


def test_contested_nodes_with_pods_of_the_profile() -> None:
    """The condition names the last node, its rival and the rival's pod; lost binds stay the reason if there are any."""
    found = condition_of(status_after({}, Progress(contested_pods=OF_NODES), 0))
    assert (found["status"], found["reason"]) == ("True", "NodesOvercommitted")
    for words in ("Scheduler default-scheduler has overcommitted 3 nodes", "node n7 by pod n/p", "addedAffinity"):
        assert words in found["message"]
    both = condition_of(status_after({}, replace(progress_with_lost_binds(1), contested_pods=OF_NODES), 0))
    assert both["reason"] == "BindsLostToRival"
    assert "node n7" in both["message"]


def test_only_nodes_with_pods_of_the_profile_count() -> None:
    """Of several nodes, the first one is named: they are ordered by their last overcommit."""
    nodes = [ContestedNode(name, NOW, NOW, 0.0, 1, ["old", f"rival-{name}"]) for name in ("a", "b", "c")]
    for each in nodes:
        each.pods.append(f"n/{each.name}")
    nodes[1].profiles.add("batch")
    nodes[2].profiles.add("batch")
    assert contested_pods(nodes, "batch") == ContestedPods(2, "b", "rival-b", "n/b")
    assert contested_pods(nodes, "other") is None
