"""What a gang that was turned away lacks least: the nodes that its next member misses by least, and what would do.

Owns the words for the group's status. They are looked for while those members that fit still hold their places, and
kept until the gang is turned away otherwise or for half a minute, since to look at every node with every plugin costs
more than the attempt: of all the scheduler's time it takes a tenth at the most. Must not decide anything.
"""

from __future__ import annotations

import numpy as np

from scheduler_core.cycle.context import CycleContext
from scheduler_core.cycle.examination import Companions, examine_member
from scheduler_core.cycle.gang_trial import GangTrial, Where
from scheduler_core.cycle.near_misses import Lack, NearMiss, near_misses
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.framework.extension_points import Shortage
from scheduler_core.model.pod_group import GroupTopology
from scheduler_core.queueing.gang import Gang
from scheduler_core.snapshot.node_columns import NodeColumns

_NODES_TOLD = 3
_OLDEST_SECONDS = 30.0
_TIMES_APART = 10.0
_BINARY = ("Ki", "Mi", "Gi", "Ti")
_CPU, _MILLI, _KIBI = "cpu", 1000, 1024


def labels_of(nodes: NodeColumns, topology: GroupTopology | None, where: Where) -> dict[str, str]:
    """The labels that make a domain; none for anywhere."""
    if topology is None or where.among is None or not where.among.any():
        return {}
    node = nodes.nodes[int(np.flatnonzero(where.among)[0])]
    labels = {} if node is None else node.metadata.labels
    level = where.name.partition("=")[0]
    return {key: labels[key] for key in dict.fromkeys((topology.key, level)) if key in labels}


def nearest(context: CycleContext, gang: Gang, trial: GangTrial) -> str:
    """Say what the next member of a failed try lacks.

    Args:
        context: The shared parts.
        gang: The gang.
        trial: The try, which still holds what it placed.

    Returns:
        A sentence without its full stop; "" where there is nothing to say, or no time to find it out now.
    """
    attempt, failure = trial.failed[0]
    key, now = f"{trial.where.name}/{trial.reached}/{failure.message}", context.clock.now()
    if gang.nearest is not None and gang.nearest[0] == key:
        is_fresh = now < gang.nearest[2] + _OLDEST_SECONDS
        if is_fresh or now < context.nearest_again:
            return gang.nearest[1]
    if now < context.nearest_again:
        return ""
    topology = None if gang.group is None else gang.group.topology
    companions = Companions(frozenset(gang.pods), labels_of(context.cache.columns, topology, trial.where))
    try:
        again = examine_member(context, attempt.instance, attempt.queued, companions)
        misses = () if again.feasible or again.error else near_misses(context, attempt.instance, again, _NODES_TOLD)
    except SchedulerCoreError:
        misses = ()
    text = _sentence(misses)
    took = context.clock.now() - now
    context.nearest_again = now + took * (1 + _TIMES_APART)
    gang.nearest = (key, text, now)
    return text


def _sentence(misses: tuple[NearMiss, ...]) -> str:
    if not misses:
        return ""
    first, told = misses[0], ", ".join(f"{miss.node_name} ({_lacks(miss)})" for miss in misses)
    shortages = [each for lack in first.lacks for each in lack.shortages]
    if all(lack.shortages for lack in first.lacks):
        more = " and ".join(_amount(each, each.needed - each.free) for each in shortages)
        return f"Nearest: {told}; it would fit on {first.node_name} with {more} more"
    return f"Nearest: {told}; it would fit on {first.node_name} but for that"


def _lacks(miss: NearMiss) -> str:
    return "; ".join(map(_lack, miss.lacks))


def _lack(lack: Lack) -> str:
    if not lack.shortages:
        return ", ".join(lack.reasons) or lack.plugin
    return ", ".join(
        f"needs {_amount(each, each.needed)}, has {_quantity(each.resource, max(0, each.free))}"
        for each in lack.shortages
    )


def _amount(shortage: Shortage, value: int) -> str:
    return f"{_quantity(shortage.resource, value)} {shortage.resource}"


def _quantity(resource: str, value: int) -> str:
    if resource == _CPU:
        return str(value // _MILLI) if value % _MILLI == 0 else f"{value}m"
    suffix = ""
    for each in _BINARY:
        if value == 0 or value % _KIBI:
            break
        value, suffix = value // _KIBI, each
    return f"{value}{suffix}"
