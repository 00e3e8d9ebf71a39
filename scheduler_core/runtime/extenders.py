"""The extenders of a profile: which of them are called, in which order, and how their responses are interpreted.

Only these coroutines suspend a scheduling cycle.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/extender.go``, ``schedule_one.go`` (``findNodesThatPassExtenders``,
``prioritizeNodes``, ``extendersBinding``) and ``framework/preemption/preemption.go`` (``callExtenders``). Different on
purpose: a filter that returns a node that was not in the request always fails, because the filters have rejected that
node; in kube-scheduler it fails only if the extender is ``nodeCacheCapable``.

Closing runs in a task, because an instance ends in a synchronous step, with its last pod, and closing connections takes
time.

    created with an instance ──the instance is closed──▶ closing ──▶ closed

Clients that are open when the scheduler stops are closed then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct

from scheduler_core.config.profile_config import Extender, ProfileConfig
from scheduler_core.errors import ConfigError, ExtenderError, Problem
from scheduler_core.framework.extension_points import MAX_NODE_SCORE, PreemptionCandidate, Scores
from scheduler_core.framework.status import Status, unresolvable, unschedulable
from scheduler_core.model.pod import Pod
from scheduler_core.ports import ExtenderClient, ExtenderVerdict, NodeVictims
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

log = logging.getLogger(__name__)

_MAX_EXTENDER_PRIORITY = 10
_INT64_SPAN = 1 << 64
_INT64_HALF = 1 << 63


class ExtenderRunner(Struct, frozen=True):
    """One extender of a profile, with its client."""

    config: Extender
    client: ExtenderClient

    def is_interested(self, pod: Pod) -> bool:
        """Return whether the extender handles a pod: it manages all resources, or one that a container names."""
        managed = self.config.managed_resources
        if not managed:
            return True
        names = {resource.name for resource in managed}
        return any(
            not names.isdisjoint(container.resources.requests) or not names.isdisjoint(container.resources.limits)
            for container in (*pod.spec.containers, *pod.spec.init_containers)
        )

    def fault(self, reason: str) -> ExtenderError:
        return ExtenderError(self.config.url_prefix, reason)


class OpenExtenders(Struct, frozen=True):
    """The extenders of one instance with open clients.

    Attributes:
        close: Closes the clients; called once, when the instance is closed.
    """

    runners: tuple[ExtenderRunner, ...] = ()
    close: Callable[[], None] = lambda: None


def in_calling_order(runners: Iterable[ExtenderRunner]) -> tuple[ExtenderRunner, ...]:
    """Return the extenders with the ignorable ones last, so that those are called with the remaining nodes."""
    return tuple(sorted(runners, key=lambda runner: runner.config.ignorable))


def _interested(extenders: Sequence[ExtenderRunner], verb: str, pod: Pod) -> Iterator[ExtenderRunner]:
    for extender in extenders:
        if getattr(extender.config, verb) and extender.is_interested(pod):
            yield extender


async def run_extender_filters(
    extenders: Sequence[ExtenderRunner], pod: PodInfo, node_names: Sequence[str], rejections: dict[str, Status]
) -> Sequence[str]:
    """Run the filters of the extenders one after the other, each on the nodes that remain.

    Args:
        rejections: Receives the reasons for rejected nodes, by name; an extender may reject nodes without a reason.

    Raises:
        ExtenderError: An extender that is not ignorable failed.
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
            log.warning("pod %s is filtered without an ignorable extender: %s", pod.key, error, extra={"pod": pod.key})
            continue
        rejections.update((name, unschedulable(reason)) for name, reason in verdict.failed.items())
        rejections.update((name, unresolvable(reason)) for name, reason in verdict.unresolvable.items())
        left = verdict.node_names
    return left


def _check_known(extender: ExtenderRunner, verdict: ExtenderVerdict, requested: Sequence[str]) -> None:
    unknown = set(verdict.node_names).difference(requested)
    if unknown:
        raise extender.fault(f'it returned node "{min(unknown)}", which was not in the request; correct its filter')


async def run_extender_scores(extenders: Sequence[ExtenderRunner], pod: PodInfo, node_names: Sequence[str]) -> Scores:
    """Call prioritize of all extenders at once; an extender that fails gives no scores.

    Returns:
        int64 per node: the sum of the scores, scaled from 0..10 to 0..100 and weighted. It wraps around as int64 does.
    """
    called = list(_interested(extenders, "prioritize_verb", pod.pod))
    totals = dict.fromkeys(node_names, 0)
    if called:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_prioritized(extender, pod, node_names)) for extender in called]
        for extender, task in zip(called, tasks, strict=True):
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
        log.info("pod %s is scheduled without the scores of an extender: %s", pod.key, error, extra={"pod": pod.key})
        return {}


def binder_of(extenders: Sequence[ExtenderRunner], pod: Pod) -> ExtenderRunner | None:
    """Return the extender that binds a pod instead of the Bind plugins; None if the plugins bind it."""
    return next(_interested(extenders, "bind_verb", pod), None)


@dataclass(frozen=True, slots=True)
class PreemptionConsultation:
    """Calls the extenders one by one during preemption; see :class:`PreemptionExtenders` of the extension points.

    Args:
        nodes: The columns, to find victims by UID; they must not change during the calls.
    """

    _extenders: Sequence[ExtenderRunner]
    _nodes: NodeColumns

    async def process_preemption(
        self, pod: PodInfo, found: Sequence[PreemptionCandidate]
    ) -> Sequence[PreemptionCandidate]:
        """Return the candidates that remain in the order of ``found``, then those that an extender added, by name."""
        left = {candidate.node_name: candidate for candidate in found}
        order = {name: position for position, name in enumerate(left)}
        for extender in _interested(self._extenders, "preempt_verb", pod.pod):
            if not left:
                break
            requested = {
                name: NodeVictims(tuple(info.pod for info in candidate.victims), candidate.pdb_violations)
                for name, candidate in left.items()
            }
            try:
                answered = await extender.client.preempt(pod.pod, requested)
                candidates = [self._candidate(extender, name, victims) for name, victims in answered.items()]
            except ExtenderError as error:
                if not extender.config.ignorable:
                    raise
                log.warning(
                    "pod %s preempts without an ignorable extender: %s",
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
            raise extender.fault(f'it returned node "{node_name}", which does not exist; correct its preempt')
        running = self._nodes.pods[row]
        for pod in victims.pods:
            if pod.metadata.uid not in running:
                raise extender.fault(
                    f"it returned victim {pod.key} (UID {pod.metadata.uid}) on node {node_name}, where it does not "
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
        "node %s is not a candidate: extender %s returned no victims", candidate.node_name, extender.config.url_prefix
    )
    return False


MakeClient = Callable[[str, Extender], ExtenderClient]
"""Creates a client from the scheduler name of a profile and one of its extenders."""


@dataclass(slots=True, eq=False)
class ExtenderClients:
    """All open clients; without a function that makes them, no extender is called."""

    _make: MakeClient | None
    _open: set[ExtenderClient] = field(default_factory=set)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)

    def open(self, profile: ProfileConfig) -> OpenExtenders:
        """Create the clients of a new instance. Raises ConfigError: one cannot be created; none stays open."""
        if self._make is None:
            return OpenExtenders()
        runners: list[ExtenderRunner] = []
        problems: list[Problem] = []
        for index, config in enumerate(profile.extenders):
            try:
                client = self._make(profile.scheduler_name, config)
            except ConfigError as error:
                where = f"extenders[{index}]"
                problems += [
                    Problem(f"{where}.{each.path}" if each.path else where, each.message) for each in error.problems
                ]
                continue
            except Exception as fault:
                # The client is the operator's; every problem of the profile is reported at once.
                message = f"the extender cannot be called: {fault}; correct it or remove it"
                problems.append(Problem(f"extenders[{index}]", message))
                continue
            self._open.add(client)
            runners.append(ExtenderRunner(config, client))
        opened = OpenExtenders(in_calling_order(runners), lambda: self._release(runner.client for runner in runners))
        if problems:
            opened.close()
            raise ConfigError(problems)
        return opened

    async def close(self) -> None:
        """Close all open clients and wait until they are closed."""
        self._release(list(self._open))
        if self._closing:
            await asyncio.wait(self._closing)

    def _release(self, clients: Iterable[ExtenderClient]) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # Without a running loop no client is connected; :meth:`close` closes the rest.
            return
        for client in clients:
            if client in self._open:
                self._open.discard(client)
                task = loop.create_task(_closed(client))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)


async def _closed(client: ExtenderClient) -> None:
    try:
        await client.close()
    except Exception:
        # Nothing uses the client any more.
        log.exception("the client of an extender failed to close")
