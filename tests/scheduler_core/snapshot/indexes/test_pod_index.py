"""Counts of assumed and bound pods, by query and by affinity term."""

from datetime import UTC, datetime

from scheduler_core.model.affinity import Affinity, LabelSelector, Requirement
from scheduler_core.model.pod import Pod
from scheduler_core.model.selectors import (
    MATCH_EVERYTHING,
    MATCH_NOTHING,
    PodQuery,
    compile_label_selector,
    equality_matcher,
)
from scheduler_core.snapshot.indexes.pod_index import PodIndex, TermKind
from scheduler_core.snapshot.indexes.selector_index import NamespaceLabels
from scheduler_core.snapshot.interning import SnapshotBounds
from scheduler_core.snapshot.node_columns import NodeColumns
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
