"""Number of scheduling constraints of a pod, and its limit.

Each constraint costs a pass over all nodes, and a pod of one megabyte can have thousands, so a user who can create pods
could delay the scheduling of all others for a minute. kube-scheduler has no limit. Real pods stay far below this one.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from scheduler_core.model.affinity import LabelSelector, NodeSelectorTerm, PodAffinity, PodAffinityTerm, Requirement
from scheduler_core.model.pod import Container, PodSpec, Volume

MAX_DEMANDS = 500
_VALUES_OF_DEMAND = 50
"""Listed values that together cost as much as a requirement."""

_sources = attrgetter(
    *("claim", "ephemeral", "gce", "aws", "iscsi", "azure_disk", "azure_file", "cinder", "portworx", "vsphere")
)
_NO_SOURCES = _sources(Volume())


def demand_count(spec: PodSpec) -> int:
    """Return the number of requirements, listed values, affinity terms, spread constraints, volumes and resources.

    Returns:
        The number, which is approximate where that does not matter.
    """
    count = len(spec.node_selector) + _resource_count((*spec.containers, *spec.init_containers))
    for volume in spec.volumes:
        count += _of_volume(volume)
    for constraint in spec.topology_spread_constraints:
        count += 1 + _of_selector(constraint.label_selector) + len(constraint.match_label_keys)
    affinity = spec.affinity
    if affinity is None:
        return count
    if affinity.node_affinity is not None:
        node_affinity = affinity.node_affinity
        if node_affinity.required is not None:
            count += _of_node_terms(node_affinity.required.node_selector_terms)
        count += _of_node_terms(one.preference for one in node_affinity.preferred)
    return count + _of_pod_affinity(affinity.pod_affinity) + _of_pod_affinity(affinity.pod_anti_affinity)


def limited_volumes(volumes: Iterable[Volume]) -> tuple[Volume, ...]:
    """Return the first volumes, within the limit, of a pod on a node that exceeds it."""
    limited: list[Volume] = []
    count = 0
    for volume in volumes:
        count += _of_volume(volume)
        if count > MAX_DEMANDS:
            break
        limited.append(volume)
    return tuple(limited)


def _of_volume(volume: Volume) -> int:
    if volume.rbd is not None:
        return 1 + len(volume.rbd.monitors)
    return _sources(volume) != _NO_SOURCES


def _resource_count(containers: tuple[Container, ...]) -> int:
    if len(containers) == 1:
        return len(containers[0].resources.requests)
    return len({name for one in containers for name in one.resources.requests})


def _of_node_terms(terms: Iterable[NodeSelectorTerm]) -> int:
    return sum(1 + _of_requirements(term.match_expressions) + len(term.match_fields) for term in terms)


def _of_pod_affinity(affinity: PodAffinity | None) -> int:
    if affinity is None:
        return 0
    preferred = (one.pod_affinity_term for one in affinity.preferred)
    return sum(map(_of_pod_term, affinity.required)) + sum(map(_of_pod_term, preferred))


def _of_pod_term(term: PodAffinityTerm) -> int:
    return 1 + _of_selector(term.label_selector) + _of_selector(term.namespace_selector)


def _of_selector(selector: LabelSelector | None) -> int:
    return 0 if selector is None else len(selector.match_labels) + _of_requirements(selector.match_expressions)


def _of_requirements(requirements: Iterable[Requirement]) -> int:
    return sum(1 + len(one.values) // _VALUES_OF_DEMAND for one in requirements)
