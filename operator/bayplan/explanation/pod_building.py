"""Builds the explanation of a pod: one examined attempt, the nearest nodes and the events that would help.

Everything is computed by the scheduler that would schedule the pod, as a dry run that leaves its state unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from itertools import islice

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from bayplan.explanation.documents import (
    Explanation,
    GangExplanation,
    GangVerdict,
    NodeCounts,
    NodeScore,
    PluginRejections,
    Preemption,
    ReasonCount,
    ScorePart,
    Verdict,
)
from bayplan.explanation.gang_building import (
    ExplanationOptions,
    explain_gang,
    gang_of_pod,
    waits_until,
    with_device_victims,
)
from bayplan.extenders.http_extender import extenders_skipped_notice
from bayplan.gangs.group_status import held_words
from bayplan.texts.document_formats import error_text, item_or_error
from scheduler_core.config.validation import did_you_mean
from scheduler_core.cycle_assembly import CycleContext
from scheduler_core.dry_run_assembly import Explainers, helpful_nodes
from scheduler_core.errors import AttemptLimitError, SchedulerCoreError
from scheduler_core.explain.device_findings import DeviceFindings, device_findings
from scheduler_core.explain.findings import DeviceExplanation, NodeLacks, Unblocking, victims_of
from scheduler_core.explain.nearest_nodes import near_misses
from scheduler_core.explain.pod_dry_run import Examination
from scheduler_core.fit.requests import FitRequest
from scheduler_core.framework.device_choices import ClaimsFilter
from scheduler_core.framework.status import Code
from scheduler_core.gangs.held_room import HeldRoom
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.ports import Clock
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.post_filtering import PostFilterOutcome
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import PodInfo

_AS_IF_NEW = "the pod is already scheduled; nodes and scores are those of a dry run that schedules it again now"
_MOST_HOLDS = 5
_SHOWN_NODES = 3
_ALONE = "nodes and scores are those of this pod alone, as if it had no gang"
_ON_ITS_OWN = frozenset((GangVerdict.PLACED, GangVerdict.FINISHED, GangVerdict.ONE_BY_ONE))
"""Verdicts of gangs whose remaining members are scheduled one by one."""
_HELD = frozenset((GangVerdict.NO_GROUP, GangVerdict.INCOMPLETE))
_WAITING = frozenset((Verdict.FITS, Verdict.UNSCHEDULABLE))


def explain_pod(scheduler: Scheduler, pod: Pod, options: ExplanationOptions | None = None) -> Explanation:
    """Explain one pod.

    Args:
        pod: The pod as the API server returns it; the scheduler need not have it in its cache or queue.

    Returns:
        The explanation; it includes the error if a plugin or the explanation itself fails.

    Raises:
        SchedulerCoreError: The pod cannot be compiled, because a quantity cannot be parsed, for example.
    """
    context, limits = scheduler.context, options or ExplanationOptions()
    with context.steps.dry_run():
        try:
            built = _alone(scheduler, pod, limits)
        except SchedulerCoreError:
            raise
        except Exception as error:  # noqa: BLE001 - reported in the explanation, so that a list shows the other pods
            built = failed_explanation(pod, error_text("the explanation of a pod", error))
        instance = context.profiles.get(built.scheduler_name)
        if instance is not None:
            built = replace(built, profile_revision=instance.revision)
        gang = gang_of_pod(context, pod)
        if gang is not None:
            built = _with_gang(built, pod, explain_gang(scheduler, gang, limits))
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


def _alone(scheduler: Scheduler, pod: Pod, options: ExplanationOptions) -> Explanation:
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
        built = _examined(scheduler, instance, waiting, options)
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


def _examined(scheduler: Scheduler, instance: FrameworkInstance, pod: Pod, options: ExplanationOptions) -> Explanation:
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
            misses = near_misses(columns, instance, found, options.nearest, devices)
            described = None if devices is None else devices.explain(found, options.devices)
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
        unblocking = _unblocking(scheduler, instance, found, misses, devices)
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
        scores=_scores(found, options.scored),
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


def _scores(found: Examination, limit: int) -> tuple[NodeScore, ...]:
    if not len(found.totals):
        return ()
    names = np.array(found.feasible)
    order = np.lexsort((names, -found.totals))[:limit].tolist()
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
        group = room.holder.pods.group
        gang = None if group is None else gangs.get(group)
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


def _unblocking(
    scheduler: Scheduler,
    instance: FrameworkInstance,
    found: Examination,
    misses: tuple[NodeLacks, ...],
    devices: DeviceFindings | None,
) -> tuple[Unblocking, ...]:
    if found.error:
        return ()
    explainers = Explainers(scheduler.context, scheduler.cycles, scheduler.reservations)
    return explainers.unblocking.find(instance, found, misses, devices)


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
    """Unscheduled pods of one namespace and gang with equal specs.

    Attributes:
        explanation: Explanation of the first one.
    """

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
    """Explain unscheduled pods.

    Returns:
        One explanation for each group of equal pods; that of a pod that cannot be explained has the error.
    """
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
    more = f" and {len(names) - _SHOWN_NODES} more" if len(names) > _SHOWN_NODES else ""
    until = ""
    if room.until is not None:
        # Half a second is added because the two clocks are not read at the same moment.
        end = clock.wall() + timedelta(seconds=room.until - clock.now() + 0.5)
        until = f" until {end:%Y-%m-%dT%H:%M:%SZ}"
    return f"room on {', '.join(names[:_SHOWN_NODES])}{more} is reserved for {room.holder.key.holder}{until}"
