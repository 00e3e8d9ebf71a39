"""Label selectors and affinity terms on plain values: what compiled forms are held against.

Owns a second, independent reading of the API's rules. It must not import what it judges; it reads the decoded structs.
"""

from collections.abc import Iterable, Mapping

from scheduler_core.model.affinity import LabelSelector, PodAffinityTerm
from scheduler_core.model.pod import Pod

Labels = Mapping[str, str]


def plain_selects(selector: LabelSelector | None, labels: Labels) -> bool:
    """Whether a selector matches; an absent one matches nothing, an empty one everything."""
    if selector is None:
        return False
    for key, value in selector.match_labels.items():
        if key not in labels or labels[key] != value:
            return False
    for expression in selector.match_expressions:
        has = expression.key in labels
        among = has and labels[expression.key] in expression.values
        holds = {"In": among, "NotIn": not among, "Exists": has, "DoesNotExist": not has}[expression.operator]
        if not holds:
            return False
    return True


def is_empty(selector: LabelSelector | None) -> bool:
    """Whether a selector is there and asks for nothing."""
    return selector is not None and not selector.match_labels and not selector.match_expressions


def carried_term_matches(term: PodAffinityTerm, carrier: Pod, pod: Pod, namespaces: Mapping[str, Labels]) -> bool:
    """Whether a term of a placed pod speaks of ``pod``; unknown namespaces have no labels."""
    names = set(term.namespaces)
    if not names and term.namespace_selector is None:
        names = {carrier.metadata.namespace}
    namespace = pod.metadata.namespace
    if namespace not in names and not plain_selects(term.namespace_selector, namespaces.get(namespace, {})):
        return False
    return plain_selects(term.label_selector, pod.metadata.labels)


def own_term_matches(term: PodAffinityTerm, owner: Pod, pod: Pod, namespaces: Mapping[str, Labels]) -> bool:
    """Return whether a term of the incoming pod matches an existing pod.

    An empty namespace selector matches every namespace, any other the known ones that have its labels.
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
    """Whether a pod is meant by every term; by none of no terms."""
    found = [own_term_matches(term, owner, pod, namespaces) for term in terms]
    return bool(found) and all(found)
