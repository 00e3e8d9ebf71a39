"""The scheduling cycle: the order of the points, the meaning of each status at each point, and the release."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler_core.errors import PluginError
from scheduler_core.framework.extension_points import PermitResult, PreFilterResult
from scheduler_core.framework.status import SKIP, SUCCESS, Status, unresolvable, unschedulable
from tests.support.builders import pod
from tests.support.recording_plugins import Journal, nothing_held, recorded

POD = pod("web")


async def test_all_points_in_order() -> None:
    """A pod that is bound passes every point once, in the framework's order."""
    journal = Journal()
    made = recorded(journal, waiting=POD)
    assert await made.attempt() in ("n0", "n1")
    assert journal.of("Rec") == [
        *("preEnqueue", "preFilter", "filter", "preScore", "score", "normalizeScore"),
        *("reserve", "permit", "preBindPreFlight", "preBind", "bind", "postBind"),
    ]
    assert made.place(POD) == ""


async def test_plugins_of_a_point_run_in_the_order_of_the_profile() -> None:
    """All plugins of a point run before the next point begins."""
    journal = Journal()
    made = recorded(journal, "A", "B", waiting=POD)
    assert await made.attempt()
    for point in ("preEnqueue", "preFilter", "filter", "preScore", "reserve", "permit", "preBind", "bind", "postBind"):
        assert journal.plugins_at(point) == ["A", "B"]


async def test_one_feasible_node_is_not_scored() -> None:
    """One node need not be ranked."""
    journal = Journal()
    made = recorded(journal, nodes=1, waiting=POD)
    assert await made.attempt() == "n0"
    assert not {"preScore", "score"} & set(journal.of("Rec"))


FAULTS = ["preFilter", "filter", "decode", "preScore", "score", "normalizeScore", "reserve", "permit"]
BINDING_FAULTS = ["preBindPreFlight", "preBind", "bind"]


@pytest.mark.parametrize("point", [*FAULTS, *BINDING_FAULTS])
async def test_a_plugin_that_raises_fails_its_attempt_only(point: str) -> None:
    """The message names plugin and error, nothing stays assumed, and the next pod is scheduled."""
    journal = Journal()
    made = recorded(journal, waiting=POD)
    other = pod("other")
    made.add(other)
    if point == "decode":
        journal.answers["Rec.filter"] = np.ones(2, dtype=np.int16)
    journal.answers[f"Rec.{point}"] = ZeroDivisionError("boom")

    assert not await made.attempt()

    named = {"decode": "filter", "normalizeScore": "score"}.get(point, point)
    assert made.condition.message == str(PluginError("Rec", named, "raised ZeroDivisionError: boom"))
    assert (made.condition.reason, made.place(POD)) == ("SchedulerError", "errorBackoff")
    assert nothing_held(made)
    journal.answers.clear()
    assert await made.attempt()
    made.queue.close()


@pytest.mark.parametrize(
    ("point", "answer", "says"),
    [
        pytest.param("preFilter", None, "return a PreFilterResult", id="pre-filter-none"),
        pytest.param("preFilter", SUCCESS, "return a PreFilterResult", id="pre-filter-status"),
        pytest.param("preFilter", PreFilterResult(None), "set a Status", id="pre-filter-hollow"),  # type: ignore[arg-type]  # nonsense
        pytest.param("filter", np.zeros(2, dtype=np.int64), "return int16[2] or None", id="filter-dtype"),
        pytest.param("filter", np.zeros(3, dtype=np.int16), "return int16[2] or None", id="filter-shape"),
        pytest.param("filter", [0, 0], "return int16[2] or None", id="filter-list"),
        pytest.param("preScore", True, "return a Status", id="pre-score-bool"),
        pytest.param("score", np.zeros(2, dtype=np.float64), "return int64[2]", id="score-dtype"),
        pytest.param("score", np.zeros((2, 1), dtype=np.int64), "return int64[2]", id="score-shape"),
        pytest.param("score", None, "return int64[2]", id="score-none"),
        pytest.param("normalizeScore", np.array([0, 101]), "returned 101 for node n1", id="score-too-high"),
        pytest.param("normalizeScore", np.array([-1, 0]), "returned -1 for node n0", id="score-too-low"),
        pytest.param("normalizeScore", np.zeros(1, dtype=np.int64), "return int64[2]", id="normalize-shape"),
        pytest.param("reserve", None, "return a Status", id="reserve-none"),
        pytest.param("permit", SUCCESS, "return a PermitResult", id="permit-status"),
        pytest.param("permit", PermitResult(SUCCESS, "soon"), "ValueError", id="permit-timeout"),  # type: ignore[arg-type]  # nonsense
        pytest.param("preBindPreFlight", None, "return a Status", id="pre-flight-none"),
        pytest.param("preBind", None, "return a Status", id="pre-bind-none"),
        pytest.param("bind", "done", "return a Status", id="bind-text"),
    ],
)
async def test_nonsense_fails_the_attempt(point: str, answer: object, says: str) -> None:
    """A value that the point does not allow is an error that names the plugin and the allowed values."""
    journal = Journal(answers={f"Rec.{point}": answer})
    made = recorded(journal, waiting=POD)
    assert not await made.attempt()
    assert '"Rec"' in made.condition.message
    assert says in made.condition.message
    assert nothing_held(made)
    made.queue.close()


@pytest.mark.parametrize("point", ["reserve", "permit"])
@pytest.mark.parametrize(
    "answer", [pytest.param(unschedulable("no"), id="rejects"), pytest.param(ValueError("no"), id="raises")]
)
async def test_unreserve_runs_in_reverse_for_all(point: str, answer: object) -> None:
    """Also for plugins whose Reserve failed or was not reached."""
    if point == "permit" and isinstance(answer, Status):
        answer = PermitResult(answer)
    journal = Journal(answers={f"B.{point}": answer})
    made = recorded(journal, "A", "B", "C", waiting=POD)
    assert made.decide() is None
    assert journal.plugins_at("unreserve") == ["C", "B", "A"]
    assert nothing_held(made)
    made.queue.close()


async def test_unreserve_runs_through() -> None:
    """A plugin whose Unreserve fails does not prevent that of the others."""
    journal = Journal(answers={"A.permit": PermitResult(unschedulable("no")), "B.unreserve": ValueError("stuck")})
    made = recorded(journal, "A", "B", "C", waiting=POD)
    assert made.decide() is None
    assert journal.plugins_at("unreserve") == ["C", "B", "A"]
    assert made.place(POD) == "unschedulable"
    assert nothing_held(made)


def test_skip_from_pre_filter_leaves_out_that_plugins_filter_only() -> None:
    """Filter of the other plugins runs."""
    journal = Journal(answers={"A.preFilter": PreFilterResult(SKIP)})
    made = recorded(journal, "A", "B", waiting=POD)
    assert made.decide() is not None
    assert journal.plugins_at("filter") == ["B"]


def test_skip_from_pre_score_leaves_out_that_plugins_score_only() -> None:
    """Scores of the other plugins count."""
    journal = Journal(answers={"A.preScore": SKIP})
    made = recorded(journal, "A", "B", waiting=POD)
    assert made.decide() is not None
    assert journal.plugins_at("score") == ["B"]
    assert journal.plugins_at("normalizeScore") == ["B"]


@pytest.mark.parametrize(
    ("status", "asked"),
    [
        pytest.param(unschedulable("no"), ["A", "B"], id="unschedulable-lets-the-others-prepare"),
        pytest.param(unresolvable("no"), ["A"], id="unresolvable-ends-the-point"),
    ],
)
def test_pre_filter_rejection(status: Status, asked: list[str]) -> None:
    """Preemption needs the state of the other plugins, unless it cannot help."""
    journal = Journal(answers={"A.preFilter": PreFilterResult(status)})
    made = recorded(journal, "A", "B", waiting=POD)
    assert made.decide() is None
    assert journal.plugins_at("preFilter") == asked
    assert journal.plugins_at("filter") == []
    assert journal.plugins_at("postFilter") == ["A", "B"]


def test_no_nodes_at_all() -> None:
    """The pod is unschedulable by no plugin, so only time retries it."""
    made = recorded(Journal(), nodes=0, waiting=POD)
    assert made.decide() is None
    assert (made.condition.reason, made.condition.message) == ("Unschedulable", "no nodes available to schedule pods")
    assert made.place(POD) == "errorBackoff"
    made.queue.close()


def test_a_pod_that_is_being_deleted_is_not_scheduled() -> None:
    """It is dropped with an event."""
    made = recorded(Journal(), waiting=POD)
    made.queue.remove(POD.metadata.uid)
    ending = pod("ending", deleted=made.clock.wall())
    made.add(ending)
    assert made.decide() is None
    assert made.place(ending) == ""
    assert [event.note for event in made.writer.events] == ["skip schedule deleting pod: default/ending"]
