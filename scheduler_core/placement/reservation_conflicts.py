"""Conflicts between pods and the members of a reservation: host ports, volumes, resource claims and anti-affinity.

In doubt a pod conflicts: otherwise the gang might have to wait for it. Resources are checked elsewhere, and affinity of
members to other pods cannot be violated by a new pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler_core.errors import SelectorError
from scheduler_core.model.pod_volumes import NO_VOLUMES
from scheduler_core.model.selectors import AffinityTerm, compile_label_selector
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, WILDCARD_IP, HostPort, PodInfo

_REQUIRED = "DoNotSchedule"


def can_conflict(member: PodInfo) -> bool:
    """Return whether pods without terms of their own can conflict with a member."""
    spec = member.pod.spec
    return bool(
        member.host_ports
        or member.volumes is not NO_VOLUMES
        or spec.resource_claims
        or member.terms.required_anti
        or spec.topology_spread_constraints
    )


def conflicting_rows(
    pod: PodInfo, members: Mapping[str, Sequence[PodInfo]], classes: Sequence[PodInfo], nodes: NodeColumns
) -> NDArray[np.intp]:
    """Return the rows where a pod would make members infeasible.

    Args:
        classes: One member of each pod class; filters return the same for the others.

    Returns:
        intp[k], ascending, without duplicates.
    """
    found: set[int] = set()
    if pod.host_ports or pod.volumes is not NO_VOLUMES or pod.pod.spec.resource_claims:
        for name, here in members.items():
            row = nodes.row_of(name)
            if row != NO_ROW and any(_dispute(pod, member) for member in here):
                found.add(row)
    keys = {key for member in classes for key in _disputed_domains(pod, member, nodes)}
    for key in keys:
        found.update(_rows_of_domains(key, members, nodes))
    return np.array(sorted(found), dtype=np.intp)


def _dispute(pod: PodInfo, member: PodInfo) -> bool:
    """Return whether two pods may conflict on one node."""
    if pod.host_ports and member.host_ports and any(_clash(one, member.host_ports) for one in pod.host_ports):
        return True
    if pod.volumes is not NO_VOLUMES and member.volumes is not NO_VOLUMES:
        return True
    return bool(pod.pod.spec.resource_claims and member.pod.spec.resource_claims)


def _clash(port: HostPort, others: Sequence[HostPort]) -> bool:
    return any(
        port[:2] == other[:2] and (port[2] == other[2] or WILDCARD_IP in (port[2], other[2])) for other in others
    )


def _disputed_domains(pod: PodInfo, member: PodInfo, nodes: NodeColumns) -> Iterator[str]:
    """Yield the topology keys in whose domains the pod and the member conflict."""
    for one, other in ((pod, member), (member, pod)):
        if one.terms.required_anti:
            yield from (term.topology_key for term in one.terms.required_anti if _means(term, other, nodes))
    meta = pod.pod.metadata
    if meta.namespace == member.pod.metadata.namespace:
        for constraint in member.pod.spec.topology_spread_constraints:
            if constraint.when_unsatisfiable == _REQUIRED:
                try:
                    counts = compile_label_selector(constraint.label_selector).matches(meta.labels)
                except SelectorError:
                    continue
                if counts:
                    yield constraint.topology_key


def _means(term: AffinityTerm, other: PodInfo, nodes: NodeColumns) -> bool:
    meta = other.pod.metadata
    return term.query.matches(meta.namespace, meta.labels, nodes.namespaces.get(meta.namespace))


def _rows_of_domains(key: str, members: Mapping[str, Sequence[PodInfo]], nodes: NodeColumns) -> list[int]:
    ids = nodes.label_column(key).ids
    rows = [row for name in members if (row := nodes.row_of(name)) != NO_ROW and ids[row] >= 0]
    return np.flatnonzero(np.isin(ids, ids[rows]) & nodes.alive).tolist() if rows else []
