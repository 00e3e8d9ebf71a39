"""Reports pods that are gated because their PodGroup is not known: condition, event and log.

A report waits for :data:`REPORT_AFTER_SECONDS`, because most PodGroups are created within a moment of their members,
and a gang of a thousand pods would cause a thousand needless reports. kube-scheduler v1.37.1 reports nothing here.
"""

from __future__ import annotations

import logging
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
from scheduler_core.queueing.scheduling_queue import SchedulingQueue

log = logging.getLogger(__name__)

REPORT_AFTER_SECONDS = 1.0
_REPORTED_AT_ONCE = 256
_COMPARED_NAMES = 100
_NO_QUORUM = "waiting for minCount pods from a gang to appear in scheduling queue"

FOREIGN_GANG = "ForeignGang"
"""Reason of event and condition of a pod with a mark of another gang scheduler."""
FOREIGN_GANG_CONDITION = "bayplan.dev/ForeignGang"
"""Type of the condition of such a pod."""


class GatedMembers:
    """Reports gated pods; the log gets one line for each cause, not for each pod."""

    def __init__(self, queue: SchedulingQueue, clock: Clock, writer: ClusterWriter) -> None:
        self._queue = queue
        self._clock = clock
        self._writer = writer
        self._pending: dict[str, QueuedPod] = {}
        self._logged: dict[GroupSource, str] = {}
        self._timer: Timer | None = None
        self._has_warned = False
        self._hints: dict[GroupKey, str] = {}
        queue.gangs.on_gated.append(self._note_gated)
        queue.gangs.on_foreign.append(self._warn)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

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
        self._pending[pod.uid] = pod
        if self._timer is None:
            self._timer = self._clock.call_later(REPORT_AFTER_SECONDS, self._report_some)

    def _report_some(self) -> None:
        self._timer = None
        self._hints.clear()
        for uid in list(islice(self._pending, _REPORTED_AT_ONCE)):
            try_twice(self._report_if_gated, self._pending.pop(uid))
        if self._pending:
            self._timer = self._clock.call_later(0.0, self._report_some)

    def _report_if_gated(self, pod: QueuedPod) -> None:
        if self._queue.find(pod.uid) is not pod or pod.info.pod.metadata.deletion_timestamp is not None:
            return
        if pod.gated_by == GANG_SCHEDULING:
            self._report(pod)
        elif pod.place is Place.GROUPED and pod.is_reported:
            # Its gate is open, or a member that it names is gone; without a quorum no attempt corrects it.
            gang = self._queue.gangs.of_uid(pod.uid)
            if gang is not None and gang.unit.entry is not None and gang.unit.entry.place is not Place.NOWHERE:
                return  # there is a quorum, and its attempt writes another condition
            if gang is not None and gang.is_held:
                text = gang.why_held
            else:
                text = _NO_QUORUM if gang is None or gang.tree is None else gang.tree.lacks_quorum
            failure = Failure(text, nominated_node=None, is_gated=True)
            patch_status(self._writer, pod.info.pod, failure, queued=pod)

    def _report(self, queued: QueuedPod) -> None:
        pod, message = queued.info.pod, ", ".join(queued.gate_reasons) + self._hint(queued)
        self._log(queued, message)
        failure = Failure(message, nominated_node=None, is_gated=True)
        if patch_status(self._writer, pod, failure, queued=queued):
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
