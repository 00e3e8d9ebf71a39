"""Law of hidden nominations: after the last hiding section ends, all nominations are visible again.

Sections that hide nominations may wait for an extender, so they overlap in any order, and nominations are added and
withdrawn inside them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.support.builders import pod

COLUMNS = NodeColumns()
INFOS = {info.uid: info for info in (COLUMNS.compile_pod(pod(name)) for name in ("a", "b", "c"))}
NODES = ("n0", "n1")
UIDS = st.sampled_from(sorted(INFOS))


class NominationMachine(RuleBasedStateMachine):
    """Two tables with the same changes; only one of them hides nominations."""

    def __init__(self) -> None:
        super().__init__()
        self.priorities: dict[str, int] = {}
        self.table, self.plain = NominatedPods(self.priorities.get), NominatedPods(self.priorities.get)
        self.sections: list[tuple[set[str], AbstractContextManager[None]]] = []

    @rule(uid=UIDS, node_name=st.sampled_from(NODES), priority=st.sampled_from([None, 7]))
    def nominate(self, uid: str, node_name: str, priority: int | None) -> None:
        self.priorities.pop(uid, None)
        if priority is not None:
            self.priorities[uid] = priority
        for table in (self.table, self.plain):
            table.nominate(INFOS[uid], node_name)

    @rule(uid=UIDS)
    def withdraw(self, uid: str) -> None:
        for table in (self.table, self.plain):
            table.withdraw(uid)

    @rule(uid=UIDS, old=st.sampled_from(["", *NODES]), new=st.sampled_from(["", *NODES]))
    def update(self, uid: str, old: str, new: str) -> None:
        name = INFOS[uid].pod.metadata.name
        info = COLUMNS.compile_pod(pod(name, nominated_node=new))
        for table in (self.table, self.plain):
            table.update(pod(name, nominated_node=old), info)

    @precondition(lambda self: len(self.sections) < 3)
    @rule(uids=st.sets(UIDS))
    def begin(self, uids: set[str]) -> None:
        section = self.table.without(uids)
        section.__enter__()
        self.sections.append((uids, section))

    @precondition(lambda self: self.sections)
    @rule(index=st.integers(0, 2))
    def end(self, index: int) -> None:
        _, section = self.sections.pop(index % len(self.sections))
        section.__exit__(None, None, None)

    @invariant()
    def visible_nominations_are_equal(self) -> None:
        """Nodes, pods, order and priorities of the nominations that are not hidden are equal in both tables."""
        hidden = set[str]().union(*(uids for uids, _ in self.sections))
        shown = {}
        for name in NODES:
            pods = [info for info in self.plain.nominated_pods(name) if info.uid not in hidden]
            found = list(self.table.nominated_pods(name))
            assert [(info.uid, info.priority) for info in found] == [(info.uid, info.priority) for info in pods]
            if pods:
                shown[name] = pods
        assert set(self.table.nodes()) == set(shown)
        assert {uid: self.table.node_of(uid) for uid in INFOS} == {uid: self.plain.node_of(uid) for uid in INFOS}
        assert len(self.table) == len(self.plain)


NominationMachine.TestCase.settings = settings(stateful_step_count=30)
TestNominations = NominationMachine.TestCase
