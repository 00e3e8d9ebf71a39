"""Reports pods that wait without attempts: gated by their group or a plugin, or in a gang without a quorum.

The condition has a reason for which autoscalers add no nodes. A report waits for :data:`REPORT_AFTER_SECONDS`, because
most PodGroups are created within a moment of their members, and a gang of a thousand pods would cause a thousand
needless reports. kube-scheduler v1.37.1 reports nothing here.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import islice

from scheduler_core.config.validation import did_you_mean
from scheduler_core.cycle.failure_handler import (
    Failure,
    failed_scheduling,
    patch_status,
)
from scheduler_core.cycle.internal_errors import try_twice
from scheduler_core.framework.queued_pod import Place, QueuedPod
from scheduler_core.framework.status import GANG_SCHEDULING
from scheduler_core.model.pod import PodCondition
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.ports import Clock, ClusterWriter, Event, ObjectReference, PodStatusPatch, Timer
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.scheduling_queue import SchedulingQueue

log = logging.getLogger(__name__)

REPORT_AFTER_SECONDS = 1.0
LOOK_SECONDS = 10.0
"""Interval of the checks of gangs without a quorum: one is reported if no member has joined since the last check."""
_MOST_LOOKS = 6
"""Checks after which a gang is reported although members still join."""
_LASTING_SECONDS = 30.0
"""Time that a plugin gates a pod that was unschedulable before its condition changes; most backoffs are shorter."""
_REPORTED_AT_ONCE = 256
_COMPARED_NAMES = 100
_NO_QUORUM = "waiting for minCount pods from a gang to appear in scheduling queue"

FOREIGN_GANG = "ForeignGang"
"""Reason of event and condition of a pod with a mark of another gang scheduler."""
FOREIGN_GANG_CONDITION = "bayplan.dev/ForeignGang"
"""Type of the condition of such a pod."""


@dataclass(slots=True)
class _Incomplete:
    """A gang without a quorum: its members at the last check, and the number of checks."""

    members: int
    looks: int = 0


class GatedMembers:
    """Reports pods that wait without attempts; the log gets one line for each missing PodGroup, not for each pod."""

    def __init__(self, queue: SchedulingQueue, clock: Clock, writer: ClusterWriter) -> None:
        self._queue = queue
        self._clock = clock
        self._writer = writer
        self._pending: dict[str, QueuedPod] = {}
        self._logged: dict[GroupSource, str] = {}
        self._members: dict[str, QueuedPod] = {}
        """Members of gangs that have lacked their quorum for long enough, by UID."""
        self._lasting: dict[str, tuple[QueuedPod, float]] = {}
        """Pods that were reported before a plugin gated them, each with the time of the report."""
        self._incomplete: dict[GroupKey, _Incomplete] = {}
        self._timer: Timer | None = None
        self._look_timer: Timer | None = None
        self._has_warned = False
        self._hints: dict[GroupKey, str] = {}
        queue.gangs.on_gated.append(self._note_gated)
        queue.gangs.on_incomplete.append(self._note_incomplete)
        queue.gangs.on_foreign.append(self._warn)

    def close(self) -> None:
        for timer in (self._timer, self._look_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._look_timer = None

    def _warn(self, queued: QueuedPod, mark: str) -> None:
        """Report once a pod that is scheduled alone and that others would schedule with its gang."""
        pod, meta = queued.info.pod, queued.info.pod.metadata
        regarding = ObjectReference("Pod", meta.name, meta.namespace, meta.uid)
        note = f"the pod is scheduled without its gang: {mark}"
        condition = PodCondition(FOREIGN_GANG_CONDITION, "True", FOREIGN_GANG, note, meta.generation)
        if any(condition.has_same_content(each) for each in pod.status.conditions):
            return
        self._writer.patch_pod_status(PodStatusPatch(meta.namespace, meta.name, meta.uid, condition))
        self._writer.record(
            Event(regarding, "Warning", FOREIGN_GANG, "Scheduling", note, reporting_controller=queued.profile)
        )
        if not self._has_warned:
            self._has_warned = True
            log.warning("pods are scheduled without their gangs, such as pod %s: %s", queued.info.key, mark)

    def _note_gated(self, pod: QueuedPod) -> None:
        if pod.is_reported and pod.place is Place.GATED and pod.gated_by != GANG_SCHEDULING:
            self._lasting.setdefault(pod.uid, (pod, self._clock.now() + _LASTING_SECONDS))
            self._begin_looking()
            return
        self._pending[pod.uid] = pod
        self._begin_reporting(REPORT_AFTER_SECONDS)

    def _note_incomplete(self, gang: Gang) -> None:
        self._incomplete.setdefault(gang.key, _Incomplete(-1))
        self._begin_looking()

    def _begin_reporting(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = self._clock.call_later(seconds, self._report_some)

    def _begin_looking(self) -> None:
        if self._look_timer is None:
            self._look_timer = self._clock.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Report what has waited for long enough, and look again later if anything is left."""
        self._look_timer, now = None, self._clock.now()
        for uid, (pod, due) in list(self._lasting.items()):
            if now >= due:
                del self._lasting[uid]
                self._pending[uid] = pod
        for key, seen in list(self._incomplete.items()):
            gang = self._queue.gangs.get(key)
            if gang is None or not gang.is_incomplete:
                del self._incomplete[key]
                continue
            members = sum(len(part.pods) for part in gang.parts)
            is_growing = members > seen.members and seen.looks < _MOST_LOOKS
            seen.members, seen.looks = members, seen.looks + 1
            if not is_growing:
                del self._incomplete[key]
                # A member that joins later is noted again.
                gang.is_incomplete = False
                self._members.update(gang.waiting)
        if self._pending or self._members:
            self._begin_reporting(0.0)
        if self._lasting or self._incomplete:
            self._begin_looking()

    def _report_some(self) -> None:
        self._timer = None
        self._hints.clear()
        for uid in list(islice(self._pending, _REPORTED_AT_ONCE)):
            try_twice(self._report_if_gated, self._pending.pop(uid))
        for uid in list(islice(self._members, _REPORTED_AT_ONCE)):
            try_twice(self._report_member, self._members.pop(uid))
        if self._pending or self._members:
            self._begin_reporting(0.0)

    def _report_if_gated(self, pod: QueuedPod) -> None:
        if not self._still_waits(pod):
            return
        if pod.gated_by == GANG_SCHEDULING:
            self._report(pod)
        elif pod.place is Place.GATED:
            # A pod with a nominated node waits for its own preemption, and autoscalers count it on that node.
            if not pod.info.pod.spec.scheduling_gates and not self._queue.nominator.node_of(pod.uid):
                self._patch(pod, ", ".join(pod.gate_reasons))
        elif pod.is_reported:
            # Its gate is open, or a member that it names is gone; without a quorum no attempt corrects it.
            self._report_member(pod)

    def _report_member(self, pod: QueuedPod) -> None:
        """Write why a member is not tried, unless its gang has a quorum, whose attempt writes another condition."""
        if pod.place is not Place.GROUPED or not self._still_waits(pod):
            return
        gang = self._queue.gangs.of_uid(pod.uid)
        if gang is not None and gang.unit.entry is not None and gang.unit.entry.place is not Place.NOWHERE:
            return
        message = _NO_QUORUM if gang is None or gang.tree is None else gang.tree.lacks_quorum
        if gang is not None and gang.is_held:
            message = gang.why_held
        if self._patch(pod, message):
            self._writer.record(failed_scheduling(pod.info.pod, message, pod.profile))

    def _still_waits(self, pod: QueuedPod) -> bool:
        return self._queue.find(pod.uid) is pod and pod.info.pod.metadata.deletion_timestamp is None

    def _patch(self, pod: QueuedPod, message: str) -> bool:
        failure = Failure(message, nominated_node=None, is_gated=True)
        return patch_status(self._writer, pod.info.pod, failure, queued=pod)

    def _report(self, queued: QueuedPod) -> None:
        pod, message = queued.info.pod, ", ".join(queued.gate_reasons) + self._hint(queued)
        self._log(queued, message)
        if self._patch(queued, message):
            self._writer.record(failed_scheduling(pod, message, queued.profile))

    def _hint(self, queued: QueuedPod) -> str:
        """Return the name of a PodGroup of the namespace that a missing one may be a misspelling of, as a question."""
        gang = self._queue.gangs.of_uid(queued.uid)
        if gang is None or gang.group is not None:
            return ""
        if gang.key not in self._hints:
            source, namespace = gang.key.source, gang.key.namespace
            known = (each.key for each in self._queue.gangs if each.group is not None)
            names = (key.name for key in known if key.source is source and key.namespace == namespace)
            self._hints[gang.key] = did_you_mean(gang.key.name, islice(names, _COMPARED_NAMES))
        return self._hints[gang.key]

    def _log(self, queued: QueuedPod, message: str) -> None:
        gangs = self._queue.gangs
        gang = gangs.of_uid(queued.uid)
        if gang is None:
            return
        source = gang.key.source
        unread = gangs.unread(source)
        if unread is not None:
            if self._logged.get(source) == unread:
                return
            self._logged[source] = unread
            scope = f"pods that name a PodGroup of {source.value}"
        elif gang.is_reported:
            return
        else:
            gang.is_reported = True
            scope = f"pods that name PodGroup {gang.key} of {source.value}"
        extra = {"pod": queued.info.key, "podgroup": str(gang.key), "profile": queued.profile}
        log.warning("%s are not scheduled, such as pod %s: %s", scope, queued.info.key, message, extra=extra)
