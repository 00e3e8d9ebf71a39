"""Replay of sequences of calls on the real scheduling queue in virtual time, with a dump after each step.

The dumps have the format of ``oracle -queue``. This module and ``tests/parity/oracle/queue_*.go`` remove differences
that do not matter:

- Ties of priority and time are broken by UID. The reference's heap does not order them.
- An attempt after Done, or whose pod is gone, is not in flight. This queue stores it until it ends.
- The end of a backoff is the tick that releases the pod. The reference stores the start of that second.
- Only waiting pods have rejectors. The reference stores those of the last attempt until the next one fails.
- A nomination without a node is omitted. The reference's nominator stores it under "".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from bayplan.simulation.memory_cluster import SimulatedClock

from scheduler_core.errors import ConfigError, Problem
from scheduler_core.framework.queued_pod import Place, QueuedPod
from scheduler_core.model.pod import Pod
from scheduler_core.queueing.scheduling_queue import FLUSH_INTERVAL_SECONDS, SchedulingQueue
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.parity.queue_rules import QueueSequence, SequencePod, Step, decode_sequence, own_events, rules_of, sort_key

Dump = dict[str, Any]

_LISTED = {
    Place.BACKOFF: "backoff",
    Place.ERROR_BACKOFF: "errorBackoff",
    Place.UNSCHEDULABLE: "unschedulable",
}
_START_SECONDS = 1000.0
"""Time of the clock at the first step, because a timestamp of 0 counts as unset."""
_BACKING_OFF = (Place.BACKOFF, Place.ERROR_BACKOFF)


def replay_sequences(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Replay sequences from lines of JSON.

    Raises:
        ConfigError: A line is not a sequence.
    """
    for line in lines:
        yield replay(decode_sequence(line))


def replay(sequence: QueueSequence) -> dict[str, Any]:
    """Run all steps of a sequence.

    Returns:
        Name, a dump after each step, the number of pods that entered a queue by event and queue, and the number of
        waiting pods at the end by plugin and profile.

    Raises:
        ConfigError: A step is of an unknown kind.
    """
    world = _World(sequence)
    # Plugins of these sequences fail on purpose, and the queue logs each failure.
    logging.disable(logging.ERROR)
    try:
        dumps = [world.run_step(step) for step in sequence.steps]
    finally:
        logging.disable(logging.NOTSET)
    incoming = {f"{event} {queue}": count for (event, queue), count in world.queue.readings.incoming.items()}
    world.queue.close()
    result: dict[str, Any] = {"name": sequence.name, "dumps": dumps, "incoming": incoming}
    if unschedulable_by := world.unschedulable_by():
        result["unschedulableBy"] = unschedulable_by
    return result


class _World:
    """Scheduling queue and its environment."""

    def __init__(self, sequence: QueueSequence) -> None:
        self._clock = SimulatedClock()
        self._closed: set[str] = set()
        self._columns = NodeColumns()
        rules = rules_of(sequence, self._closed)
        self.queue = SchedulingQueue(rules.get, self._clock, sequence.max_unschedulable_ms / 1000)
        for profile in rules:
            self.queue.profile_changed(profile)
        self._now_ms = 0
        self._clock.call_later(_START_SECONDS, lambda: None)
        self._clock.advance(_START_SECONDS)
        self._specs: dict[str, SequencePod] = {}
        self._pods: dict[str, Pod] = {}
        self._generations: dict[str, int] = {}
        self._attempts: list[QueuedPod] = []
        self._done: set[str] = set()
        self._popped = ""
        self._ops: dict[str, Callable[[Step], None]] = {
            "add": self._create,
            "appear": self._create,
            "update": self._update,
            "delete": lambda step: self._remove(step.name),
            "recreate": self._recreate,
            "pop": self._pop,
            "fail": self._fail,
            "permitted": self._permitted,
            "bound": self._bound,
            "event": self._event,
            "activate": self._activate,
            "nominate": self._nominate,
            "unnominate": self._unnominate,
            "gate": self._gate,
            "advance": lambda step: self._advance(step.ms),
        }

    def run_step(self, step: Step) -> Dump:
        """Run a step and return the content of the queue after it."""
        if step.op not in self._ops:
            raise ConfigError([Problem("op", f"unknown op {step.op}; use one of {', '.join(self._ops)}")])
        self._popped = ""
        self._ops[step.op](step)
        return self._dump()

    def unschedulable_by(self) -> dict[str, int]:
        """Return the number of waiting pods by plugin and profile that rejected them."""
        counts = self.queue.readings.unschedulable_by
        return {f"{plugin} {profile}": count for (plugin, profile), count in counts.items() if count}

    def _create(self, step: Step) -> None:
        assert step.pod is not None
        self._add_pod(step.pod, by_update=step.op == "appear")

    def _add_pod(self, spec: SequencePod, *, by_update: bool) -> None:
        name = spec.name
        if name in self._pods:
            return
        self._generations[name] = self._generations.get(name, 0) + 1
        pod = spec.pod(f"{name}.{self._generations[name]}")
        self._specs[name], self._pods[name] = spec, pod
        info = self._columns.compile_pod(pod)
        if by_update:
            self.queue.update(info, own_events(pod, pod), pod)
        else:
            self.queue.add(info)

    def _update(self, step: Step) -> None:
        old = self._pods.get(step.name)
        if old is None:
            return
        spec = msgspec.structs.replace(self._specs[step.name], **step.set)
        pod = spec.pod(old.metadata.uid)
        self._specs[step.name], self._pods[step.name] = spec, pod
        self.queue.update(self._columns.compile_pod(pod), own_events(old, pod), old)

    def _remove(self, name: str) -> None:
        pod = self._pods.pop(name, None)
        if pod is not None:
            del self._specs[name]
            self.queue.remove(pod.metadata.uid)

    def _recreate(self, step: Step) -> None:
        spec = self._specs.get(step.name)
        if spec is not None:
            self._remove(step.name)
            self._add_pod(spec, by_update=False)

    def _pop(self, step: Step) -> None:
        pod = self.queue.pop()
        if pod is not None:
            self._popped = pod.uid
            self._attempts.append(pod)

    def _nth(self, step: Step) -> QueuedPod | None:
        return self._attempts[step.nth % len(self._attempts)] if self._attempts else None

    def _end_attempt(self, step: Step) -> QueuedPod | None:
        pod = self._nth(step)
        if pod is not None:
            self._attempts.remove(pod)
            self._done.discard(pod.uid)
        return pod

    def _fail(self, step: Step) -> None:
        """Fail an attempt like :func:`scheduler_core.cycle.failure_handler.handle_failure`."""
        pod = self._end_attempt(step)
        if pod is None:
            return
        if not self.queue.is_in_flight(pod.uid):
            self.queue.done(pod.uid)
            return
        pod.rejected_by, pod.pending_on = frozenset(step.rejected), frozenset(step.pending)
        self.queue.nominator.decide(pod.info, step.node)
        self.queue.failed(pod)

    def _permitted(self, step: Step) -> None:
        pod = self._nth(step)
        if pod is not None:
            self._done.add(pod.uid)
            self.queue.end_recording(pod.uid)

    def _bound(self, step: Step) -> None:
        pod = self._end_attempt(step)
        if pod is None:
            return
        name = pod.info.pod.metadata.name
        self.queue.scheduled(pod)
        known = self._pods.get(name)
        if known is not None and known.metadata.uid == pod.uid:
            self._remove(name)

    def _event(self, step: Step) -> None:
        assert step.event is not None
        but = self._pods[step.but].metadata.uid if step.but in self._pods else ""
        old, new = step.event.objects()
        self.queue.on_event(step.event.cluster_event(), old, new, exclude=but, max_priority=step.max_priority)

    def _activate(self, step: Step) -> None:
        self.queue.activate(self._pods[name].metadata.uid for name in step.names if name in self._pods)

    def _nominate(self, step: Step) -> None:
        pod = self._pods.get(step.name)
        if pod is not None:
            self.queue.nominator.decide(self._columns.compile_pod(pod), step.node)

    def _unnominate(self, step: Step) -> None:
        pod = self._pods.get(step.name)
        if pod is not None:
            self.queue.nominator.withdraw(pod.metadata.uid)

    def _gate(self, step: Step) -> None:
        if step.closed:
            self._closed.add(step.name)
        else:
            self._closed.discard(step.name)

    def _advance(self, ms: int) -> None:
        interval = int(FLUSH_INTERVAL_SECONDS * 1000)
        until = self._now_ms + ms
        while (self._now_ms // interval + 1) * interval <= until:
            self._move_to((self._now_ms // interval + 1) * interval)
            self.queue.flush()
        self._move_to(until)

    def _move_to(self, ms: int) -> None:
        if ms > self._now_ms:
            until = _START_SECONDS + ms / 1000
            self._clock.call_later(until - self._clock.now(), lambda: None)
            while self._clock.advance(until):
                pass
            self._now_ms = ms

    def _dump(self) -> Dump:
        pods: dict[str, Any] = {}
        listed: dict[str, list[str]] = {}
        active: list[QueuedPod] = []
        gated: dict[str, str] = {}
        for _, pod in self.queue.readings.places():
            place = pod.place
            pods[pod.uid] = _history(pod)
            if place is Place.ACTIVE:
                active.append(pod)
            elif place is Place.GATED:
                gated[pod.uid] = pod.gated_by
            elif place is Place.IN_FLIGHT:
                if pod.uid not in self._done:
                    listed.setdefault("inFlight", []).append(pod.uid)
            else:
                listed.setdefault(_LISTED[place], []).append(pod.uid)
        dump: Dump = {name: sorted(uids) for name, uids in listed.items()}
        nominated = {
            node: [info.uid for info in self.queue.nominator.nominated_pods(node)]
            for node in self.queue.nominator.nodes()
        }
        found = {
            "popped": self._popped,
            "active": [pod.uid for pod in sorted(active, key=sort_key)],
            "gated": gated,
            "nominated": nominated,
            "events": self.queue.readings.in_flight_events(),
            "pods": pods,
        }
        # The reference's dumps omit empty fields.
        return dump | {key: value for key, value in found.items() if value}


def _history(pod: QueuedPod) -> dict[str, Any]:
    """Return the history of a pod, with times in milliseconds since the first step."""
    rejectors = sorted(pod.rejected_by) if pod.place is not Place.IN_FLIGHT else []
    return {
        "attempts": pod.attempts,
        "unschedulable": pod.unschedulable_count,
        "errors": pod.error_count,
        "since": _ms(pod.timestamp),
        "first": _ms(pod.first_attempt) if pod.first_attempt else -1,
        "backoffEnds": _ms(pod.backoff_until) if pod.place in _BACKING_OFF else 0,
        "flushed": pod.was_flushed,
    } | ({"rejectors": rejectors} if rejectors else {})


def _ms(seconds: float) -> int:
    return round((seconds - _START_SECONDS) * 1000)
