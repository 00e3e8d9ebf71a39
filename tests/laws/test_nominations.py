"""Laws of nominations.

When the last section that hides nominations has ended, all are visible again. Such sections may wait for an extender,
so they overlap in any order, and nominations are added and withdrawn inside them.

The nomination that was decided last counts, whatever older versions of the pod arrive. Nominations are written to the
status of the pod. Writes may be merged before they are sent, and the watch shows them late and in order, between
unrelated versions of the pod.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import pod

COLUMNS = NodeColumns()
INFOS = {info.uid: info for info in (COLUMNS.compile_pod(pod(name)) for name in ("a", "b", "c"))}
NODES = ("n0", "n1", "n2")
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


# -- late watches ------------------------------------------------------------------------------------------------------


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("decide"), st.sampled_from(["", *NODES])),
        st.tuples(st.sampled_from(["send", "show", "touch", "keep"]), st.just("")),
    ),
    max_size=30,
)


class LateWatch:
    """A pod whose nominations are decided, sent and shown."""

    def __init__(self) -> None:
        self.nominations = NominatedPods()
        self.decided = ""
        self.queued: str | None = None
        self.sent: list[str] = []
        self.seen = self.version("")

    @staticmethod
    def version(nominated: str) -> PodInfo:
        return COLUMNS.compile_pod(pod("web", nominated_node=nominated))

    def decide(self, node_name: str) -> None:
        self.decided = node_name
        self.nominations.decide(self.seen, node_name)
        if node_name != self.seen.pod.status.nominated_node_name or self.nominations.is_unseen(self.seen.uid):
            self.nominations.written(self.seen.uid, node_name)
            self.queued = node_name

    def send(self) -> None:
        if self.queued is not None:
            self.sent.append(self.queued)
            self.queued = None

    def show(self) -> None:
        self._update(self.sent.pop(0) if self.sent else self.seen.pod.status.nominated_node_name)

    def touch(self) -> None:
        self._update(self.seen.pod.status.nominated_node_name)

    def keep(self) -> None:
        self.nominations.decide(self.seen, None)

    def _update(self, nominated: str) -> None:
        before, self.seen = self.seen, self.version(nominated)
        self.nominations.update(before.pod, self.seen)


@given(STEPS)
def test_the_last_decided_nomination_counts(steps: list[tuple[str, str]]) -> None:
    """Without other clients the last decided nomination counts; none is unseen when the watch has caught up."""
    late = LateWatch()
    for step, node_name in steps:
        if step == "decide":
            late.decide(node_name)
        else:
            getattr(late, step)()
        assert late.nominations.node_of(late.seen.uid) == late.decided
    late.send()
    while late.sent:
        late.show()
    for _ in steps:
        late.touch()
    assert late.nominations.node_of(late.seen.uid) == late.decided == late.seen.pod.status.nominated_node_name
    assert not late.nominations.is_unseen(late.seen.uid)


def test_another_client_replaces_a_nomination() -> None:
    """A status that was never decided here counts, also before the watch has shown the last decided nomination."""
    late = LateWatch()
    late.decide("n0")
    late.sent = ["n9"]
    late.show()
    assert late.nominations.node_of(late.seen.uid) == "n9"


def test_a_pod_that_left_the_queue_is_forgotten() -> None:
    """Nothing is stored about a pod that left the queue."""
    late = LateWatch()
    late.decide("n0")
    late.nominations.remove(late.seen.uid)
    assert not late.nominations.is_unseen(late.seen.uid)
    assert late.nominations.node_of(late.seen.uid) == ""
