"""Compilation and matching of label selectors, node selectors and required node affinity."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.errors import SelectorError
from scheduler_core.model.affinity import (
    Affinity,
    LabelSelector,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
    Requirement,
)
from scheduler_core.model.selectors import (
    MATCH_EVERYTHING,
    MATCH_NOTHING,
    NO_REQUIRED_NODE_AFFINITY,
    NodeMatcher,
    compile_label_selector,
    compile_node_selector,
    compile_node_term,
    compile_preferred_terms,
    compile_readable_node_selector,
    compile_requirement,
    is_label_key,
    is_label_value,
    parse_int64,
    required_node_affinity,
)
from tests.support.builders import pod
from tests.support.presence import present
from tests.support.tables import table

GOOD = NodeSelectorTerm((Requirement("a", "In", ("1",)),))
BAD = NodeSelectorTerm((Requirement("a", "Gt", ("x",)),))


@table(
    "text, number",
    ("zero", "0", 0),
    ("negative", "-12", -12),
    ("plus", "+7", 7),
    ("leading-zeros", "007", 7),
    ("largest", "9223372036854775807", 2**63 - 1),
    ("smallest", "-9223372036854775808", -(2**63)),
    ("too-large", "9223372036854775808", None),
    ("thousands-of-digits", "9" * 5000, None),
    ("thousands-of-zeros", "0" * 5000 + "5", 5),
    ("empty", "", None),
    ("sign-only", "-", None),
    ("underscore", "1_0", None),
    ("space", " 1", None),
    ("fraction", "1.0", None),
    ("other-digits", "\u0661", None),
    ("line-end", "1\n", None),
)
def test_parse_int64(text: str, number: int | None) -> None:
    """parse_int64() accepts the decimal integers that Go's strconv.ParseInt accepts."""
    assert parse_int64(text) == number


@given(st.integers(-(2**64), 2**64))
def test_parse_int64_range(number: int) -> None:
    """Numbers outside int64 are rejected."""
    assert parse_int64(str(number)) == (number if -(2**63) <= number < 2**63 else None)


@table(
    "key, valid",
    ("name", "zone", True),
    ("prefixed", "topology.kubernetes.io/zone", True),
    ("all-characters", "A_b.c-1", True),
    ("longest", "a" * 63, True),
    ("too-long", "a" * 64, False),
    ("empty", "", False),
    ("dash-first", "-a", False),
    ("dot-last", "a.", False),
    ("empty-prefix", "/a", False),
    ("empty-name", "a/", False),
    ("two-slashes", "a/b/c", False),
    ("prefix-in-upper-case", "Example.com/a", False),
    ("empty-part-of-the-prefix", "a..b/c", False),
    ("longest-prefix", "a" * 253 + "/b", True),
    ("prefix-too-long", "a" * 254 + "/b", False),
    ("line-end", "a\n", False),
)
def test_label_keys(key: str, valid: bool) -> None:
    """A label key is a name with an optional DNS prefix."""
    assert is_label_key(key) is valid


@table(
    "value, valid",
    ("empty", "", True),
    ("all-characters", "a-b_c.d", True),
    ("longest", "a" * 63, True),
    ("too-long", "a" * 64, False),
    ("dash-first", "-1", False),
    ("slash", "a/b", False),
    ("not-ascii", "ä", False),
)
def test_label_values(value: str, valid: bool) -> None:
    """A label value is empty or has the form of a name."""
    assert is_label_value(value) is valid


@table(
    "operator, values, admitted",
    ("in", "In", ["1", "x"], {"1", "x"}),
    ("not-in", "NotIn", ["1", "x"], {"2", "10", "", None}),
    ("exists", "Exists", [], {"1", "2", "10", "x", ""}),
    ("does-not-exist", "DoesNotExist", [], {None}),
    ("gt", "Gt", ["1"], {"2", "10"}),
    ("lt", "Lt", ["10"], {"1", "2"}),
    ("the-empty-value-is-not-none", "In", [""], {""}),
)
def test_requirements(operator: str, values: list[str], admitted: set[str | None]) -> None:
    """Gt and Lt compare numbers; they admit no text."""
    requirement = compile_requirement(Requirement("key", operator, tuple(values)))
    assert {value for value in ("1", "2", "10", "x", "", None) if requirement.admits(value)} == admitted


@table(
    "key, operator, values",
    ("in-without-values", "a", "In", []),
    ("not-in-without-values", "a", "NotIn", []),
    ("exists-with-values", "a", "Exists", ["1"]),
    ("does-not-exist-with-values", "a", "DoesNotExist", ["1"]),
    ("gt-without-a-value", "a", "Gt", []),
    ("gt-with-two-values", "a", "Gt", ["1", "2"]),
    ("lt-with-text", "a", "Lt", ["x"]),
    ("gt-with-a-number-that-is-no-label-value", "a", "Gt", ["-1"]),
    ("unknown-operator", "a", "Like", ["1"]),
    ("operator-in-lower-case", "a", "in", ["1"]),
    ("empty-key", "", "Exists", []),
    ("key-with-a-space", "a b", "Exists", []),
    ("value-with-a-space", "a", "In", ["ok", "not ok"]),
)
def test_invalid_requirements(key: str, operator: str, values: list[str]) -> None:
    """The error names the key."""
    with pytest.raises(SelectorError, match=f'"{key}"'):
        compile_requirement(Requirement(key, operator, tuple(values)))


@table(
    "selector, labels, matches",
    ("absent", None, {}, False),
    ("empty", LabelSelector(), {"a": "1"}, True),
    ("label", LabelSelector({"a": "1"}), {"a": "1", "b": "2"}, True),
    ("other-value", LabelSelector({"a": "1"}), {"a": "2"}, False),
    ("missing-is-not-empty", LabelSelector({"a": ""}), {}, False),
    ("one-of-two", LabelSelector({"a": "1", "b": "2"}), {"a": "1"}, False),
    ("not-in-without-label", LabelSelector({}, (Requirement("a", "NotIn", ("1",)),)), {}, True),
    ("both-kinds", LabelSelector({"a": "1"}, (Requirement("b", "Exists"),)), {"a": "1", "b": ""}, True),
    ("only-one-kind", LabelSelector({"a": "1"}, (Requirement("b", "Exists"),)), {"a": "1"}, False),
)
def test_label_selectors(selector: LabelSelector | None, labels: dict[str, str], matches: bool) -> None:
    """All labels and expressions must match; an absent selector matches nothing, an empty one everything."""
    assert compile_label_selector(selector).matches(labels) is matches


@table(
    "selector",
    ("key", LabelSelector({"a b": "1"})),
    ("value", LabelSelector({"a": "1 2"})),
    ("operator-of-nodes", LabelSelector({}, (Requirement("a", "Gt", ("1",)),))),
    ("no-values", LabelSelector({}, (Requirement("a", "In"),))),
)
def test_invalid_label_selectors(selector: LabelSelector) -> None:
    """A label selector with an invalid key, value or operator raises; Gt and Lt are valid for nodes only."""
    with pytest.raises(SelectorError):
        compile_label_selector(selector)


def test_equal_selectors_are_equal_keys() -> None:
    """Selectors with the same meaning compile to equal values with equal hashes."""
    one = compile_label_selector(LabelSelector({"b": "2", "a": "1"}, (Requirement("c", "In", ("y", "x", "y")),)))
    other = compile_label_selector(
        LabelSelector({"a": "1"}, (Requirement("c", "In", ("x", "y")), Requirement("b", "In", ("2",))))
    )
    assert one == other
    assert hash(one) == hash(other)
    assert one != compile_label_selector(LabelSelector({"a": "1"}))


def test_everything_and_nothing() -> None:
    """An empty and an absent selector compile to constants that are recognised without evaluating labels."""
    assert compile_label_selector(LabelSelector()) == MATCH_EVERYTHING
    assert compile_label_selector(None) == MATCH_NOTHING
    assert MATCH_EVERYTHING.is_everything
    assert not MATCH_NOTHING.is_everything
    assert not compile_label_selector(LabelSelector({"a": "1"})).is_everything


_LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2", ""]))
_EXPRESSIONS = st.lists(
    st.one_of(
        st.builds(
            Requirement,
            st.sampled_from("abc"),
            st.sampled_from(["In", "NotIn"]),
            st.lists(st.sampled_from(["1", "2", ""]), min_size=1, max_size=3).map(tuple),
        ),
        st.builds(Requirement, st.sampled_from("abc"), st.sampled_from(["Exists", "DoesNotExist"])),
    ),
    max_size=3,
)


@given(_LABELS, _EXPRESSIONS, _LABELS)
def test_label_selectors_follow_their_definition(
    match_labels: dict[str, str], expressions: list[Requirement], labels: dict[str, str]
) -> None:
    """A selector matches if each of its labels and expressions matches."""

    def holds(one: Requirement) -> bool:
        has = one.key in labels
        listed = has and labels[one.key] in one.values
        return {"In": listed, "NotIn": not listed, "Exists": has, "DoesNotExist": not has}[one.operator]

    expected = match_labels.items() <= labels.items() and all(map(holds, expressions))
    assert compile_label_selector(LabelSelector(match_labels, tuple(expressions))).matches(labels) is expected


@table(
    "terms, labels, name, matches",
    ("no-terms", [], {}, "n", False),
    ("empty-term", [NodeSelectorTerm()], {}, "n", False),
    ("one", [GOOD], {"a": "1"}, "n", True),
    ("invalid", [BAD], {"a": "1"}, "n", False),
    ("one-valid-one-invalid", [BAD, GOOD], {"a": "1"}, "n", True),
    ("name", [NodeSelectorTerm(match_fields=(Requirement("metadata.name", "In", ("n",)),))], {}, "n", True),
    ("another-name", [NodeSelectorTerm(match_fields=(Requirement("metadata.name", "NotIn", ("n",)),))], {}, "n", False),
    ("empty-field", [NodeSelectorTerm(match_fields=(Requirement("other", "In", ("",)),))], {}, "n", True),
    (
        "labels-but-not-the-name",
        [NodeSelectorTerm(GOOD.match_expressions, (Requirement("metadata.name", "In", ("m",)),))],
        {"a": "1"},
        "n",
        False,
    ),
)
def test_node_selectors(terms: list[NodeSelectorTerm], labels: Mapping[str, str], name: str, matches: bool) -> None:
    """A node selector matches if one of its terms matches completely."""
    assert compile_node_selector(NodeSelector(tuple(terms))).matches(labels, name) is matches


@table(
    "field",
    ("two-values", Requirement("metadata.name", "In", ("a", "b"))),
    ("no-value", Requirement("metadata.name", "NotIn")),
    ("operator", Requirement("metadata.name", "Exists")),
)
def test_invalid_fields(field: Requirement) -> None:
    """A field requirement without exactly one value, or with another operator, is a problem of its term."""
    term = present(compile_node_term(NodeSelectorTerm(match_fields=(field,))))
    assert len(term.problems) == 1
    assert not term.matches({}, "a")


def test_a_term_collects_every_problem() -> None:
    """A term lists the problems of its expressions and of its fields."""
    term = present(
        compile_node_term(
            NodeSelectorTerm(
                (Requirement("a", "Gt", ("x",)), Requirement("b", "Exists")), (Requirement("metadata.name", "Exists"),)
            )
        )
    )
    assert len(term.problems) == 2


def test_a_selector_that_must_be_valid() -> None:
    """compile_readable_node_selector() compiles a valid selector and raises all problems of an invalid one."""
    assert compile_readable_node_selector(NodeSelector((GOOD,))).matches({"a": "1"}, "n")
    with pytest.raises(SelectorError, match="; "):
        compile_readable_node_selector(NodeSelector((BAD, GOOD, BAD)))


def test_preferred_terms() -> None:
    """Preferred terms with weight 0 or without requirements are skipped; an invalid term with a weight raises."""
    compiled = compile_preferred_terms(
        (
            PreferredSchedulingTerm(0, BAD),
            PreferredSchedulingTerm(3, NodeSelectorTerm()),
            PreferredSchedulingTerm(5, GOOD),
        )
    )
    assert [(preferred.weight, preferred.term) for preferred in compiled] == [(5, compile_node_term(GOOD))]
    with pytest.raises(SelectorError, match='"a"'):
        compile_preferred_terms((PreferredSchedulingTerm(5, GOOD), PreferredSchedulingTerm(1, BAD)))


def test_required_affinity_joins_selector_and_terms() -> None:
    """The node selector and the required terms must both match."""
    affinity = Affinity(NodeAffinity(required=NodeSelector((GOOD,))))
    required = required_node_affinity(pod(node_selector={"b": "2"}, affinity=affinity))
    assert required.matches({"a": "1", "b": "2"}, "n")
    assert not required.matches({"a": "1"}, "n")
    assert not required.matches({"b": "2"}, "n")


def test_a_pod_without_node_constraints() -> None:
    """A pod without node selector and node affinity matches any node."""
    assert required_node_affinity(pod()) is NO_REQUIRED_NODE_AFFINITY
    assert NO_REQUIRED_NODE_AFFINITY.is_everything
    assert NO_REQUIRED_NODE_AFFINITY.matches({}, "n")
    assert (
        required_node_affinity(pod(affinity=Affinity(NodeAffinity(required=NodeSelector())))).affinity == NodeMatcher()
    )


@table(
    "terms, selector, has_problems",
    ("valid", [GOOD], {}, False),
    ("invalid", [BAD], {}, True),
    ("matches-anyway", [BAD, GOOD], {}, False),
    ("selector-excludes-the-node", [BAD], {"b": "2"}, False),
)
def test_problems_are_reported_if_they_decide(
    terms: list[NodeSelectorTerm], selector: dict[str, str], has_problems: bool
) -> None:
    """Problems are not reported if another term matches or the node selector rejects the node."""
    affinity = Affinity(NodeAffinity(required=NodeSelector(tuple(terms))))
    required = required_node_affinity(pod(node_selector=selector, affinity=affinity))
    assert bool(required.problems({"a": "1"}, "n")) is has_problems
