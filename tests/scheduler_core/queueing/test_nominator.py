"""Promised nodes."""

from __future__ import annotations

from scheduler_core.queueing.nominator import NominatedPods
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.support.builders import pod

COLUMNS = NodeColumns()
WEB, DB = COLUMNS.compile_pod(pod("web")), COLUMNS.compile_pod(pod("db"))


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
