"""Laws of PodTopologySpread: results for all rows equal those per node, and a dry run equals the real change."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.model.affinity import LabelSelector, Requirement
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod, TopologySpreadConstraint
from scheduler_core.model.taints import Toleration
from scheduler_core.plugins.pod_topology_spread import PodTopologySpread
from scheduler_core.snapshot.node_columns import ALL_ROWS
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle
from tests.support.plain_spread import PlainSpread
from tests.support.plugin_calls import row_codes

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
