"""PodTopologySpread: its filter, which rejects nodes of a domain that would exceed maxSkew, and its queueing hints."""

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.errors import PluginError
from scheduler_core.framework.cluster_events import Hint
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.status import Code
from scheduler_core.model.affinity import LabelSelector, Requirement
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod, TopologySpreadConstraint
from scheduler_core.model.taints import Toleration
from scheduler_core.plugins.pod_topology_spread import PodTopologySpread
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns, Rows
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle
from tests.support.plain_spread import PlainSpread
from tests.support.plugin_calls import filter_codes, row_codes
from tests.support.presence import present
from tests.support.tables import table

NODES = [
    node("a1", labels={"zone": "a", "host": "a1"}),
    node("a2", labels={"zone": "a", "host": "a2"}),
    node("b1", labels={"zone": "b", "host": "b1"}),
    node("c1", labels={"zone": "c", "host": "c1", "pool": "x"}, taints=["t:NoSchedule"]),
    node("bare"),
]
WEB = LabelSelector(match_labels={"app": "web"})
SKEWED, UNLABELED = 1, 2


def spread(key: str = "zone", skew: int = 1, **fields: object) -> TopologySpreadConstraint:
    """Return a required constraint over web pods, with changed fields."""
    return TopologySpreadConstraint(**{"max_skew": skew, "topology_key": key, "label_selector": WEB, **fields})  # type: ignore[arg-type] # mixed field types


def web(name: str, where: str, **fields: object) -> Pod:
    namespace, deleted = fields.get("namespace", "default"), fields.get("deleted")
    assert isinstance(namespace, str)
    labels = {"app": "web", "version": "1"}
    if isinstance(deleted, datetime):
        return pod(name, node_name=where, namespace=namespace, labels=labels, deleted=deleted)
    return pod(name, node_name=where, namespace=namespace, labels=labels)


def filter_result(incoming: Pod, filled: NodeColumns, rows: Rows = ALL_ROWS) -> list[int] | str:
    """Return the code of each row, or PreFilter's status name if it is not Success."""
    return filter_codes(PodTopologySpread(None, FakeHandle(nodes=filled)), incoming, filled, rows)


def incoming(*constraints: TopologySpreadConstraint) -> Pod:
    """Return a pending web pod with constraints."""
    return pod("incoming", labels={"app": "web", "version": "2"}, spread=constraints)


TWO_IN_A = [web("p", "a1"), web("q", "a2")]
ONE_EACH = [web("p", "a1"), web("q", "b1"), web("r", "c1")]


@table(
    "subject, placed, codes",
    ("no-constraints", pod(), TWO_IN_A, "Skip"),
    ("preferred-constraints-only", incoming(spread(when_unsatisfiable="ScheduleAnyway")), TWO_IN_A, "Skip"),
    ("one-zone-skewed", incoming(spread()), TWO_IN_A, [SKEWED, SKEWED, 0, 0, UNLABELED]),
    (
        "tainted-nodes-do-not-count",
        incoming(spread(node_taints_policy="Honor")),
        [web("p", "a1"), web("q", "b1")],
        [0, 0, 0, 0, UNLABELED],
    ),
    ("other-versions-do-not-count", incoming(spread(match_label_keys=("version",))), TWO_IN_A, [0, 0, 0, 0, UNLABELED]),
    (
        "label-keys-that-the-pod-lacks",
        incoming(spread(match_label_keys=("none",))),
        TWO_IN_A,
        [SKEWED, SKEWED, 0, 0, UNLABELED],
    ),
)
def test_filter(subject: Pod, placed: list[Pod], codes: list[int] | str) -> None:
    """PreFilter skips pods without required constraints; matchLabelKeys restrict the pods that count."""
    assert filter_result(subject, columns(NODES, placed)) == codes


def test_chosen_rows() -> None:
    """filter() returns codes of the requested rows only."""
    assert filter_result(incoming(spread()), columns(NODES, TWO_IN_A), np.array([1, 2])) == [SKEWED, 0]


def test_removed_nodes_are_no_domains() -> None:
    """The domain of a removed node does not count for the minimum."""
    filled = columns(NODES, ONE_EACH)
    filled.remove_node("c1")
    assert filter_result(incoming(spread()), filled) == [0, 0, 0, UNLABELED, UNLABELED]


def test_an_invalid_selector_is_an_error() -> None:
    """PreFilter and PreScore return Error, and the message has the invalid operator."""
    broken = LabelSelector(match_expressions=(Requirement("a", "Near"),))
    filled = columns(NODES)
    plugin, info = (
        PodTopologySpread(None, FakeHandle(nodes=filled)),
        filled.compile_pod(
            incoming(spread(label_selector=broken), spread(label_selector=broken, when_unsatisfiable="ScheduleAnyway"))
        ),
    )
    before = plugin.pre_filter(CycleState(), info, filled).status
    after = plugin.pre_score(CycleState(), info, filled, ALL_ROWS)
    assert [status.code for status in (before, after)] == [Code.ERROR, Code.ERROR]
    assert "Near" in before.message


def test_filter_without_pre_filter_raises() -> None:
    """A profile must enable the plugin at both extension points."""
    filled = columns(NODES)
    plugin = PodTopologySpread(None, FakeHandle(nodes=filled))
    with pytest.raises(PluginError, match="enable the plugin"):
        plugin.filter(CycleState(), filled.compile_pod(pod()), filled, ALL_ROWS)


def test_dry_run_clones_are_independent() -> None:
    """A pod that is added to a clone does not count in the original, and vice versa."""
    filled = columns(NODES, TWO_IN_A)
    plugin, state = PodTopologySpread(None, FakeHandle(nodes=filled)), CycleState()
    info = filled.compile_pod(incoming(spread()))
    assert plugin.pre_filter(state, info, filled).status.is_success
    dry_run = state.clone()
    plugin.add_pod(dry_run, info, filled.compile_pod(web("x", "b1")), filled, 2)
    plugin.remove_pod(state, info, filled.pods[0]["uid-of-default-p"], filled, 0)
    found = [plugin.filter(each, info, filled, ALL_ROWS) for each in (state, dry_run)]
    assert [None if codes is None else codes.tolist() for codes in found] == [
        [SKEWED, SKEWED, 0, 0, UNLABELED],
        [SKEWED, SKEWED, SKEWED, 0, UNLABELED],
    ]


@table(
    "other, row, codes",
    ("another-namespace", web("x", "", namespace="other"), 2, [SKEWED, SKEWED, 0, 0]),
    ("another-app", pod("x", labels={"app": "db"}), 2, [SKEWED, SKEWED, 0, 0]),
    ("a-node-without-the-key", web("x", ""), 4, [SKEWED, SKEWED, 0, 0]),
    ("a-terminating-pod", web("x", "", deleted=datetime(2026, 1, 1, tzinfo=UTC)), 2, [SKEWED, SKEWED, SKEWED, 0]),
)
def test_pods_that_count_in_add_pod(other: Pod, row: int, codes: list[int]) -> None:
    """AddPod counts the same pods as PreFilter, except that terminating pods count too, as in kube-scheduler."""
    filled = columns(NODES, TWO_IN_A)
    plugin, state = PodTopologySpread(None, FakeHandle(nodes=filled)), CycleState()
    info = filled.compile_pod(incoming(spread()))
    plugin.pre_filter(state, info, filled)
    plugin.add_pod(state, info, filled.compile_pod(other), filled, row)
    found = present(plugin.filter(state, info, filled, np.arange(4)))
    assert found.tolist() == codes


ZONES = TopologySpreadConstraint(topology_key="zone", label_selector=WEB)
ME = pod("me", labels={"app": "web"}, spread=[ZONES])
BROKEN = pod(
    "me",
    spread=[
        TopologySpreadConstraint(
            topology_key="zone", label_selector=LabelSelector(match_expressions=(Requirement("a", "Near"),))
        )
    ],
)
BOUND_WEB = pod("o", node_name="n", labels={"app": "web"})


@table(
    "waiting, old, new, hint",
    ("invalid-selector", BROKEN, None, BOUND_WEB, Hint.QUEUE),
    ("not-a-pod", ME, None, node(), Hint.QUEUE),
    ("no-objects", ME, None, None, Hint.QUEUE),
)
def test_pod_hint(waiting: Pod, old: object | None, new: object | None, hint: Hint) -> None:
    """A pod change requeues if it changes the number of matching pods."""
    assert PodTopologySpread(None, FakeHandle()).after_pod_change(waiting, old, new) is hint


ZONE_A, ZONE_B, BARE = node("n", labels={"zone": "a"}), node("n", labels={"zone": "b"}), node("n")


@table(
    "waiting, old, new, hint",
    ("invalid-selector", BROKEN, ZONE_A, ZONE_A, Hint.QUEUE),
    ("not-a-node", ME, BOUND_WEB, None, Hint.QUEUE),
)
def test_node_hint(waiting: Pod, old: Node | Pod | None, new: Node | None, hint: Hint) -> None:
    """A node change requeues if it changes domains or the nodes that count in them."""
    assert PodTopologySpread(None, FakeHandle()).after_node_change(waiting, old, new) is hint


# -- laws: results for all rows equal those per node, and a dry run equals the real change -----------------------------


_CODES = {"": 0, "skew": 1, "missing": 2}
_HOST = "kubernetes.io/hostname"
_POD_LABELS = st.dictionaries(st.sampled_from(["app", "version"]), st.sampled_from(["x", "y"]))
_NODE_LABELS = st.dictionaries(st.sampled_from(["zone", _HOST, "use"]), st.sampled_from(["", "1", "2"]))
_EXPRESSIONS = st.builds(
    lambda key, operator: Requirement(key, operator, ("x",) if "In" in operator else ()),
    st.sampled_from(["app", "version"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
)
_SELECTORS = st.none() | st.builds(LabelSelector, _POD_LABELS, st.lists(_EXPRESSIONS, max_size=1).map(tuple))
_CONSTRAINTS = st.builds(
    TopologySpreadConstraint,
    st.integers(1, 3),
    st.sampled_from(["zone", _HOST, "rack"]),
    st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
    _SELECTORS,
    st.none() | st.integers(1, 3),
    st.sampled_from([None, "Honor", "Ignore"]),
    st.sampled_from([None, "Honor", "Ignore"]),
    st.lists(st.just("version"), max_size=1).map(tuple),
)
_TAINTS = st.lists(st.sampled_from(["t:NoSchedule", "t:PreferNoSchedule", "u=1:NoExecute"]), max_size=2)
_TOLERATIONS = st.lists(st.just(Toleration(key="t", operator="Exists")), max_size=1)
_ENDING = datetime(2026, 1, 1, tzinfo=UTC)


@st.composite
def _subjects(draw: st.DrawFn) -> Pod:
    return pod(
        "incoming",
        labels=draw(_POD_LABELS),
        spread=draw(st.lists(_CONSTRAINTS, min_size=1, max_size=3)),
        tolerations=draw(_TOLERATIONS),
        node_selector=draw(st.dictionaries(st.just("use"), st.sampled_from(["1", "2"]))),
    )


@st.composite
def _clusters(draw: st.DrawFn) -> tuple[list[Node], list[Pod]]:
    described = draw(st.lists(st.tuples(_NODE_LABELS, _TAINTS), min_size=1, max_size=5))
    nodes = [node(f"n{number}", labels=labels, taints=taints) for number, (labels, taints) in enumerate(described)]
    rows = st.integers(0, len(nodes) - 1)
    placed = draw(st.lists(st.tuples(_POD_LABELS, rows, st.sampled_from(["default", "m"]), st.booleans()), max_size=8))
    return nodes, [_placed(f"p{number}", *parts) for number, parts in enumerate(placed)]


def _placed(name: str, labels: dict[str, str], row: int, namespace: str, is_ending: bool) -> Pod:
    if is_ending:
        return pod(name, labels=labels, namespace=namespace, node_name=f"n{row}", deleted=_ENDING)
    return pod(name, labels=labels, namespace=namespace, node_name=f"n{row}")


@given(cluster=_clusters(), subject=_subjects())
def test_filter_equals_the_plain_form(cluster: tuple[list[Node], list[Pod]], subject: Pod) -> None:
    """The code of each node equals that of the reference function."""
    nodes, pods = cluster
    filled = columns(nodes, pods)
    plain = PlainSpread(subject, nodes, pods)
    plugin = PodTopologySpread(None, FakeHandle(nodes=filled))
    expected = [_CODES[plain.rejection(each)] for each in nodes]
    assert row_codes(plugin, filled.compile_pod(subject), filled) == expected


@given(cluster=_clusters(), subject=_subjects(), data=st.data())
def test_score_equals_the_plain_form(cluster: tuple[list[Node], list[Pod]], subject: Pod, data: st.DataObject) -> None:
    """Raw and normalized scores equal the reference function, for any set of feasible nodes."""
    nodes, pods = cluster
    filled = columns(nodes, pods)
    plugin, state, info = PodTopologySpread(None, FakeHandle(nodes=filled)), CycleState(), filled.compile_pod(subject)
    is_feasible = [data.draw(st.booleans()) for _ in nodes]
    rows = ALL_ROWS if all(is_feasible) else filled.alive.nonzero()[0][is_feasible]
    if plugin.pre_score(state, info, filled, rows).is_skip:
        assert all(each.when_unsatisfiable == "DoNotSchedule" for each in subject.spec.topology_spread_constraints)
        return
    raw = plugin.score(state, info, filled, rows)
    feasible = [each for each, fits in zip(nodes, is_feasible, strict=True) if fits]
    found = list(zip(raw.tolist(), plugin.normalize(state, info, raw).tolist(), strict=True))
    assert found == PlainSpread(subject, nodes, pods).scores(feasible)


@given(cluster=_clusters(), subject=_subjects(), data=st.data())
def test_a_dry_run_equals_a_new_count(cluster: tuple[list[Node], list[Pod]], subject: Pod, data: st.DataObject) -> None:
    """AddPod and RemovePod lead to the same codes as a new PreFilter after the change.

    Terminating pods and empty selectors are excluded, because kube-scheduler counts them differently on purpose.
    """
    nodes, pods = cluster
    filled = columns(nodes, [each for each in pods if each.metadata.deletion_timestamp is None])
    plugin, state, info = PodTopologySpread(None, FakeHandle(nodes=filled)), CycleState(), filled.compile_pod(subject)
    if any(each.label_selector == LabelSelector() for each in subject.spec.topology_spread_constraints):
        return
    if plugin.pre_filter(state, info, filled).status.is_skip:
        return
    dry_run, before = state.clone(), row_codes(plugin, info, filled, state)
    for row, on_row in enumerate(filled.pods):
        for other in list(on_row.values()):
            if data.draw(st.booleans()):
                filled.remove_pod(other)
                assert plugin.remove_pod(dry_run, info, other, filled, row).is_success
    for number, labels in enumerate(data.draw(st.lists(_POD_LABELS, max_size=3))):
        other, row = filled.compile_pod(pod(f"new{number}", labels=labels)), data.draw(st.integers(0, filled.size - 1))
        filled.add_pod(other, row)
        assert plugin.add_pod(dry_run, info, other, filled, row).is_success
    assert row_codes(plugin, info, filled, dry_run) == row_codes(plugin, info, filled)
    assert row_codes(plugin, info, filled, state) == before
