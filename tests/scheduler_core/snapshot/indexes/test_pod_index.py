"""Counts of assumed and bound pods, by query and by affinity term; after any events they equal a full count."""

from collections import Counter
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler_core.model.affinity import Affinity, LabelSelector, PodAffinity, PodAffinityTerm, Requirement
from scheduler_core.model.affinity import WeightedPodAffinityTerm as Weighted
from scheduler_core.model.pod import Pod
from scheduler_core.model.selectors import (
    MATCH_EVERYTHING,
    MATCH_NOTHING,
    AffinityTerm,
    PodQuery,
    compile_label_selector,
    equality_matcher,
)
from scheduler_core.snapshot.indexes.pod_index import PodIndex, TermKind
from scheduler_core.snapshot.indexes.selector_index import NamespaceLabels
from scheduler_core.snapshot.interning import SnapshotBounds
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.affinities import affinity_to, anti_affinity_to
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.tables import table

NODES = [node("a"), node("b"), node("c")]
WEB = PodQuery(equality_matcher({"app": "web"}), frozenset(("default",)))
FEWEST_QUERIES = 64
ENDING = datetime(2026, 1, 1, tzinfo=UTC)


def web(name: str, where: str, namespace: str = "default") -> Pod:
    return pod(name, node_name=where, namespace=namespace, labels={"app": "web"})


def counts(nodes: NodeColumns, query: PodQuery) -> list[int]:
    return [int(count) for count in nodes.pod_index.query(query).total[: nodes.size]]


def test_a_new_query_counts_all_pods() -> None:
    """A new query has the number of matching pods on each row."""
    nodes = columns(NODES, [web("p", "a"), web("q", "a"), web("r", "c"), pod("s", node_name="b")])
    assert counts(nodes, WEB) == [2, 0, 1]


@table(
    "query, expected",
    ("a-namespace", WEB, [1, 0, 0]),
    ("two-namespaces", PodQuery(WEB.selector, frozenset(("default", "m"))), [1, 1, 0]),
    ("all-namespaces", PodQuery(WEB.selector, frozenset(), MATCH_EVERYTHING), [1, 1, 1]),
    ("by-label", PodQuery(WEB.selector, frozenset(), equality_matcher({"t": "x"})), [0, 1, 0]),
    ("no-namespace", PodQuery(WEB.selector), [0, 0, 0]),
    ("nothing", PodQuery(MATCH_NOTHING, frozenset(("default",))), [0, 0, 0]),
    ("everything", PodQuery(MATCH_EVERYTHING, frozenset(("default",))), [1, 0, 0]),
)
def test_namespaces(query: PodQuery, expected: list[int]) -> None:
    """A query counts pods of the named namespaces and of stored namespaces with matching labels."""
    nodes = columns(NODES, [web("p", "a"), web("q", "b", "m"), web("r", "c", "unknown")])
    nodes.namespaces.assign("m", {"t": "x"})
    assert counts(nodes, query) == expected


def test_terminating_pods_are_counted_separately() -> None:
    """Terminating pods count both in ``ending`` and in ``total``."""
    nodes = columns(NODES, [web("p", "a"), pod("q", node_name="a", labels={"app": "web"}, deleted=ENDING)])
    found = nodes.pod_index.query(WEB)
    assert (found.total[0], found.ending[0]) == (2, 1)


def test_namespace_labels_are_evaluated_again() -> None:
    """Changed namespace labels recount only queries with a namespace selector."""
    nodes = columns(NODES, [web("p", "a", "m")])
    by_label = PodQuery(WEB.selector, frozenset(), equality_matcher({"t": "x"}))
    cached = nodes.pod_index.query(WEB)
    assert counts(nodes, by_label) == [0, 0, 0]
    nodes.namespaces.assign("m", {"t": "x"})
    nodes.add_pod(nodes.compile_pod(web("q", "b", "m")), 1)
    assert counts(nodes, by_label) == [1, 1, 0]
    assert nodes.pod_index.query(WEB) is cached


def test_counts_grow_with_the_columns() -> None:
    """An existing query counts pods on rows that are added later."""
    nodes = columns(NODES, [web("p", "a")])
    assert counts(nodes, WEB) == [1, 0, 0]
    rows = [nodes.add_node(node(f"more{number}")) for number in range(200)]
    nodes.add_pod(nodes.compile_pod(web("q", "more199")), rows[-1])
    assert counts(nodes, WEB) == [1, *[0] * 201, 1]


def test_pods_of_a_removed_node_do_not_count() -> None:
    """The count of the row of a removed node is 0."""
    nodes = columns(NODES, [web("p", "a"), web("q", "b")])
    assert counts(nodes, WEB) == [1, 1, 0]
    nodes.remove_node("a")
    assert counts(nodes, WEB) == [0, 1, 0]


def test_the_version_changes_with_counts_only() -> None:
    """The version of a query increases only if its counts change."""
    nodes = columns(NODES, [web("p", "a")])
    found = nodes.pod_index.query(WEB)
    version = found.version
    nodes.add_pod(nodes.compile_pod(pod("other")), 0)
    assert found.version == version
    nodes.add_pod(nodes.compile_pod(web("q", "b")), 1)
    assert found.version > version


def test_queries_are_bounded() -> None:
    """The least recently used query is dropped, and recounted when it is used again."""
    index = PodIndex(NamespaceLabels(), SnapshotBounds(query_bytes=0))
    index.resize(1, [{}])
    first, second = index.query(WEB), index.query(PodQuery(MATCH_EVERYTHING))
    for number in range(FEWEST_QUERIES - 2):
        index.query(PodQuery(equality_matcher({"n": str(number)})))
    assert index.query(WEB) is first
    index.query(PodQuery(equality_matcher({"n": "one more"})))
    assert index.query(WEB) is first
    assert index.query(PodQuery(MATCH_EVERYTHING)) is not second


def test_the_number_of_queries_is_bounded() -> None:
    """The number is bounded even if the counts use little memory."""
    index = PodIndex(NamespaceLabels(), SnapshotBounds(queries=3))
    index.resize(1, [{}])
    queries = [PodQuery(equality_matcher({"n": str(number)})) for number in range(4)]
    counts = [index.query(query) for query in queries]
    assert all(index.query(query) is known for query, known in zip(queries[1:], counts[1:], strict=True))
    assert index.query(queries[0]) is not counts[0]


def test_an_unused_query_is_dropped() -> None:
    """A query is dropped after ``idle_checks`` comparisons with pods without being used."""
    nodes = NodeColumns(SnapshotBounds(idle_checks=3))
    row = nodes.add_node(node("a"))
    exists = LabelSelector({}, (Requirement("app", "Exists"),))
    query = PodQuery(compile_label_selector(exists), frozenset(("default",)))
    known = nodes.pod_index.query(query)
    infos = [nodes.compile_pod(web(f"p{number}", "a")) for number in range(4)]
    for info in infos[:3]:
        nodes.add_pod(info, row)
    assert nodes.pod_index.query(query) is known
    for info in infos[:3]:
        nodes.remove_pod(info)
    nodes.add_pod(infos[3], row)
    assert nodes.pod_index.query(query) is not known
    assert counts(nodes, query) == [1]


def test_pods_are_compared_only_with_queries_of_their_namespace() -> None:
    """An added pod is compared with one of 100 queries of different namespaces."""
    nodes = columns(NODES)
    anywhere = compile_label_selector(LabelSelector({}, (Requirement("app", "Exists"),)))
    queries = [nodes.pod_index.query(PodQuery(anywhere, frozenset((f"ns{number}",)))) for number in range(100)]
    nodes.add_pod(nodes.compile_pod(web("p", "a", "ns7")), 0)
    assert [number for number, each in enumerate(queries) if each.idle_checks] == [7]


WITH_TERMS = pod(
    "c",
    node_name="b",
    affinity=Affinity(
        pod_affinity=affinity_to("web", preferred=[(3, "web")]).pod_affinity,
        pod_anti_affinity=anti_affinity_to("web", "web", preferred=[(4, "db")]).pod_anti_affinity,
    ),
)


@table(
    "kind, labels, expected",
    ("required", TermKind.REQUIRED, {"app": "web"}, [(0, [0, 1, 0])]),
    ("required-anti-twice", TermKind.REQUIRED_ANTI, {"app": "web"}, [(0, [0, 2, 0])]),
    ("preferred", TermKind.PREFERRED, {"app": "web"}, [(3, [0, 1, 0])]),
    ("matches-other-pods", TermKind.PREFERRED_ANTI, {"app": "web"}, []),
    ("preferred-anti", TermKind.PREFERRED_ANTI, {"app": "db"}, [(4, [0, 1, 0])]),
    ("matches-no-pod", TermKind.REQUIRED, {}, []),
)
def test_matching_terms(kind: TermKind, labels: dict[str, str], expected: list[tuple[int, list[int]]]) -> None:
    """matching_terms() returns each distinct term that matches a pod, with the number of pods that have it per row."""
    nodes = columns(NODES, [WITH_TERMS])
    found = nodes.pod_index.matching_terms(kind, nodes.compile_pod(pod(labels=labels)))
    assert [(each.term.weight, each.holders[:3].tolist()) for each in found] == expected


def test_a_term_is_removed_with_the_last_pod_that_has_it() -> None:
    """A term that is added again is counted from 0."""
    nodes = columns(NODES, [WITH_TERMS])
    info = nodes.compile_pod(pod(labels={"app": "web"}))
    nodes.remove_pod(nodes.pods[1][WITH_TERMS.metadata.uid])
    assert list(nodes.pod_index.matching_terms(TermKind.REQUIRED, info)) == []
    nodes.add_pod(nodes.compile_pod(WITH_TERMS), 2)
    (term_counts,) = nodes.pod_index.matching_terms(TermKind.REQUIRED, info)
    assert (term_counts.holders[:3].tolist(), term_counts.sum) == ([0, 0, 1], 1)


def test_term_counts_grow_with_the_columns() -> None:
    """An existing term counts pods on rows that are added later."""
    nodes = columns(NODES, [WITH_TERMS])
    rows = [nodes.add_node(node(f"more{number}")) for number in range(200)]
    nodes.add_pod(nodes.compile_pod(pod("d", affinity=WITH_TERMS.spec.affinity or Affinity())), rows[-1])
    (term_counts,) = nodes.pod_index.matching_terms(TermKind.REQUIRED, nodes.compile_pod(pod(labels={"app": "web"})))
    assert (term_counts.holders.sum(), term_counts.holders[rows[-1]]) == (2, 1)


# -- the law: after any sequence of events, the counts equal a full count ----------------------------------------------


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
