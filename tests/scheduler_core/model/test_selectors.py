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

GOOD = NodeSelectorTerm((Requirement("a", "In", ("1",)),))
BAD = NodeSelectorTerm((Requirement("a", "Gt", ("x",)),))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        pytest.param("0", 0, id="zero"),
        pytest.param("-12", -12, id="negative"),
        pytest.param("+7", 7, id="plus"),
        pytest.param("007", 7, id="leading-zeros"),
        pytest.param("9223372036854775807", 2**63 - 1, id="largest"),
        pytest.param("-9223372036854775808", -(2**63), id="smallest"),
        pytest.param("9223372036854775808", None, id="too-large"),
        pytest.param("9" * 5000, None, id="thousands-of-digits"),
        pytest.param("0" * 5000 + "5", 5, id="thousands-of-zeros"),
        pytest.param("", None, id="empty"),
        pytest.param("-", None, id="sign-only"),
        pytest.param("1_0", None, id="underscore"),
        pytest.param(" 1", None, id="space"),
        pytest.param("1.0", None, id="fraction"),
        pytest.param("\u0661", None, id="other-digits"),
        pytest.param("1\n", None, id="line-end"),
    ],
)
def test_parse_int64(text: str, number: int | None) -> None:
    """parse_int64() accepts the decimal integers that Go's strconv.ParseInt accepts."""
    assert parse_int64(text) == number


@given(st.integers(-(2**64), 2**64))
def test_parse_int64_range(number: int) -> None:
    """Numbers outside int64 are rejected."""
    assert parse_int64(str(number)) == (number if -(2**63) <= number < 2**63 else None)


@pytest.mark.parametrize(
    ("key", "valid"),
    [
        pytest.param("zone", True, id="name"),
        pytest.param("topology.kubernetes.io/zone", True, id="prefixed"),
        pytest.param("A_b.c-1", True, id="all-characters"),
        pytest.param("a" * 63, True, id="longest"),
        pytest.param("a" * 64, False, id="too-long"),
        pytest.param("", False, id="empty"),
        pytest.param("-a", False, id="dash-first"),
        pytest.param("a.", False, id="dot-last"),
        pytest.param("/a", False, id="empty-prefix"),
        pytest.param("a/", False, id="empty-name"),
        pytest.param("a/b/c", False, id="two-slashes"),
        pytest.param("Example.com/a", False, id="prefix-in-upper-case"),
        pytest.param("a..b/c", False, id="empty-part-of-the-prefix"),
        pytest.param("a" * 253 + "/b", True, id="longest-prefix"),
        pytest.param("a" * 254 + "/b", False, id="prefix-too-long"),
        pytest.param("a\n", False, id="line-end"),
    ],
)
def test_label_keys(key: str, valid: bool) -> None:
    """A label key is a name with an optional DNS prefix."""
    assert is_label_key(key) is valid


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        pytest.param("", True, id="empty"),
        pytest.param("a-b_c.d", True, id="all-characters"),
        pytest.param("a" * 63, True, id="longest"),
        pytest.param("a" * 64, False, id="too-long"),
        pytest.param("-1", False, id="dash-first"),
        pytest.param("a/b", False, id="slash"),
        pytest.param("ä", False, id="not-ascii"),
    ],
)
def test_label_values(value: str, valid: bool) -> None:
    """A label value is empty or has the form of a name."""
    assert is_label_value(value) is valid


@pytest.mark.parametrize(
    ("operator", "values", "admitted"),
    [
        pytest.param("In", ["1", "x"], {"1", "x"}, id="in"),
        pytest.param("NotIn", ["1", "x"], {"2", "10", "", None}, id="not-in"),
        pytest.param("Exists", [], {"1", "2", "10", "x", ""}, id="exists"),
        pytest.param("DoesNotExist", [], {None}, id="does-not-exist"),
        pytest.param("Gt", ["1"], {"2", "10"}, id="gt"),
        pytest.param("Lt", ["10"], {"1", "2"}, id="lt"),
        pytest.param("In", [""], {""}, id="the-empty-value-is-not-none"),
    ],
)
def test_requirements(operator: str, values: list[str], admitted: set[str | None]) -> None:
    """Gt and Lt compare numbers; they admit no text."""
    requirement = compile_requirement(Requirement("key", operator, tuple(values)))
    assert {value for value in ("1", "2", "10", "x", "", None) if requirement.admits(value)} == admitted


@pytest.mark.parametrize(
    ("key", "operator", "values"),
    [
        pytest.param("a", "In", [], id="in-without-values"),
        pytest.param("a", "NotIn", [], id="not-in-without-values"),
        pytest.param("a", "Exists", ["1"], id="exists-with-values"),
        pytest.param("a", "DoesNotExist", ["1"], id="does-not-exist-with-values"),
        pytest.param("a", "Gt", [], id="gt-without-a-value"),
        pytest.param("a", "Gt", ["1", "2"], id="gt-with-two-values"),
        pytest.param("a", "Lt", ["x"], id="lt-with-text"),
        pytest.param("a", "Gt", ["-1"], id="gt-with-a-number-that-is-no-label-value"),
        pytest.param("a", "Like", ["1"], id="unknown-operator"),
        pytest.param("a", "in", ["1"], id="operator-in-lower-case"),
        pytest.param("", "Exists", [], id="empty-key"),
        pytest.param("a b", "Exists", [], id="key-with-a-space"),
        pytest.param("a", "In", ["ok", "not ok"], id="value-with-a-space"),
    ],
)
def test_invalid_requirements(key: str, operator: str, values: list[str]) -> None:
    """The error names the key."""
    with pytest.raises(SelectorError, match=f'"{key}"'):
        compile_requirement(Requirement(key, operator, tuple(values)))


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        pytest.param(None, {}, False, id="absent"),
        pytest.param(LabelSelector(), {"a": "1"}, True, id="empty"),
        pytest.param(LabelSelector({"a": "1"}), {"a": "1", "b": "2"}, True, id="label"),
        pytest.param(LabelSelector({"a": "1"}), {"a": "2"}, False, id="other-value"),
        pytest.param(LabelSelector({"a": ""}), {}, False, id="missing-is-not-empty"),
        pytest.param(LabelSelector({"a": "1", "b": "2"}), {"a": "1"}, False, id="one-of-two"),
        pytest.param(LabelSelector({}, (Requirement("a", "NotIn", ("1",)),)), {}, True, id="not-in-without-label"),
        pytest.param(
            LabelSelector({"a": "1"}, (Requirement("b", "Exists"),)), {"a": "1", "b": ""}, True, id="both-kinds"
        ),
        pytest.param(LabelSelector({"a": "1"}, (Requirement("b", "Exists"),)), {"a": "1"}, False, id="only-one-kind"),
    ],
)
def test_label_selectors(selector: LabelSelector | None, labels: dict[str, str], matches: bool) -> None:
    """All labels and expressions must match; an absent selector matches nothing, an empty one everything."""
    assert compile_label_selector(selector).matches(labels) is matches


@pytest.mark.parametrize(
    "selector",
    [
        pytest.param(LabelSelector({"a b": "1"}), id="key"),
        pytest.param(LabelSelector({"a": "1 2"}), id="value"),
        pytest.param(LabelSelector({}, (Requirement("a", "Gt", ("1",)),)), id="operator-of-nodes"),
        pytest.param(LabelSelector({}, (Requirement("a", "In"),)), id="no-values"),
    ],
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


@pytest.mark.parametrize(
    ("terms", "labels", "name", "matches"),
    [
        pytest.param([], {}, "n", False, id="no-terms"),
        pytest.param([NodeSelectorTerm()], {}, "n", False, id="empty-term"),
        pytest.param([GOOD], {"a": "1"}, "n", True, id="one"),
        pytest.param([BAD], {"a": "1"}, "n", False, id="invalid"),
        pytest.param([BAD, GOOD], {"a": "1"}, "n", True, id="one-valid-one-invalid"),
        pytest.param(
            [NodeSelectorTerm(match_fields=(Requirement("metadata.name", "In", ("n",)),))], {}, "n", True, id="name"
        ),
        pytest.param(
            [NodeSelectorTerm(match_fields=(Requirement("metadata.name", "NotIn", ("n",)),))],
            {},
            "n",
            False,
            id="another-name",
        ),
        pytest.param(
            [NodeSelectorTerm(match_fields=(Requirement("other", "In", ("",)),))], {}, "n", True, id="empty-field"
        ),
        pytest.param(
            [NodeSelectorTerm(GOOD.match_expressions, (Requirement("metadata.name", "In", ("m",)),))],
            {"a": "1"},
            "n",
            False,
            id="labels-but-not-the-name",
        ),
    ],
)
def test_node_selectors(terms: list[NodeSelectorTerm], labels: Mapping[str, str], name: str, matches: bool) -> None:
    """A node selector matches if one of its terms matches completely."""
    assert compile_node_selector(NodeSelector(tuple(terms))).matches(labels, name) is matches


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(Requirement("metadata.name", "In", ("a", "b")), id="two-values"),
        pytest.param(Requirement("metadata.name", "NotIn"), id="no-value"),
        pytest.param(Requirement("metadata.name", "Exists"), id="operator"),
    ],
)
def test_invalid_fields(field: Requirement) -> None:
    """A field requirement without exactly one value, or with another operator, is a problem of its term."""
    term = compile_node_term(NodeSelectorTerm(match_fields=(field,)))
    assert term is not None
    assert len(term.problems) == 1
    assert not term.matches({}, "a")


def test_a_term_collects_every_problem() -> None:
    """A term lists the problems of its expressions and of its fields."""
    term = compile_node_term(
        NodeSelectorTerm(
            (Requirement("a", "Gt", ("x",)), Requirement("b", "Exists")), (Requirement("metadata.name", "Exists"),)
        )
    )
    assert term is not None
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


@pytest.mark.parametrize(
    ("terms", "selector", "has_problems"),
    [
        pytest.param([GOOD], {}, False, id="valid"),
        pytest.param([BAD], {}, True, id="invalid"),
        pytest.param([BAD, GOOD], {}, False, id="matches-anyway"),
        pytest.param([BAD], {"b": "2"}, False, id="selector-excludes-the-node"),
    ],
)
def test_problems_are_reported_if_they_decide(
    terms: list[NodeSelectorTerm], selector: dict[str, str], has_problems: bool
) -> None:
    """Problems are not reported if another term matches or the node selector rejects the node."""
    affinity = Affinity(NodeAffinity(required=NodeSelector(tuple(terms))))
    required = required_node_affinity(pod(node_selector=selector, affinity=affinity))
    assert bool(required.problems({"a": "1"}, "n")) is has_problems
