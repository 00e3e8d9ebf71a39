"""Unblocking events: hypothetical events that would requeue a rejected pod, and whether the pod would fit then.

An event is listed only if the queue would act on it: the queueing hint of a plugin that rejected the pod returns Queue
for its objects. Events of nodes, pods and devices are also dry-run: applied to the columns, the pod filtered, and
reverted, between two cycles. If one event is sufficient by itself, events that only might help are not listed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

from msgspec.structs import replace

from scheduler_core.cycle.filter_and_score import NodeSelection
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.explain.candidate_events import (
    Candidate,
    device_changes,
    node_changes,
    nodes_added,
    pod_changes,
    pods_added,
    pods_deleted,
    storage_changes,
)
from scheduler_core.explain.device_findings import DeviceFindings
from scheduler_core.explain.findings import NodeLacks, Unblocking
from scheduler_core.explain.pod_dry_run import Examination, Examiner
from scheduler_core.framework.cluster_events import ClusterEvent, Hint, Resource
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.queueing.queueing_rules import QueueingRules
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.indexes.device_index import DeviceObject
from scheduler_core.snapshot.overlay import ColumnsOverlay
from scheduler_core.snapshot.pod_info import PodInfo

log = logging.getLogger(__name__)

_MAX_TRIED = 50
"""Maximum number of dry runs for one event type, so that a result takes milliseconds."""
_MAX_PER_EVENT = 2
_MAX_NAMED = 8
_DEVICES = frozenset({Resource.RESOURCE_CLAIM, Resource.RESOURCE_SLICE, Resource.DEVICE_CLASS})


Found = tuple[Candidate, Unblocking]
"""An event with its objects, and as the explanation lists it."""


@dataclass(frozen=True, slots=True)
class UnblockingEvents:
    """Finds unblocking events."""

    cache: ClusterCache
    selection: NodeSelection
    examiner: Examiner

    def find(
        self,
        instance: FrameworkInstance,
        found: Examination,
        misses: tuple[NodeLacks, ...],
        devices: DeviceFindings | None = None,
    ) -> tuple[Unblocking, ...]:
        """Return the events that would requeue a rejected pod, as :meth:`search` does."""
        return tuple(event for _, event in self.search(instance, found, misses, devices))

    def search(
        self,
        instance: FrameworkInstance,
        found: Examination,
        misses: tuple[NodeLacks, ...],
        devices: DeviceFindings | None = None,
    ) -> list[Found]:
        """Return the events that would requeue a rejected pod, with their objects; nothing is changed.

        Args:
            misses: The nearest nodes; changes of other nodes are not proposed.

        Returns:
            Events after which the pod would fit; if there are none, those for which a hint returns Queue. At most two
            of each type. If no plugin rejected the pod because there are no nodes, every event requeues it.
        """
        if found.feasible or found.error:
            return []
        rules = QueueingRules(instance.pre_enqueue, instance.registrations, instance.queue_sort.sort_key)
        search = _EventProbe(self, instance, found, rules)
        columns, info = self.cache.columns, found.pod
        gang_context = found.gang_context
        running = [placed.info for placed in self.cache.placed_pods() if placed.info.uid not in gang_context.uids]
        candidates = chain(
            pod_changes(info, columns, misses),
            node_changes(info, columns, misses),
            pods_deleted(running, columns, misses, info),
            pods_added(info, columns, misses),
            (_in_domain(candidate, gang_context.labels) for candidate in nodes_added(info, columns, misses)),
            storage_changes(info, columns, misses),
            device_changes(info, columns, misses, devices),
        )
        for candidate in list(candidates):
            search.take(candidate)
        named = search.named
        sufficient = [one for one in named if one[1].fits_on]
        # Any added node requeues a pod that no node can help; what the pod names itself is more useful then.
        return (sufficient or sorted(named, key=lambda one: one[0].event.resource is Resource.NODE))[:_MAX_NAMED]


@dataclass(slots=True)
class _EventProbe:
    """Events found so far, by event type."""

    of: UnblockingEvents
    instance: FrameworkInstance
    rejected: Examination
    rules: QueueingRules
    by_event: dict[ClusterEvent, list[Found]] = field(default_factory=dict)
    tried: Counter[ClusterEvent] = field(default_factory=Counter)

    @property
    def named(self) -> list[Found]:
        """The events to list: the best of each type."""
        found = (sorted(each, key=lambda one: not one[1].fits_on) for each in self.by_event.values())
        return [one for same_event in found for one in same_event[:_MAX_PER_EVENT]]

    def take(self, candidate: Candidate) -> None:
        """Call the hints for an event, dry-run it, and store it if it helps."""
        event = candidate.event
        same_event = self.by_event.setdefault(event, [])
        if any(known.what == candidate.what for known, _ in same_event):
            return
        if self.tried[event] >= _MAX_TRIED or sum(bool(one.fits_on) for _, one in same_event) >= _MAX_PER_EVENT:
            return
        with ColumnsOverlay(self.of.cache.columns) as overlay:
            _apply_devices(overlay, candidate)
            plugins = self._queueing(candidate)
            if plugins or not self.rejected.rejected_by:
                self.tried[event] += 1
                fits_on = self._fits_on(candidate) if candidate.is_complete else None
                same_event.append((candidate, Unblocking(candidate.what, event.name, plugins, fits_on)))

    def _queueing(self, candidate: Candidate) -> tuple[str, ...]:
        plugins = set()
        for plugin, registration in self.rules.interested(candidate.event):
            if plugin not in self.rejected.rejected_by:
                continue
            try:
                hint = registration.hint
                answer = Hint.QUEUE if hint is None else hint(self.rejected.pod.pod, candidate.old, candidate.new)
            except Exception:  # logged; a hint that raises names no event here, and the other hints are still called
                log.exception("queueing hint of plugin %s raised for pod %s", plugin, self.rejected.pod.key)
                continue
            if answer is Hint.QUEUE:
                plugins.add(plugin)
        return tuple(sorted(plugins))

    def _fits_on(self, candidate: Candidate) -> str | None:
        """Return a node where the pod fits after the event; None if there is none."""
        columns, info = self.of.cache.columns, self.rejected.pod
        try:
            if isinstance(candidate.new, Pod) and candidate.new.metadata.uid == info.uid:
                return self._feasible_node(columns.compile_pod(candidate.new))
            if candidate.event.resource in _DEVICES:
                return self._feasible_node(info)
            if candidate.event.resource not in (Resource.NODE, Resource.ASSIGNED_POD):
                return None
            with ColumnsOverlay(columns) as overlay:
                _apply(overlay, self.of.cache, candidate)
                return self._feasible_node(info)
        except SchedulerCoreError as error:
            log.debug("%s cannot be tried for pod %s: %s", candidate.what, info.key, error)
            return None

    def _feasible_node(self, info: PodInfo) -> str | None:
        queued = self.of.examiner.queued(info)
        if not self.rules.preview_gate(queued).is_success:
            return None
        attempt = self.of.examiner.attempt(self.rejected.gang_context, self.instance, queued)
        feasible = self.of.selection.find_feasible(attempt, everywhere=True)
        return min(map(self.of.cache.columns.node_name, feasible.rows.tolist()), default=None)


def _in_domain(candidate: Candidate, labels: Mapping[str, str]) -> Candidate:
    """Return an added node with the labels of a domain; other events unchanged."""
    node = candidate.new
    if not labels or not isinstance(node, Node):
        return candidate
    labelled = replace(node, metadata=replace(node.metadata, labels={**node.metadata.labels, **labels}))
    words = ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
    return Candidate(candidate.event, candidate.old, labelled, f"{candidate.what}, in {words}")


def _apply_devices(overlay: ColumnsOverlay, candidate: Candidate) -> None:
    """Apply an event of a claim, class or slice; queueing hints read what the events of these kinds have changed."""
    old, new = candidate.old, candidate.new
    if isinstance(old, DeviceObject | None) and isinstance(new, DeviceObject | None):
        overlay.replace_device_object(old, new)


def _apply(overlay: ColumnsOverlay, cache: ClusterCache, candidate: Candidate) -> None:
    """Apply an event of a node or a running pod."""
    old, new = candidate.old, candidate.new
    if isinstance(new, Node):
        if isinstance(old, Node):
            overlay.update_node(new)
        else:
            overlay.add_node(new, cache.pods_of_unknown_node(new.metadata.name))
    elif isinstance(new, Pod):
        overlay.add(cache.columns.compile_pod(new), cache.columns.row_of(new.spec.node_name))
    elif isinstance(old, Pod):
        placed = cache.get(old.metadata.uid)
        overlay.remove(() if placed is None else (placed.info,))
