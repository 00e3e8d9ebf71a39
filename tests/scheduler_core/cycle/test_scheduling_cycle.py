"""The scheduling cycle: the order of extension points, failures of plugins, release after a failure, and its end."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler_core.cycle.background_search import BackgroundSearches
from scheduler_core.errors import PluginError
from scheduler_core.framework.extension_points import PermitResult, PreFilterResult
from scheduler_core.framework.status import SKIP, SUCCESS, Status, unresolvable, unschedulable
from tests.support.builders import node, pod
from tests.support.recording_plugins import Journal, no_pods_assumed, recorder_rig
from tests.support.scheduling import rig
from tests.support.tables import table

POD = pod("web")


async def test_all_points_in_order() -> None:
    """Every extension point is called once for a bound pod, in the framework's order."""
    journal = Journal()
    made = recorder_rig(journal, waiting=POD)
    assert await made.attempt() in ("n0", "n1")
    assert journal.points_of("Rec") == [
        *("preEnqueue", "preFilter", "filter", "preScore", "score", "normalizeScore"),
        *("reserve", "permit", "preBindPreFlight", "preBind", "bind", "postBind"),
    ]
    assert made.place_of(POD) == ""


async def test_plugins_of_a_point_run_in_the_order_of_the_profile() -> None:
    """Plugins of an extension point are called in the order of the profile."""
    journal = Journal()
    made = recorder_rig(journal, "A", "B", waiting=POD)
    assert await made.attempt()
    for point in ("preEnqueue", "preFilter", "filter", "preScore", "reserve", "permit", "preBind", "bind", "postBind"):
        assert journal.plugins_at(point) == ["A", "B"]


async def test_one_feasible_node_is_not_scored() -> None:
    """Score plugins are not called for a single feasible node."""
    journal = Journal()
    made = recorder_rig(journal, nodes=1, waiting=POD)
    assert await made.attempt() == "n0"
    assert not {"preScore", "score"} & set(journal.points_of("Rec"))


FAULTS = ["preFilter", "filter", "decode", "preScore", "score", "normalizeScore", "reserve", "permit"]
BINDING_FAULTS = ["preBindPreFlight", "preBind", "bind"]


@pytest.mark.parametrize("point", [*FAULTS, *BINDING_FAULTS])
async def test_a_plugin_that_raises_fails_its_attempt_only(point: str) -> None:
    """A raising plugin fails the attempt with its name in the message, and the next pod is scheduled."""
    journal = Journal()
    made = recorder_rig(journal, waiting=POD)
    other = pod("other")
    made.add(other)
    if point == "decode":
        journal.results["Rec.filter"] = np.ones(2, dtype=np.int16)
    journal.results[f"Rec.{point}"] = ZeroDivisionError("boom")

    assert not await made.attempt()

    reported_point = {"decode": "filter"}.get(point, point)
    assert made.condition.message == str(PluginError("Rec", reported_point, "raised ZeroDivisionError: boom"))
    assert (made.condition.reason, made.place_of(POD)) == ("SchedulerError", "errorBackoff")
    assert no_pods_assumed(made)
    journal.results.clear()
    assert await made.attempt()


@table(
    "point, answer, message",
    ("pre-filter-none", "preFilter", None, "return a PreFilterResult"),
    ("pre-filter-status", "preFilter", SUCCESS, "return a PreFilterResult"),
    ("pre-filter-without-status", "preFilter", PreFilterResult(None), "set a Status"),  # type: ignore[arg-type]  # an invalid value
    ("filter-dtype", "filter", np.zeros(2, dtype=np.int64), "return int16[2] or None"),
    ("filter-shape", "filter", np.zeros(3, dtype=np.int16), "return int16[2] or None"),
    ("filter-list", "filter", [0, 0], "return int16[2] or None"),
    ("pre-score-bool", "preScore", True, "return a Status"),
    ("score-dtype", "score", np.zeros(2, dtype=np.float64), "return int64[2]"),
    ("score-shape", "score", np.zeros((2, 1), dtype=np.int64), "return int64[2]"),
    ("score-none", "score", None, "return int64[2]"),
    ("score-too-high", "normalizeScore", np.array([0, 101]), "returned 101 for node n1"),
    ("score-too-low", "normalizeScore", np.array([-1, 0]), "returned -1 for node n0"),
    ("normalize-shape", "normalizeScore", np.zeros(1, dtype=np.int64), "return int64[2]"),
    ("reserve-none", "reserve", None, "return a Status"),
    ("permit-status", "permit", SUCCESS, "return a PermitResult"),
    ("permit-timeout", "permit", PermitResult(SUCCESS, "soon"), "ValueError"),  # type: ignore[arg-type]  # an invalid value
    ("pre-flight-none", "preBindPreFlight", None, "return a Status"),
    ("pre-bind-none", "preBind", None, "return a Status"),
    ("bind-text", "bind", "done", "return a Status"),
)
async def test_an_invalid_value_fails_the_attempt(point: str, answer: object, message: str) -> None:
    """A value of a wrong type fails the attempt; the message names the plugin and the expected value."""
    journal = Journal(results={f"Rec.{point}": answer})
    made = recorder_rig(journal, waiting=POD)
    assert not await made.attempt()
    assert '"Rec"' in made.condition.message
    assert message in made.condition.message
    assert no_pods_assumed(made)


@pytest.mark.parametrize("point", ["reserve", "permit"])
@table("answer", ("rejects", unschedulable("no")), ("raises", ValueError("no")))
async def test_unreserve_of_all_plugins_runs_in_reverse_order(point: str, answer: object) -> None:
    """Unreserve is also called for plugins whose Reserve failed or was not called."""
    if point == "permit" and isinstance(answer, Status):
        answer = PermitResult(answer)
    journal = Journal(results={f"B.{point}": answer})
    made = recorder_rig(journal, "A", "B", "C", waiting=POD)
    assert made.decide() is None
    assert journal.plugins_at("unreserve") == ["C", "B", "A"]
    assert no_pods_assumed(made)


async def test_a_failed_unreserve_does_not_stop_the_others() -> None:
    """Unreserve of the other plugins is called after one raises."""
    journal = Journal(results={"A.permit": PermitResult(unschedulable("no")), "B.unreserve": ValueError("stuck")})
    made = recorder_rig(journal, "A", "B", "C", waiting=POD)
    assert made.decide() is None
    assert journal.plugins_at("unreserve") == ["C", "B", "A"]
    assert made.place_of(POD) == "unschedulable"
    assert no_pods_assumed(made)


def test_a_plugin_that_skips_pre_filter_is_not_called_at_filter() -> None:
    """Filter is called for the plugins that did not skip PreFilter."""
    journal = Journal(results={"A.preFilter": PreFilterResult(SKIP)})
    made = recorder_rig(journal, "A", "B", waiting=POD)
    assert made.decide() is not None
    assert journal.plugins_at("filter") == ["B"]


def test_a_plugin_that_skips_pre_score_is_not_called_at_score() -> None:
    """Score is called for the plugins that did not skip PreScore."""
    journal = Journal(results={"A.preScore": SKIP})
    made = recorder_rig(journal, "A", "B", waiting=POD)
    assert made.decide() is not None
    assert journal.plugins_at("score") == ["B"]
    assert journal.plugins_at("normalizeScore") == ["B"]


@table(
    "status, called",
    ("unschedulable-calls-the-others", unschedulable("no"), ["A", "B"]),
    ("unresolvable-ends-the-point", unresolvable("no"), ["A"]),
)
def test_pre_filter_rejection(status: Status, called: list[str]) -> None:
    """After an Unschedulable status the other PreFilter plugins are called, because preemption needs their state."""
    journal = Journal(results={"A.preFilter": PreFilterResult(status)})
    made = recorder_rig(journal, "A", "B", waiting=POD)
    assert made.decide() is None
    assert journal.plugins_at("preFilter") == called
    assert journal.plugins_at("filter") == []
    assert journal.plugins_at("postFilter") == ["A", "B"]


def test_no_nodes() -> None:
    """Without nodes no plugin is recorded as rejecting, and the pod is retried after backoff."""
    made = recorder_rig(Journal(), nodes=0, waiting=POD)
    assert made.decide() is None
    assert (made.condition.reason, made.condition.message) == ("Unschedulable", "no nodes available to schedule pods")
    assert made.place_of(POD) == "errorBackoff"


# -- exceptions at the end of a cycle ----------------------------------------------------------------------------------


async def test_a_pod_is_bound_although_its_cycle_raises_as_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod is not requeued while its binding cycle runs."""
    made = rig()
    made.add(node("n0"), pod("web"))

    def end(_self: BackgroundSearches) -> None:
        raise MemoryError

    monkeypatch.setattr(BackgroundSearches, "end", end)
    # As if the search of the cycle could continue in another process.
    made.context.steps.on_long_search = lambda: None
    async with made.running():
        await made.until(lambda: "web" in made.bound)
        assert made.queue.find(pod("web").metadata.uid) is None
    assert made.context.metrics.internal_errors == 0
