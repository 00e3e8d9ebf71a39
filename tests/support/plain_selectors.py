"""Reference implementation of label selectors and pod affinity terms, on decoded objects.

It does not import the implementation under test.
"""

from collections.abc import Iterable, Mapping

from hypothesis import strategies as st

from scheduler_core.model.affinity import LabelSelector, PodAffinityTerm, Requirement
from scheduler_core.model.pod import Pod

POD_LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["x", "y"]))
EXPRESSIONS = st.builds(
    lambda key, operator, values: Requirement(key, operator, tuple(values) if "In" in operator else ()),
    st.sampled_from(["app", "tier"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.lists(st.sampled_from(["x", "y"]), min_size=1, max_size=2),
)

Labels = Mapping[str, str]


def plain_selects(selector: LabelSelector | None, labels: Labels) -> bool:
    """Return whether a selector matches; None matches nothing, an empty selector matches everything."""
    if selector is None:
        return False
    for key, value in selector.match_labels.items():
        if key not in labels or labels[key] != value:
            return False
    for expression in selector.match_expressions:
        has = expression.key in labels
        listed = has and labels[expression.key] in expression.values
        matches = {"In": listed, "NotIn": not listed, "Exists": has, "DoesNotExist": not has}[expression.operator]
        if not matches:
            return False
    return True


def is_empty(selector: LabelSelector | None) -> bool:
    """Return whether a selector is present and has no requirements."""
    return selector is not None and not selector.match_labels and not selector.match_expressions


def carried_term_matches(term: PodAffinityTerm, carrier: Pod, pod: Pod, namespaces: Mapping[str, Labels]) -> bool:
    """Return whether a term of an existing pod matches ``pod``; missing namespaces have no labels."""
    names = set(term.namespaces)
    if not names and term.namespace_selector is None:
        names = {carrier.metadata.namespace}
    namespace = pod.metadata.namespace
    if namespace not in names and not plain_selects(term.namespace_selector, namespaces.get(namespace, {})):
        return False
    return plain_selects(term.label_selector, pod.metadata.labels)


def own_term_matches(term: PodAffinityTerm, owner: Pod, pod: Pod, namespaces: Mapping[str, Labels]) -> bool:
    """Return whether a term of the incoming pod matches an existing pod.

    An empty namespace selector matches every namespace, any other selector only existing namespaces.
    """
    names = set(term.namespaces)
    if not names and term.namespace_selector is None:
        names = {owner.metadata.namespace}
    names |= {name for name, labels in namespaces.items() if plain_selects(term.namespace_selector, labels)}
    if pod.metadata.namespace not in names and term.namespace_selector != LabelSelector():
        return False
    return plain_selects(term.label_selector, pod.metadata.labels)


def all_own_terms_match(
    terms: Iterable[PodAffinityTerm], owner: Pod, pod: Pod, namespaces: Mapping[str, Labels]
) -> bool:
    """Return whether every term matches a pod; False without terms."""
    matches = [own_term_matches(term, owner, pod, namespaces) for term in terms]
    return bool(matches) and all(matches)
