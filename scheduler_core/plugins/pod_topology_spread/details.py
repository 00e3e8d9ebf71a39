"""What a node exceeds by topology spread constraints: counts, the minimum, and which domains set it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from scheduler_core.plugins.pod_topology_spread.constraints import NodeInclusion
from scheduler_core.plugins.pod_topology_spread.filtering import DomainSkew, RequiredSpread
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

_MAX_NAMED = 3


def spread_details(
    spread: RequiredSpread, pod: PodInfo, nodes: NodeColumns, row: int, inclusion: NodeInclusion
) -> Iterator[str]:
    """Yield a sentence for each constraint that rejects a row."""
    at = np.array([row], dtype=np.intp)
    for skew in spread.skews:
        if not int(skew.codes(at)[0]):
            continue
        key = skew.constraint.topology_key
        column = nodes.label_column(key)
        domain = int(column.ids[row])
        if domain < 0:
            yield f"the node has no label {key}"
            continue
        yield _exceeded(skew, pod, nodes, domain, inclusion)


def _exceeded(skew: DomainSkew, pod: PodInfo, nodes: NodeColumns, domain: int, inclusion: NodeInclusion) -> str:
    constraint, minimum = skew.constraint, skew.minimum
    key, names = constraint.topology_key, nodes.label_column(constraint.topology_key).values.keys
    count = int(skew.table.counts[domain])
    own = int(skew.is_own_match)
    after = f"{count + own} with this pod" if own else "this pod does not count"
    text = f"{key}={names[domain]} has {_pods(count)} ({after}), maxSkew {constraint.max_skew}"
    present = skew.domains()
    if len(present) < constraint.min_domains:
        text += f", the minimum is 0 because there are {len(present)} of minDomains {constraint.min_domains} domains"
        lowest = min((int(skew.table.counts[each]) for each in present), default=0)
        if count + own - lowest <= constraint.max_skew:
            text += f"; minDomains {max(1, len(present))} would admit the node"
        return text
    lowest_domains = [each for each in present if int(skew.table.counts[each]) == minimum]
    named = ", ".join(f"{names[each]}" for each in lowest_domains[:_MAX_NAMED])
    more = f" and {len(lowest_domains) - _MAX_NAMED} more" if len(lowest_domains) > _MAX_NAMED else ""
    noun = "empty domain" if minimum == 0 else "domain"
    noun += "" if len(lowest_domains) == 1 else "s"
    text += f", the minimum is {minimum} in {noun} {named}{more}"
    return text + _with_honored_taints(skew, pod, nodes, domain, inclusion)


def _with_honored_taints(
    skew: DomainSkew, pod: PodInfo, nodes: NodeColumns, domain: int, inclusion: NodeInclusion
) -> str:
    """Return what ``nodeTaintsPolicy: Honor`` would change; "" for nothing."""
    constraint = skew.constraint
    if constraint.honors_taints:
        return ""
    tolerated = inclusion.tolerated(pod, nodes)
    if tolerated is None:
        return ""
    counts, present = skew.table.counts, skew.domains()
    left = {int(each) for each in skew.table.ids[tolerated & nodes.alive].tolist() if each >= 0}
    dropped = [each for each in present if each not in left and int(counts[each]) == skew.minimum]
    if not dropped or not left:
        return ""
    column = nodes.label_column(constraint.topology_key)
    named = ", ".join(str(column.values.keys[each]) for each in dropped[:_MAX_NAMED])
    lowest = min(int(counts[each]) for each in left)
    is_enough = int(counts[domain]) + int(skew.is_own_match) - lowest <= constraint.max_skew
    result = "and the node would be admitted" if is_enough else f"and the minimum would be {lowest}"
    return f"; the pod tolerates no node of {named}: nodeTaintsPolicy: Honor would not count it, {result}"


def _pods(count: int) -> str:
    return f"{count} matching pod" if count == 1 else f"{count} matching pods"
