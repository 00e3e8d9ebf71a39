"""Replays records: compares all decisions, or stops at a pod and explains it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bayplan.explanation.building import explain_gang, explain_pod, named_gang
from bayplan.explanation.documents import Explanation, GangExplanation
from bayplan.recording import RecordFiles
from bayplan.simulation.admission import admit
from bayplan.simulation.cluster_files import read_cluster_files
from bayplan.simulation.memory_cluster import installed_plugins, offline_scheduler
from bayplan.simulation.simulated_profiles import build_profiles
from scheduler_core.config.profile_config import ShadowSettings
from scheduler_core.errors import ConfigError, Problem, SchedulerCoreError
from scheduler_core.record_assembly import Replay, ReplayLoop, replay_of
from scheduler_core.recording.record_entries import Decision, Entry, Placed, Rejected
from scheduler_core.recording.record_file import RecordError
from scheduler_core.recording.replayed_input import ReplayDifference
from scheduler_core.scheduler import Scheduler
from scheduler_core.shadows.shadow_profiles import Shadow

_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Options of a replay.

    Attributes:
        until: Stop at the decision on this pod, ``namespace/name``; "" for none.
        attempt: Which decision on it, counted from 1.
        speed: How many times as fast as recorded; 0 for as fast as possible.
        profile: File with another profile that makes every decision of its schedulerName, too; "" for none.
        look: Called with the moment of that decision and the explanation, before the replay ends; None for nothing.
    """

    until: str = ""
    attempt: int = 1
    speed: float = 0.0
    profile: str = ""
    look: Callable[[Moment, Explanation | None], None] | None = None


@dataclass(slots=True)
class ReplayResult:
    """Result of a replay.

    Attributes:
        difference: The first difference after which the replay cannot go on; None for none.
        explanation: The pod at its decision; None if the replay did not stop there.
        first, last: Date and time of the first and last entries.
    """

    decisions: int = 0
    placed: int = 0
    rejected: int = 0
    changed: list[ReplayDifference] = field(default_factory=list)
    difference: ReplayDifference | None = None
    explanation: Explanation | None = None
    decision: Decision | None = None
    first: datetime | None = None
    last: datetime | None = None
    shadow: Shadow | None = None


class Moment:
    """The scheduler when the replay has reached a decision; it can be looked at until the replay goes on or ends."""

    def __init__(self, scheduler: Scheduler, run: Replay, options: ReplayOptions, result: ReplayResult) -> None:
        self._scheduler = scheduler
        self._run = run
        self._options = options
        self._result = result
        self._seen = 0

    def explain_pod(self, namespace: str, name: str) -> Explanation | None:
        """Explain a pod; None if it does not exist at this moment."""
        pod = self._run.pod(namespace, name)
        return None if pod is None else explain_pod(self._scheduler, pod)

    def explain_gang(self, namespace: str, name: str) -> GangExplanation | None:
        """Explain a gang; None if it does not exist at this moment."""
        gang = named_gang(self._scheduler.context, namespace, name)
        return None if gang is None else explain_gang(self._scheduler, gang)

    def decided(self, decision: Decision) -> bool:
        """Count a decision, and explain its pod if the replay ends with it; return whether it does."""
        result = self._result
        result.placed += isinstance(decision, Placed)
        result.rejected += isinstance(decision, Rejected)
        if not isinstance(decision, Placed | Rejected) or decision.pod != self._options.until:
            return False
        self._seen += 1
        if self._seen < self._options.attempt:
            return False
        result.decision = decision
        result.explanation = self.explain_pod(*decision.pod.split("/", 1))
        if self._options.look is not None:
            self._options.look(self, result.explanation)
        return True


def replay(record: RecordFiles, options: ReplayOptions) -> ReplayResult:
    """Replay a record. Raises RecordError: it cannot be replayed, or has no decision on the pod."""
    result = ReplayResult()
    entries = _entries(record, options, result)
    recorded, scheduler, run = replay_of(record.header, entries, installed_plugins())
    recorded.on_decision = Moment(scheduler, run, options, result).decided
    if options.profile:
        result.shadow = _shadow(scheduler, options.profile)
    try:
        with asyncio.Runner(loop_factory=ReplayLoop) as runner:
            runner.run(run.run())
    except SchedulerCoreError:
        raise
    except Exception as error:
        # Entries are decoded when they are replayed; whatever a damaged one raises belongs to the record.
        raise RecordError(f"the record cannot be replayed: {type(error).__name__}: {error}") from error
    result.decisions, result.difference, result.changed = recorded.decisions, recorded.difference, recorded.changed
    if result.shadow is not None and not result.shadow.record.decided and result.difference is None:
        name = result.shadow.settings.shadow_of
        raise RecordError(f'the record has no decision of schedulerName "{name}", which the profile of the file serves')
    if options.until and result.decision is None and result.difference is None:
        raise RecordError(
            f"the record has no decision {options.attempt} on pod {options.until}; check the namespace and the name"
        )
    return result


def _shadow(scheduler: Scheduler, file: str) -> Shadow:
    """Run the profile of a file as a shadow. Raises ConfigError: the file has not exactly one valid profile."""
    cluster = admit(read_cluster_files([file], scheduler.decoded))
    built = build_profiles(offline_scheduler(), cluster)
    if built.problems:
        raise ConfigError(built.problems)
    if len(built.instances) != 1:
        raise ConfigError([Problem("--profile", f"{file} has {len(built.instances)} profiles; specify one with one")])
    config = built.instances[0].config
    instance, name = scheduler.build(config, is_shadow=True), Path(file).name
    settings = ShadowSettings(config.scheduler_name, budget_percent=100)
    scheduler.shadows.serve({name: (instance, settings)})
    shadow = scheduler.shadows.get(name)
    assert shadow is not None
    # In a replay decisions take no time; otherwise the first slice would be compared with one decision only.
    shadow.budget.charge(0.0, 1)
    return shadow


def _entries(record: RecordFiles, options: ReplayOptions, result: ReplayResult) -> Iterator[Entry]:
    began = time.monotonic()
    first = 0
    for frame in record.frames():
        result.last = datetime.fromtimestamp(frame.wall_microseconds / _MICROSECONDS, UTC)
        if result.first is None:
            result.first, first = result.last, frame.wall_microseconds
        if options.speed:
            due = began + (frame.wall_microseconds - first) / _MICROSECONDS / options.speed
            time.sleep(max(0.0, due - time.monotonic()))
        yield from frame.entries
