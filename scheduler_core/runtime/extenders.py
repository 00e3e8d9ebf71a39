"""A live profile's extenders: whom they are asked about, in which order, and what their answers mean.

Owns the rules of the extender protocol that do not depend on how it is spoken. Must not know what becomes of an answer.
Why waiting is explicit here: each of these coroutines suspends the cycle that awaits it, and nothing else does.

Follows kube-scheduler v1.36.3, ``pkg/scheduler/extender.go``, ``schedule_one.go`` (``findNodesThatPassExtenders``,
``prioritizeNodes``, ``extendersBinding``) and ``framework/preemption/preemption.go`` (``callExtenders``). On purpose
different: a filter that answers with a node that it was not asked about fails whether or not it knows nodes itself,
since the filters have ruled that node out; there only one that knows nodes does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from scheduler_core.config.extender_config import Extender
from scheduler_core.errors import ExtenderError
from scheduler_core.framework.extension_points import MAX_NODE_SCORE, PreemptionCandidate, Scores
from scheduler_core.framework.status import Status, unresolvable, unschedulable
from scheduler_core.model.pod import Pod
from scheduler_core.ports import ExtenderClient, ExtenderVerdict, NodeVictims
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

log = logging.getLogger(__name__)

EXTENDER = "Extender"
"""Stands among the plugins that rejected a pod when extenders did."""

_MAX_EXTENDER_PRIORITY = 10
_INT64_SPAN = 1 << 64
_INT64_HALF = 1 << 63


class ExtenderRunner(Struct, frozen=True):
    """One extender of a live profile."""

    config: Extender
    client: ExtenderClient

    def is_interested(self, pod: Pod) -> bool:
        """Whether the extender takes part for a pod: it manages all, or a resource that a container names."""
        managed = self.config.managed_resources
        if not managed:
            return True
        names = {resource.name for resource in managed}
        return any(
            not names.isdisjoint(container.resources.requests) or not names.isdisjoint(container.resources.limits)
            for container in (*pod.spec.containers, *pod.spec.init_containers)
        )

    def fault(self, reason: str) -> ExtenderError:
        """The error for an answer that cannot be used."""
        return ExtenderError(self.config.url_prefix, reason)


def in_calling_order(runners: Iterable[ExtenderRunner]) -> tuple[ExtenderRunner, ...]:
    """Those that may be ignored come last, so that they are asked about what the others leave."""
    return tuple(sorted(runners, key=lambda runner: runner.config.ignorable))


def _interested(extenders: Sequence[ExtenderRunner], verb: str, pod: Pod) -> Iterator[ExtenderRunner]:
    for extender in extenders:
        if getattr(extender.config, verb) and extender.is_interested(pod):
            yield extender


async def run_extender_filters(
    extenders: Sequence[ExtenderRunner], pod: PodInfo, node_names: Sequence[str], rejections: dict[str, Status]
) -> Sequence[str]:
    """Ask one extender after the other which of the nodes a pod may have, each about what is left.

    Args:
        extenders: The profile's, in calling order.
        pod: The pod.
        node_names: Nodes that pass the filters.
        rejections: Takes why nodes were turned away, by name; nodes may be left out without a word.

    Returns:
        The names of the nodes that all extenders leave.

    Raises:
        ExtenderError: One that may not be ignored failed.
    """
    left = node_names
    for extender in _interested(extenders, "filter_verb", pod.pod):
        if not left:
            break
        try:
            verdict = await extender.client.filter(pod.pod, left)
            _check_known(extender, verdict, left)
        except ExtenderError as error:
            if not extender.config.ignorable:
                raise
            log.warning(
                "pod %s is filtered without an extender that may be ignored: %s", pod.key, error, extra={"pod": pod.key}
            )
            continue
        rejections.update((name, unschedulable(reason)) for name, reason in verdict.failed.items())
        rejections.update((name, unresolvable(reason)) for name, reason in verdict.unresolvable.items())
        left = verdict.node_names
    return left


def _check_known(extender: ExtenderRunner, verdict: ExtenderVerdict, asked: Sequence[str]) -> None:
    unknown = set(verdict.node_names).difference(asked)
    if unknown:
        raise extender.fault(f'it leaves node "{min(unknown)}", which it was not asked about; correct its filter')


async def run_extender_scores(extenders: Sequence[ExtenderRunner], pod: PodInfo, node_names: Sequence[str]) -> Scores:
    """Ask all extenders at once how they score nodes; one that fails gives no scores.

    Args:
        extenders: The profile's.
        pod: The pod.
        node_names: The feasible nodes.

    Returns:
        int64 per node: the sum of their scores, scaled from 0..10 to 0..100 and weighted. It wraps as int64 does.
    """
    asked = list(_interested(extenders, "prioritize_verb", pod.pod))
    totals = dict.fromkeys(node_names, 0)
    if asked:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_prioritized(extender, pod, node_names)) for extender in asked]
        for extender, task in zip(asked, tasks, strict=True):
            factor = extender.config.weight * (MAX_NODE_SCORE // _MAX_EXTENDER_PRIORITY)
            for name, score in task.result().items():
                if name in totals:
                    totals[name] += score * factor
    wrapped = [(total + _INT64_HALF) % _INT64_SPAN - _INT64_HALF for total in totals.values()]
    return np.array(wrapped, dtype=np.int64)


async def _prioritized(extender: ExtenderRunner, pod: PodInfo, node_names: Sequence[str]) -> Mapping[str, int]:
    try:
        return await extender.client.prioritize(pod.pod, node_names)
    except ExtenderError as error:
        log.info("pod %s is placed without the scores of an extender: %s", pod.key, error, extra={"pod": pod.key})
        return {}


def binder_of(extenders: Sequence[ExtenderRunner], pod: Pod) -> ExtenderRunner | None:
    """The extender that binds a pod in the place of the Bind plugins; None if they do."""
    return next(_interested(extenders, "bind_verb", pod), None)


class PreemptionConsultation:
    """The profile's extenders in preemption; see :class:`PreemptionExtenders` of the extension points.

    Args:
        extenders: The profile's, in calling order.
        nodes: The columns, which tell victims by UID; they must not change while extenders are asked.
    """

    def __init__(self, extenders: Sequence[ExtenderRunner], nodes: NodeColumns) -> None:
        self._extenders = extenders
        self._nodes = nodes

    async def leave(self, pod: PodInfo, found: Sequence[PreemptionCandidate]) -> Sequence[PreemptionCandidate]:
        """Ask which candidates the extenders leave, each about what is left, perhaps with other victims.

        Returns:
            Candidates in the order in which they were found, then by name those that an extender brought in.

        Raises:
            ExtenderError: One that may not be ignored failed, or left a node without victims.
        """
        left = {candidate.node_name: candidate for candidate in found}
        order = {name: position for position, name in enumerate(left)}
        for extender in _interested(self._extenders, "preempt_verb", pod.pod):
            if not left:
                break
            asked = {
                name: NodeVictims(tuple(info.pod for info in candidate.victims), candidate.pdb_violations)
                for name, candidate in left.items()
            }
            try:
                answered = await extender.client.preempt(pod.pod, asked)
                candidates = [self._candidate(extender, name, victims) for name, victims in answered.items()]
            except ExtenderError as error:
                if not extender.config.ignorable:
                    raise
                log.warning(
                    "pod %s preempts without an extender that may be ignored: %s",
                    pod.key,
                    error,
                    extra={"pod": pod.key},
                )
                continue
            left = {candidate.node_name: candidate for candidate in candidates if _has_victims(extender, candidate)}
        return sorted(left.values(), key=lambda each: (order.get(each.node_name, len(order)), each.node_name))

    def _candidate(self, extender: ExtenderRunner, node_name: str, victims: NodeVictims) -> PreemptionCandidate:
        row = self._nodes.row_of(node_name)
        if row == NO_ROW:
            raise extender.fault(f'it would preempt on node "{node_name}", which does not exist; correct its preempt')
        running = self._nodes.pods[row]
        for pod in victims.pods:
            if pod.metadata.uid not in running:
                raise extender.fault(
                    f"it would preempt pod {pod.key} (UID {pod.metadata.uid}) on node {node_name}, where it does not "
                    "run; correct its preempt"
                )
        infos = tuple(running[pod.metadata.uid] for pod in victims.pods)
        return PreemptionCandidate(node_name, infos, victims.pdb_violations)


def _has_victims(extender: ExtenderRunner, candidate: PreemptionCandidate) -> bool:
    if candidate.victims:
        return True
    if not extender.config.ignorable:
        raise extender.fault(f'expected at least one victim pod on node "{candidate.node_name}"')
    log.info(
        "node %s is no candidate: extender %s names no victims there", candidate.node_name, extender.config.url_prefix
    )
    return False
