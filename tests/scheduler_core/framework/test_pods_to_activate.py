"""Pods that are activated when an attempt makes progress."""

from __future__ import annotations

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.pods_to_activate import pods_to_activate
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.support.builders import pod

COLUMNS = NodeColumns()
WEB, DB = COLUMNS.compile_pod(pod("web")), COLUMNS.compile_pod(pod("db"))


def test_no_pods_are_activated_by_default() -> None:
    assert CycleState().to_activate is None


def test_pods_are_taken_once() -> None:
    """Pods are returned once, in the order in which they were added."""
    state = CycleState()
    for each in (WEB, DB, WEB):
        pods_to_activate(state).add(each)
    assert pods_to_activate(state).take() == (WEB.uid, DB.uid)
    assert pods_to_activate(state).take() == ()
    pods_to_activate(state).add(DB)
    assert pods_to_activate(state).take() == (DB.uid,)


def test_a_dry_run_adds_pods_for_its_attempt() -> None:
    """A cloned state shares the list with its original."""
    state = CycleState()
    pods_to_activate(state)
    pods_to_activate(state.clone()).add(WEB)
    assert pods_to_activate(state).take() == (WEB.uid,)
