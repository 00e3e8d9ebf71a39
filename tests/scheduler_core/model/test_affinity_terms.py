"""Compilation of pod affinity terms to queries over pods and namespaces."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.model.affinity import Affinity, LabelSelector, PodAffinityTerm, Requirement
from scheduler_core.model.pod import Pod
from scheduler_core.model.selectors import (
    MATCH_EVERYTHING,
    MATCH_NOTHING,
    NO_TERMS,
    AffinityTerms,
    LabelMatcher,
    PodQuery,
    affinity_terms,
    all_of,
    compile_label_selector,
    equality_matcher,
)
from tests.support.affinities import affinity_to, anti_affinity_to, app, term
from tests.support.builders import pod
from tests.support.plain_selectors import EXPRESSIONS, POD_LABELS, carried_term_matches, plain_selects
from tests.support.tables import table

WEB = app("web")
BROKEN = term(LabelSelector(match_expressions=(Requirement("a", "Near"),)))


def pod_with_terms(*terms: PodAffinityTerm) -> Pod:
    """Return a pod in namespace ``own`` with required pod affinity."""
    return pod("c", namespace="own", affinity=affinity_to(*terms))


@table(
    "term, namespaces, namespace_selector",
    ("own", PodAffinityTerm("zone", WEB), {"own"}, MATCH_NOTHING),
    ("named", PodAffinityTerm("zone", WEB, ("a", "b")), {"a", "b"}, MATCH_NOTHING),
    ("all", PodAffinityTerm("zone", WEB, (), LabelSelector()), set(), MATCH_EVERYTHING),
    ("selected", PodAffinityTerm("zone", WEB, (), WEB), set(), equality_matcher({"app": "web"})),
    ("both", PodAffinityTerm("zone", WEB, ("a",), WEB), {"a"}, equality_matcher({"app": "web"})),
)
def test_namespaces(term: PodAffinityTerm, namespaces: set[str], namespace_selector: LabelMatcher) -> None:
    """The pod's own namespace applies only if a term specifies no namespaces."""
    (compiled,) = affinity_terms(pod_with_terms(term)).required
    assert compiled.query == PodQuery(equality_matcher({"app": "web"}), frozenset(namespaces), namespace_selector)
    assert (compiled.topology_key, compiled.weight) == ("zone", 0)


@table("affinity", ("none", None), ("empty", Affinity()), ("nulls", Affinity(None, None)))
def test_a_pod_without_pod_affinity_has_no_terms(affinity: Affinity | None) -> None:
    """A pod without pod affinity shares the constant NO_TERMS."""
    subject = pod() if affinity is None else pod(affinity=affinity)
    assert affinity_terms(subject) is NO_TERMS
    assert NO_TERMS.is_empty


def test_terms_of_each_list() -> None:
    """Each list of terms is compiled to its own field; preferred terms have their weights."""
    subject = pod(
        affinity=Affinity(
            pod_affinity=affinity_to(term(WEB, "r"), preferred=[(7, term(WEB, "p"))]).pod_affinity,
            pod_anti_affinity=anti_affinity_to(term(WEB, "ra"), preferred=[(9, term(WEB, "pa"))]).pod_anti_affinity,
        )
    )
    terms = affinity_terms(subject)
    lists = (terms.required, terms.required_anti, terms.preferred, terms.preferred_anti)
    assert [[(term.topology_key, term.weight) for term in each] for each in lists] == [
        [("r", 0)],
        [("ra", 0)],
        [("p", 7)],
        [("pa", 9)],
    ]
    assert not terms.is_empty


def test_equal_terms_are_equal_keys() -> None:
    """Terms with the same meaning compile to equal values, because counts are stored per distinct term."""
    one = LabelSelector({"a": "1"}, (Requirement("b", "In", ("x", "y")),))
    other = LabelSelector({}, (Requirement("b", "In", ("y", "x")), Requirement("a", "In", ("1",))))
    found = {affinity_terms(pod_with_terms(term(each))) for each in (one, other)}
    assert len(found) == 1


@table(
    "affinity, readable",
    ("required", affinity_to(BROKEN), AffinityTerms()),
    ("required-anti", anti_affinity_to(BROKEN), AffinityTerms()),
    ("preferred", affinity_to(preferred=[(1, BROKEN)]), AffinityTerms()),
)
def test_an_invalid_term_is_a_problem(affinity: Affinity, readable: AffinityTerms) -> None:
    """The list of an invalid term is empty, and the problem is reported."""
    terms = affinity_terms(pod(affinity=affinity))
    assert "Near" in terms.problem
    assert not terms.is_empty
    assert terms == AffinityTerms(
        readable.required, readable.required_anti, readable.preferred, readable.preferred_anti, terms.problem
    )


_SELECTORS = st.none() | st.builds(LabelSelector, POD_LABELS, st.lists(EXPRESSIONS, max_size=2).map(tuple))
_NAMESPACES = st.sampled_from(["own", "m", "n"])
_TERMS = st.builds(
    PodAffinityTerm, st.just("zone"), _SELECTORS, st.lists(_NAMESPACES, max_size=2).map(tuple), _SELECTORS
)


@given(term=_TERMS, namespace=_NAMESPACES, labels=POD_LABELS, known=st.dictionaries(_NAMESPACES, POD_LABELS))
def test_a_term_equals_the_plain_form(
    term: PodAffinityTerm, namespace: str, labels: dict[str, str], known: dict[str, dict[str, str]]
) -> None:
    """The compiled query of a term matches the same pods as the reference function."""
    owner, other = pod_with_terms(term), pod("o", namespace=namespace, labels=labels)
    (compiled,) = affinity_terms(owner).required
    found = compiled.query.matches(namespace, labels, known.get(namespace, {}))
    assert found is carried_term_matches(term, owner, other, known)


@given(one=_SELECTORS, other=_SELECTORS, labels=POD_LABELS)
def test_both_selectors(one: LabelSelector | None, other: LabelSelector | None, labels: dict[str, str]) -> None:
    """all_of() matches labels that both selectors match."""
    joined = all_of((compile_label_selector(one), compile_label_selector(other)))
    assert joined.matches(labels) is (plain_selects(one, labels) and plain_selects(other, labels))
    assert joined == all_of((compile_label_selector(other), compile_label_selector(one)))
