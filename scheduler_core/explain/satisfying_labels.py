"""Labels that satisfy a selector, with as few changes as possible.

The result need not satisfy every selector, because callers test each proposal before they show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scheduler_core.model.affinity import LabelSelector, NodeSelectorTerm, Requirement
from scheduler_core.model.pod import Pod

_ANY_VALUE = "true"


def satisfied(labels: Mapping[str, str], requirements: Iterable[Requirement]) -> dict[str, str]:
    """Return a copy of ``labels``, changed where a requirement needs it."""
    changed = dict(labels)
    for requirement in requirements:
        _satisfy(changed, requirement)
    return changed


def matching_labels(selector: LabelSelector | None) -> dict[str, str]:
    """Return labels that match a label selector."""
    if selector is None:
        return {}
    return satisfied(selector.match_labels, selector.match_expressions)


def required_terms(pod: Pod) -> tuple[NodeSelectorTerm, ...]:
    """Return the alternative terms of a pod's required node affinity; one empty term if it has none."""
    affinity = pod.spec.affinity
    node_affinity = None if affinity is None else affinity.node_affinity
    required = None if node_affinity is None else node_affinity.required
    terms = () if required is None else required.node_selector_terms
    return terms or (NodeSelectorTerm(),)


def node_labels(pod: Pod, term: NodeSelectorTerm, labels: Mapping[str, str]) -> dict[str, str]:
    """Return a node's labels, changed to satisfy a pod's node selector and one term of its affinity."""
    return satisfied({**labels, **pod.spec.node_selector}, term.match_expressions)


def _satisfy(labels: dict[str, str], requirement: Requirement) -> None:
    key, values = requirement.key, requirement.values
    match requirement.operator:
        case "In":
            if values and labels.get(key) not in values:
                labels[key] = values[0]
        case "NotIn":
            if labels.get(key) in values:
                del labels[key]
        case "Exists":
            labels.setdefault(key, _ANY_VALUE)
        case "DoesNotExist":
            labels.pop(key, None)
        case "Gt" | "Lt" if values and values[0].lstrip("-").isdigit():
            bound = int(values[0])
            now = labels.get(key, "")
            is_number = now.lstrip("-").isdigit()
            if requirement.operator == "Gt" and not (is_number and int(now) > bound):
                labels[key] = str(bound + 1)
            elif requirement.operator == "Lt" and not (is_number and int(now) < bound):
                labels[key] = str(bound - 1)
