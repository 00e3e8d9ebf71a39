"""Evicts the victims of a preemption asynchronously.

The preemptor is gated until its evictions are issued::

                start, victims to evict                all but the last done
    (none) ──────────────────────────▶ FIRST VICTIMS ────────────────────────▶ LAST VICTIM ──┐
       ▲                                    │ one failed: the preemptor is activated         │ done, or failed
       └────────────────────────────────────┴────────────────────────────────────────────────┘

The last victim is evicted alone: if the event of its deletion arrives before the response to the request, the preemptor
may be tried already, so it does not miss that event.

A preemption that begins also ends, whatever raises: until its end the preemptor is gated.

The limits of a profile on victims, and the pods of groups that are disrupted as a whole, are checked again when the
evictions begin, because the plan may be older: it was made in another process, or by a cycle that was suspended. If it
does not hold any more, nothing is evicted, and the preemptor is activated.

A gang preempts like a pod; its preemption is stored under the key of the gang and gates whichever member represents it
in the queue.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/preemption/executor.go`` (asynchronous preemption). For the
victims of a gang kube-scheduler names no node but "cluster"; here the event names the victim's node.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from scheduler_core.errors import NotFoundError
from scheduler_core.framework.extension_points import PreemptionCandidate
from scheduler_core.framework.gang_preemptor import EvictionLimits, GangEviction
from scheduler_core.framework.group_view import DisruptionUnits
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.ongoing_preemptions import Preemption, Preemptor, holder_of, pod_preemptor
from scheduler_core.model.pod import PodCondition
from scheduler_core.plugins.default_preemption.candidate_nodes import DISRUPTION_TARGET, PREEMPTION_BY_SCHEDULER
from scheduler_core.ports import Event, ObjectReference, PodDeletion, PodStatusPatch
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

log = logging.getLogger(__name__)
_decisions = logging.getLogger("scheduler_core.decisions")
_STEPS_OF_EVICTION = 10


def to_be_evicted(candidate: PreemptionCandidate) -> tuple[PodInfo, ...]:
    """Return the victims that do not terminate already."""
    return tuple(info for info in candidate.victims if not info.is_leaving)


class Evictions:
    """Evictions by one revision of a profile."""

    def __init__(self, handle: Handle, plugin: str) -> None:
        self._handle = handle
        self._plugin = plugin

    def is_preempting(self, pod: PodInfo) -> bool:
        """Return whether evictions for a pod that is due for an attempt, or for its gang, are still to be issued.

        That is noted, because the pod must be activated at the end of the preemption if the gate held it.
        """
        preemption = self._preemption_for(pod)
        if preemption is None:
            return False
        is_held = self._gates(preemption)
        # If one member passes, members that were held back before may still be held back.
        is_gang = preemption.preemptor.group is not None
        preemption.has_held = is_held or (is_gang and preemption.has_held)
        return is_held

    def would_hold(self, pod: PodInfo) -> bool:
        """Return what :meth:`is_preempting` would return, without a note."""
        preemption = self._preemption_for(pod)
        return preemption is not None and self._gates(preemption)

    def _gates(self, preemption: Preemption) -> bool:
        return preemption.last is None or self._still_stays(preemption.last)

    def _preemption_for(self, pod: PodInfo) -> Preemption | None:
        under_way = self._handle.preemptions
        if not len(under_way):
            return None
        found = under_way.get(pod.uid)
        if found is None:
            view = self._handle.groups.group_of(pod.pod)
            found = None if view is None else under_way.get(holder_of(view.key))
        return found

    def to_be_withdrawn(self, preemptor: PodInfo, candidate: PreemptionCandidate) -> tuple[PodInfo, ...]:
        """Return the pods of lower priority whose nomination to the node the preemption clears."""
        return self._losing_nominations(preemptor.priority, (candidate.node_name,)) if to_be_evicted(candidate) else ()

    def _losing_nominations(self, priority: int, node_names: Iterable[str]) -> tuple[PodInfo, ...]:
        nominated_pods = self._handle.nominator.nominated_pods
        return tuple(info for name in node_names for info in nominated_pods(name) if info.priority < priority)

    def start(self, preemptor: PodInfo, candidate: PreemptionCandidate) -> None:
        """Evict the victims; a new preemption of the same pod replaces an earlier one."""
        victims = to_be_evicted(candidate)
        if not victims:
            return
        waiting_for = len(victims) - 1
        self._begin(
            Preemption(pod_preemptor(preemptor), candidate.node_name, len(candidate.victims), waiting_for, victims),
            (candidate.node_name,),
        )

    def start_for_gang(self, eviction: GangEviction) -> None:
        self._begin(
            Preemption(eviction.preemptor, "", len(eviction.victims), len(eviction.victims) - 1, eviction.victims),
            eviction.node_names,
            eviction.members,
        )

    def _begin(self, preemption: Preemption, node_names: Sequence[str], members: frozenset[str] = frozenset()) -> None:
        """Begin a preemption: from now on the preemptor is gated.

        Args:
            members: UIDs of pods that keep their nominations to the nodes.
        """
        evict = partial(self._evict_all, preemption, node_names, members)
        try:
            # Before the limits are checked: when a suspended cycle ends, the preemptor may be due for an attempt first.
            self._handle.preemptions.begin(preemption)
            if self._handle.preemption_settings.limits_victims or self._handle.groups.disrupted_whole():
                self._handle.after_suspension(partial(self._evict_within_limits, preemption, evict))
            else:
                evict()
        except BaseException:
            # Raised again to the cycle, which requeues the preemptor. Not all of the first victims report their end.
            self._end(preemption)
            raise

    def _evict_within_limits(self, preemption: Preemption, evict: Callable[[], None]) -> None:
        try:
            # Between two slices the cluster may change again.
            with self._handle.nodes.steps.uninterrupted():
                reason = self._limit_reached(preemption)
                if not reason:
                    evict()
                    return
        except BaseException:
            # No cycle requeues the preemptor if its cycle was suspended.
            preemption.has_failed = True
            self._end(preemption)
            raise
        named = f"{preemption.preemptor.kind} {preemption.preemptor.key}"
        log.info("no pods are evicted for %s, because the cluster changed meanwhile: it would evict %s", named, reason)
        preemption.has_failed = True
        self._end(preemption)

    def _limit_reached(self, preemption: Preemption) -> str:
        """Return what the profile does not evict, if it is among the victims on the present state; "" if it is not."""
        under_way = [each for each in self._handle.preemptions if each is not preemption]
        limits = EvictionLimits(self._handle.preemption_settings, self._handle.nodes, under_way)
        planned = {info.uid for info in preemption.victims}
        # A victim that is gone counts, because its eviction is sent all the same.
        victims = (self._present(info) or info for info in preemption.victims)
        present = DisruptionUnits(self._handle.groups).whole(victims)
        if any(info.uid not in planned and not info.is_leaving for info in present):
            return "only a part of a group that is disrupted as a whole"
        return limits.why_not(present)

    def _evict_all(self, preemption: Preemption, node_names: Sequence[str], members: frozenset[str]) -> None:
        for info in self._losing_nominations(preemption.preemptor.priority, node_names):
            if info.uid not in members:
                self._withdraw(info)
        *first, last = preemption.victims
        for victim in first:
            # The event loop may run between two victims of a large gang; the last one waits for all of them.
            self._handle.nodes.steps.upkeep(_STEPS_OF_EVICTION)
            self._evict(preemption, victim, partial(self._first_victim_done, preemption, last))
        if not first:
            self._evict_last(preemption, last)

    def _first_victim_done(self, preemption: Preemption, last: PodInfo, fault: Exception | None) -> None:
        preemption.waiting_for -= 1
        preemption.has_failed = preemption.has_failed or fault is not None
        # Below 0 if the report of the last of them raised, and is repeated.
        if preemption.waiting_for > 0:
            return
        if not preemption.has_failed:
            try:
                self._evict_last(preemption, last)
            except Exception:
                # A preemption that does not end would gate its preemptor permanently.
                log.exception("pod %s cannot be evicted", last.key, extra={"pod": last.key})
                preemption.has_failed = True
        if preemption.has_failed:
            self._end(preemption)

    def _last_victim_done(self, preemption: Preemption, fault: Exception | None) -> None:
        preemption.has_failed = fault is not None
        self._end(preemption)

    def _evict_last(self, preemption: Preemption, last: PodInfo) -> None:
        preemption.last = last
        self._evict(preemption, last, partial(self._last_victim_done, preemption))

    def _end(self, preemption: Preemption) -> None:
        """End a preemption; if that raises, once more: the preemptor would be gated permanently."""
        for is_last in (False, True):
            try:
                self._handle.preemptions.end(preemption)
                if preemption.has_failed or preemption.has_held:
                    # The event that caused the gated attempt has passed, so no other event may ever activate it.
                    self._handle.activate(self._held(preemption.preemptor))
            except Exception:
                # The first failure is not final: both calls may be repeated.
                if is_last:
                    raise
                log.exception("the preemption by %s is ended once more", preemption.preemptor.key)
            else:
                return

    def _held(self, preemptor: Preemptor) -> Sequence[PodInfo]:
        if preemptor.pod is not None:
            return (preemptor.pod,)
        view = None if preemptor.group is None else self._handle.groups.get(preemptor.group)
        return () if view is None else view.waiting()

    def _evict(self, preemption: Preemption, victim: PodInfo, report: Callable[[Exception | None], None]) -> None:
        if self._is_cancelled(victim):
            if victim is preemption.last:
                # No deletion of this victim will be reported.
                preemption.has_held = True
            self._record_event(preemption, victim, " (in kube-scheduler memory).")
            report(None)
            return
        preemptor, meta = preemption.preemptor, victim.pod.metadata
        condition = PodCondition(
            DISRUPTION_TARGET,
            "True",
            PREEMPTION_BY_SCHEDULER,
            f"{preemptor.scheduler_name}: preempting to accommodate a higher priority {preemptor.kind}",
            meta.generation,
        )
        named = f"{preemptor.kind} {preemptor.key}"
        fields = {"pod": victim.key, "node": victim.node_name, "profile": preemptor.scheduler_name}
        has_condition = any(known.has_same_content(condition) for known in victim.pod.status.conditions)
        deletion = PodDeletion(meta.namespace, meta.name, meta.uid, None if has_condition else condition)

        def done(fault: Exception | None) -> None:
            is_gone = isinstance(fault, NotFoundError)
            try:
                if fault is None:
                    _decisions.debug(
                        "pod %s on node %s is evicted for %s", victim.key, victim.node_name, named, extra=fields
                    )
                    self._record_event(preemption, victim)
                elif is_gone:
                    log.info("pod %s was deleted before it was evicted for %s", victim.key, named, extra=fields)
                else:
                    log.error("pod %s cannot be evicted for %s: %s", victim.key, named, fault, extra=fields)
            finally:
                report(None if is_gone else fault)

        self._handle.writer.delete_pod(deletion, done)

    def _is_cancelled(self, victim: PodInfo) -> bool:
        """Return whether the victim is not bound yet and its attempt was cancelled instead."""
        waiting = self._handle.waiting_pods.get(victim.uid)
        if waiting is not None:
            is_cancelled = waiting.preempt(self._plugin, "preempted")
        else:
            binding = self._handle.pods_in_pre_bind.get(victim.uid)
            is_cancelled = binding is not None and binding.cancel(f"preempted by {self._plugin}")
        if is_cancelled:
            # Its own task releases it later, and until then no other victim is needed.
            victim.is_cancelled = True
        return is_cancelled

    def _record_event(self, preemption: Preemption, victim: PodInfo, where: str = "") -> None:
        preemptor = preemption.preemptor
        meta, node_name = victim.pod.metadata, victim.node_name or preemption.node_name
        # kube-scheduler names no group. The name is not shown to users of other namespaces.
        group, named = preemptor.group, ""
        if group is not None and not group.source.is_native and group.namespace == meta.namespace:
            named = f" ({group})"
        self._handle.writer.record(
            Event(
                ObjectReference("Pod", meta.name, meta.namespace, meta.uid),
                "Normal",
                "Preempted",
                "Preempting",
                f"Preempted by {preemptor.kind} {preemptor.uid}{named} on node {node_name}{where}",
                preemptor.reference,
                self._handle.profile_name,
            )
        )

    def _withdraw(self, info: PodInfo) -> None:
        nominator, meta = self._handle.nominator, info.pod.metadata
        nominator.withdraw(info.uid)
        if info.pod.status.nominated_node_name or nominator.is_unseen(info.uid):
            nominator.written(info.uid, "")
            self._handle.writer.patch_pod_status(
                PodStatusPatch(meta.namespace, meta.name, meta.uid, nominated_node_name="")
            )

    def _still_stays(self, victim: PodInfo) -> bool:
        current = self._present(victim)
        return current is not None and not current.is_leaving

    def _present(self, victim: PodInfo) -> PodInfo | None:
        nodes = self._handle.nodes
        row = nodes.row_of(victim.node_name)
        return None if row == NO_ROW else nodes.pods[row].get(victim.uid)
