"""The nominator, which stores the nominated node of each pod."""

from __future__ import annotations

from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.support.builders import pod
from tests.support.tables import table

COLUMNS = NodeColumns()
WEB, DB = COLUMNS.compile_pod(pod("web")), COLUMNS.compile_pod(pod("db"))


def test_a_nomination_of_a_group_with_a_priority() -> None:
    """A nomination has the group's priority at the time of the nomination or update; the pod is unchanged."""
    priorities = {WEB.uid: 7}
    nominations = NominatedPods(priorities.get)
    nominations.nominate(WEB, "n0")
    nominations.nominate(DB, "n0")
    priority_by_uid = {info.uid: info.priority for info in nominations.nominated_pods("n0")}
    assert priority_by_uid == {WEB.uid: 7, DB.uid: DB.priority}
    assert WEB.priority != 7
    del priorities[WEB.uid]
    nominations.update(WEB.pod, WEB)
    assert nominations.nomination_of(WEB.uid) is WEB


def test_a_pod_is_nominated_to_one_node() -> None:
    """A later nomination of a pod replaces the earlier one."""
    nominations = NominatedPods()
    nominations.nominate(WEB, "n0")
    nominations.nominate(DB, "n0")
    nominations.nominate(WEB, "n1")
    assert [info.key for info in nominations.nominated_pods("n0")] == ["default/db"]
    assert [info.key for info in nominations.nominated_pods("n1")] == ["default/web"]
    assert (nominations.node_of(WEB.uid), len(nominations), set(nominations.nodes())) == ("n1", 2, {"n0", "n1"})


def test_a_nomination_is_withdrawn() -> None:
    """A withdrawn nomination is removed, and a second withdrawal has no effect."""
    nominations = NominatedPods()
    nominations.nominate(WEB, "n0")
    nominations.withdraw(WEB.uid)
    nominations.withdraw(WEB.uid)
    assert (nominations.node_of(WEB.uid), len(nominations), list(nominations.nodes())) == ("", 0, [])
    assert list(nominations.nominated_pods("n0")) == []


@table(
    "nominated, old, new, after",
    ("unwritten-nomination-is-retained", "n0", "", "", "n0"),
    ("no-nomination", "", "", "", ""),
    ("status-replaces-nomination", "n0", "", "n1", "n1"),
    ("cleared", "n0", "n0", "", ""),
    ("unchanged-status-replaces-nomination", "n0", "n1", "n1", "n1"),
    ("unchanged-status-restores-nomination", "", "n1", "n1", "n1"),
    ("changed", "n0", "n0", "n2", "n2"),
)
def test_an_updated_pod(nominated: str, old: str, new: str, after: str) -> None:
    """The nomination follows the pod's status, but an unwritten nomination survives an update."""
    nominations = NominatedPods()
    if nominated:
        nominations.nominate(WEB, nominated)
    newer = COLUMNS.compile_pod(pod("web", nominated_node=new))
    nominations.update(pod("web", nominated_node=old), newer)
    assert nominations.node_of(WEB.uid) == after
    assert list(nominations.nominated_pods(after)) == ([newer] if after else [])


@table("decided, after", ("a-node", "n2", "n2"), ("none", "", ""), ("undecided-uses-the-status", None, "n1"))
def test_a_decided_nomination(decided: str | None, after: str) -> None:
    """A decided node replaces the nomination; without a decision the pod's status does."""
    nominations = NominatedPods()
    nominations.nominate(WEB, "n0")
    nominations.decide(COLUMNS.compile_pod(pod("web", nominated_node="n1")), decided)
    assert nominations.node_of(WEB.uid) == after
