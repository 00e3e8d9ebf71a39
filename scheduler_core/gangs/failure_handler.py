"""Handling of a failed group cycle: conditions, events, and the gang's way back into the queue.

All members get the same condition, for autoscalers; people read the PodGroup's status. Whatever was assumed or reserved
must be released before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, structs

from scheduler_core.cycle.failure_handler import Failure, failed_scheduling, patch_status
from scheduler_core.cycle.freed_capacity_event import FreedCapacity
from scheduler_core.errors import AttemptLimitError, SchedulerCoreError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import Reads
from scheduler_core.framework.plugin import Plugin
from scheduler_core.framework.queued_pod import QueuedGang, QueuedPod
from scheduler_core.framework.status import GANG_SCHEDULING
from scheduler_core.metrics.attempt_reports import log_gang
from scheduler_core.metrics.scheduler_metrics import ERROR, SchedulerMetrics
from scheduler_core.metrics.scheduler_metrics import UNSCHEDULABLE as UNSCHEDULABLE_RESULT
from scheduler_core.model.node import HOSTNAME
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, PodGroup
from scheduler_core.model.pod_requests import amount_text
from scheduler_core.placement.requests import Placement, PlacementRequest, Rejection
from scheduler_core.placement.subsets import count_domains, exempted_resources, member_room
from scheduler_core.ports import Clock, ClusterWriter
from scheduler_core.queueing.gang_members import Gang, GangOutcome
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.queueing.waiting_causes import SCHEDULER_ERROR
from scheduler_core.runtime.equivalence import class_key, filter_class
from scheduler_core.runtime.filtering import run_filters, run_pre_filters
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.node_adapters import NodeFilterAdapter
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.snapshot.row_cache import free_amount

log = logging.getLogger(__name__)

UNSCHEDULABLE = "Unschedulable"
_PREEMPTS = "PreemptLowerPriority"
_STEPS_OF_REPORT = 10
_MAX_CLASSES = 16
"""Pod classes for which queueing hints are called; further classes of a gang are ignored."""


class GangFailure(Struct, frozen=True):
    """Why a gang was not scheduled.

    Attributes:
        hint: Addition in the PodGroup's status: the nearest nodes and what they lack; "" for none.
        pending_on: Rejecting plugins that returned Pending.
        rejected_members: UIDs of rejected members, one of each pod class.
        fitting: Feasible members in the best try.
        needed: Members that had to be feasible.
        nominations: Nominated nodes by UID of the member.
        victims: Pods that are evicted for the gang, (namespace, name).
        untried: Members that were not tried because the quorum was out of reach.
        preemption: Result of the preemption in the words of kube-scheduler v1.37.1; "" if it has none for it.
        lacks: What each gang of a tree lacks in these words; empty for a gang.
        is_given_up: Whether the attempt took all steps that it may: nothing more is searched for the gang.
        is_helped_by_nodes: Whether new nodes may help, so that autoscalers should see the members as unschedulable.
        is_delayed: Whether preemption waits for a new node.
    """

    message: str
    reason: str = UNSCHEDULABLE
    rejected_by: frozenset[str] = frozenset()
    pending_on: frozenset[str] = frozenset()
    rejected_members: tuple[str, ...] = ()
    fitting: int = 0
    needed: int = 0
    hint: str = ""
    nominations: Mapping[str, str] = msgspec.field(default_factory=dict)
    victims: tuple[tuple[str, str], ...] = ()
    untried: int = 0
    preemption: str = ""
    lacks: Mapping[GroupKey, str] = msgspec.field(default_factory=dict)
    is_given_up: bool = False
    is_helped_by_nodes: bool = True
    is_delayed: bool = False

    @property
    def is_error(self) -> bool:
        """Whether it is an error rather than a rejection."""
        return self.reason == SCHEDULER_ERROR

    def also(self, words: str, **changes: Any) -> GangFailure:
        """Return the failure with further words in its message, and with changes."""
        return structs.replace(self, message=f"{self.message.rstrip('.')}; {words}", **changes)


def not_enough_free(instance: FrameworkInstance, nodes: NodeColumns, gang: Gang) -> GangFailure | None:
    """Return the failure of a gang whose ``minResources`` are not free in the whole cluster; None if they are.

    Once a member has a node or has succeeded, what the others need follows from their own requests, so nothing is
    compared.
    """
    group = gang.group
    if group is None or gang.placed or gang.succeeded:
        return None
    lacking = []
    for name, wanted in group.min_resources.items():
        free = free_amount(nodes, name)
        if free is not None and free < wanted:
            lacking.append(f"{name} {amount_text(name, wanted)} of which {amount_text(name, free)} are free")
    if not lacking:
        return None
    message = f"the group's minResources are not free in the cluster: {', '.join(lacking)}"
    return GangFailure(message, rejected_by=instance.capacity_plugins | {GANG_SCHEDULING}, needed=group.min_member)


def of_strangers(profile: str, strangers: Sequence[str], needed: int) -> GangFailure:
    """Return the failure of a group whose members name several schedulers, none of which has the quorum."""
    others = ", ".join(sorted(set(strangers)))
    message = f"members name other schedulers than {profile} ({others}); give all members of a group one schedulerName"
    rejected_by = frozenset((GANG_SCHEDULING,))
    return GangFailure(message, rejected_by=rejected_by, needed=needed, is_helped_by_nodes=False)


def of_mixed(group: PodGroup, members: Sequence[Pod], needed: int) -> GangFailure | None:
    """Return the failure of a group whose members differ in what must be equal; None if they do not.

    Follows kube-scheduler v1.37.1, ``schedule_one_podgroup.go`` (``validatePodGroup``), with its messages.

    Args:
        members: The members that wait or are scheduled, in the order in which they are compared.
    """
    scheduler = members[0].spec.scheduler_name if members else ""
    policy = group.preemption_policy
    for pod in members:
        spec = pod.spec
        own = spec.preemption_policy or _PREEMPTS
        text = ""
        if spec.scheduler_name != scheduler:
            text = f'.spec.schedulerName set, got: "{spec.scheduler_name}" and "{scheduler}"'
        elif group.priority is not None and (spec.priority or 0) != group.priority:
            text = f"priority as the pod group's priority, got {spec.priority or 0} and {group.priority}"
        elif policy is not None and own != policy:
            of_group = " as the pod group's preemption policy" if group.preemption_policy else ""
            text = f"preemption policy{of_group}, got {own} and {policy}"
        if text:
            message = f"all pods in a single pod group should have the same {text}"
            return GangFailure(message, SCHEDULER_ERROR, needed=needed)
        policy = policy or own
    return None


def of_rejection(instance: FrameworkInstance, needed: int, rejection: Rejection) -> GangFailure:
    """Return the failure of a rejected request: the reasons of the best try, the rejecting plugins of all."""
    if rejection.limit is not None:
        return _of_limit(instance, needed, rejection, rejection.limit)
    tries = rejection.tries
    if not tries:
        message = "no node has the topology's label; label the nodes or change the PodGroup's topology"
        return GangFailure(message, rejected_by=instance.label_plugins | {GANG_SCHEDULING}, needed=needed)
    best = max(tries, key=lambda each: each.reached)
    rejected, pending = set(rejection.rejected_by), set(rejection.pending_on)
    classes: dict[object, str] = {}
    for attempt, failure in (each for tried in tries for each in tried.failed):
        rejected |= failure.rejected_by
        pending |= failure.pending_on
        if len(classes) < _MAX_CLASSES:
            classes.setdefault(filter_class(attempt.instance, attempt.info), attempt.info.uid)
    if rejection.lack and not best.failed:
        # Only another group or member can complete the quorum of the tree.
        rejected.add(GANG_SCHEDULING)
    if best.where.name or rejection.has_untried_domains:
        # Not all domains with too little room are tried: freed resources in any of them may help.
        rejected |= instance.capacity_plugins
    broken = next((each for tried in tries for each in tried.failed if each[1].is_error), None)
    if broken is not None:
        message = f"{broken[0].info.key}: {broken[1].message}"
        return GangFailure(message, SCHEDULER_ERROR, fitting=best.reached, needed=needed)
    text = _sentence(needed, best, rejection)
    return GangFailure(
        f"{text}; {rejection.device_search}" if rejection.device_search else text,
        UNSCHEDULABLE, frozenset(rejected), frozenset(pending),
        tuple(classes.values()), best.reached, needed, best.nearest, untried=len(best.untried), lacks=rejection.lacks,
    )  # fmt: skip


def _of_limit(instance: FrameworkInstance, needed: int, rejection: Rejection, limit: AttemptLimitError) -> GangFailure:
    """Return the failure of a gang whose search took more steps than it may; any freed resource may help it."""
    message = f"the search for the nodes of {needed} members that must be placed together was {limit}"
    rejected_by = instance.capacity_plugins | {GANG_SCHEDULING} | ({limit.plugin} if limit.plugin else set())
    if not rejection.tries:
        return GangFailure(message, rejected_by=rejected_by, needed=needed, is_given_up=True)
    found = of_rejection(instance, needed, replace(rejection, limit=None))
    if found.is_error:
        return found
    message = f"{message}; until then {found.message}"
    return structs.replace(found, message=message, rejected_by=found.rejected_by | rejected_by, is_given_up=True)


def _sentence(needed: int, best: Placement, rejection: Rejection) -> str:
    if rejection.lack:
        return "; for ".join([rejection.lack, *(f"{tried.info.key}: {why.message}" for tried, why in best.failed[:1])])
    domains = {each.where.name for each in rejection.tries if each.where.name} | rejection.ruled_out
    where = f" in {best.where.name}" if best.where.name else ""
    if where and len(domains) > 1:
        where += f", the nearest of {len(domains)} domains tried"
    if best.reached:
        text = f"{best.reached} of the {needed} members that must be placed together fit{where}"
    else:
        text = f"none of the {needed} members that must be placed together fits{where}"
    if not best.failed:
        return text
    attempt, failure = best.failed[0]
    return f"{text}; {'with them in place, ' if best.reached else ''}for {attempt.info.key}: {failure.message}"


def quorum_text(nodes: NodeColumns, gang: Gang, failure: GangFailure) -> str:
    """Return what the quorum lacks in the words of kube-scheduler v1.37.1 (``PlacementFeasible``)."""
    group = gang.group
    if group is None or failure.is_error:
        return ""
    if gang.tree is not None:
        text = failure.lacks.get(gang.key) or f"minCount ({group.min_member}) cannot be satisfied"
        return f"{text}, pod group preemption: {failure.preemption}" if failure.preemption else text
    scheduled = group.min_member - failure.needed + max(failure.fitting, 0)
    text = f"minCount ({group.min_member}) cannot be satisfied: {scheduled} scheduled, {failure.untried} remaining"
    if group.topology is not None and group.topology.is_required:
        placements = count_domains(nodes, group.topology)
        text = f"0/{placements} placements are available, first placement status: {text}"
    return f"{text}, pod group preemption: {failure.preemption}" if failure.preemption else text


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedGangs:
    """Reports failed group cycles and requeues their gangs."""

    nodes: NodeColumns
    queue: SchedulingQueue
    writer: ClusterWriter
    metrics: SchedulerMetrics
    clock: Clock
    freed: FreedCapacity

    def handle(self, entry: QueuedGang, gang: Gang, failure: GangFailure) -> None:
        fitting = max(failure.fitting, 0)
        message = f"{failure.message.rstrip('.')}. {failure.hint}." if failure.hint else failure.message
        for part in gang.parts:
            if part.waiting:
                quorum = quorum_text(self.nodes, part, failure)
                helped = failure.is_helped_by_nodes
                part.outcome = GangOutcome(failure.reason, message, fitting, quorum=quorum, is_helped_by_nodes=helped)
                part.victims = failure.victims
        if gang.is_tree:
            gang.outcome, gang.victims = GangOutcome(failure.reason, message, fitting), failure.victims
        self._count(entry, gang, failure)
        members = list(gang.waiting.values())
        if self.queue.is_in_flight(entry.uid):
            # Otherwise it is requeued already, and an error was raised after that.
            entry.rejected_by, entry.pending_on = failure.rejected_by, failure.pending_on
        rejected = (gang.waiting.get(uid) for uid in failure.rejected_members)
        entry.rejected_members = tuple(pod.info for pod in rejected if pod) or tuple(pod.info for pod in members[:1])
        ended = list(self._decide_nominations(members, failure))
        self.queue.failed(entry)
        for info, node_name in ended:
            # Not to the entry itself, which its own attempt must not requeue. For a pod without a gang, nothing is
            # reported before the watch shows its status without the nomination, as in kube-scheduler.
            self.freed.nomination_ended(info, node_name, exclude=entry.uid)
        self.queue.gangs.changed(gang)
        for queued in members:
            # The gang is requeued, so the event loop may run between the reports of a large one.
            self.nodes.steps.upkeep(_STEPS_OF_REPORT)
            self._report(queued, failure, entry.profile)

    def _decide_nominations(self, members: Iterable[QueuedPod], failure: GangFailure) -> Iterator[tuple[PodInfo, str]]:
        """Nominate members as the failure states; yield those whose nomination ends, each with its node."""
        nominator = self.queue.nominator
        for queued in members:
            queued.attempts += 1
            before, node_name = nominator.nomination_of(queued.uid), nominator.node_of(queued.uid)
            nominator.decide(queued.info, failure.nominations.get(queued.uid, ""))
            if before is not None and nominator.node_of(queued.uid) != node_name:
                yield before, node_name

    def _report(self, queued: QueuedPod, failure: GangFailure, profile: str) -> None:
        pod, nominated = queued.info.pod, failure.nominations.get(queued.uid, "")
        of_member = Failure(
            failure.message,
            failure.rejected_by,
            failure.pending_on,
            failure.is_error,
            nominated,
            is_helped_by_nodes=failure.is_helped_by_nodes,
        )
        if patch_status(self.writer, pod, of_member, queued=queued, nominations=self.queue.nominator):
            self.writer.record(failed_scheduling(pod, failure.message, profile))

    def _count(self, entry: QueuedGang, gang: Gang, failure: GangFailure) -> None:
        record = self.metrics.records[entry.profile]
        result = ERROR if failure.is_error else UNSCHEDULABLE_RESULT
        self.metrics.profiles[entry.profile].attempts[result].observe(self.clock.now() - entry.tried_at)
        if failure.is_error:
            record.count_error(f"gang {gang.key}: {failure.message}", self.clock.wall())
            extra = {"podgroup": str(gang.key), "profile": entry.profile, "result": ERROR}
            log.warning(
                "gang %s cannot be scheduled by profile %s: %s", gang.key, entry.profile, failure.message, extra=extra
            )
        else:
            record.unschedulable += 1
            log_gang(str(gang.key), entry.profile, result, failure.message)


# -- whether new nodes help -------------------------------------------------------------------------------------------


# Autoscalers add nodes for every member that is reported Unschedulable, and take no account of gangs. If too many
# members lack something else, such as a volume claim, the nodes for the others would stay empty.

_MAX_HELPED_CLASSES = 16
"""Pod classes that are examined; members of further ones count as helped by nodes."""

_STEPS_OF_CLASS = 4
_MEMBERS_PER_STEP = 50
"""Members whose class is determined in a step."""


def with_node_help(
    nodes: NodeColumns, request: PlacementRequest, failure: GangFailure, rejection: Rejection
) -> GangFailure:
    """Return the failure with the reason why no new node helps, if there is one.

    Nodes help no gang whose quorum needs a member that PreFilter rejects as a whole, that may only use certain nodes by
    their names, which have no room for it, or whose domain is the node of members that are scheduled already.
    """
    if failure.reason != UNSCHEDULABLE or failure.is_given_up or not failure.is_helped_by_nodes:
        return failure
    why = _lasting_problem(nodes, request, rejection)
    return failure.also(f"new nodes do not help: {why}", is_helped_by_nodes=False) if why else failure


def _lasting_problem(nodes: NodeColumns, request: PlacementRequest, rejection: Rejection) -> str:
    for topology, gangs in request.gang.topologies:
        if topology.is_required and topology.key == HOSTNAME and any(gang.placed for gang in gangs):
            return "scheduled members have set the node of the group"
    nodes.steps.pass_by(1 + len(request.members) // _MEMBERS_PER_STEP)
    of_class: dict[object, list[PodInfo]] = {}
    if request.members:
        # filter_class examines all plugins, with the same result for each member.
        first = request.members[0].info
        has_own_class = filter_class(request.instance, first) == first.uid
        for info in (queued.info for queued in request.members):
            of_class.setdefault(info.uid if has_own_class else class_key(info), []).append(info)
    # In another domain than that of its node, any member with such a node is rejected.
    tries = () if request.gang.topologies else rejection.tries
    tried = {attempt.info.uid for found in tries for attempt, _ in found.failed}
    stuck, why, pinned = 0, "", _Pinned()
    for infos in list(of_class.values())[:_MAX_HELPED_CLASSES]:
        nodes.steps.pass_by(_STEPS_OF_CLASS)
        count, problem = _problem_of(nodes, request, infos, pinned, is_tried=any(info.uid in tried for info in infos))
        if problem:
            stuck += count
            why = why or f"{infos[0].key}: {problem}"
    if pinned.infos:
        # Members of several classes may have room one by one, and not together.
        together = len(pinned.infos) - _room_of(nodes, request.instance, pinned.infos, sorted(pinned.rows))
        if together > stuck:
            stuck, why = together, why or f"{pinned.infos[0].key}: {_OF_NAMED_NODES}"
    return why if len(request.members) - stuck < request.needed else ""


_OF_NAMED_NODES = "it may only use nodes of certain names"


@dataclass(slots=True)
class _Pinned:
    """Members that may only use nodes of certain names, and the rows of these nodes that accept them."""

    infos: list[PodInfo] = field(default_factory=list)
    rows: set[int] = field(default_factory=set)


def _problem_of(
    nodes: NodeColumns, request: PlacementRequest, infos: list[PodInfo], pinned: _Pinned, *, is_tried: bool
) -> tuple[int, str]:
    """Return how many members of one class no new node helps, and why.

    Args:
        pinned: Receives the members if they may only use nodes of certain names.
        is_tried: Whether one of them was rejected with others in place.
    """
    state, first = CycleState(), infos[0]
    try:
        outcome = run_pre_filters(request.instance, state, first, nodes)
        if not outcome.status.is_success:
            return len(infos), outcome.status.message
        if outcome.node_names is None and not is_pinned(first.pod):
            return 0, ""
        # Alone: with others in place, a member may lack the room that these leave when they use new nodes.
        filters = [
            (position, each)
            for position, each in enumerate(request.instance.filters)
            if _decides_alone(each.plugin if isinstance(each, NodeFilterAdapter) else each, is_tried=is_tried)
        ]
        verdicts = run_filters(request.instance, state, first, nodes, ALL_ROWS, among=filters)
    except SchedulerCoreError:
        # It is reported by the attempt itself.
        return 0, ""
    rows = np.flatnonzero((verdicts == 0) & nodes.alive).tolist()
    if outcome.node_names is not None:
        rows = [row for row in rows if nodes.names[row] in outcome.node_names]
    pinned.infos += infos
    pinned.rows.update(rows)
    room = _room_of(nodes, request.instance, infos, rows)
    if room >= len(infos):
        return 0, ""
    some = f", which have room for {room} of {len(infos)} such members" if room else ""
    return len(infos) - room, f"{_OF_NAMED_NODES}{some}"


def _decides_alone(plugin: Plugin, *, is_tried: bool) -> bool:
    """Return whether members on other nodes do not change the result of a filter.

    Args:
        is_tried: Whether the filters reject the member with others in place, too.
    """
    reads = plugin.reuse.filter
    return Reads.DOMAINS not in reads if is_tried else reads.is_row_local


def _room_of(nodes: NodeColumns, instance: FrameworkInstance, infos: Sequence[PodInfo], rows: Sequence[int]) -> int:
    """Return how many members have room on some rows at most."""
    return int(member_room(nodes, infos, exempts=exempted_resources(instance))[list(rows)].sum())


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
