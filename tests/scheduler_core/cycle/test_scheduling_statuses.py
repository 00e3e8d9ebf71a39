"""Every status at every extension point: the recorded plugins, the messages, and the pod's queue place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from scheduler_core.errors import PluginError
from scheduler_core.framework.extension_points import PermitResult, PreFilterResult
from scheduler_core.framework.status import Code, Status
from tests.support.builders import pod
from tests.support.presence import present
from tests.support.recording_plugins import Journal, no_pods_assumed, recorder_rig

POD = pod("web")


class Outcome(NamedTuple):
    """Result of a status: the pod's queue place, the condition's reason and message, and the rejecting plugins."""

    place: str
    reason: str = ""
    message: str = ""
    rejected_by: frozenset[str] = frozenset()
    pending_on: frozenset[str] = frozenset()


BOUND = Outcome("")
REC = frozenset({"Rec"})


def failed_at(point: str, message: str = "why") -> Outcome:
    return Outcome("errorBackoff", "SchedulerError", str(PluginError("Rec", point, message)))


def rejected(message: str, *, pending: bool = False) -> Outcome:
    return Outcome("unschedulable", "Unschedulable", message, REC, REC if pending else frozenset())


AT_PRE_FILTER = rejected("0/2 nodes are available: why.")
AT_FILTER = rejected("0/2 nodes are available: 2 why.")
ON_THE_CHOSEN_NODE = rejected("0/1 nodes are available: 1 why.")
AFTER_PERMIT = Outcome("errorBackoff", "Unschedulable", "why")

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
        Code.PENDING: rejected(AT_FILTER.message, pending=True),
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
        Code.UNSCHEDULABLE: ON_THE_CHOSEN_NODE,
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE: ON_THE_CHOSEN_NODE,
        Code.PENDING: rejected(ON_THE_CHOSEN_NODE.message, pending=True),
        Code.ERROR: failed_at("reserve"),
        Code.WAIT: failed_at("reserve"),
        Code.SKIP: failed_at("reserve"),
    },
    "permit": {
        Code.SUCCESS: BOUND,
        Code.UNSCHEDULABLE: ON_THE_CHOSEN_NODE,
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE: ON_THE_CHOSEN_NODE,
        Code.PENDING: rejected(ON_THE_CHOSEN_NODE.message, pending=True),
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
        Code.UNSCHEDULABLE: AFTER_PERMIT,
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE: AFTER_PERMIT,
        Code.PENDING: AFTER_PERMIT,
        Code.ERROR: failed_at("preBind"),
        Code.WAIT: failed_at("preBind"),
        Code.SKIP: failed_at("preBind"),
    },
    "bind": {
        Code.SUCCESS: BOUND,
        Code.SKIP: BOUND,
        Code.UNSCHEDULABLE: AFTER_PERMIT,
        Code.UNSCHEDULABLE_AND_UNRESOLVABLE: AFTER_PERMIT,
        Code.PENDING: AFTER_PERMIT,
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
    """Each status has the expected rejecting plugins, condition, event and queue place, and nothing stays assumed."""
    journal = Journal()
    made = recorder_rig(journal, waiting=POD)
    if point == "decode":
        journal.results["Rec.filter"] = np.ones(2, dtype=np.int16)
    journal.results[f"Rec.{point}"] = answer_at(point, Status(code, ("why",)))

    node_name = await made.attempt()

    assert made.place_of(POD) == outcome.place
    assert bool(node_name) is (outcome == BOUND)
    if outcome == BOUND:
        assert [event.reason for event in made.writer.events] == ["Scheduled"]
        return
    queued = present(made.queue.find(POD.metadata.uid))
    assert (queued.rejected_by, queued.pending_on) == (outcome.rejected_by, outcome.pending_on)
    assert (made.condition.type, made.condition.status) == ("PodScheduled", "False")
    assert (made.condition.reason, made.condition.message) == (outcome.reason, outcome.message)
    assert [(event.type, event.reason, event.note) for event in made.writer.events] == [
        ("Warning", "FailedScheduling", outcome.message)
    ]
    assert no_pods_assumed(made)


@pytest.mark.parametrize(
    "code", [code for code in Code if code is not Code.SUCCESS], ids=lambda code: code.name.lower()
)
def test_pre_enqueue_gates_the_pod(code: Code) -> None:
    """Any PreEnqueue status except Success gates the pod, without an attempt, condition or event."""
    journal = Journal(results={"Rec.preEnqueue": Status(code, ("why",))})
    made = recorder_rig(journal, waiting=POD)
    assert made.place_of(POD) == "gated"
    assert made.queue.pop() is None
    assert not made.writer.patches
    assert not made.writer.events
