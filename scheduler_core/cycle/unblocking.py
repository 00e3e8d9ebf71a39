"""Which event would bring a rejected pod back, and whether it would fit then.

Owns the judgement of events that were made up. An event is named only if the queue would act on it: the queueing hint
of a plugin that rejected the pod says Queue to the very objects. Beyond that each event that concerns nodes or pods is
tried: it is made to be, the pod's filters are run, and it is undone, all between two cycles, as what-ifs are. Where
some event is enough by itself, those that only might help are not named.

It must not know how an event is shown, nor make up any.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from scheduler_core.cycle.candidate_events import (
    Candidate,
    node_changes,
    nodes_added,
    pod_changes,
    pods_added,
    pods_deleted,
)
from scheduler_core.cycle.context import CycleContext
from scheduler_core.cycle.examination import Examination, queued_to_ask
from scheduler_core.cycle.near_misses import NearMiss
from scheduler_core.cycle.node_selection import find_feasible
from scheduler_core.cycle.storage_candidates import storage_changes
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.framework.cluster_events import ClusterEvent, Hint, Resource
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.queueing.queueing_rules import QueueingRules
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

log = logging.getLogger(__name__)

_TRIED = 50
"""Events that are tried out in all, and named of one kind, so that an answer stays a matter of milliseconds."""
_NAMED_OF_A_KIND = 2
_NAMED = 8


class Unblocking(Struct, frozen=True):
    """An event that brings the pod back.

    Attributes:
        event: Its kind.
        old: The object before; None if it was not there.
        new: The object after; None if it is gone.
        what: It in words.
        plugins: Plugins that rejected the pod and whose hints say Queue; empty where none was asked.
        fits_on: The node where the pod would then fit; "" if it would not by this alone, or that cannot be told.
    """

    event: ClusterEvent
    old: object | None
    new: object | None
    what: str
    plugins: tuple[str, ...]
    fits_on: str = ""


def unblocking_events(
    context: CycleContext, instance: FrameworkInstance, found: Examination, misses: tuple[NearMiss, ...]
) -> tuple[Unblocking, ...]:
    """The events that would bring a rejected pod back.

    Args:
        context: The shared parts; nothing of them is different when this returns.
        instance: The profile that was asked.
        found: The attempt that rejected the pod.
        misses: The nearest nodes, which are the ones that are changed in thought.

    Returns:
        Those after which the pod would fit; if there is none, those of which a hint says that they may help. At most
        two of a kind. Where no plugin was asked, since there are no nodes, the queue heeds every event.
    """
    if found.feasible or found.error:
        return ()
    search = _Search(context, instance, found)
    columns, info = context.cache.columns, found.pod
    companions = found.companions
    running = [placed.info for placed in context.cache.placed_pods() if placed.info.uid not in companions.uids]
    candidates = chain(
        pod_changes(info, columns, misses),
        node_changes(info, columns, misses),
        pods_deleted(running, columns, misses, info),
        pods_added(info, columns, misses),
        (_in_domain(candidate, companions.labels) for candidate in nodes_added(info, columns, misses)),
        storage_changes(info, columns, misses),
    )
    for candidate in list(candidates):
        search.take(candidate)
    named = [one for one in search.named if one.fits_on] or search.named
    return tuple(named[:_NAMED])


class _Search:
    """What has been found so far; at most a few of a kind, those after which the pod fits before the others."""

    def __init__(self, context: CycleContext, instance: FrameworkInstance, found: Examination) -> None:
        self._context = context
        self._instance = instance
        self._found = found
        self._rules = QueueingRules(instance.pre_enqueue, instance.registrations, instance.queue_sort.sort_key)
        self._by_kind: dict[ClusterEvent, list[Unblocking]] = {}
        self._tried: dict[ClusterEvent, int] = {}

    @property
    def named(self) -> list[Unblocking]:
        """All of them, in the order of kinds."""
        return [one for of_kind in self._by_kind.values() for one in _best(of_kind)]

    def take(self, candidate: Candidate) -> None:
        """Ask the hints about an event, and try it."""
        event = candidate.event
        of_kind = self._by_kind.setdefault(event, [])
        tried = self._tried.get(event, 0)
        if tried >= _TRIED or sum(bool(one.fits_on) for one in of_kind) >= _NAMED_OF_A_KIND:
            return
        plugins = self._queueing(candidate)
        if plugins or not self._found.rejected_by:
            self._tried[event] = tried + 1
            fits_on = self._fits_on(candidate)
            of_kind.append(Unblocking(event, candidate.old, candidate.new, candidate.what, plugins, fits_on))

    def _queueing(self, candidate: Candidate) -> tuple[str, ...]:
        plugins = set()
        for plugin, registration in self._rules.interested(candidate.event):
            if plugin not in self._found.rejected_by:
                continue
            try:
                hint = registration.hint
                answer = Hint.QUEUE if hint is None else hint(self._found.pod.pod, candidate.old, candidate.new)
            except Exception:
                log.exception("queueing hint of plugin %s raised for pod %s", plugin, self._found.pod.key)
                continue
            if answer is Hint.QUEUE:
                plugins.add(plugin)
        return tuple(sorted(plugins))

    def _fits_on(self, candidate: Candidate) -> str:
        """A node where the pod fits after the event; "" if there is none."""
        columns = self._context.cache.columns
        info = self._found.pod
        try:
            if isinstance(candidate.new, Pod) and candidate.new.metadata.uid == info.uid:
                return self._feasible_node(columns.compile_pod(candidate.new))
            if candidate.event.resource not in (Resource.NODE, Resource.POD):
                return ""
            with _happened(self._context, candidate):
                return self._feasible_node(info)
        except SchedulerCoreError as error:
            log.debug("%s cannot be tried for pod %s: %s", candidate.what, info.key, error)
            return ""

    def _feasible_node(self, info: PodInfo) -> str:
        context = self._context
        queued = queued_to_ask(context, info)
        if not self._rules.gate(queued).is_success:
            return ""
        attempt = self._found.attempt(context, self._instance, queued)
        feasible = find_feasible(context, attempt, everywhere=True)
        names = [context.cache.columns.node_name(row) for row in feasible.rows.tolist()]
        return min(names, default="")


def _in_domain(candidate: Candidate, labels: Mapping[str, str]) -> Candidate:
    """A node that comes, with the labels of a domain."""
    node = candidate.new
    if not labels or not isinstance(node, Node):
        return candidate
    labelled = replace(node, metadata=replace(node.metadata, labels={**node.metadata.labels, **labels}))
    words = ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
    return Candidate(candidate.event, candidate.old, labelled, f"{candidate.what}, in {words}")


def _best(of_kind: list[Unblocking]) -> list[Unblocking]:
    return sorted(of_kind, key=lambda one: not one.fits_on)[:_NAMED_OF_A_KIND]


@contextmanager
def _happened(context: CycleContext, candidate: Candidate) -> Iterator[None]:
    """Let an event of a node or a running pod be so, for the time of the block."""
    columns, old, new = context.cache.columns, candidate.old, candidate.new
    if isinstance(new, Node):
        with _node_shown(columns, old if isinstance(old, Node) else None, new):
            yield
    elif isinstance(new, Pod):
        info = columns.compile_pod(new)
        columns.add_pod(info, columns.row_of(new.spec.node_name))
        try:
            yield
        finally:
            columns.remove_pod(info)
    else:
        placed = context.cache.get(old.metadata.uid) if isinstance(old, Pod) else None
        with without_pod(columns, None if placed is None else placed.info):
            yield


@contextmanager
def _node_shown(columns: NodeColumns, old: Node | None, new: Node) -> Iterator[None]:
    if old is None:
        columns.add_node(new)
    else:
        columns.update_node(new)
    try:
        yield
    finally:
        if old is None:
            columns.remove_node(new.metadata.name)
        else:
            columns.update_node(old)


@contextmanager
def without_pod(columns: NodeColumns, running: PodInfo | None) -> Iterator[None]:
    """Let a running pod be gone for the time of the block; afterwards it is in its place among the row's pods.

    Args:
        columns: The columns.
        running: The pod; nothing happens for None, or one that is accounted on no row.
    """
    row = NO_ROW if running is None else running.row
    if running is None or row == NO_ROW:
        yield
        return
    order = dict(columns.pods[row])
    columns.remove_pod(running)
    try:
        yield
    finally:
        columns.add_pod(running, row)
        columns.pods[row].clear()
        columns.pods[row].update(order)
