"""The scheduling cycle: the order of the points, what each status means at each point, and what is unwound."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from scheduler_core.config.plugins_config import Plugins
from scheduler_core.framework.extension_points import PermitResult, PostFilterResult, PreFilterResult
from scheduler_core.framework.status import SKIP, SUCCESS, Code, Status, unresolvable, unschedulable
from tests.support.builders import node, pod
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import Rig, plugin_set, profile, rig

POD = pod("web")


def recorded(journal: Journal, *names: str, nodes: int = 2) -> Rig:
    made = rig([recorder(name, journal) for name in names or ("Rec",)])
    made.add(*(node(f"n{number}") for number in range(nodes)), POD)
    return made


def nothing_held(made: Rig) -> bool:
    columns = made.context.cache.columns
    return made.context.cache.assumed_count == 0 and not columns.pod_count.any() and not len(made.context.waiting)


async def test_all_points_in_order() -> None:
    """A pod that is bound passes every point once, in the framework's order."""
    journal = Journal()
    made = recorded(journal)
    assert await made.attempt() in ("n0", "n1")
    assert journal.of("Rec") == [
        *("preEnqueue", "preFilter", "filter", "preScore", "score", "normalizeScore"),
        *("reserve", "permit", "preBindPreFlight", "preBind", "bind", "postBind"),
    ]
    assert made.place(POD) == ""


async def test_plugins_of_a_point_run_in_the_order_of_the_profile() -> None:
    """Point by point, each plugin of a point before the next point begins."""
    journal = Journal()
    made = recorded(journal, "A", "B")
    assert await made.attempt()
    for point in ("preEnqueue", "preFilter", "filter", "preScore", "reserve", "permit", "preBind", "bind", "postBind"):
        assert journal.plugins_at(point) == ["A", "B"]


async def test_one_feasible_node_is_not_scored() -> None:
    """With one node left there is nothing to rank."""
    journal = Journal()
    made = recorded(journal, nodes=1)
    assert await made.attempt() == "n0"
    assert not {"preScore", "score"} & set(journal.of("Rec"))


class Outcome(NamedTuple):
    """What follows of an answer: the pod's place, the condition's reason, its message and the rejecting plugins."""

    place: str
    reason: str = ""
    message: str = ""
    rejected_by: frozenset[str] = frozenset()
    pending_on: frozenset[str] = frozenset()


BOUND = Outcome("")
REC = frozenset({"Rec"})


def failed_at(point: str, message: str = "why") -> Outcome:
    return Outcome("errorBackoff", "SchedulerError", f'plugin "Rec" failed at {point}: {message}')


def turned_away(message: str, *, pending: bool = False) -> Outcome:
    return Outcome("unschedulable", "Unschedulable", message, REC, REC if pending else frozenset())


AT_PRE_FILTER = turned_away("0/2 nodes are available: why.")
AT_FILTER = turned_away("0/2 nodes are available: 2 why.")
ON_ITS_NODE = turned_away("0/1 nodes are available: 1 why.")
TOO_LATE = Outcome("errorBackoff", "Unschedulable", "why")

TABLE = {
    "preFilter": {
        Code.SUCCESS: BOUND,
        Code.SKIP: BOUND,
        Code.UNSCHEDULABLE: AT_PRE_FILTER,
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE: AT_PRE_FILTER,
        Code.ERROR: failed_at("preFilter"),
        Code.WAIT: failed_at("preFilter"),
        Code.PENDING: failed_at("preFilter"),
    },
    "decode": {
        Code.UNSCHEDULABLE: AT_FILTER,
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE: AT_FILTER,
        Code.PENDING: turned_away(AT_FILTER.message, pending=True),
        Code.SUCCESS: failed_at("filter"),
        Code.SKIP: failed_at("filter"),
        Code.ERROR: failed_at("filter"),
        Code.WAIT: failed_at("filter"),
    },
    "preScore": {
        Code.SUCCESS: BOUND,
        Code.SKIP: BOUND,
        Code.UNSCHEDULABLE: failed_at("preScore"),
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE: failed_at("preScore"),
        Code.ERROR: failed_at("preScore"),
        Code.WAIT: failed_at("preScore"),
        Code.PENDING: failed_at("preScore"),
    },
    "reserve": {
        Code.SUCCESS: BOUND,
        Code.UNSCHEDULABLE: ON_ITS_NODE,
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE: ON_ITS_NODE,
        Code.PENDING: turned_away(ON_ITS_NODE.message, pending=True),
        Code.ERROR: failed_at("reserve"),
        Code.WAIT: failed_at("reserve"),
        Code.SKIP: failed_at("reserve"),
    },
    "permit": {
        Code.SUCCESS: BOUND,
        Code.UNSCHEDULABLE: ON_ITS_NODE,
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE: ON_ITS_NODE,
        Code.PENDING: turned_away(ON_ITS_NODE.message, pending=True),
        Code.ERROR: failed_at("permit"),
        Code.SKIP: failed_at("permit"),
    },
    "preBindPreFlight": {
        Code.SUCCESS: BOUND,
        Code.SKIP: BOUND,
        Code.UNSCHEDULABLE: failed_at("preBindPreFlight"),
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE: failed_at("preBindPreFlight"),
        Code.ERROR: failed_at("preBindPreFlight"),
        Code.WAIT: failed_at("preBindPreFlight"),
        Code.PENDING: failed_at("preBindPreFlight"),
    },
    "preBind": {
        Code.SUCCESS: BOUND,
        Code.UNSCHEDULABLE: TOO_LATE,
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE: TOO_LATE,
        Code.PENDING: TOO_LATE,
        Code.ERROR: failed_at("preBind"),
        Code.WAIT: failed_at("preBind"),
        Code.SKIP: failed_at("preBind"),
    },
    "bind": {
        Code.SUCCESS: BOUND,
        Code.SKIP: BOUND,
        Code.UNSCHEDULABLE: TOO_LATE,
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE: TOO_LATE,
        Code.PENDING: TOO_LATE,
        Code.ERROR: failed_at("bind"),
        Code.WAIT: failed_at("bind"),
    },
}


def answer_at(point: str, status: Status) -> object:
    return {"preFilter": PreFilterResult(status), "permit": PermitResult(status)}.get(point, status)


@pytest.mark.parametrize(
    ("point", "code", "outcome"),
    [
        pytest.param(point, code, outcome, id=f"{point}-{code.name.lower()}")
        for point, rows in TABLE.items()
        for code, outcome in rows.items()
    ],
)
async def test_every_status_at_every_point(point: str, code: Code, outcome: Outcome) -> None:
    """Who is recorded as rejecting, what the condition and the event say, where the pod waits; nothing stays held."""
    journal = Journal()
    made = recorded(journal)
    if point == "decode":
        journal.answers["Rec.filter"] = np.ones(2, dtype=np.int16)
    journal.answers[f"Rec.{point}"] = answer_at(point, Status(code, ("why",)))

    node_name = await made.attempt()

    assert made.place(POD) == outcome.place
    assert bool(node_name) is (outcome == BOUND)
    if outcome == BOUND:
        assert [event.reason for event in made.writer.events] == ["Scheduled"]
        return
    queued = made.queue.find(POD.metadata.uid)
    assert queued is not None
    assert (queued.rejected_by, queued.pending_on) == (outcome.rejected_by, outcome.pending_on)
    assert (made.condition.type, made.condition.status) == ("PodScheduled", "False")
    assert (made.condition.reason, made.condition.message) == (outcome.reason, outcome.message)
    assert [(event.type, event.reason, event.note) for event in made.writer.events] == [
        ("Warning", "FailedScheduling", outcome.message)
    ]
    assert nothing_held(made)
    made.queue.close()


@pytest.mark.parametrize(
    "code", [code for code in Code if code is not Code.SUCCESS], ids=lambda code: code.name.lower()
)
def test_pre_enqueue_holds_back(code: Code) -> None:
    """Any answer but Success keeps a pod out of the active queue, without an attempt, condition or event."""
    journal = Journal(answers={"Rec.preEnqueue": Status(code, ("why",))})
    made = recorded(journal)
    assert made.place(POD) == "gated"
    assert made.queue.pop() is None
    assert not made.writer.patches
    assert not made.writer.events


FAULTS = ["preFilter", "filter", "decode", "preScore", "score", "normalizeScore", "reserve", "permit"]
BINDING_FAULTS = ["preBindPreFlight", "preBind", "bind"]


@pytest.mark.parametrize("point", [*FAULTS, *BINDING_FAULTS])
async def test_a_plugin_that_raises_fails_its_attempt_only(point: str) -> None:
    """The message names plugin and fault, nothing stays held, and the next pod is scheduled."""
    journal = Journal()
    made = recorded(journal)
    other = pod("other")
    made.add(other)
    if point == "decode":
        journal.answers["Rec.filter"] = np.ones(2, dtype=np.int16)
    journal.answers[f"Rec.{point}"] = ZeroDivisionError("boom")

    assert not await made.attempt()

    named = {"decode": "filter", "normalizeScore": "score"}.get(point, point)
    assert made.condition.message == f'plugin "Rec" failed at {named}: raised ZeroDivisionError: boom'
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
        pytest.param("preFilter", PreFilterResult(None), "give it a Status", id="pre-filter-hollow"),  # type: ignore[arg-type]  # nonsense
        pytest.param("filter", np.zeros(2, dtype=np.int64), "return int16[2] or None", id="filter-dtype"),
        pytest.param("filter", np.zeros(3, dtype=np.int16), "return int16[2] or None", id="filter-shape"),
        pytest.param("filter", [0, 0], "return int16[2] or None", id="filter-list"),
        pytest.param("preScore", True, "return a Status", id="pre-score-bool"),
        pytest.param("score", np.zeros(2, dtype=np.float64), "return int64[2]", id="score-dtype"),
        pytest.param("score", np.zeros((2, 1), dtype=np.int64), "return int64[2]", id="score-shape"),
        pytest.param("score", None, "return int64[2]", id="score-none"),
        pytest.param("normalizeScore", np.array([0, 101]), "gave node n1 101", id="score-too-high"),
        pytest.param("normalizeScore", np.array([-1, 0]), "gave node n0 -1", id="score-too-low"),
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
    """An answer that the point does not know is an error which names the plugin and what to return."""
    journal = Journal(answers={f"Rec.{point}": answer})
    made = recorded(journal)
    assert not await made.attempt()
    assert made.condition.message.startswith('plugin "Rec" failed at ')
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
    made = recorded(journal, "A", "B", "C")
    assert made.decide() is None
    assert journal.plugins_at("unreserve") == ["C", "B", "A"]
    assert nothing_held(made)
    made.queue.close()


async def test_unreserve_runs_through() -> None:
    """A plugin that fails to give back does not keep others from giving back theirs."""
    journal = Journal(answers={"A.permit": PermitResult(unschedulable("no")), "B.unreserve": ValueError("stuck")})
    made = recorded(journal, "A", "B", "C")
    assert made.decide() is None
    assert journal.plugins_at("unreserve") == ["C", "B", "A"]
    assert made.place(POD) == "unschedulable"
    assert nothing_held(made)


def test_skip_from_pre_filter_leaves_out_that_plugins_filter_only() -> None:
    """The others' filters run."""
    journal = Journal(answers={"A.preFilter": PreFilterResult(SKIP)})
    made = recorded(journal, "A", "B")
    assert made.decide() is not None
    assert journal.plugins_at("filter") == ["B"]


def test_skip_from_pre_score_leaves_out_that_plugins_score_only() -> None:
    """The others' scores count."""
    journal = Journal(answers={"A.preScore": SKIP})
    made = recorded(journal, "A", "B")
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
    """Preemption will want the state of the others, unless it cannot help anyway."""
    journal = Journal(answers={"A.preFilter": PreFilterResult(status)})
    made = recorded(journal, "A", "B")
    assert made.decide() is None
    assert journal.plugins_at("preFilter") == asked
    assert journal.plugins_at("filter") == []
    assert journal.plugins_at("postFilter") == ["A", "B"]


def test_no_nodes_at_all() -> None:
    """The pod is unschedulable by nobody's word, so that only time retries it."""
    made = recorded(Journal(), nodes=0)
    assert made.decide() is None
    assert (made.condition.reason, made.condition.message) == ("Unschedulable", "no nodes available to schedule pods")
    assert made.place(POD) == "errorBackoff"
    made.queue.close()


def test_a_pod_that_is_being_deleted_is_not_scheduled() -> None:
    """It is dropped with an event."""
    made = recorded(Journal())
    made.queue.remove(POD.metadata.uid)
    ending = pod("ending", deleted=made.clock.wall())
    made.add(ending)
    assert made.decide() is None
    assert made.place(ending) == ""
    assert [event.note for event in made.writer.events] == ["skip schedule deleting pod: default/ending"]


class Help(NamedTuple):
    """A PostFilter answer, and what the message and the nomination become."""

    answer: object
    adds: str
    nominated: str
    asks_next: bool


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Help(PostFilterResult(SUCCESS, "n0"), "", "n0", asks_next=False), id="success"),
        pytest.param(
            Help(PostFilterResult(unschedulable("no victims")), " no victims, B too", "n1", asks_next=True),
            id="unschedulable",
        ),
        pytest.param(Help(PostFilterResult(unschedulable("x"), ""), " x, B too", "", asks_next=True), id="withdraws"),
        pytest.param(Help(PostFilterResult(unresolvable("never")), " never", "n1", asks_next=False), id="unresolvable"),
        pytest.param(
            Help(
                PostFilterResult(Status(Code.ERROR, ("bad",)), "n0"),
                " bad",
                "n1",
                asks_next=False,
            ),
            id="error",
        ),
        pytest.param(
            Help(PostFilterResult(SKIP), ' plugin "A" failed at postFilter: answered Skip', "n1", asks_next=False),
            id="skip",
        ),
        pytest.param(
            Help(KeyError("k"), " plugin \"A\" failed at postFilter: raised KeyError: 'k'", "n1", asks_next=False),
            id="raises",
        ),
        pytest.param(
            Help(
                None,
                ' plugin "A" failed at postFilter: answered None; return a PostFilterResult',
                "n1",
                asks_next=False,
            ),
            id="nonsense",
        ),
    ],
)
def test_post_filter(case: Help) -> None:
    """The first success or final answer ends the point; what it says follows the filters' reasons.

    An earlier nomination stays unless a plugin replaces it or takes it back, as in kube-scheduler.
    """
    codes = np.ones(2, dtype=np.int16)
    journal = Journal(
        answers={
            "A.filter": codes,
            "A.postFilter": case.answer,
            "B.postFilter": PostFilterResult(unschedulable("B too")),
        }
    )
    made = recorded(journal, "A", "B")
    queued = made.queue.find(POD.metadata.uid)
    assert queued is not None
    made.queue.nominator.nominate(queued.info, "n1")
    assert made.decide() is None
    assert made.condition.message == f"0/2 nodes are available: 2 why.{case.adds}"
    assert made.queue.nominator.node_of(POD.metadata.uid) == case.nominated
    assert journal.plugins_at("postFilter") == (["A", "B"] if case.asks_next else ["A"])
    failed = made.queue.find(POD.metadata.uid)
    assert failed is not None
    assert failed.rejected_by == {"A"}


def test_without_post_filter_plugins_a_nomination_is_taken_back() -> None:
    """Nobody is left who would keep the promise."""
    stuck = pod("stuck", nominated_node="n0")
    journal = Journal(answers={"Rec.filter": np.ones(1, dtype=np.int16)})
    made = rig([recorder("Rec", journal)])
    made.serve(profile(plugins=Plugins(post_filter=plugin_set(disabled=["*"]))))
    made.add(node("n0"), stuck)
    assert made.decide() is None
    assert made.queue.nominator.node_of(stuck.metadata.uid) == ""
    assert made.writer.patches[-1].nominated_node_name == ""
