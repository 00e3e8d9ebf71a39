"""Reports of single attempts: the last ones in memory, the log of decisions, the log of slow cycles.

Pods that were bound by their first attempt are most of all pods, so they have a table of their own: they must not
displace the pods that wait.

The logger ``scheduler_core.decisions`` logs at level DEBUG, because a line costs more than the cycle of its pod. The
subject is in fields of its own (``extra``), so that structured logs can be searched by pod, profile and node.

At most one slow cycle a second is logged, because when all are slow the log would slow them down further; the next
line contains the number of cycles that were not logged.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable
from math import inf
from typing import NamedTuple

from scheduler_core.framework.cycle_state import STAGE_NAMES
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.metrics.cycle_recorder import CycleRecorder

SUBJECTS = 10_000
"""Default maximum number of pods and gangs of each table."""
ATTEMPTS = 10
"""Default maximum number of attempts of each pod or gang."""


class EndedAttempt(NamedTuple):
    """Result of an attempt.

    Attributes:
        result: ``scheduled``, ``unschedulable`` or ``error``; of a gang the reason of its condition.
    """

    ended: float
    profile: str
    result: str
    node_name: str
    message: str


class AttemptHistory:
    """Attempts by the UID of the pod or the key of the gang."""

    __slots__ = ("_attempts", "_placed", "_repeated", "_subjects")

    def __init__(self, subjects: int = SUBJECTS, attempts: int = ATTEMPTS) -> None:
        self._subjects = subjects
        self._attempts = attempts
        self._placed: dict[Hashable, EndedAttempt] = {}
        self._repeated: dict[Hashable, deque[EndedAttempt]] = {}

    def scheduled(self, subject: Hashable, attempt: EndedAttempt) -> None:
        if subject in self._repeated:
            self.add(subject, attempt)
            return
        self._placed[subject] = attempt
        if len(self._placed) > self._subjects:
            del self._placed[next(iter(self._placed))]

    def add(self, subject: Hashable, attempt: EndedAttempt) -> None:
        """Add an attempt after which others may follow, also one of a pod that was bound before."""
        found = self._repeated.pop(subject, None)
        if found is None:
            placed = self._placed.pop(subject, None)
            found = deque(() if placed is None else (placed,), maxlen=self._attempts)
        self._repeated[subject] = found
        found.append(attempt)
        if len(self._repeated) > self._subjects:
            del self._repeated[next(iter(self._repeated))]

    def of(self, subject: Hashable) -> list[EndedAttempt]:
        """Return the attempts of a pod or gang, newest first."""
        placed = self._placed.get(subject)
        return list(reversed(self._repeated.get(subject, ()))) if placed is None else [placed]


DECISIONS = logging.getLogger("scheduler_core.decisions")


def log_bound(queued: QueuedPod, log_fields: Callable[[], dict[str, str]], feasible: int, nodes: int) -> None:
    """Log that a pod was bound; call it only if :data:`DECISIONS` logs."""
    fields = log_fields()
    extra = fields | {"result": "scheduled", "attempts": queued.attempts, "feasible_nodes": feasible}
    DECISIONS.debug(
        "pod %s is bound to node %s by profile %s: %d of %d nodes are feasible, attempt %d",
        fields["pod"],
        fields["node"],
        fields["profile"],
        feasible,
        nodes,
        queued.attempts,
        extra=extra,
    )


def log_unschedulable(queued: QueuedPod, log_fields: Callable[[], dict[str, str]], message: str) -> None:
    """Log that a pod was rejected; errors are logged as warnings elsewhere."""
    if not DECISIONS.isEnabledFor(logging.DEBUG):
        return
    fields = log_fields()
    extra = fields | {"result": "unschedulable", "attempts": queued.attempts}
    text = "pod %s is unschedulable for profile %s: %s"
    DECISIONS.debug(text, fields["pod"], fields["profile"], message, extra=extra)


def log_gang(gang: str, profile: str, result: str, message: str) -> None:
    if DECISIONS.isEnabledFor(logging.DEBUG):
        extra = {"podgroup": gang, "profile": profile, "result": result}
        DECISIONS.debug("gang %s of profile %s: %s", gang, profile, message, extra=extra)


log = logging.getLogger(__name__)

SLOW_CYCLE_SECONDS = 0.1
"""Duration from which a cycle is slow; kube-scheduler v1.37.1 traces cycles from the same one (``schedule_one.go``)."""

_PAUSE_SECONDS = 1.0


class SlowCycles:
    """Logger of slow cycles."""

    def __init__(self, seconds: float = SLOW_CYCLE_SECONDS) -> None:
        self.seconds = seconds
        self._suppressed = 0
        self._silent_until = -inf

    def report(self, recorder: CycleRecorder, pod: str, profile: str, nodes: int, candidates: int) -> None:
        """Log a slow cycle, unless another was logged within the last second."""
        started, ended = recorder.times[0], recorder.times[-1]
        if ended < self._silent_until:
            self._suppressed += 1
            return
        self._silent_until = ended + _PAUSE_SECONDS
        slowest = max(recorder.stages(), key=lambda stage: stage.ended - stage.started, default=None)
        log.warning(
            "slow scheduling cycle: pod %s took %.1f ms (limit %.1f ms) with profile %s, %d nodes, %d candidates; "
            "slowest stage %s; %s%s",
            pod,
            1000 * (ended - started),
            1000 * self.seconds,
            profile,
            nodes,
            candidates,
            "none" if slowest is None else slowest.name,
            _described(recorder),
            f"; {self._suppressed} more slow cycles were not logged" if self._suppressed else "",
            extra={"pod": pod, "profile": profile},
        )
        self._suppressed = 0


def _described(recorder: CycleRecorder) -> str:
    seconds_of: dict[str, float] = {}
    for stage in recorder.stages():
        seconds_of[stage.name] = seconds_of.get(stage.name, 0.0) + stage.ended - stage.started
    plugins: dict[str, dict[str, float]] = {}
    for stage_number, plugin, _, seconds in recorder.plugins():
        of_stage = plugins.setdefault(STAGE_NAMES[stage_number], {})
        of_stage[plugin] = of_stage.get(plugin, 0.0) + seconds
    return ", ".join(_stage_text(name, seconds, plugins.get(name, {})) for name, seconds in seconds_of.items())


def _stage_text(name: str, seconds: float, plugins: dict[str, float]) -> str:
    slowest_first = sorted(plugins.items(), key=lambda entry: -entry[1])
    parts = ", ".join(f"{plugin} {_ms(spent)}" for plugin, spent in slowest_first)
    return f"{name} {_ms(seconds)}" + (f" ({parts})" if parts else "")


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"
