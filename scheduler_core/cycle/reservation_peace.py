"""Pods that would keep a gang off its nodes by what they are, not by what they take.

Owns the strict half of backfill: ports, volumes and claims that two pods may dispute, and terms that reach over a
topology domain. In doubt a pod is kept off: it waits for the gang, while the gang would wait for it. Must not know
resources.

Affinity of members to other pods is not looked at here: no pod that comes can break it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler_core.errors import SelectorError
from scheduler_core.model.affinity_terms import AffinityTerm
from scheduler_core.model.pod_volumes import NO_VOLUMES
from scheduler_core.model.selectors import compile_label_selector
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, WILDCARD_IP, HostPort, PodInfo

_REQUIRED = "DoNotSchedule"


def is_touchy(member: PodInfo) -> bool:
    """Whether pods may keep a member off by what they are, though they name no terms of their own."""
    spec = member.pod.spec
    return bool(
        member.host_ports
        or member.volumes is not NO_VOLUMES
        or spec.resource_claims
        or member.terms.required_anti
        or spec.topology_spread_constraints
    )


def disturbed_rows(
    pod: PodInfo, members: Mapping[str, Sequence[PodInfo]], kinds: Sequence[PodInfo], nodes: NodeColumns
) -> NDArray[np.intp]:
    """Rows where a pod would keep members off their nodes.

    Args:
        pod: The pod that comes.
        members: The members by the node to which they are to go.
        kinds: One member of each kind; filters judge the others as they judge these.
        nodes: The columns.

    Returns:
        intp[k], ascending, each once.
    """
    found: set[int] = set()
    if pod.host_ports or pod.volumes is not NO_VOLUMES or pod.pod.spec.resource_claims:
        for name, here in members.items():
            row = nodes.row_of(name)
            if row != NO_ROW and any(_dispute(pod, member) for member in here):
                found.add(row)
    keys = {key for member in kinds for key in _disputed_domains(pod, member, nodes)}
    for key in keys:
        found.update(_rows_of_domains(key, members, nodes))
    return np.array(sorted(found), dtype=np.intp)


def _dispute(pod: PodInfo, member: PodInfo) -> bool:
    """Whether two pods may not share a node."""
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
    """Topology keys in whose domains of the member the pod must not be."""
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
