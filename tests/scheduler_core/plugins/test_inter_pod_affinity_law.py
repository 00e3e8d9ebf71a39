"""Laws of InterPodAffinity: results for all rows equal those for single nodes, and a dry run equals the real change."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.config.plugin_args import InterPodAffinityArgs
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.model.affinity import (
    Affinity,
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    WeightedPodAffinityTerm,
)
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.inter_pod_affinity import InterPodAffinity
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle
from tests.support.plain_pod_affinity import PlainCluster, plain_normalized, plain_rejection, plain_score
from tests.support.plain_selectors import EXPRESSIONS, POD_LABELS
from tests.support.plugin_calls import row_codes

_CODES = {"": 0, "affinity": 3, "anti-affinity": 2, "existing": 1}
_NAMESPACES = st.sampled_from(["default", "m", "n"])
_NODE_LABELS = st.dictionaries(st.sampled_from(["zone", "host"]), st.sampled_from(["", "1", "2"]))
_SELECTORS = st.none() | st.builds(LabelSelector, POD_LABELS, st.lists(EXPRESSIONS, max_size=1).map(tuple))
_TERMS = st.builds(
    PodAffinityTerm,
    st.sampled_from(["zone", "host", "rack"]),
    _SELECTORS,
    st.lists(_NAMESPACES, max_size=2).map(tuple),
    _SELECTORS,
)
_WEIGHTED = st.builds(WeightedPodAffinityTerm, st.integers(1, 100), _TERMS)
_POD_AFFINITIES = st.none() | st.builds(
    PodAffinity, st.lists(_TERMS, max_size=2).map(tuple), st.lists(_WEIGHTED, max_size=2).map(tuple)
)
_AFFINITIES = st.builds(Affinity, st.none(), _POD_AFFINITIES, _POD_AFFINITIES)
_PODS = st.tuples(_NAMESPACES, POD_LABELS, _AFFINITIES)
_NODES = st.lists(_NODE_LABELS, min_size=1, max_size=4)
_KNOWN_NAMESPACES = st.dictionaries(_NAMESPACES, POD_LABELS)
_PodParts = tuple[str, dict[str, str], Affinity]


def _pod(name: str, parts: _PodParts, node_name: str = "") -> Pod:
    namespace, labels, affinity = parts
    return pod(name, namespace=namespace, labels=labels, affinity=affinity, node_name=node_name)


def _filled(cluster: PlainCluster) -> NodeColumns:
    filled = columns(cluster.nodes, cluster.pods)
    for name, labels in cluster.namespaces.items():
        filled.namespaces.assign(name, labels)
    return filled


@st.composite
def _clusters(draw: st.DrawFn) -> PlainCluster:
    nodes = [node(f"n{number}", labels=labels) for number, labels in enumerate(draw(_NODES))]
    names = st.sampled_from([each.metadata.name for each in nodes])
    placed = draw(st.lists(st.tuples(_PODS, names), max_size=6))
    pods = [_pod(f"p{number}", parts, name) for number, (parts, name) in enumerate(placed)]
    return PlainCluster(nodes, pods, draw(_KNOWN_NAMESPACES))


@given(cluster=_clusters(), parts=_PODS)
def test_filter_equals_the_plain_form(cluster: PlainCluster, parts: _PodParts) -> None:
    """The code of each node equals that of the reference function."""
    incoming, filled = _pod("incoming", parts), _filled(cluster)
    plugin = InterPodAffinity(None, FakeHandle(nodes=filled))
    expected = [_CODES[plain_rejection(incoming, each, cluster)] for each in cluster.nodes]
    assert row_codes(plugin, filled.compile_pod(incoming), filled) == expected


@given(cluster=_clusters(), parts=_PODS, hard_weight=st.sampled_from([0, 1, 10]))
def test_score_equals_the_plain_form(cluster: PlainCluster, parts: _PodParts, hard_weight: int) -> None:
    """Raw and normalized scores equal the reference function; if PreScore skips, all scores are 0."""
    incoming, filled = _pod("incoming", parts), _filled(cluster)
    plugin = InterPodAffinity(InterPodAffinityArgs(hard_pod_affinity_weight=hard_weight), FakeHandle(nodes=filled))
    info, state = filled.compile_pod(incoming), CycleState()
    expected = [plain_score(incoming, each, cluster, hard_weight) for each in cluster.nodes]
    if plugin.pre_score(state, info, filled, ALL_ROWS).is_skip:
        assert expected == [0] * len(cluster.nodes)
        return
    raw = plugin.score(state, info, filled, ALL_ROWS)
    assert raw.tolist() == expected
    assert plugin.normalize(state, info, raw).tolist() == plain_normalized(expected)


@given(cluster=_clusters(), parts=_PODS, data=st.data())
def test_a_dry_run_equals_a_new_count(cluster: PlainCluster, parts: _PodParts, data: st.DataObject) -> None:
    """AddPod and RemovePod lead to the same codes as a new PreFilter after the change."""
    filled = _filled(cluster)
    plugin, info, state = (
        InterPodAffinity(None, FakeHandle(nodes=filled)),
        filled.compile_pod(_pod("me", parts)),
        CycleState(),
    )
    if plugin.pre_filter(state, info, filled).status.is_skip:
        return
    dry_run = state.clone()
    before = row_codes(plugin, info, filled, state)
    placed = [(other, row) for row, pods in enumerate(filled.pods) for other in pods.values()]
    for other, row in placed:
        if data.draw(st.booleans()):
            filled.remove_pod(other)
            assert plugin.remove_pod(dry_run, info, other, filled, row).is_success
    for number, added in enumerate(data.draw(st.lists(_PODS, max_size=2))):
        other, row = filled.compile_pod(_pod(f"new{number}", added)), data.draw(st.integers(0, filled.size - 1))
        filled.add_pod(other, row)
        assert plugin.add_pod(dry_run, info, other, filled, row).is_success
    assert row_codes(plugin, info, filled, dry_run) == row_codes(plugin, info, filled)
    assert row_codes(plugin, info, filled, state) == before
