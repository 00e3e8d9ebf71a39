"""Law: the nodes that have pods of a Workload are found without reading the pods of nodes that have not changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from bayplan.kueue import fit_checks
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.gangs.held_room import WORKLOAD_LABEL
from scheduler_core.model.pod import Pod
from scheduler_core.scheduler import SchedulerOptions
from scheduler_core.snapshot.interning import SnapshotBounds
from tests.support.builders import node, pod
from tests.support.scheduling import Rig, rig

_NAMES, _NAMESPACES, _MARKS = ("a", "b", "c"), ("default", "ml"), ("", "one", "two")
_steps_of = st.lists(
    st.tuples(
        st.sampled_from(("bind", "bind", "relabel", "terminate", "delete", "add node", "remove node", "look")),
        st.integers(0, 5),
        st.sampled_from(_NAMES),
        st.sampled_from(_NAMESPACES),
        st.sampled_from(_MARKS),
    ),
    max_size=30,
)


def _pod(number: int, node_name: str, namespace: str, mark: str, **fields: Any) -> Pod:
    labels = {WORKLOAD_LABEL: mark} if mark else {}
    return pod(f"p{number}", namespace=namespace, uid=f"u{number}", node_name=node_name, labels=labels, **fields)


def _rows(made: Rig, mark: str) -> list[int]:
    """Return the rows by reading all pods."""
    labels = [[info.pod.metadata.labels for info in pods.values()] for pods in made.columns.pods]
    return [row for row, on_row in enumerate(labels) if any(each.get(WORKLOAD_LABEL) == mark for each in on_row)]


class _Read(dict[str, Any]):
    """Pods of a row, which count the reads of all of them."""

    reads = 0

    def values(self) -> Any:
        self.reads += 1
        return super().values()


class _World:
    def __init__(self, changes: int) -> None:
        self.made = rig(options=SchedulerOptions(bounds=SnapshotBounds(changes=changes)))
        self.admitted = fit_checks._AdmittedPods(self.made.columns)
        self.pods: dict[int, Pod] = {}
        self.nodes: set[str] = set()

    def step(self, action: str, number: int, name: str, namespace: str, mark: str) -> None:
        feed, old = self.made.scheduler.feed, self.pods.get(number)
        if action == "bind" and old is None:
            self.pods[number] = new = _pod(number, name, namespace, mark)
            feed.pod_added(new)
        elif action in ("relabel", "terminate") and old is not None:
            deleted = datetime(2026, 1, 1, tzinfo=UTC) if action == "terminate" else None
            new = _pod(number, old.spec.node_name, old.metadata.namespace, mark, deleted=deleted)
            self.pods[number] = new
            feed.pod_updated(old, new)
        elif action == "delete" and old is not None:
            feed.pod_deleted(self.pods.pop(number))
        elif action == "add node" and name not in self.nodes:
            self.nodes.add(name)
            feed.node_added(node(name))
        elif action == "remove node" and name in self.nodes:
            self.nodes.remove(name)
            feed.node_deleted(node(name))
        elif action == "look":
            self.look()

    def look(self) -> None:
        for mark in _MARKS[1:]:
            assert self.admitted.rows_of(mark) == _rows(self.made, mark)


@given(steps=_steps_of, changes=st.sampled_from((1, 4, 100)))
@settings(max_examples=200, deadline=None)
def test_the_rows_are_those_of_all_pods(steps: Sequence[tuple[str, int, str, str, str]], changes: int) -> None:
    """Whatever changes between two answers, the rows are those that a look at all pods finds."""
    world = _World(changes)
    world.step("add node", 0, "a", "", "")
    for each in steps:
        world.step(*each)
    world.look()


def test_only_pods_of_changed_nodes_are_read() -> None:
    """After the first answer, each reads the pods of the nodes that have changed since, and of no other node."""
    made = rig()
    made.add(*(node(name) for name in _NAMES))
    made.add(*(_pod(number, _NAMES[number % 3], "ml", "one") for number in range(30)))
    rows = [_Read(each) for each in made.columns.pods]
    made.columns.pods[:] = rows
    admitted = fit_checks._AdmittedPods(made.columns)

    def reads() -> list[int]:
        found = [row.reads for row in rows[:3]]
        for row in rows:
            row.reads = 0
        return found

    for expected in ([1, 1, 1], [0, 0, 0]):
        assert admitted.rows_of("one") == [0, 1, 2]
        assert reads() == expected
    made.add(_pod(30, "a", "ml", "two"))
    reads()
    assert admitted.rows_of("two") == [0]
    assert reads() == [1, 0, 0]
