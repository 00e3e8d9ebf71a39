"""Law of the pod index: after any sequence of events, its counts equal a full count."""

from collections import Counter
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler_core.model.affinity import Affinity, LabelSelector, PodAffinity, PodAffinityTerm, Requirement
from scheduler_core.model.affinity import WeightedPodAffinityTerm as Weighted
from scheduler_core.model.selectors import AffinityTerm, PodQuery, compile_label_selector
from scheduler_core.snapshot.indexes.pod_index import TermKind
from scheduler_core.snapshot.interning import SnapshotBounds
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod

_NODE_NAMES = ("a", "b", "c")
_ENDING = datetime(2026, 1, 1, tzinfo=UTC)
_LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["x", "y"]))
_EXPRESSIONS = st.builds(Requirement, st.sampled_from(["app", "tier"]), st.sampled_from(["Exists", "DoesNotExist"]))
_SELECTORS = st.none() | st.builds(LabelSelector, _LABELS, st.lists(_EXPRESSIONS, max_size=1).map(tuple))
_NAMESPACES = st.sampled_from(["default", "m"])
_QUERIES = st.builds(
    lambda selector, namespaces, by_label: PodQuery(
        compile_label_selector(selector), frozenset(namespaces), compile_label_selector(by_label)
    ),
    _SELECTORS,
    st.lists(_NAMESPACES, max_size=2),
    _SELECTORS,
)
_TERMS = st.builds(PodAffinityTerm, st.sampled_from(["zone", "host"]), _SELECTORS)
_AFFINITIES = st.none() | st.builds(
    PodAffinity,
    st.lists(_TERMS, max_size=2).map(tuple),
    st.lists(st.builds(Weighted, st.integers(1, 2), _TERMS), max_size=1).map(tuple),
)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 5), st.sampled_from(_NODE_NAMES)),
        st.tuples(st.just("remove"), st.integers(0, 5), st.just("")),
        st.tuples(st.just("relabel"), st.integers(0, 5), st.sampled_from(["", "x", "y"])),
        st.tuples(st.just("query"), st.integers(0, 2), st.just("")),
        st.tuples(st.just("label"), st.integers(0, 1), _NAMESPACES),
        st.tuples(st.just("forget"), st.just(0), _NAMESPACES),
        st.tuples(st.just("drop"), st.just(0), st.sampled_from(_NODE_NAMES)),
    ),
    max_size=20,
)


@st.composite
def _pods(draw: st.DrawFn) -> list[PodInfo]:
    compiled = NodeColumns()
    found = []
    for number in range(6):
        affinity = Affinity(None, draw(_AFFINITIES), draw(_AFFINITIES))
        labels, namespace = draw(_LABELS), draw(_NAMESPACES)
        name = f"p{number}"
        if draw(st.booleans()):
            subject = pod(name, namespace=namespace, labels=labels, affinity=affinity, deleted=_ENDING)
        else:
            subject = pod(name, namespace=namespace, labels=labels, affinity=affinity)
        found.append(compiled.compile_pod(subject))
    return found


def _apply(nodes: NodeColumns, pods: list[PodInfo], queries: list[PodQuery], step: tuple[str, int, str]) -> None:
    action, number, name = step
    match action:
        case "add" if pods[number].row < 0:
            if nodes.row_of(name) < 0:
                nodes.add_node(node(name))
            nodes.add_pod(pods[number], nodes.row_of(name))
        case "remove" if pods[number].row >= 0:
            nodes.remove_pod(pods[number])
        case "relabel" if pods[number].row >= 0:
            current = pods[number].pod
            labels = {"app": name} if name else {}
            nodes.relabel_pod(pods[number], replace(current, metadata=replace(current.metadata, labels=labels)))
        case "query":
            nodes.pod_index.query(queries[number])
        case "label":
            nodes.namespaces.assign(name, {"app": "xy"[number]})
        case "forget":
            nodes.namespaces.remove(name)
        case "drop" if nodes.row_of(name) >= 0:
            nodes.remove_node(name)


def _placed(nodes: NodeColumns) -> list[tuple[int, PodInfo]]:
    return [(row, info) for row, pods in enumerate(nodes.pods) for info in pods.values()]


def _counted(nodes: NodeColumns, query: PodQuery) -> tuple[list[int], list[int]]:
    total, ending = [0] * nodes.size, [0] * nodes.size
    for row, info in _placed(nodes):
        meta = info.pod.metadata
        if query.matches(meta.namespace, meta.labels, nodes.namespaces.get(meta.namespace)):
            total[row] += 1
            ending[row] += meta.deletion_timestamp is not None
    return total, ending


@given(
    pods=_pods(),
    queries=st.lists(_QUERIES, min_size=3, max_size=3),
    steps=_STEPS,
    bounds=st.builds(SnapshotBounds, queries=st.sampled_from([1, 3]), idle_checks=st.sampled_from([0, 3, 256])),
)
def test_queries(
    pods: list[PodInfo], queries: list[PodQuery], steps: list[tuple[str, int, str]], bounds: SnapshotBounds
) -> None:
    """Queries have correct counts, whenever they are created and whatever is evicted."""
    nodes = NodeColumns(bounds)
    for step in steps:
        _apply(nodes, pods, queries, step)
    assert len(nodes.pod_index._queries) <= bounds.queries
    for query in queries:
        found = nodes.pod_index.query(query)
        expected = _counted(nodes, query)
        assert (found.total[: nodes.size].tolist(), found.ending[: nodes.size].tolist()) == expected


def _terms_of(info: PodInfo, kind: TermKind) -> tuple[AffinityTerm, ...]:
    terms = info.terms
    return {
        TermKind.REQUIRED: terms.required,
        TermKind.REQUIRED_ANTI: terms.required_anti,
        TermKind.PREFERRED: terms.preferred,
        TermKind.PREFERRED_ANTI: terms.preferred_anti,
    }[kind]


@given(pods=_pods(), steps=_STEPS, subject=st.integers(0, 5), kind=st.sampled_from(TermKind))
def test_matching_terms_equal_a_full_count(
    pods: list[PodInfo], steps: list[tuple[str, int, str]], subject: int, kind: TermKind
) -> None:
    """matching_terms() returns the terms that match a pod, with counts on the rows of the pods that have them."""
    nodes = NodeColumns()
    for step in steps:
        _apply(nodes, pods, [PodQuery(compile_label_selector(None))] * 3, step)
    meta = pods[subject].pod.metadata
    expected: Counter[tuple[AffinityTerm, int]] = Counter()
    for row, info in _placed(nodes):
        for term in _terms_of(info, kind):
            if term.query.matches(meta.namespace, meta.labels, nodes.namespaces.get(meta.namespace) or {}):
                expected[term, row] += 1
    found: Counter[tuple[AffinityTerm, int]] = Counter()
    for held in nodes.pod_index.matching_terms(kind, pods[subject]):
        found.update({(held.term, row): int(held.holders[row]) for row in held.holders.nonzero()[0].tolist()})
        assert held.sum == held.holders.sum()
    assert found == expected
