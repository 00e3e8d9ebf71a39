"""Reports of attempts: the history, slow cycles, and the decision log."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import FilterPlugin
from scheduler_core.metrics.attempt_reports import AttemptHistory, EndedAttempt
from scheduler_core.scheduler import SchedulerOptions
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.scheduling import DEFAULT_NAME, Rig, default_rig, rig
from tests.support.tables import table


def attempt(number: int, result: str = "unschedulable") -> EndedAttempt:
    return EndedAttempt(float(number), "batch", result, "", "no node")


def test_attempts_are_newest_first() -> None:
    """The history of a pod starts with its newest attempt, also after it is scheduled."""
    history = AttemptHistory()
    history.add("a", attempt(1))
    history.add("a", attempt(2))
    history.scheduled("a", attempt(3, "scheduled"))
    assert [each.ended for each in history.of("a")] == [3, 2, 1]
    assert history.of("b") == []


def test_scheduled_pods_do_not_displace_pending_pods() -> None:
    """Scheduled pods and pending pods are stored in two tables, each with its own bound."""
    history = AttemptHistory(subjects=2)
    history.add("pending", attempt(0))
    for number in range(5):
        history.scheduled(f"bound-{number}", attempt(number, "scheduled"))
    assert history.of("pending")
    assert [bool(history.of(f"bound-{number}")) for number in range(5)] == [False, False, False, True, True]


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans())))
def test_bounds(steps: list[tuple[int, bool]]) -> None:
    """The history stores only the last attempts of the last subjects."""
    history = AttemptHistory(subjects=3, attempts=2)
    failed: list[int] = []
    for number, (subject, is_bound) in enumerate(steps):
        if is_bound:
            history.scheduled(subject, attempt(number, "scheduled"))
        else:
            history.add(subject, attempt(number))
            failed.append(subject)
        assert history.of(subject)[0].ended == number
        # At most three subjects in each of the two tables.
        assert all(len(history.of(each)) <= 2 for each in range(6))
        assert sum(bool(history.of(each)) for each in range(6)) <= 6
    recent = list(dict.fromkeys(reversed(failed)))[:1]
    assert all(history.of(each) for each in recent)


class Slow(FilterPlugin):
    """Filter plugin that accepts every node and advances the virtual clock by the pod's label ``seconds``."""

    name = "Slow"

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> None:
        self.handle.clock.advance(float(pod.pod.metadata.labels.get("seconds", "0")))  # type: ignore[attr-defined]  # the rig's clock

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> None:  # type: ignore[override]  # never called
        raise AssertionError


def slow_attempts(*seconds: float, options: SchedulerOptions | None = None) -> Rig:
    """Return a scheduler after one attempt for each pod; ``seconds`` are the durations of their cycles."""
    made = rig([Slow], options=options)
    made.add(node("n0"), node("n1"))
    for number, each in enumerate(seconds):
        made.add(pod(f"p{number}", labels={"seconds": str(each)}))
        made.decide()
    return made


async def test_a_slow_cycle_names_the_slow_plugin(caplog: pytest.LogCaptureFixture) -> None:
    """The log line has the pod, nodes, candidates, the slowest stage, and each plugin's duration by extension point."""
    with caplog.at_level(logging.WARNING):
        slow_attempts(0.25)
    (text,) = [record.getMessage() for record in caplog.records if "slow scheduling cycle" in record.getMessage()]
    assert "pod default/p0 took 250.0 ms (limit 100.0 ms)" in text
    assert "2 nodes, 2 candidates; slowest stage Filter" in text
    assert "Filter 250.0 ms (Slow 250.0 ms)" in text


@table(
    "limit, seconds, logged",
    ("faster-than-the-limit", 0.1, 0.05, 0),
    ("slower", 0.1, 0.11, 1),
    ("configured-limit", 0.5, 0.25, 0),
)
async def test_the_limit(caplog: pytest.LogCaptureFixture, limit: float, seconds: float, logged: int) -> None:
    """Only a cycle that reaches the limit is logged."""
    with caplog.at_level(logging.WARNING):
        slow_attempts(seconds, options=SchedulerOptions(slow_cycle_seconds=limit))
    assert sum("slow scheduling cycle" in record.getMessage() for record in caplog.records) == logged


async def test_one_slow_cycle_is_logged_per_second(caplog: pytest.LogCaptureFixture) -> None:
    """At most one slow cycle per second is logged, with the number of suppressed ones."""
    with caplog.at_level(logging.WARNING):
        slow_attempts(0.2, 0.2, 0.2, 1.0)
    texts = [record.getMessage() for record in caplog.records if "slow scheduling cycle" in record.getMessage()]
    assert [text.partition("pod ")[2].partition(" ")[0] for text in texts] == ["default/p0", "default/p3"]
    assert texts[1].endswith("; 2 more slow cycles were not logged")


LOGGER = "scheduler_core.decisions"


async def decision_records(caplog: pytest.LogCaptureFixture, level: int) -> list[logging.LogRecord]:
    """Schedule one pod and reject another; return the decision log."""
    caplog.set_level(level, logger=LOGGER)
    made = default_rig(node("n1"), node("n2"), pod("web"))
    assert await made.attempt()
    made.add(pod("huge", requests={"cpu": "1000"}))
    assert not await made.attempt()
    return [record for record in caplog.records if record.name == LOGGER]


async def test_decisions_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Each decision is one record with the pod in fields, and with the node if scheduled or the reason if not."""
    bound, rejected = await decision_records(caplog, logging.DEBUG)
    fields = bound.__dict__
    assert (fields["pod"], fields["profile"], fields["result"]) == ("default/web", DEFAULT_NAME, "scheduled")
    assert fields["node"] in ("n1", "n2")
    assert fields["revision"]
    assert "2 of 2 nodes are feasible, attempt 1" in bound.getMessage()
    assert "default/huge is unschedulable" in rejected.getMessage()
    assert "Insufficient cpu" in rejected.getMessage()
    assert "node" not in rejected.__dict__


async def test_nothing_is_logged_unless_enabled(caplog: pytest.LogCaptureFixture) -> None:
    """At level INFO, no decision is logged."""
    assert await decision_records(caplog, logging.INFO) == []
