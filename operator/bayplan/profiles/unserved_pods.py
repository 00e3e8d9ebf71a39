"""Reports pods whose ``schedulerName`` means a profile that is not live, or that misspell the name of one.

Pods of other schedulers must not be written to, so that only these names count, only pods that no other scheduler has
reported on, and the condition has a type of Bayplan. Pods with the exact name of a profile also get the condition
PodScheduled, because autoscalers would add nodes for those that are reported as Unschedulable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from bayplan.profiles.profile_status import ProfileReading
from scheduler_core.cycle.failure_handler import POD_SCHEDULED
from scheduler_core.cycle_assembly import CycleContext
from scheduler_core.framework.queued_pod import Place, QueuedPod
from scheduler_core.model.pod import PodCondition
from scheduler_core.ports import Event, ObjectReference, PodStatusPatch

log = logging.getLogger(__name__)

NO_PROFILE = "NoProfile"
"""Reason of event and condition of a pod without a profile."""
NO_PROFILE_CONDITION = "bayplan.dev/NoProfile"
_LOOK_SECONDS = 10.0
_REPORT_SECONDS = 60.0
_REPORTED_AT_ONCE = 256


def profiles_not_live(readings: Iterable[ProfileReading], name: str) -> Iterator[str]:
    """Yield the profiles that would serve a scheduler name and are not live, with the reason."""
    for reading in readings:
        if reading.scheduler_name != name or reading.live_revision or reading.shadow_of:
            continue
        text = f"SchedulerProfile {reading.name} would serve it and is not live"
        failed = next((each for each in reading.conditions if each.get("status") == "False"), None)
        yield text if failed is None else f"{text} ({failed['type']} is False): {failed.get('message', '')}"


class UnservedPods:
    """Reports of pods that wait for a profile.

    A pod is reported when it has waited for 10 s, and again when the reason changes, once a minute at most.

    Args:
        readings: Returns the SchedulerProfiles of this process.
    """

    def __init__(self, context: CycleContext, readings: Callable[[], Iterable[ProfileReading]]) -> None:
        self._context = context
        self._readings = readings
        self._reported: dict[str, float] = {}
        self._has_failed = False
        self._has_looked = False

    async def run(self) -> None:
        while True:
            await self._context.clock.sleep(_LOOK_SECONDS)
            try:
                self.look()
            except Exception:
                # These reports are no part of scheduling: a defect here must not end the operator.
                if not self._has_failed:
                    log.exception("pods without a profile cannot be reported; please report this bug")
                self._has_failed = True

    def look(self) -> None:
        """Report pods without a profile, and clear the condition of those that have one now."""
        profiles, queue = self._context.profiles, self._context.queue
        if not self._has_looked:
            # A process before this one may have reported them.
            self._has_looked = True
            self._reported = {pod.uid: float("-inf") for _, pod in queue.readings.places() if _is_marked(pod)}
        for uid in list(self._reported):
            pod = queue.find(uid)
            if pod is None or pod.place is not Place.PARKED:
                del self._reported[uid]
                if pod is not None and pod.profile in profiles:
                    self._patch(pod, PodCondition(NO_PROFILE_CONDITION, "False", "HasProfile", "A profile is live."))
        texts = {name: self._text(name) for name in queue.readings.parked_counts() if profiles.meant_by(name)}
        if not texts:
            return
        due = (pod for pod in queue.readings.parked() if pod.profile in texts and self._is_due(pod))
        for pod in list(islice(due, _REPORTED_AT_ONCE)):
            self._report(pod, texts[pod.profile])

    def _text(self, name: str) -> str:
        meant = self._context.profiles.meant_by(name)
        if meant != name:
            return (
                f'no profile serves schedulerName "{name}" (did you mean "{meant}"?); create the pod again with '
                "that name, because the field cannot be changed, or a SchedulerProfile that serves this one"
            )
        rejected = "; ".join(profiles_not_live(self._readings(), name))
        remedy = rejected or "create a SchedulerProfile that serves it, or the pod again with another name"
        return f'no profile serves schedulerName "{name}": {remedy}'

    def _is_due(self, pod: QueuedPod) -> bool:
        now, at = self._context.clock.now(), self._reported.get(pod.uid)
        if now - (pod.timestamp if at is None else at) < (_LOOK_SECONDS if at is None else _REPORT_SECONDS):
            return False
        if pod.reported_condition is not None:
            return True
        written = (each for each in _conditions(pod) if each.type == POD_SCHEDULED and each.message)
        return all(each.reason == NO_PROFILE for each in written)

    def _report(self, pod: QueuedPod, text: str) -> None:
        self._reported[pod.uid] = self._context.clock.now()
        meta = pod.info.pod.metadata
        if self._context.profiles.meant_by(pod.profile) == pod.profile:
            scheduled = PodCondition(POD_SCHEDULED, "False", NO_PROFILE, text, meta.generation)
            if not any(
                scheduled.has_same_content(each) for each in (pod.reported_condition, *_conditions(pod)) if each
            ):
                pod.reported_condition = scheduled
                self._patch(pod, scheduled)
        condition = PodCondition(NO_PROFILE_CONDITION, "True", NO_PROFILE, text, meta.generation)
        if any(condition.has_same_content(each) for each in _conditions(pod)):
            return
        self._patch(pod, condition)
        regarding = ObjectReference("Pod", meta.name, meta.namespace, meta.uid)
        self._context.writer.record(Event(regarding, "Warning", NO_PROFILE, "Scheduling", text))

    def _patch(self, pod: QueuedPod, condition: PodCondition) -> None:
        meta = pod.info.pod.metadata
        self._context.writer.patch_pod_status(PodStatusPatch(meta.namespace, meta.name, meta.uid, condition))


def _is_marked(pod: QueuedPod) -> bool:
    return any(each.type == NO_PROFILE_CONDITION and each.status == "True" for each in _conditions(pod))


def _conditions(pod: QueuedPod) -> tuple[PodCondition, ...]:
    return pod.info.pod.status.conditions
