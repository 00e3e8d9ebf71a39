"""Builds the explanation of a gang: its members, and one group cycle in thought if its quorum waits.

Owns the choice of what is told, and the headline. It must not decide anything itself: each part is asked of the
scheduler that would place the gang. Nothing in that scheduler is different afterwards.
"""

from __future__ import annotations

from msgspec.structs import replace

from bayplan.explanation.gang_model import (
    GangExplanation,
    GangPreemption,
    GangReservation,
    GangVerdict,
    KeptOff,
    LastAttempt,
    MemberCounts,
    MemberNode,
    NextMember,
    PlaceFit,
)
from bayplan.explanation.telling import ExplanationOptions, told_events, told_misses, told_victims
from bayplan.gangs.group_verdict import Phase, Tally, judge
from bayplan.reconcile.extenders import not_asked_notice
from bayplan.resources.resource_model import format_time
from scheduler_core.cycle.context import CycleContext
from scheduler_core.cycle.gang_examination import ExaminedPlace, GangExamination, examine_gang
from scheduler_core.cycle.gang_preemption import GangPreview
from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.queueing.gang import Gang
from scheduler_core.runtime.framework_instance import FrameworkInstance

_NAMED = 5
_SOURCES = (GroupSource.NATIVE, GroupSource.BAYPLAN, GroupSource.SCHEDULER_PLUGINS)
_BY_PERMIT = "Coscheduling"


def gang_of_pod(context: CycleContext, pod: Pod) -> Gang | None:
    """The gang of a pod, which the scheduler may know or not; None for none."""
    gangs = context.queue.gangs
    gang = gangs.of_uid(pod.metadata.uid)
    key = gangs.key_of(pod)
    return gang if gang is not None or key is None else gangs.get(key)


def named_gang(context: CycleContext, namespace: str, name: str, source: GroupSource | None = None) -> Gang | None:
    """Find a gang by the name of its PodGroup.

    Args:
        context: The scheduler's.
        namespace: The namespace.
        name: The name.
        source: The API; None for the first that has one of that name, in the order in which a pod that names several
            belongs to them.

    Returns:
        The gang, be it only that pods name it; one whose PodGroup exists is preferred. None for none.
    """
    sources = _SOURCES if source is None else (source,)
    gangs = [context.queue.gangs.get(GroupKey(each, namespace, name)) for each in sources]
    found = [gang for gang in gangs if gang is not None]
    return next((gang for gang in found if gang.group is not None), found[0] if found else None)


def explain_gang(context: CycleContext, gang: Gang, options: ExplanationOptions | None = None) -> GangExplanation:
    """Explain one gang.

    Args:
        context: A scheduler's, between two cycles; it holds the cluster and the live profiles.
        gang: The gang.
        options: How much is told.

    Returns:
        The explanation; a plugin's fault is told in it.
    """
    told = options or ExplanationOptions()
    bare = _bare(context, gang)
    obstacle = context.queue.gangs.obstacle(gang.key)
    if gang.group is None or obstacle:
        names = _counted(bare.members.existing, "pod")
        headline = f"gang {gang.key} of {names} waits for its PodGroup: {obstacle}"
        return replace(bare, verdict=GangVerdict.NO_GROUP, headline=headline)
    judged = judge(gang, Tally.of(gang), gang.group.min_member)
    bare = replace(bare, phase=judged.phase.value)
    if judged.phase is Phase.FINISHED:
        return replace(bare, verdict=GangVerdict.FINISHED, headline=f"gang {gang.key} has finished: {judged.message}")
    if not gang.needed:
        return replace(bare, verdict=GangVerdict.PLACED, headline=f"gang {gang.key} is placed: {judged.message}")
    entry = gang.entry
    if entry is None or not gang.has_quorum or gang.binding:
        return _not_tried(context, gang, bare, judged.message)
    instance = context.profiles.get(entry.profile)
    if instance is None:
        return _not_tried(context, gang, bare, judged.message)
    return _examined(context, bare, (gang, entry, instance), told)


def _bare(context: CycleContext, gang: Gang) -> GangExplanation:
    """What is known of a gang without asking any plugin."""
    group, outcome, held = gang.group, gang.outcome, context.reservations.of(gang.key)
    last_attempt = reservation = None
    if outcome is not None:
        when = None if gang.last_attempt is None else format_time(gang.last_attempt)
        last_attempt = LastAttempt(outcome.reason, outcome.message, when)
    if held is not None:
        waits_for = tuple(sorted(info.key for info in held.waited_for()))
        reservation = GangReservation(str(held.plan), held.plan.node_names, waits_for)
    notices = []
    if gang.victims:
        notices.append(f"being evicted for it: {_listed([f'{space}/{name}' for space, name in gang.victims])}")
    return GangExplanation(
        namespace=gang.key.namespace,
        name=gang.key.name,
        api=gang.key.source.value,
        scheduler_name=gang.entry.profile if gang.entry is not None and gang.has_quorum else None,
        verdict=GangVerdict.INCOMPLETE,
        headline="",
        members=MemberCounts(
            existing=gang.members,
            gated=gang.gated,
            waiting=len(gang.waiting),
            placed=len(gang.placed),
            succeeded=len(gang.succeeded),
            failed=gang.failed,
            min_member=0 if group is None else group.min_member,
            needed=0 if group is None else gang.needed,
        ),
        reservation=reservation,
        last_attempt=last_attempt,
        notices=tuple(notices),
    )


# -- a gang that is not tried ---------------------------------------------------------------------------------------


def _not_tried(context: CycleContext, gang: Gang, bare: GangExplanation, judged: str) -> GangExplanation:
    """A gang that lacks members, or whose members are not placed together."""
    unplaced = [pod for uid, pod in Tally.of(gang).alive.items() if uid not in gang.placed]
    names = sorted({pod.spec.scheduler_name for pod in unplaced})
    live = [instance for name in names if (instance := context.profiles.get(name)) is not None]
    if names and not live:
        served = ", ".join(sorted(instance.name for instance in context.profiles)) or "none"
        headline = f'no profile serves schedulerName "{names[0]}" of gang {gang.key}; there are: {served}'
        return replace(bare, verdict=GangVerdict.NO_PROFILE, scheduler_name=names[0], headline=headline)
    if live and all(_is_by_permit(instance) for instance in live):
        name = live[0].name
        headline = f"gang {gang.key} is placed one by one: profile {name} enables plugin {_BY_PERMIT}; ask about a pod"
        return replace(bare, verdict=GangVerdict.ONE_BY_ONE, scheduler_name=name, headline=headline)
    held = _held_by_plugins(context, gang, unplaced)
    why = f"{len(gang.waiting)} of {_counted(gang.needed, 'member')} that must be placed together wait; {held}"
    return replace(bare, headline=f"gang {gang.key} is not tried: {why if held else judged}")


def _is_by_permit(instance: FrameworkInstance) -> bool:
    return any(plugin.name == _BY_PERMIT for plugin in instance.permit)


def _held_by_plugins(context: CycleContext, gang: Gang, unplaced: list[Pod]) -> str:
    """Members that PreEnqueue plugins other than the gates of their specs hold back, in words; "" for none."""
    held = []
    for pod in unplaced:
        queued = context.queue.find(pod.metadata.uid)
        if (
            queued is not None
            and queued.gated_by
            and not pod.spec.scheduling_gates
            and pod.metadata.uid not in gang.waiting
        ):
            held.append(f"{pod.metadata.name} is held by {queued.gated_by}")
    return _listed(held)


# -- a gang whose quorum waits --------------------------------------------------------------------------------------


def _examined(
    context: CycleContext,
    bare: GangExplanation,
    asked: tuple[Gang, QueuedGang, FrameworkInstance],
    told: ExplanationOptions,
) -> GangExplanation:
    gang, entry, instance = asked
    found = examine_gang(context, gang, entry, instance, told.nearest)
    verdict = GangVerdict.ERROR if found.error else GangVerdict.UNSCHEDULABLE
    if found.chosen is not None:
        verdict = GangVerdict.FITS
    chosen = found.chosen
    extenders = not_asked_notice(instance.config.extenders)
    return replace(
        bare,
        verdict=verdict,
        headline=f"gang {gang.key} {_headline(found)}",
        message=found.refusal or None,
        domain=None if chosen is None else chosen.name or None,
        placement=() if chosen is None else tuple(MemberNode(*pair) for pair in chosen.nodes.items()),
        places=tuple(map(_told_place, found.places)),
        preemption=None if found.preemption is None else _told_preemption(found.preemption),
        kept_off=tuple(KeptOff(str(kept.key), kept.node_names) for kept in found.kept_off),
        notices=(*bare.notices, extenders) if extenders else bare.notices,
    )


def _headline(found: GangExamination) -> str:
    must = "that must be placed together"
    if found.chosen is not None:
        where = f" in {found.chosen.name}" if found.chosen.name else ""
        kept = ", on the capacity that is kept for it" if found.is_reserved else ""
        more = len(found.chosen.nodes) - found.needed
        beyond = f", and {more} more" if more > 0 else ""
        return f"fits{where}{kept}: there are nodes for all {_counted(found.needed, 'member')} {must}{beyond}"
    if found.error:
        return f"cannot be decided: {found.error}"
    room = ""
    if found.preemption is not None and found.preemption.plan is not None:
        room = "; preemption would make room for all" if found.preemption.plan.victims else "; pods that end make room"
    if found.refusal:
        return f"does not fit: {found.refusal}{room}"
    nearest = found.places[0]
    where = ""
    if nearest.name:
        others = f", the nearest of {found.tried} domains tried" if found.tried > 1 else ""
        where = f" in {nearest.name}{others}"
    return f"does not fit: there are nodes for {len(nearest.nodes)} of the {found.needed} members {must}{where}{room}"


def _told_place(place: ExaminedPlace) -> PlaceFit:
    following = place.next_member
    told = None
    if following is not None:
        misses, events = told_misses(following.nearest), told_events(following.unblocking)
        told = NextMember(following.pod.key, following.message, misses, events)
    return PlaceFit(place.name or None, len(place.nodes), place.needed, place.is_tried, told)


def _told_preemption(preview: GangPreview) -> GangPreemption:
    plan = preview.plan
    if plan is None:
        return GangPreemption((), (), (), 0, None, preview.reason)
    return GangPreemption(
        victims=told_victims(plan.victims),
        nodes=plan.victim_nodes,
        awaited=told_victims(plan.awaited),
        pdb_violations=plan.pdb_violations,
        domain=plan.where.name or None,
        message=None,
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
