"""Law of NodeAffinity: results for all rows equal those for single nodes."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.config.plugin_args import NodeAffinityArgs
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.model.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
    Requirement,
)
from scheduler_core.plugins import node_affinity
from scheduler_core.snapshot.node_columns import ALL_ROWS
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle

MISMATCH = 2
_KEYS = st.sampled_from(["a", "b"])
_VALUES = st.sampled_from(["", "1", "2", "10", "x"])
_OPERATORS = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Odd"])
_EXPRESSIONS = st.tuples(_KEYS, _OPERATORS, st.lists(_VALUES, max_size=5))
_FIELDS = st.tuples(
    st.sampled_from(["metadata.name", "other"]),
    st.sampled_from(["In", "NotIn", "Exists"]),
    st.lists(st.sampled_from(["n0", "n1", "n9", ""]), max_size=2),
)
_Conditions = list[tuple[str, str, list[str]]]
_TERMS = st.tuples(st.lists(_EXPRESSIONS, max_size=2), st.lists(_FIELDS, max_size=2))


def _is_valid(expressions: _Conditions, fields: _Conditions) -> bool:
    for _key, operator, values in expressions:
        if operator in ("In", "NotIn"):
            good = bool(values)
        elif operator in ("Gt", "Lt"):
            good = len(values) == 1 and values[0].isdigit()
        else:
            good = operator in ("Exists", "DoesNotExist") and not values
        if not good:
            return False
    return all(operator in ("In", "NotIn") and len(values) == 1 for _key, operator, values in fields)


def _holds(operator: str, values: list[str], actual: str | None) -> bool:
    if operator in ("Gt", "Lt"):
        if actual is None or not actual.isdigit():
            return False
        return int(actual) > int(values[0]) if operator == "Gt" else int(actual) < int(values[0])
    return {
        "In": actual in values,
        "NotIn": actual not in values,
        "Exists": actual is not None,
        "DoesNotExist": actual is None,
    }[operator]


def _matches(term: tuple[_Conditions, _Conditions], name: str, of_node: Mapping[str, str]) -> bool:
    expressions, fields = term
    if not (expressions or fields) or not _is_valid(expressions, fields):
        return False
    of_name = {"metadata.name": name}
    return all(_holds(operator, values, of_node.get(key)) for key, operator, values in expressions) and all(
        _holds(operator, values, of_name.get(key, "")) for key, operator, values in fields
    )


def _term(term: tuple[_Conditions, _Conditions]) -> NodeSelectorTerm:
    expressions, fields = (
        tuple(Requirement(key, operator, tuple(values)) for key, operator, values in part) for part in term
    )
    return NodeSelectorTerm(expressions, fields)


@given(
    st.lists(st.dictionaries(_KEYS, _VALUES), min_size=1, max_size=6),
    st.dictionaries(_KEYS, _VALUES, max_size=1),
    st.lists(_TERMS, max_size=3),
)
def test_all_nodes_at_once_equals_one_at_a_time(
    cluster: list[dict[str, str]],
    selector: dict[str, str],
    terms: list[tuple[_Conditions, _Conditions]],
) -> None:
    """Filter codes (selector and required terms) and scores (valid terms as preferred terms) equal those per node."""
    selected = [all(each.get(key) == value for key, value in selector.items()) for each in cluster]
    matched = [[_matches(term, f"n{index}", each) for term in terms] for index, each in enumerate(cluster)]
    valid = [index for index, term in enumerate(terms) if _is_valid(*term)]
    affinity = NodeAffinity(
        required=NodeSelector(tuple(_term(term) for term in terms)),
        preferred=tuple(PreferredSchedulingTerm(index + 1, _term(terms[index])) for index in valid),
    )
    nodes = columns([node(f"n{index}", labels=each) for index, each in enumerate(cluster)])
    plugin = node_affinity.NodeAffinity(NodeAffinityArgs(), FakeHandle(nodes=nodes))
    state, incoming = CycleState(), nodes.compile_pod(pod(affinity=Affinity(affinity), node_selector=selector))

    plugin.pre_filter(state, incoming, nodes)
    codes = plugin.filter(state, incoming, nodes, ALL_ROWS)
    plugin.pre_score(state, incoming, nodes, ALL_ROWS)
    scores = plugin.score(state, incoming, nodes, ALL_ROWS)

    assert codes is not None
    assert codes.tolist() == [
        0 if mine and any(of_terms) else MISMATCH for mine, of_terms in zip(selected, matched, strict=True)
    ]
    assert scores.tolist() == [sum(index + 1 for index in valid if of_terms[index]) for of_terms in matched]
