"""Law of late watches: the nomination that was decided last counts, whatever older versions of the pod arrive.

Nominations are written to the pod's status. Writes may be merged before they are sent, and the watch shows them late
and in order, between unrelated versions of the pod.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import pod

COLUMNS = NodeColumns()
NODES = ("", "n0", "n1", "n2")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("decide"), st.sampled_from(NODES)),
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
