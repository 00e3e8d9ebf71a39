"""What becomes of a gang whose attempt failed.

Owns the words, for the group and for each of its members, and the way back into the queue. Must not undo anything: that
is done before it comes here. Every member is told the same, as long as it is the same: an autoscaler reads the pods'
conditions, people read the group's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scheduler_core.cycle.context import CycleContext
from scheduler_core.cycle.decision_log import tell_gang
from scheduler_core.cycle.failure import Failure, patch_status, reference_to
from scheduler_core.cycle.gang_trial import GangTrial
from scheduler_core.cycle.measures import ERROR
from scheduler_core.cycle.measures import UNSCHEDULABLE as UNSCHEDULABLE_RESULT
from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.model.pod_group import PodGroup
from scheduler_core.ports import Event
from scheduler_core.queueing.gang import Gang, GangOutcome
from scheduler_core.queueing.gang_entries import GANG_SCHEDULING
from scheduler_core.runtime.equivalence.reuse import filter_class
from scheduler_core.snapshot.free_amounts import free_amount
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

log = logging.getLogger(__name__)

UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"
_MOST_ASKING = 16
"""Kinds of members that hints are asked for; a gang of more kinds asks for the first ones."""
_FREED_BY = "NodeResourcesFit"


@dataclass(frozen=True, slots=True)
class GangFailure:
    """Why a gang was not placed.

    Attributes:
        message: The text that members are told.
        hint: What the group is told beside it: which nodes are nearest and what would do; "" for nothing.
        reason: The condition's one word.
        rejected_by: Plugins that turned members away.
        pending_on: Of those, the ones that answered Pending.
        rejected_members: Members that were turned away, each kind once.
        fitting: Members that found a node in the best of the tries.
        needed: Members that had to.
        nominations: Nodes that members are promised, by UID.
        victims: Pods that are evicted for the gang, (namespace, name).
    """

    message: str
    reason: str = UNSCHEDULABLE
    rejected_by: frozenset[str] = frozenset()
    pending_on: frozenset[str] = frozenset()
    rejected_members: tuple[PodInfo, ...] = ()
    fitting: int = 0
    needed: int = 0
    hint: str = ""
    nominations: Mapping[str, str] = field(default_factory=dict)
    victims: tuple[tuple[str, str], ...] = ()

    @property
    def is_error(self) -> bool:
        """Whether it is an error rather than a rejection."""
        return self.reason == SCHEDULER_ERROR


def not_enough_free(nodes: NodeColumns, group: PodGroup, leaving: Sequence[PodInfo] = ()) -> GangFailure | None:
    """Return the failure of a group whose ``minResources`` are not free in the whole cluster; None if they are.

    Args:
        nodes: The columns.
        group: The group.
        leaving: Pods that count as gone from their nodes.
    """
    lacking = []
    for name, wanted in group.min_resources.items():
        free = free_amount(nodes, name, leaving)
        if free < wanted:
            unit = "m" if name == "cpu" else ""
            lacking.append(f"{name} {wanted}{unit} of which {free}{unit} are free")
    if not lacking:
        return None
    message = f"the group's minResources are not free in the cluster: {', '.join(lacking)}"
    return GangFailure(message, rejected_by=frozenset((_FREED_BY, GANG_SCHEDULING)), needed=group.min_member)


def of_strangers(profile: str, strangers: Sequence[str], needed: int) -> GangFailure:
    """The failure of a group whose members name several schedulers, so that none of these has the quorum.

    Args:
        profile: The scheduler name for which it was tried.
        strangers: The others that members name.
        needed: Members that had to be placed.
    """
    others = ", ".join(sorted(set(strangers)))
    message = f"members name other schedulers than {profile} ({others}); give all members of a group one schedulerName"
    return GangFailure(message, rejected_by=frozenset((GANG_SCHEDULING,)), needed=needed)


def of_trials(needed: int, trials: Sequence[GangTrial]) -> GangFailure:
    """The failure of tries none of which placed the quorum: what the best of them lacked, and who may be helped how."""
    if not trials:
        message = "no node has the topology's label; label the nodes or change the PodGroup's topology"
        return GangFailure(message, rejected_by=frozenset(("NodeAffinity", GANG_SCHEDULING)), needed=needed)
    best = max(trials, key=lambda trial: trial.reached)
    rejected: set[str] = set()
    pending: set[str] = set()
    kinds: dict[object, PodInfo] = {}
    for trial in trials:
        for attempt, failure in trial.failed:
            rejected |= failure.rejected_by
            pending |= failure.pending_on
            if len(kinds) < _MOST_ASKING:
                kinds.setdefault(filter_class(attempt.instance, attempt.info), attempt.info)
    if best.where.name:
        # Domains that have too little room are not tried, but for the nearest: room in any of them may help.
        rejected.add(_FREED_BY)
    broken = next((each for trial in trials for each in trial.failed if each[1].is_error), None)
    if broken is not None:
        message = f"{broken[0].info.key}: {broken[1].message}"
        return GangFailure(message, SCHEDULER_ERROR, fitting=best.reached, needed=needed)
    return GangFailure(
        _sentence(needed, best, trials), UNSCHEDULABLE, frozenset(rejected), frozenset(pending), tuple(kinds.values()),
        best.reached, needed, best.nearest,
    )  # fmt: skip


def _sentence(needed: int, best: GangTrial, trials: Sequence[GangTrial]) -> str:
    domains = {trial.where.name for trial in trials if trial.where.name}
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


def gang_failed(context: CycleContext, entry: QueuedGang, gang: Gang, failure: GangFailure) -> None:
    """Tell why, and let the gang wait again."""
    now = context.clock.now()
    if gang.first_failure is None:
        gang.first_failure = now
    context.reservations.failed(gang)
    fitting = max(failure.fitting, 0)
    message = f"{failure.message.rstrip('.')}. {failure.hint}." if failure.hint else failure.message
    gang.outcome = GangOutcome(failure.reason, message, fitting, failure.needed)
    gang.victims = failure.victims
    _count(context, entry, gang, failure)
    members = list(gang.waiting.values())
    entry.rejected_by, entry.pending_on = failure.rejected_by, failure.pending_on
    entry.rejected_members = failure.rejected_members or tuple(pod.info for pod in members[:1])
    for queued in members:
        queued.attempts += 1
        nominated = failure.nominations.get(queued.uid, "")
        # Who preempts by the group's priority must be able to keep what it gains by that.
        context.queue.nominator.decide(queued.info, nominated, None if gang.group is None else gang.group.priority)
        told = Failure(failure.message, failure.rejected_by, failure.pending_on, failure.is_error, nominated)
        if patch_status(context, queued.info.pod, told):
            context.writer.record(
                Event(
                    reference_to(queued.info.pod),
                    "Warning",
                    "FailedScheduling",
                    "Scheduling",
                    failure.message,
                    reporting_controller=entry.profile,
                )
            )
    context.queue.failed(entry)
    context.queue.gangs.changed(gang)


def _count(context: CycleContext, entry: QueuedGang, gang: Gang, failure: GangFailure) -> None:
    record = context.record(entry.profile)
    result = ERROR if failure.is_error else UNSCHEDULABLE_RESULT
    context.measures.attempt_failed(entry.profile, result, context.clock.now() - entry.tried_at)
    if failure.is_error:
        record.errors += 1
        record.last_error = f"gang {gang.key}: {failure.message}"
        extra = {"podgroup": str(gang.key), "profile": entry.profile, "result": ERROR}
        log.warning(
            "gang %s cannot be scheduled by profile %s: %s", gang.key, entry.profile, failure.message, extra=extra
        )
    else:
        record.unschedulable += 1
        tell_gang(str(gang.key), entry.profile, result, failure.message)
