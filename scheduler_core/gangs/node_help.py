"""Whether new nodes could help a rejected gang.

Autoscalers add nodes for every member that is reported Unschedulable, and take no account of gangs. If too many members
lack something else, such as a volume claim, the nodes for the others would stay empty.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler_core.errors import SchedulerCoreError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.gangs.failure_handler import UNSCHEDULABLE, GangFailure
from scheduler_core.model.node import HOSTNAME
from scheduler_core.model.pod import Pod
from scheduler_core.placement.requests import PlacementRequest, Rejection
from scheduler_core.runtime.equivalence import class_key, filter_class
from scheduler_core.runtime.filtering import run_pre_filters
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

_MAX_CLASSES = 16
"""Pod classes that are examined; members of further ones count as helped by nodes."""

_STEPS_OF_CLASS = 4
_MEMBERS_PER_STEP = 50
"""Members whose class is determined in a step."""


def with_node_help(
    nodes: NodeColumns, request: PlacementRequest, failure: GangFailure, rejection: Rejection
) -> GangFailure:
    """Return the failure with the reason why no new node helps, if there is one.

    Nodes help no gang whose quorum needs a member that PreFilter rejects as a whole, that may only use certain nodes by
    their names, or whose domain is the node of members that are scheduled already.
    """
    if failure.reason != UNSCHEDULABLE or failure.is_given_up or not failure.is_helped_by_nodes:
        return failure
    why = _lasting_problem(nodes, request, rejection)
    if not why:
        return failure
    message = f"{failure.message.rstrip('.')}; new nodes do not help: {why}"
    return replace(failure, message=message, is_helped_by_nodes=False)


def _lasting_problem(nodes: NodeColumns, request: PlacementRequest, rejection: Rejection) -> str:
    for topology, gangs in request.gang.topologies:
        if topology.is_required and topology.key == HOSTNAME and any(gang.placed for gang in gangs):
            return "scheduled members have set the node of the group"
    # In another domain than that of its node, any member with such a node is rejected.
    tries = () if request.gang.topologies else rejection.tries
    tried = {attempt.info.uid for found in tries for attempt, _ in found.failed}
    nodes.steps.pass_by(1 + len(request.members) // _MEMBERS_PER_STEP)
    of_class: dict[object, list[PodInfo]] = {}
    if request.members:
        # filter_class examines all plugins, with the same result for each member.
        first = request.members[0].info
        has_own_class = filter_class(request.instance, first) == first.uid
        for info in (queued.info for queued in request.members):
            of_class.setdefault(info.uid if has_own_class else class_key(info), []).append(info)
    left, why = len(request.members), ""
    for infos in list(of_class.values())[:_MAX_CLASSES]:
        nodes.steps.pass_by(_STEPS_OF_CLASS)
        problem = _problem_of(nodes, request, infos, tried)
        if problem:
            left -= len(infos)
            why = why or f"{infos[0].key}: {problem}"
    return why if left < request.needed else ""


def _problem_of(nodes: NodeColumns, request: PlacementRequest, infos: list[PodInfo], tried: set[str]) -> str:
    """Return why no new node helps members of one class; "" if one may."""
    rejected = next((info for info in infos if info.uid in tried), None)
    try:
        outcome = run_pre_filters(request.instance, CycleState(), infos[0], nodes)
    except SchedulerCoreError:
        # It is reported by the attempt itself.
        return ""
    if not outcome.status.is_success:
        return outcome.status.message
    if rejected is not None and (outcome.node_names is not None or is_pinned(rejected.pod)):
        return "it may only use nodes of certain names"
    return ""


def is_pinned(pod: Pod) -> bool:
    """Return whether a pod may only use nodes that it names by their hostname label."""
    spec = pod.spec
    if HOSTNAME in spec.node_selector:
        return True
    affinity = None if spec.affinity is None else spec.affinity.node_affinity
    required = None if affinity is None else affinity.required
    if required is None or not required.node_selector_terms:
        return False
    return all(
        any(each.key == HOSTNAME and each.operator == "In" for each in term.match_expressions)
        for term in required.node_selector_terms
    )
