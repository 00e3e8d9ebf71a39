"""TaintToleration: untolerated taints reject nodes, and PreferNoSchedule taints lower the score."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler_core.framework.cluster_events import Hint
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import Normalization, PodReads, Reads, Reuse
from scheduler_core.model.node import Node
from scheduler_core.model.taints import NO_SCHEDULE, PREFER_NO_SCHEDULE, Taint, Toleration
from scheduler_core.plugins.taint_toleration import (
    TaintToleration,
    TolerationTables,
    after_node_change,
    after_toleration_change,
)
from scheduler_core.snapshot.interning import SnapshotBounds
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns, Rows
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle
from tests.support.plugin_calls import codes_or_none, raw_scores
from tests.support.presence import present
from tests.support.tables import table

DEDICATED = Toleration(key="dedicated", value="db", effect="NoSchedule")
CLUSTER = [
    node("plain"),
    node("dedicated", taints=["dedicated=db:NoSchedule"]),
    node("evicting", taints=["dedicated=db:NoExecute"]),
    node("soft", taints=["busy:PreferNoSchedule"]),
    node("softer", taints=["busy:PreferNoSchedule", "old:PreferNoSchedule", "dedicated=db:NoSchedule"]),
]


def filtered(nodes: list[Node], tolerations: list[Toleration], rows: Rows = ALL_ROWS) -> list[int] | None:
    filled = columns(nodes)
    return codes_or_none(TaintToleration(None, FakeHandle(nodes=filled)), pod(tolerations=tolerations), filled, rows)


def scored(nodes: list[Node], tolerations: list[Toleration], rows: Rows = ALL_ROWS) -> list[int]:
    filled = columns(nodes)
    return raw_scores(TaintToleration(None, FakeHandle(nodes=filled)), pod(tolerations=tolerations), filled, rows)


@table(
    "tolerations, rows, codes",
    ("chosen-rows", [], np.array([1, 3]), [1, 0]),
    ("everything", [Toleration(operator="Exists")], ALL_ROWS, None),
)
def test_filter(tolerations: list[Toleration], rows: Rows, codes: list[int] | None) -> None:
    """Untolerated NoSchedule and NoExecute taints reject a node; PreferNoSchedule taints do not."""
    assert filtered(CLUSTER, tolerations, rows) == codes


@table(
    "nodes",
    ("no-taints", [node("a"), node("b")]),
    ("prefer-no-schedule", [node("a", taints=["busy:PreferNoSchedule"])]),
)
def test_nodes_that_pass_without_tolerations(nodes: list[Node]) -> None:
    """Filter returns None because every node passes."""
    assert filtered(nodes, []) is None


def test_score_without_pre_score() -> None:
    """Score works in a profile that does not enable PreScore."""
    filled = columns(CLUSTER)
    plugin = TaintToleration(None, FakeHandle(nodes=filled))
    assert plugin.score(CycleState(), filled.compile_pod(pod()), filled, ALL_ROWS).tolist() == [0, 0, 0, 1, 2]


def test_tables_follow_new_taint_lists() -> None:
    """A cached table is extended with taint lists of new nodes."""
    filled = columns([node("a"), node("b", taints=["x:NoSchedule"])])
    plugin = TaintToleration(None, FakeHandle(nodes=filled))
    info = filled.compile_pod(pod())
    assert plugin.filter(CycleState(), info, filled, ALL_ROWS) is not None
    filled.add_node(node("c", taints=["y:NoExecute", "z:PreferNoSchedule"]))
    filled.update_node(node("b"))
    codes = present(plugin.filter(CycleState(), info, filled, ALL_ROWS))
    assert codes.tolist() == [0, 0, 1]
    assert plugin.score(CycleState(), info, filled, ALL_ROWS).tolist() == [0, 0, 1]


def test_tables_follow_columns_that_are_computed_again() -> None:
    """The columns have fewer taint lists then, if a node has lost its taints."""
    filled = columns([node("a"), node("b", taints=["x:NoSchedule"])])
    plugin = TaintToleration(None, FakeHandle(nodes=filled))
    info = filled.compile_pod(pod())
    assert plugin.filter(CycleState(), info, filled, ALL_ROWS) is not None
    filled.update_node(node("b"))
    filled.rebuild()
    assert plugin.filter(CycleState(), info, filled, ALL_ROWS) is None


def test_tables_are_not_shared_between_columns() -> None:
    """A cached table is not used for other columns, because they number taint lists differently."""
    first, second = columns([node("a", taints=["x:NoSchedule"])]), columns([node("a", taints=["y:PreferNoSchedule"])])
    plugin = TaintToleration(None, FakeHandle(nodes=first))
    assert plugin.filter(CycleState(), first.compile_pod(pod()), first, ALL_ROWS) is not None
    assert plugin.filter(CycleState(), second.compile_pod(pod()), second, ALL_ROWS) is None


def test_tables_are_bounded() -> None:
    """The oldest table is dropped beyond the limit, and rebuilt when it is needed."""
    lists = columns([node("a", taints=["x:NoSchedule"])]).taint_sets
    tables = TolerationTables(SnapshotBounds(toleration_tables=2))
    first = tables.table((), lists)
    assert tables.table((), lists) is first
    for key in ("a", "b"):
        tables.table((Toleration(key=key),), lists)
    again = tables.table((), lists)
    assert again is not first
    assert again.codes.tolist() == first.codes.tolist() == [0, 1]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "x", "y", "z"])), max_size=60))
def test_tables_follow_taints_that_change(steps: list[tuple[str, str]]) -> None:
    """A table is correct for changed taint lists, and its size is bounded by the number of concurrent lists."""
    nodes = NodeColumns(SnapshotBounds(taint_lists=3))
    tables = TolerationTables()
    for number, (name, key) in enumerate(steps):
        taints = (Taint(key, NO_SCHEDULE, str(number)), Taint("soft", PREFER_NO_SCHEDULE)) if key else ()
        changed = node(name)
        changed = replace(changed, spec=replace(changed.spec, taints=taints))
        (nodes.add_node if nodes.row_of(name) < 0 else nodes.update_node)(changed)
        if number % 4 == 3:
            table = tables.table((Toleration(key="x", operator="Exists"),), nodes.taint_sets)
            lists = [each.spec.taints for each in nodes.nodes if each is not None]
            expected = [(bool(known) and known[0].key != "x", bool(known)) for known in lists]
            codes, counts = table.codes[nodes.taint_set_ids].tolist(), table.counts[nodes.taint_set_ids].tolist()
            assert list(zip(codes, counts, strict=True)) == expected
            assert table.rejects or not any(codes)
    assert len(nodes.taint_sets) <= 5


def test_scores_of_chosen_rows() -> None:
    """score() returns scores of the requested rows only."""
    assert scored(CLUSTER, [], np.array([3, 4])) == [1, 2]


def test_unreadable_events_requeue() -> None:
    """A pod is requeued by an event without an object of the expected kind."""
    assert after_node_change(pod(tolerations=[DEDICATED]), None, pod()) is Hint.QUEUE
    assert after_toleration_change(pod("waiting"), None, None) is Hint.QUEUE


def test_tolerations_of_another_pod_requeue_nothing() -> None:
    """A pod is requeued if its own tolerations changed, not those of another pod."""
    assert after_toleration_change(pod("waiting"), None, pod("other")) is Hint.SKIP


def test_declarations() -> None:
    """Reuse and normalization are declared as the runtime expects."""
    assert TaintToleration.reuse == Reuse(filter=Reads.NODE, score=Reads.NODE, pod=PodReads.NOTHING)
    assert TaintToleration.normalization is Normalization.REVERSE_MAX


_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TAINTS = st.builds(
    Taint, key=st.sampled_from("ab"), value=st.sampled_from(["", "1", "2"]), effect=st.sampled_from(_EFFECTS)
)
_TOLERATIONS = st.builds(
    Toleration,
    key=st.sampled_from(["", "a", "b"]),
    operator=st.sampled_from(["", "Equal", "Exists", "Lt", "Gt"]),
    value=st.sampled_from(["", "1", "2"]),
    effect=st.sampled_from(["", *_EFFECTS]),
)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    return (
        toleration.effect in ("", taint.effect)
        and toleration.key in ("", taint.key)
        and (
            toleration.operator == "Exists"
            or (toleration.operator in ("", "Equal") and toleration.value == taint.value)
        )
    )


@given(st.lists(st.lists(_TAINTS, max_size=3), min_size=1, max_size=6), st.lists(_TOLERATIONS, max_size=3))
def test_all_nodes_at_once_equals_one_at_a_time(taints: list[list[Taint]], tolerations: list[Toleration]) -> None:
    """Results of all rows equal those of single nodes."""
    nodes = [node(f"n{index}", taints=each) for index, each in enumerate(taints)]
    open_taints = [[one for one in each if not any(_covers(by, one) for by in tolerations)] for each in taints]
    rejected = [int(any(one.effect != "PreferNoSchedule" for one in each)) for each in open_taints]
    soft = [sum(one.effect == "PreferNoSchedule" for one in each) for each in open_taints]
    assert (filtered(nodes, tolerations) or [0] * len(nodes)) == rejected
    assert scored(nodes, tolerations) == soft
