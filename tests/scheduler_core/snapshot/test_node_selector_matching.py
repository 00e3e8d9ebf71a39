"""Node selectors evaluated on columns match the same nodes as evaluated on single nodes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.model.affinity import NodeSelector, NodeSelectorTerm, Requirement
from scheduler_core.model.node import Node
from scheduler_core.model.selectors import (
    FieldRequirement,
    LabelRequirement,
    NodeTerm,
    RequiredNodeAffinity,
    compile_node_selector,
    compile_node_term,
    compile_requirement,
)
from scheduler_core.snapshot.interning import SnapshotBounds
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns, Rows
from scheduler_core.snapshot.node_selector_matching import NodeMatching
from tests.support.builders import node
from tests.support.columns import columns
from tests.support.presence import present
from tests.support.tables import table

NODES = [
    node("n0", labels={"zone": "a", "cpus": "4"}),
    node("n1", labels={"zone": "b", "cpus": "16"}),
    node("n2", labels={"zone": "c"}),
    node("n3"),
]


def compiled(key: str, operator: str, *values: str) -> LabelRequirement:
    return compile_requirement(Requirement(key, operator, values))


@table(
    "requirement, matched",
    ("in-one", compiled("zone", "In", "a"), [1, 0, 0, 0]),
    ("in-few", compiled("zone", "In", "a", "c"), [1, 0, 1, 0]),
    ("in-many", compiled("zone", "In", "a", "c", "d", "e", "f"), [1, 0, 1, 0]),
    ("in-unknown", compiled("zone", "In", "x"), [0, 0, 0, 0]),
    ("in-partly-unknown", compiled("zone", "In", "x", "b"), [0, 1, 0, 0]),
    ("not-in-one", compiled("zone", "NotIn", "a"), [0, 1, 1, 1]),
    ("not-in-few", compiled("zone", "NotIn", "a", "c"), [0, 1, 0, 1]),
    ("not-in-many", compiled("zone", "NotIn", "a", "c", "d", "e", "f"), [0, 1, 0, 1]),
    ("not-in-unknown", compiled("zone", "NotIn", "x"), [1, 1, 1, 1]),
    ("exists", compiled("zone", "Exists"), [1, 1, 1, 0]),
    ("does-not-exist", compiled("zone", "DoesNotExist"), [0, 0, 0, 1]),
    ("gt", compiled("cpus", "Gt", "4"), [0, 1, 0, 0]),
    ("lt", compiled("cpus", "Lt", "16"), [1, 0, 0, 0]),
    ("unknown-key", compiled("unknown", "DoesNotExist"), [1, 1, 1, 1]),
)
@table("rows", ("all", None), ("some", [1, 3]), ("none", []))
def test_labels(requirement: LabelRequirement, matched: list[int], rows: list[int] | None) -> None:
    """label() returns one bool for each requested row."""
    matching = NodeMatching(columns(NODES))
    requested: Rows = ALL_ROWS if rows is None else np.array(rows, dtype=np.intp)
    mask = matching.label(requirement, requested)
    assert mask.dtype == np.bool_
    assert mask.tolist() == [bool(matched[row]) for row in (range(4) if rows is None else rows)]


@table(
    "field, matched",
    ("name", FieldRequirement("metadata.name", "n1"), [0, 1, 0, 0]),
    ("another-name", FieldRequirement("metadata.name", "n1", negated=True), [1, 0, 1, 1]),
    ("unknown-name", FieldRequirement("metadata.name", "x"), [0, 0, 0, 0]),
    ("not-an-unknown-name", FieldRequirement("metadata.name", "x", negated=True), [1, 1, 1, 1]),
    ("other-fields-are-empty", FieldRequirement("spec.x", ""), [1, 1, 1, 1]),
    ("other-fields-have-no-value", FieldRequirement("spec.x", "y"), [0, 0, 0, 0]),
)
def test_fields(field: FieldRequirement, matched: list[int]) -> None:
    """field() matches the node name; any other field is empty."""
    matching = NodeMatching(columns(NODES))
    assert matching.field(field, ALL_ROWS).tolist() == list(map(bool, matched))
    assert matching.field(field, np.array([0, 1])).tolist() == list(map(bool, matched[:2]))


@table("term", ("empty", NodeTerm()), ("invalid", NodeTerm(problems=("invalid",))))
def test_terms_that_match_nothing(term: NodeTerm) -> None:
    """An empty or invalid term matches no row."""
    matching = NodeMatching(columns(NODES))
    assert matching.term(term, ALL_ROWS).tolist() == [False] * 4
    assert matching.term(term, np.array([2])).tolist() == [False]


def test_a_selector_without_terms_matches_nothing() -> None:
    """An empty node selector matches no row."""
    matcher = compile_node_selector(NodeSelector())
    assert NodeMatching(columns(NODES)).selector(matcher, ALL_ROWS).tolist() == [False] * 4


def test_without_requirements_there_is_no_mask() -> None:
    """required() returns None if all rows match because nothing is required."""
    assert NodeMatching(columns(NODES)).required(RequiredNodeAffinity(), ALL_ROWS) is None


@table("requirement", ("gt", compiled("cpus", "Gt", "4")), ("long-list", compiled("cpus", "In", "5", "6", "7", "8")))
def test_cached_tables_follow_the_labels(requirement: LabelRequirement) -> None:
    """A changed label changes the next result."""
    nodes = columns(NODES)
    matching = NodeMatching(nodes)
    assert not matching.label(requirement, ALL_ROWS)[3]
    nodes.update_node(node("n3", labels={"cpus": "8"}))
    assert matching.label(requirement, ALL_ROWS)[3]


def test_tables_are_bounded() -> None:
    """Results are correct for more requirements than there are cached tables."""
    matching = NodeMatching(columns(NODES, bounds=SnapshotBounds(selector_tables=2)))
    for bound in (3, 4, 5, 3):
        requirement = compiled("cpus", "Gt", str(bound))
        assert matching.label(requirement, ALL_ROWS).tolist() == [bound < 4, True, False, False]
    assert len(matching._tables) == 2


def test_masks_are_not_shared() -> None:
    """Writing to a returned mask does not change the next result."""
    matching = NodeMatching(columns(NODES))
    for requirement in (compiled("cpus", "Gt", "4"), compiled("zone", "Exists"), compiled("zone", "In", "x")):
        before = matching.label(requirement, ALL_ROWS)
        expected = before.tolist()
        before[:] = ~before
        assert matching.label(requirement, ALL_ROWS).tolist() == expected


_KEYS = st.sampled_from(["a", "b"])
_VALUES = st.sampled_from(["", "1", "2", "10", "x", "y", "z"])
_EXPRESSIONS = st.builds(
    Requirement,
    _KEYS,
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    st.lists(_VALUES, max_size=6).map(tuple),
)
_FIELDS = st.builds(
    Requirement,
    st.just("metadata.name"),
    st.sampled_from(["In", "NotIn"]),
    st.sampled_from([("n0",), ("n1",), ("n9",)]),
)
_TERMS = st.builds(
    NodeSelectorTerm, st.lists(_EXPRESSIONS, max_size=2).map(tuple), st.lists(_FIELDS, max_size=1).map(tuple)
)
_CLUSTERS = st.lists(st.dictionaries(_KEYS, _VALUES), min_size=1, max_size=6)


def _nodes(cluster: list[dict[str, str]]) -> list[Node]:
    return [node(f"n{index}", labels=labels) for index, labels in enumerate(cluster)]


@given(_CLUSTERS, st.lists(_TERMS, max_size=3), st.dictionaries(_KEYS, _VALUES, max_size=1), st.data())
def test_matching_on_columns_equals_matching_on_nodes(
    cluster: list[dict[str, str]], terms: list[NodeSelectorTerm], selector: dict[str, str], data: st.DataObject
) -> None:
    """Each row matches if its node matches, before and after a change of labels."""
    required = RequiredNodeAffinity(
        tuple(LabelRequirement(key, "In", (value,)) for key, value in selector.items()),
        compile_node_selector(NodeSelector(tuple(terms))),
    )
    nodes = columns(_nodes(cluster))
    matching = NodeMatching(nodes)
    assert _mask(matching, required) == [required.matches(labels, f"n{row}") for row, labels in enumerate(cluster)]
    changed = data.draw(st.integers(0, len(cluster) - 1))
    cluster[changed] = data.draw(st.dictionaries(_KEYS, _VALUES))
    nodes.update_node(node(f"n{changed}", labels=cluster[changed]))
    whole = _mask(matching, required)
    assert whole == [required.matches(labels, f"n{row}") for row, labels in enumerate(cluster)]
    rows = sorted(data.draw(st.sets(st.integers(0, len(cluster) - 1))))
    some = present(matching.required(required, np.array(rows, dtype=np.intp)))
    assert some.tolist() == [whole[row] for row in rows]


def _mask(matching: NodeMatching, required: RequiredNodeAffinity) -> list[bool]:
    mask = present(matching.required(required, ALL_ROWS))
    return [bool(each) for each in mask]


def test_empty_columns() -> None:
    """A term can be evaluated without nodes."""
    matching = NodeMatching(NodeColumns())
    term = present(
        compile_node_term(
            NodeSelectorTerm((Requirement("a", "Gt", ("1",)),), (Requirement("metadata.name", "In", ("n",)),))
        )
    )
    assert matching.term(term, ALL_ROWS).tolist() == []
