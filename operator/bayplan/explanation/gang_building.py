"""Builds the explanation of a gang: its members, and a dry run of its group cycle if its quorum waits.

Everything is computed by the scheduler that would schedule the gang; its state is unchanged afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from msgspec.structs import replace

from bayplan.explanation.documents import (
    GangExplanation,
    GangPreemption,
    GangReservation,
    GangVerdict,
    LastAttempt,
    MemberCounts,
    MemberNode,
)
from bayplan.extenders.http_extender import extenders_skipped_notice
from bayplan.gangs.group_phase import Phase, Tally, evaluate_gang
from bayplan.resources.resource_model import format_time
from bayplan.texts.document_formats import item_or_error, listed
from scheduler_core.cycle.failure_handler import seconds_left
from scheduler_core.cycle_assembly import CycleContext
from scheduler_core.dry_run_assembly import Explainers, helpful_nodes
from scheduler_core.errors import AttemptLimitError
from scheduler_core.explain.findings import NewNodes, victims_of
from scheduler_core.explain.gang_dry_run import GangExamination
from scheduler_core.fit.requests import FitRequest
from scheduler_core.gangs.preemption import GangPreview
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.placement.requests import PlacementRequest
from scheduler_core.placement.reservations import Reservation
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.pod_info import PodInfo

_NAMED = 5
_SOURCES = (GroupSource.NATIVE, GroupSource.BAYPLAN, GroupSource.SCHEDULER_PLUGINS, GroupSource.VOLCANO)


@dataclass(frozen=True, slots=True)
class ExplanationOptions:
    """Limits on the lists in an explanation.

    Attributes:
        nearest: Maximum number of nearest misses; for a gang also the maximum number of domains.
        scored: Maximum number of nodes with scores.
        devices: Maximum number of groups of devices for each request.
    """

    nearest: int = 5
    scored: int = 5
    devices: int = 6


def gang_of_pod(context: CycleContext, pod: Pod) -> Gang | None:
    """Return the gang of a pod, or None if it has none; the scheduler need not have the pod in its cache or queue."""
    gangs = context.queue.gangs
    gang = gangs.of_uid(pod.metadata.uid)
    key = gangs.key_of(pod)
    return gang if gang is not None or key is None else gangs.get(key)


def named_gang(context: CycleContext, namespace: str, name: str, source: GroupSource | None = None) -> Gang | None:
    """Find a gang by the name of its PodGroup.

    Args:
        source: API of the PodGroup; None searches all APIs in the order of precedence for a pod that names several.

    Returns:
        The gang, or None. A gang exists as soon as a pod names it; one whose PodGroup exists is preferred.
    """
    sources = _SOURCES if source is None else (source,)
    gangs = [context.queue.gangs.get(GroupKey(each, namespace, name)) for each in sources]
    found = [gang for gang in gangs if gang is not None]
    return next((gang for gang in found if gang.group is not None), found[0] if found else None)


def explain_gang(scheduler: Scheduler, gang: Gang, options: ExplanationOptions | None = None) -> GangExplanation:
    """Explain one gang.

    Returns:
        The explanation; it includes the error if a plugin or the explanation itself fails.
    """
    bare = _bare(gang, scheduler.reservations.of(gang.key))

    def failed(problem: str) -> GangExplanation:
        headline = f"gang {gang.key} cannot be explained: {problem}"
        return replace(bare, verdict=GangVerdict.ERROR, headline=headline)

    limits = options or ExplanationOptions()
    with scheduler.context.steps.dry_run():
        found = item_or_error("the explanation of a gang", lambda: _explained(scheduler, gang, bare, limits), failed)
    instance = scheduler.context.profiles.get(found.scheduler_name or "")
    return found if instance is None else replace(found, profile_revision=instance.revision)


def _explained(scheduler: Scheduler, gang: Gang, bare: GangExplanation, limits: ExplanationOptions) -> GangExplanation:
    context = scheduler.context
    obstacle = context.queue.gangs.obstacle(gang.key)
    if gang.group is None or obstacle:
        names = _counted(bare.members.existing, "pod")
        headline = f"gang {gang.key} with {names} waits for its PodGroup: {obstacle}"
        return replace(bare, verdict=GangVerdict.NO_GROUP, headline=headline)
    phase_verdict = evaluate_gang(gang, Tally.of(gang), gang.group.min_member)
    bare = replace(bare, phase=phase_verdict.phase.value)
    if phase_verdict.phase is Phase.FINISHED:
        return replace(
            bare, verdict=GangVerdict.FINISHED, headline=f"gang {gang.key} has finished: {phase_verdict.message}"
        )
    if gang.is_held:
        return _not_tried(context, gang, bare, gang.why_held)
    if not gang.needed:
        return replace(
            bare, verdict=GangVerdict.PLACED, headline=f"gang {gang.key} is scheduled: {phase_verdict.message}"
        )
    unit = gang.unit
    entry = unit.entry
    if entry is None or not unit.has_quorum or gang.binding or not gang.waiting:
        return _not_tried(context, gang, bare, phase_verdict.message)
    instance = context.profiles.get(entry.profile)
    if instance is None:
        return _not_tried(context, gang, bare, phase_verdict.message)
    explainers = Explainers(context, scheduler.cycles, scheduler.reservations)
    try:
        found = explainers.gangs.examine(PlacementRequest.of(unit, instance), gang, limits.nearest)
    except AttemptLimitError as limit:
        return _not_tried(context, gang, bare, str(limit))
    built = _examined(bare, gang, found, extenders_skipped_notice(instance.config.extenders))
    if built.preemption is not None and found.preemption is not None and found.preemption.plan is not None:
        until = waits_until(context, instance, unit.first_failure)
        built = replace(built, preemption=replace(built.preemption, waits_until=until))
    if built.verdict is not GangVerdict.UNSCHEDULABLE:
        return built
    return replace(built, new_nodes=_new_nodes(scheduler, gang, found.needed))


def waits_until(context: CycleContext, instance: FrameworkInstance, since: float | None) -> str | None:
    """Return until when a profile waits for a new node before it preempts; None if it does not wait.

    Args:
        since: When the pod or gang was unschedulable first, in the clock's seconds; None for the present time.
    """
    left = seconds_left(instance, since, context.clock.now())
    return format_time(context.clock.wall() + timedelta(seconds=left)) if left > 0 else None


def new_nodes_for(scheduler: Scheduler, gang: Gang) -> NewNodes:
    """Return the new nodes with which the quorum of a waiting gang fits; nothing is changed.

    Raises:
        SchedulerCoreError: A pod cannot be compiled.
    """
    return _new_nodes(scheduler, gang, gang.needed)


def _new_nodes(scheduler: Scheduler, gang: Gang, needed: int) -> NewNodes:
    """Return the new nodes with which the quorum of a gang, or of a part of a tree, fits."""
    pods = tuple(queued.info.pod for queued in sorted(gang.unit.waiting.values(), key=lambda each: each.sequence))
    # With members on nodes, the group is bound to their domain, which the bounds do not count.
    groups = () if gang.group is None or gang.placed or gang.unit is not gang else (gang.group,)
    request = FitRequest(pods=pods, groups=groups)
    return helpful_nodes(scheduler.context, scheduler.reservations).find(request, gang.waiting.keys(), needed)


def _bare(gang: Gang, held: Reservation | None) -> GangExplanation:
    """Return the parts of an explanation that no plugin is called for."""
    group, outcome = gang.group, gang.outcome
    last_attempt = reservation = None
    if outcome is not None:
        when = None if gang.last_attempt is None else format_time(gang.last_attempt)
        last_attempt = LastAttempt(outcome.reason, outcome.message, when)
    if held is not None:
        waits_for = tuple(sorted(info.key for info in held.waited_for()))
        reservation = GangReservation(str(held.plan), held.plan.node_names, waits_for)
    notices = []
    if gang.victims:
        notices.append(
            f"preemption victims being evicted: {listed([f'{space}/{name}' for space, name in gang.victims], _NAMED)}"
        )
    return GangExplanation(
        namespace=gang.key.namespace,
        name=gang.key.name,
        api=gang.key.source.value,
        api_version=None if group is None else group.api_version,
        scheduler_name=gang.entry.profile if gang.entry is not None and gang.has_quorum else None,
        verdict=GangVerdict.INCOMPLETE,
        headline="",
        members=MemberCounts(
            existing=gang.members,
            gated=gang.gated,
            waiting=len(gang.waiting),
            placed=len(gang.placed),
            succeeded=gang.succeeded,
            failed=gang.failed,
            min_member=0 if group is None else group.min_member,
            needed=0 if group is None else gang.needed,
        ),
        reservation=reservation,
        last_attempt=last_attempt,
        notices=tuple(notices),
    )


# -- a gang that is not tried ---------------------------------------------------------------------------------------


def _not_tried(context: CycleContext, gang: Gang, bare: GangExplanation, phase_message: str) -> GangExplanation:
    """Explain a gang that lacks members, or whose members are not scheduled together."""
    unplaced = [pod for uid, pod in Tally.of(gang).alive.items() if uid not in gang.placed]
    names = sorted({pod.spec.scheduler_name for pod in unplaced})
    live = [instance for name in names if (instance := context.profiles.get(name)) is not None]
    if names and not live:
        served = ", ".join(sorted(instance.name for instance in context.profiles)) or "none"
        headline = f'no profile serves schedulerName "{names[0]}" of gang {gang.key}; available profiles: {served}'
        return replace(bare, verdict=GangVerdict.NO_PROFILE, scheduler_name=names[0], headline=headline)
    if live and not any(instance.places_gangs for instance in live):
        name = live[0].name
        plugins = ", ".join(plugin.name for plugin in live[0].permit if plugin.gathers_gangs)
        headline = (
            f"members of gang {gang.key} are scheduled one by one because profile {name} enables plugin {plugins}; "
            "explain a pod instead"
        )
        return replace(bare, verdict=GangVerdict.ONE_BY_ONE, scheduler_name=name, headline=headline)
    held = _held_by_plugins(context, gang, unplaced)
    if held and gang.is_held:
        return replace(bare, headline=f"gang {gang.key} is not attempted: {phase_message}; {held}")
    why = f"{len(gang.waiting)} of {_counted(gang.needed, 'member')} that must be placed together wait; {held}"
    return replace(bare, headline=f"gang {gang.key} is not attempted: {why if held else phase_message}")


def _held_by_plugins(context: CycleContext, gang: Gang, unplaced: list[Pod]) -> str:
    """Return a text that names the members gated by a PreEnqueue plugin other than scheduling gates; "" for none."""
    held = []
    for pod in unplaced:
        queued = context.queue.find(pod.metadata.uid)
        if (
            queued is not None
            and queued.gated_by
            and not pod.spec.scheduling_gates
            and pod.metadata.uid not in gang.waiting
        ):
            held.append(f"{pod.metadata.name} is gated by {queued.gated_by}")
    return listed(held, _NAMED)


# -- a gang whose quorum waits --------------------------------------------------------------------------------------


def _examined(bare: GangExplanation, gang: Gang, found: GangExamination, extenders: str) -> GangExplanation:
    verdict = GangVerdict.ERROR if found.error else GangVerdict.UNSCHEDULABLE
    if found.placement is not None:
        verdict = GangVerdict.FITS
    return replace(
        bare,
        verdict=verdict,
        headline=f"gang {gang.key} {_headline(found)}",
        message=found.refusal or None,
        domain=found.domain or None,
        placement=tuple(MemberNode(*pair) for pair in (found.placement or {}).items()),
        places=found.places,
        preemption=None if found.preemption is None else _preemption(found.preemption, found.device_preemption),
        kept_off=found.reserved_for_others,
        notices=(*bare.notices, extenders) if extenders else bare.notices,
    )


def _headline(found: GangExamination) -> str:
    must = "that must be placed together"
    if found.placement is not None:
        where = f" in {found.domain}" if found.domain else ""
        reserved = " on its reserved capacity" if found.is_reserved else ""
        more = len(found.placement) - found.needed
        beyond = f", and {more} more" if more > 0 else ""
        return f"fits{where}{reserved}: there are nodes for all {_counted(found.needed, 'member')} {must}{beyond}"
    if found.error:
        return f"cannot be evaluated: {found.error}"
    room = f"; {found.device_search}" if found.device_search else ""
    if found.preemption is not None and found.preemption.plan is not None:
        room += (
            "; preemption would make room for all" if found.preemption.plan.victims else "; terminating pods make room"
        )
    if found.refusal:
        return f"does not fit: {found.refusal}{room}"
    nearest = found.places[0]
    where = ""
    if nearest.domain:
        others = f", the nearest of {found.tried} domains tried" if found.tried > 1 else ""
        where = f" in {nearest.domain}{others}"
    return f"does not fit: there are nodes for {nearest.fitting} of the {found.needed} members {must}{where}{room}"


def _preemption(preview: GangPreview, freeing: GangPreview | None) -> GangPreemption:
    plan = preview.plan
    if plan is None:
        message = preview.reason
        if freeing is not None and freeing.plan is not None:
            message = with_device_victims(message, freeing.plan.victims)
        return GangPreemption((), (), (), 0, None, message)
    return GangPreemption(
        victims=victims_of(plan.victims),
        nodes=plan.victim_nodes,
        awaited=victims_of(plan.awaited),
        pdb_violations=plan.pdb_violations,
        domain=plan.where.name or None,
        message=None,
    )


def with_device_victims(message: str, victims: Sequence[PodInfo]) -> str:
    """Return why preemption does not help, with the pods that it would evict if it freed devices."""
    names = listed([f"{info.pod.key} (priority {info.priority}) on {info.node_name}" for info in victims], _NAMED)
    return f"{message.rstrip('.')}; with spec.preemption.devices of the profile it would evict {names}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
