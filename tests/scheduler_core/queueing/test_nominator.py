"""Promised nodes."""

from __future__ import annotations

import pytest

from scheduler_core.queueing.nominator import NominatedPods
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.support.builders import pod

COLUMNS = NodeColumns()
WEB, DB = COLUMNS.compile_pod(pod("web")), COLUMNS.compile_pod(pod("db"))


def test_a_promise_by_another_priority() -> None:
    """It counts by that as long as the pod is promised any node, through its updates; the pod itself keeps its own."""
    promises = NominatedPods()
    promises.nominate(WEB, "n0", priority=7)
    promises.update(WEB.pod, WEB)
    promises.nominate(WEB, "n1")
    assert [info.priority for info in promises.nominated_pods("n1")] == [7]
    promises.withdraw(WEB.uid)
    promises.nominate(WEB, "n1")
    assert [info.priority for info in promises.nominated_pods("n1")] == [WEB.priority]


def test_a_pod_is_promised_one_node() -> None:
    """The later promise replaces the earlier."""
    promises = NominatedPods()
    promises.nominate(WEB, "n0")
    promises.nominate(DB, "n0")
    promises.nominate(WEB, "n1")
    assert [info.key for info in promises.nominated_pods("n0")] == ["default/db"]
    assert [info.key for info in promises.nominated_pods("n1")] == ["default/web"]
    assert (promises.node_of(WEB.uid), len(promises), set(promises.nodes())) == ("n1", 2, {"n0", "n1"})


def test_a_promise_is_taken_back() -> None:
    """Nothing stays of it; twice is harmless."""
    promises = NominatedPods()
    promises.nominate(WEB, "n0")
    promises.withdraw(WEB.uid)
    promises.withdraw(WEB.uid)
    assert (promises.node_of(WEB.uid), len(promises), list(promises.nodes())) == ("", 0, [])
    assert list(promises.nominated_pods("n0")) == []


@pytest.mark.parametrize(
    ("promised", "old", "new", "after"),
    [
        pytest.param("n0", "", "", "n0", id="never-written-is-kept"),
        pytest.param("", "", "", "", id="nothing-stays-nothing"),
        pytest.param("n0", "", "n1", "n1", id="written-wins"),
        pytest.param("n0", "n0", "", "", id="taken-back"),
        pytest.param("n0", "n1", "n1", "n1", id="unchanged-status-is-followed"),
        pytest.param("", "n1", "n1", "n1", id="promised-again-while-it-is-written"),
        pytest.param("n0", "n0", "n2", "n2", id="changed"),
    ],
)
def test_an_updated_pod(promised: str, old: str, new: str, after: str) -> None:
    """Its status is followed; a promise that was not written yet outlives an update; the pod is replaced."""
    promises = NominatedPods()
    if promised:
        promises.nominate(WEB, promised)
    newer = COLUMNS.compile_pod(pod("web", nominated_node=new))
    promises.update(pod("web", nominated_node=old), newer)
    assert promises.node_of(WEB.uid) == after
    assert list(promises.nominated_pods(after)) == ([newer] if after else [])


@pytest.mark.parametrize(
    ("decided", "after"),
    [
        pytest.param("n2", "n2", id="a-node"),
        pytest.param("", "", id="none"),
        pytest.param(None, "n1", id="undecided-follows-the-status"),
    ],
)
def test_a_decided_promise(decided: str | None, after: str) -> None:
    """It replaces what was promised."""
    promises = NominatedPods()
    promises.nominate(WEB, "n0")
    promises.decide(COLUMNS.compile_pod(pod("web", nominated_node="n1")), decided)
    assert promises.node_of(WEB.uid) == after
