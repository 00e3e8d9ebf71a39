"""Nominations."""

from __future__ import annotations

import pytest

from scheduler_core.queueing.nominator import NominatedPods
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.support.builders import pod

COLUMNS = NodeColumns()
WEB, DB = COLUMNS.compile_pod(pod("web")), COLUMNS.compile_pod(pod("db"))


def test_a_nomination_of_a_group_with_a_priority() -> None:
    """It counts by the priority that the group has when the pod is nominated or updated; the pod keeps its own."""
    priorities = {WEB.uid: 7}
    nominations = NominatedPods(priorities.get)
    nominations.nominate(WEB, "n0")
    nominations.nominate(DB, "n0")
    counted = {info.uid: info.priority for info in nominations.nominated_pods("n0")}
    assert counted == {WEB.uid: 7, DB.uid: DB.priority}
    assert WEB.priority != 7
    del priorities[WEB.uid]
    nominations.update(WEB.pod, WEB)
    assert nominations.nomination_of(WEB.uid) is WEB


def test_a_pod_is_nominated_to_one_node() -> None:
    """The later nomination replaces the earlier."""
    nominations = NominatedPods()
    nominations.nominate(WEB, "n0")
    nominations.nominate(DB, "n0")
    nominations.nominate(WEB, "n1")
    assert [info.key for info in nominations.nominated_pods("n0")] == ["default/db"]
    assert [info.key for info in nominations.nominated_pods("n1")] == ["default/web"]
    assert (nominations.node_of(WEB.uid), len(nominations), set(nominations.nodes())) == ("n1", 2, {"n0", "n1"})


def test_a_nomination_is_withdrawn() -> None:
    """Nothing of it remains; a second withdrawal has no effect."""
    nominations = NominatedPods()
    nominations.nominate(WEB, "n0")
    nominations.withdraw(WEB.uid)
    nominations.withdraw(WEB.uid)
    assert (nominations.node_of(WEB.uid), len(nominations), list(nominations.nodes())) == ("", 0, [])
    assert list(nominations.nominated_pods("n0")) == []


@pytest.mark.parametrize(
    ("nominated", "old", "new", "after"),
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
def test_an_updated_pod(nominated: str, old: str, new: str, after: str) -> None:
    """Its status is followed; a nomination that is not written yet outlives an update; the pod is replaced."""
    nominations = NominatedPods()
    if nominated:
        nominations.nominate(WEB, nominated)
    newer = COLUMNS.compile_pod(pod("web", nominated_node=new))
    nominations.update(pod("web", nominated_node=old), newer)
    assert nominations.node_of(WEB.uid) == after
    assert list(nominations.nominated_pods(after)) == ([newer] if after else [])


@pytest.mark.parametrize(
    ("decided", "after"),
    [
        pytest.param("n2", "n2", id="a-node"),
        pytest.param("", "", id="none"),
        pytest.param(None, "n1", id="undecided-follows-the-status"),
    ],
)
def test_a_decided_nomination(decided: str | None, after: str) -> None:
    """It replaces the nomination."""
    nominations = NominatedPods()
    nominations.nominate(WEB, "n0")
    nominations.decide(COLUMNS.compile_pod(pod("web", nominated_node="n1")), decided)
    assert nominations.node_of(WEB.uid) == after
