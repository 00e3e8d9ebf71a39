"""Builds the explanations of pods and gangs: one examined attempt, the nearest nodes and the events that would help.

Everything is computed by the scheduler that would schedule the pod or gang, as a dry run that leaves its state
unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import islice

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from bayplan.explanation.documents import (
    Explanation,
    GangExplanation,
    GangPreemption,
    GangReservation,
    GangVerdict,
    LastAttempt,
    MemberCounts,
    MemberNode,
    NodeCounts,
    NodeScore,
    PluginRejections,
    Preemption,
    ReasonCount,
    ScorePart,
    Verdict,
)
from bayplan.extenders.http_extender import extenders_skipped_notice
from bayplan.gangs.group_phase import Phase, Tally, evaluate_gang
from bayplan.gangs.group_status import held_words
from bayplan.resources.resource_model import format_time
from bayplan.texts.document_formats import counted, error_text, item_or_error, listed
from scheduler_core.config.validation import did_you_mean
from scheduler_core.cycle.failure_handler import seconds_left
from scheduler_core.cycle_assembly import CycleContext
from scheduler_core.dry_run_assembly import Explainers, helpful_nodes
from scheduler_core.errors import AttemptLimitError, SchedulerCoreError
from scheduler_core.explain.device_findings import DeviceFindings, device_findings
from scheduler_core.explain.findings import DeviceExplanation, NewNodes, NodeLacks, Unblocking, victims_of
from scheduler_core.explain.gang_dry_run import GangExamination
from scheduler_core.explain.nearest_nodes import near_misses
from scheduler_core.explain.pod_dry_run import Examination
from scheduler_core.fit.requests import FitRequest
from scheduler_core.framework.device_choices import ClaimsFilter
from scheduler_core.framework.status import Code
from scheduler_core.gangs.held_room import HeldRoom
from scheduler_core.gangs.preemption import GangPreview
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.placement.requests import PlacementRequest
from scheduler_core.placement.reservations import Reservation
from scheduler_core.ports import Clock
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.post_filtering import PostFilterOutcome
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import PodInfo

_NAMED = 5
_MOST_NEAREST = 5
"""Maximum number of nearest misses of a pod, and of domains of a gang."""
_SOURCES = (GroupSource.NATIVE, GroupSource.BAYPLAN, GroupSource.SCHEDULER_PLUGINS, GroupSource.VOLCANO)
_AS_IF_NEW = "the pod is already scheduled; nodes and scores are those of a dry run that schedules it again now"
_MOST_HOLDS = 5
_MOST_SCORED = 5
_MOST_DEVICES = 6
"""Maximum number of groups of devices for each request."""
_SHOWN_NODES = 3
_ALONE = "nodes and scores are those of this pod alone, as if it had no gang"
_ON_ITS_OWN = frozenset((GangVerdict.PLACED, GangVerdict.FINISHED, GangVerdict.ONE_BY_ONE))
"""Verdicts of gangs whose remaining members are scheduled one by one."""
_HELD = frozenset((GangVerdict.NO_GROUP, GangVerdict.INCOMPLETE))
_WAITING = frozenset((Verdict.FITS, Verdict.UNSCHEDULABLE))


# -- pods -------------------------------------------------------------------------------------------------------------


def explain_pod(scheduler: Scheduler, pod: Pod) -> Explanation:
    """Explain one pod.

    Args:
        pod: The pod as the API server returns it; the scheduler need not have it in its cache or queue.

    Returns:
        The explanation; it includes the error if a plugin or the explanation itself fails.

    Raises:
        SchedulerCoreError: The pod cannot be compiled, because a quantity cannot be parsed, for example.
    """
    context = scheduler.context
    with context.steps.dry_run():
        try:
            built = _alone(scheduler, pod)
        except SchedulerCoreError:
            raise
        except Exception as error:  # noqa: BLE001 - reported in the explanation, so that a list shows the other pods
            built = failed_explanation(pod, error_text("the explanation of a pod", error))
        instance = context.profiles.get(built.scheduler_name)
        if instance is not None:
            built = replace(built, profile_revision=instance.revision)
        gang = gang_of_pod(context, pod)
        if gang is not None:
            built = _with_gang(built, pod, explain_gang(scheduler, gang))
        is_alone = built.gang is None or built.gang.verdict in _ON_ITS_OWN
        return _with_new_nodes(scheduler, built, pod) if is_alone and built.verdict is Verdict.UNSCHEDULABLE else built


def _with_new_nodes(scheduler: Scheduler, built: Explanation, pod: Pod) -> Explanation:
    search = helpful_nodes(scheduler.context, scheduler.reservations)
    try:
        found = search.find(FitRequest(pods=(pod,)), {pod.metadata.uid}, 1)
    except Exception as error:  # noqa: BLE001 - a plugin's; the rest of the explanation is shown
        problem = error_text("the new nodes", error)
        return replace(built, notices=(*built.notices, f"the new nodes that help cannot be computed: {problem}"))
    return replace(built, new_nodes=found)


def _alone(scheduler: Scheduler, pod: Pod) -> Explanation:
    """Explain a pod without regard to its gang."""
    context = scheduler.context
    if pod.is_terminal or (pod.metadata.deletion_timestamp is not None and not pod.spec.node_name):
        state = "has terminated" if pod.is_terminal else "is being deleted"
        return _bare(pod, Verdict.ENDED, f"pod {pod.key} {state}; it is not scheduled")
    instance = context.profiles.get(pod.spec.scheduler_name)
    placed = context.cache.get(pod.metadata.uid)
    node = pod.spec.node_name or ("" if placed is None else placed.info.node_name)
    if instance is None:
        return _without_profile(context, pod, node)
    with ColumnsOverlay(context.cache.columns) as overlay:
        overlay.remove(() if placed is None else (placed.info,))
        waiting = replace(pod, spec=replace(pod.spec, node_name="")) if node else pod
        built = _examined(scheduler, instance, waiting)
    return _as_placed(context, built, pod, node) if node else built


def failed_explanation(pod: Pod, problem: str) -> Explanation:
    """Return the explanation of a pod that cannot be explained."""
    return _bare(pod, Verdict.ERROR, f"pod {pod.key} cannot be explained: {problem}")


def _bare(pod: Pod, verdict: Verdict, headline: str, node: str = "") -> Explanation:
    meta = pod.metadata
    return Explanation(
        namespace=meta.namespace,
        name=meta.name,
        scheduler_name=pod.spec.scheduler_name,
        verdict=verdict,
        headline=headline,
        node=node or None,
    )


def _without_profile(context: CycleContext, pod: Pod, node: str) -> Explanation:
    name = pod.spec.scheduler_name
    if node:
        headline = f'pod {pod.key} is scheduled to node {node}; no profile serves its schedulerName "{name}"'
        return _bare(pod, Verdict.PLACED, headline, node)
    names = ", ".join(sorted(instance.name for instance in context.profiles)) or "none"
    hint = did_you_mean(name, [instance.name for instance in context.profiles])
    headline = f'no profile serves schedulerName "{name}"{hint} of pod {pod.key}; available profiles: {names}'
    return _bare(pod, Verdict.NO_PROFILE, headline)


def _as_placed(context: CycleContext, built: Explanation, pod: Pod, node: str) -> Explanation:
    headline = f"pod {pod.key} is already scheduled to node {node}"
    waiting = context.waiting.get(pod.metadata.uid)
    if waiting is not None:
        plugins = ", ".join(waiting.pending_plugins())
        headline = f"pod {pod.key} is assumed on node {node} and waits at Permit for {plugins}"
    elif not pod.spec.node_name:
        headline = f"pod {pod.key} is being bound to node {node}"
    notices = (_AS_IF_NEW, *built.notices)
    return replace(
        built, verdict=Verdict.PLACED, headline=headline, node=node, preemption=None, unblocking=(), notices=notices
    )


def _examined(scheduler: Scheduler, instance: FrameworkInstance, pod: Pod) -> Explanation:
    columns = scheduler.context.cache.columns
    info = columns.compile_pod(pod)
    known = scheduler.context.queue.find(info.uid)
    found = scheduler.cycles.examiner.examine(instance, info, 1 if known is None else known.attempts + 1)
    notices = [notice for notice in [extenders_skipped_notice(instance.config.extenders)] if notice]
    mark = scheduler.context.queue.gangs.foreign_mark(pod)
    if mark and found.gate.message != mark:
        notices.append(f"the pod is scheduled without its gang: {mark}")
    misses: tuple[NodeLacks, ...] = ()
    devices: DeviceFindings | None = None
    described: DeviceExplanation | None = None
    node = "" if found.error else found.node
    if not found.feasible and not found.error:
        try:
            devices = device_findings(columns, instance, found)
            misses = near_misses(columns, instance, found, _MOST_NEAREST, devices)
            described = None if devices is None else devices.explain(found, _MOST_DEVICES)
        except Exception as error:  # noqa: BLE001 - a plugin's; the rest of the explanation is shown
            problem = error_text("the nearest misses", error)
            notices.append(f"the nearest misses cannot be computed: {problem}")
    notices += _of_held_room(scheduler, pod, info)
    if found.nominated_only and pod.status.nominated_node_name:
        notices.append(f"node {pod.status.nominated_node_name} is nominated for the pod; no other node was evaluated")
    elif found.nominated_only:
        notices.append("room is held for the pod; no other node was evaluated")
    unblocking: tuple[Unblocking, ...] = ()
    try:
        if not found.error:
            explainers = Explainers(scheduler.context, scheduler.cycles, scheduler.reservations)
            unblocking = explainers.unblocking.find(instance, found, misses, devices)
    except AttemptLimitError as limit:
        notices.append(f"the events that would help cannot be computed: {limit}")
    verdict, since = _verdict(found), None if known is None else known.unschedulable_since
    return Explanation(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        scheduler_name=instance.name,
        verdict=verdict,
        headline=_headline(verdict, found, columns.count, node),
        node=node or None,
        tied=found.best if node else (),
        message=found.message or (found.gate.message if verdict is Verdict.GATED else None) or None,
        nodes=NodeCounts(columns.count, len(found.feasible)),
        rejections=_rejections(found),
        nearest=misses,
        scores=_scores(found),
        preemption=_preemption(found, waits_until(scheduler.context, instance, since)),
        unblocking=unblocking,
        devices=described,
        notices=tuple(notices),
    )


def _verdict(found: Examination) -> Verdict:
    if found.error or (not found.gate.is_success and not found.gate.is_rejected):
        return Verdict.ERROR
    if not found.gate.is_success:
        return Verdict.GATED
    return Verdict.FITS if found.feasible else Verdict.UNSCHEDULABLE


def _headline(verdict: Verdict, found: Examination, count: int, node: str) -> str:
    name = f"pod {found.pod.key}"
    match verdict:
        case Verdict.ERROR:
            return f"{name} cannot be evaluated: {found.error or found.gate.message}"
        case Verdict.GATED:
            return f"{name} is gated by {found.gate.plugin}: {found.gate.message}"
        case Verdict.FITS:
            ties = len(found.best)
            tied = f", one of {ties} nodes with the highest score" if ties > 1 else ""
            return f"{name} would be scheduled to node {node}{tied}; feasible nodes: {len(found.feasible)} of {count}"
        case _:
            if not count:
                return f"{name} is unschedulable: the cluster has no nodes"
            plan, room = found.preemption, ""
            if plan is not None and plan.result.status.is_success and plan.result.nominated_node:
                room = f"; preemption would make room on node {plan.result.nominated_node}"
            return f"{name} is unschedulable; feasible nodes: 0 of {count}{room}"


def _rejections(found: Examination) -> tuple[PluginRejections, ...]:
    for whole in (found.gate, found.pre_filter):
        if not whole.is_success:
            reasons = tuple(ReasonCount(reason, 0) for reason in whole.reasons)
            return (PluginRejections(whole.plugin, 0, reasons),)
    nodes: dict[str, int] = {}
    reasons_of: dict[str, dict[str, int]] = {}
    for status in found.rejected.values():
        plugin = status.plugin or "preFilter"
        nodes[plugin] = nodes.get(plugin, 0) + 1
        counts = reasons_of.setdefault(plugin, {})
        for reason in status.reasons:
            counts[reason] = counts.get(reason, 0) + 1
    return tuple(
        PluginRejections(plugin, count, tuple(ReasonCount(*pair) for pair in _most_first(reasons_of[plugin])))
        for plugin, count in _most_first(nodes)
    )


def _most_first(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


def _scores(found: Examination) -> tuple[NodeScore, ...]:
    if not len(found.totals):
        return ()
    names = np.array(found.feasible)
    order = np.lexsort((names, -found.totals))[:_MOST_SCORED].tolist()
    return tuple(
        NodeScore(
            found.feasible[position],
            int(found.totals[position]),
            {
                plugin: ScorePart(int(part.raw[position]), int(part.normalized[position]), int(part.weighted[position]))
                for plugin, part in found.scores.items()
            },
        )
        for position in order
    )


def _preemption(found: Examination, until: str | None) -> Preemption | None:
    outcome, plan = found.post_filter, found.preemption
    if outcome is None:
        return None
    node = outcome.nominated_node if outcome.status.is_success else None
    if plan is None or not node:
        message = _why_not(found, outcome)
        freeing = found.device_preemption
        if freeing is not None:
            message = with_device_victims(message, freeing.evicted)
        return Preemption(None, (), 0, 0 if plan is None else len(plan.candidates), message)
    chosen = next((candidate for candidate in plan.candidates if candidate.node_name == node), None)
    victims = victims_of(plan.evicted)
    violations = 0 if chosen is None else chosen.pdb_violations
    return Preemption(node, victims, violations, len(plan.candidates), None, until if victims else None)


def _of_held_room(scheduler: Scheduler, pod: Pod, info: PodInfo) -> list[str]:
    """Return what room is held and blocks nodes for a pod, such as that of lost members of gangs."""
    gangs, reservations = scheduler.context.queue.gangs, scheduler.reservations
    if not len(reservations.held):
        return []
    rooms = {room.holder.key: room for room in reservations.held}
    blocking = dict.fromkeys(key for key, _ in reservations.blocking(gangs.key_of(pod), info) if key in rooms)
    found = []
    for room in islice((rooms[key] for key in blocking), _MOST_HOLDS):
        gang = gangs.get(room.holder.pods.group)
        member = None if gang is None else gang.lost_members.get(room.holder.uid)
        found.append(_room_words(room, scheduler.context.clock) if member is None else held_words(member))
    return found


def _why_not(found: Examination, outcome: PostFilterOutcome) -> str:
    """Return why preemption does not help, as a sentence."""
    if not found.pre_filter.is_success and found.pre_filter.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
        return f"would not help: plugin {found.pre_filter.plugin} rejects the pod on every node, whatever runs there"
    if outcome.status.code is Code.ERROR:
        return f"was not evaluated: plugin {outcome.status.plugin} failed: {outcome.status.message}"
    message = outcome.status.message.rpartition("preemption: ")[2]
    if not message:
        return "would not help: no plugin of the profile preempts"
    return message if message.startswith("not eligible") else f"would not help: {message}"


def _with_gang(built: Explanation, pod: Pod, gang: GangExplanation) -> Explanation:
    """Add the gang's explanation to the explanation of a member.

    The pod's own nodes and scores stay, because users want to see why a pod waits although it fits alone.

    Returns:
        The explanation; if the pod waits, its verdict takes the gang into account.
    """
    explanation = replace(built, gang=gang)
    if built.verdict not in _WAITING or gang.verdict in _ON_ITS_OWN:
        return explanation
    notices = (_ALONE, *built.notices)
    node = next((each.node for each in gang.placement if each.member == pod.key), None)
    if gang.verdict is GangVerdict.FITS:
        if node is None:
            headline = f"pod {pod.key} has no node in the placement of its gang, which fits without it; {gang.headline}"
            verdict = Verdict.UNSCHEDULABLE
        else:
            headline = f"pod {pod.key} would be scheduled to node {node} with its gang; {gang.headline}"
            verdict = Verdict.FITS
    else:
        headline = f"pod {pod.key} waits for its gang; {gang.headline}"
        verdict = Verdict.GATED if gang.verdict in _HELD else Verdict.UNSCHEDULABLE
    return replace(
        explanation, verdict=verdict, headline=headline, node=node, tied=(), preemption=None, notices=notices
    )


# -- pods that a simulation leaves unscheduled -------------------------------------------------------------------------


_Kind = tuple[str, GroupKey | None, bytes]
"""Namespace, gang and spec of equal pods."""


class EqualPods(Struct, frozen=True, rename="camel"):
    """Unscheduled pods of one namespace and gang with equal specs, and the explanation of the first one."""

    pods: int
    explanation: Explanation


class ExplainedPods(Struct, frozen=True, rename="camel"):
    """Explanations of unscheduled pods.

    Attributes:
        groups: Groups of equal pods, largest first.
        omitted: Number of pods in further groups.
    """

    groups: tuple[EqualPods, ...] = ()
    omitted: int = 0


def explain_unscheduled(scheduler: Scheduler, pods: Iterable[Pod], limit: int) -> ExplainedPods:
    """Explain each group of equal unscheduled pods; one that cannot be explained has the error."""
    groups: dict[_Kind, list[Pod]] = {}
    for pod in pods:
        queued = scheduler.context.queue.find(pod.metadata.uid)
        current = pod if queued is None else queued.info.pod
        groups.setdefault(_kind(scheduler, current), []).append(current)
    ordered = sorted(groups.values(), key=lambda each: (-len(each), each[0].key))
    explained = tuple(EqualPods(len(each), explain_or_fail(scheduler, each[0])) for each in ordered[:limit])
    return ExplainedPods(explained, sum(map(len, ordered[limit:])))


def explain_or_fail(scheduler: Scheduler, pod: Pod) -> Explanation:
    """Explain a pod of a list; if that fails, the explanation has the error."""
    return item_or_error(
        "the explanation of a pod",
        lambda: explain_pod(scheduler, pod),
        lambda problem: failed_explanation(pod, problem),
    )


def is_rejected_for_devices(scheduler: Scheduler, pod: Pod) -> bool:
    """Return whether a plugin that searches devices rejected the last attempt of a pod, or of its gang."""
    context = scheduler.context
    instance, queued = context.profiles.get(pod.spec.scheduler_name), context.queue.find(pod.metadata.uid)
    if instance is None or queued is None:
        return False
    gang = context.queue.gangs.of_uid(pod.metadata.uid)
    entry = None if gang is None else gang.entry
    rejected_by = queued.rejected_by if entry is None else queued.rejected_by | entry.rejected_by
    return any(isinstance(plugin, ClaimsFilter) and plugin.name in rejected_by for plugin in instance.filters)


def _kind(scheduler: Scheduler, pod: Pod) -> _Kind:
    gang = scheduler.context.queue.gangs.key_of(pod)
    return pod.metadata.namespace, gang, msgspec.json.encode(pod.spec)


def _room_words(room: HeldRoom, clock: Clock) -> str:
    """Return the nodes of held room, its holder and its end, as a clause."""
    names = sorted({slot.node_name for slot in room.free_slots})
    until = ""
    if room.until is not None:
        # Half a second is added because the two clocks are not read at the same moment.
        end = clock.wall() + timedelta(seconds=room.until - clock.now() + 0.5)
        until = f" until {end:%Y-%m-%dT%H:%M:%SZ}"
    return f"room on {listed(names, _SHOWN_NODES)} is reserved for {room.holder.key.holder}{until}"


# -- gangs ------------------------------------------------------------------------------------------------------------


def gang_of_pod(context: CycleContext, pod: Pod) -> Gang | None:
    """Return the gang of a pod, or None if it has none; the scheduler need not have the pod in its cache or queue."""
    gangs = context.queue.gangs
    return gangs.of_uid(pod.metadata.uid) or gangs.get(gangs.key_of(pod))


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


def explain_gang(scheduler: Scheduler, gang: Gang) -> GangExplanation:
    """Explain one gang; includes the error if a plugin or the explanation itself fails."""
    bare = _bare_gang(gang, scheduler.reservations.of(gang.key))

    def failed(problem: str) -> GangExplanation:
        headline = f"gang {gang.key} cannot be explained: {problem}"
        return replace(bare, verdict=GangVerdict.ERROR, headline=headline)

    with scheduler.context.steps.dry_run():
        found = item_or_error("the explanation of a gang", lambda: _explained_gang(scheduler, gang, bare), failed)
    instance = scheduler.context.profiles.get(found.scheduler_name or "")
    return found if instance is None else replace(found, profile_revision=instance.revision)


def _explained_gang(scheduler: Scheduler, gang: Gang, bare: GangExplanation) -> GangExplanation:
    context = scheduler.context
    obstacle = context.queue.gangs.obstacle(gang.key)
    if gang.group is None or obstacle:
        names = counted(bare.members.existing, "pod")
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
        found = explainers.gangs.examine(PlacementRequest.of(unit, instance), gang, _MOST_NEAREST)
    except AttemptLimitError as limit:
        return _not_tried(context, gang, bare, str(limit))
    built = _examined_gang(bare, gang, found, extenders_skipped_notice(instance.config.extenders))
    if built.preemption is not None and found.preemption is not None and found.preemption.plan is not None:
        until = waits_until(context, instance, unit.first_failure)
        built = replace(built, preemption=replace(built.preemption, waits_until=until))
    if built.verdict is not GangVerdict.UNSCHEDULABLE:
        return built
    return replace(built, new_nodes=_new_nodes_of_gang(scheduler, gang, found.needed))


def waits_until(context: CycleContext, instance: FrameworkInstance, since: float | None) -> str | None:
    """Return until when a profile waits for a new node before it preempts; None if it does not wait.

    Args:
        since: When the pod or gang was unschedulable first, in the clock's seconds; None for the present time.
    """
    left = seconds_left(instance, since, context.clock.now())
    return format_time(context.clock.wall() + timedelta(seconds=left)) if left > 0 else None


def new_nodes_for(scheduler: Scheduler, gang: Gang) -> NewNodes:
    """Return the new nodes with which a waiting quorum fits; raises SchedulerCoreError if a pod cannot be compiled."""
    return _new_nodes_of_gang(scheduler, gang, gang.needed)


def _new_nodes_of_gang(scheduler: Scheduler, gang: Gang, needed: int) -> NewNodes:
    """Return the new nodes with which the quorum of a gang, or of a part of a tree, fits."""
    pods = tuple(queued.info.pod for queued in sorted(gang.unit.waiting.values(), key=lambda each: each.sequence))
    # With members on nodes, the group is bound to their domain, which the bounds do not count.
    groups = () if gang.group is None or gang.placed or gang.unit is not gang else (gang.group,)
    request = FitRequest(pods=pods, groups=groups)
    return helpful_nodes(scheduler.context, scheduler.reservations).find(request, gang.waiting.keys(), needed)


def _bare_gang(gang: Gang, held: Reservation | None) -> GangExplanation:
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
    why = f"{len(gang.waiting)} of {counted(gang.needed, 'member')} that must be placed together wait; {held}"
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


def _examined_gang(bare: GangExplanation, gang: Gang, found: GangExamination, extenders: str) -> GangExplanation:
    verdict = GangVerdict.ERROR if found.error else GangVerdict.UNSCHEDULABLE
    if found.placement is not None:
        verdict = GangVerdict.FITS
    return replace(
        bare,
        verdict=verdict,
        headline=f"gang {gang.key} {_gang_headline(found)}",
        message=found.refusal or None,
        domain=found.domain or None,
        placement=tuple(MemberNode(*pair) for pair in (found.placement or {}).items()),
        places=found.places,
        preemption=None if found.preemption is None else _gang_preemption(found.preemption, found.device_preemption),
        kept_off=found.reserved_for_others,
        notices=(*bare.notices, extenders) if extenders else bare.notices,
    )


def _gang_headline(found: GangExamination) -> str:
    must = "that must be placed together"
    if found.placement is not None:
        where = f" in {found.domain}" if found.domain else ""
        reserved = " on its reserved capacity" if found.is_reserved else ""
        more = len(found.placement) - found.needed
        beyond = f", and {more} more" if more > 0 else ""
        return f"fits{where}{reserved}: there are nodes for all {counted(found.needed, 'member')} {must}{beyond}"
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


def _gang_preemption(preview: GangPreview, freeing: GangPreview | None) -> GangPreemption:
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
