"""Decisions of scheduling cycles since binds were last sent, with marks of the state on which each was made.

Shadow profiles decide the same pods again. Nothing is recorded while there is no shadow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.failure_handler import Failure
from scheduler_core.cycle.filter_and_score import NodeSelection
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.framework.queued_pod import QueuedGang, QueuedPod
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.pod_info import PodInfo


class StateMark(NamedTuple):
    """Version of the state that a cycle reads.

    Attributes:
        changes: Position in the log of changed rows.
        events: Number of changes that were reported to the scheduler.
        reservations: Number of group cycles if nodes are reserved for gangs, else 0; only group cycles and reported
            changes change reservations.
    """

    changes: int
    events: int
    nominations: int
    reservations: int


class DecidedPod(Struct):
    """One pod that a cycle decided.

    Attributes:
        instance: The profile's revision that decided.
        began: State before the cycle.
        ended: State after the cycle.
        next_start: Where a search of a percentage of the nodes would have started.
        node_name: The chosen node, "" for none.
        message: Why no node is feasible, "" if one is.
        among: The only rows to evaluate, bool per row; None for all.
        among_reason: Rejection reason of the other rows.
        skipped: Why the decision cannot be compared, "" if it can.
    """

    queued: QueuedPod
    info: PodInfo
    instance: FrameworkInstance
    number: int
    began: StateMark
    ended: StateMark
    next_start: int
    node_name: str = ""
    message: str = ""
    among: NDArray[np.bool_] | None = None
    among_reason: str = ""
    skipped: str = ""

    @property
    def profile(self) -> str:
        return self.instance.name


STATE_CHANGED = "StateChanged"
GANG = "Gang"
RESIZE = "Resize"
DEVICES = "Devices"
VOLUMES = "Volumes"
PREEMPTION = "Preemption"
ERROR = "Error"


@dataclass(slots=True, eq=False)
class DecidedPods:
    """The decisions since binds were last sent.

    Attributes:
        profiles: Scheduler names of the profiles that have shadows; empty records nothing.
        pods: The decisions, in their order. Pods of other profiles are recorded, too, because they changed the state.
    """

    selection: NodeSelection
    suspension: Suspension
    profiles: frozenset[str] = field(default=frozenset(), init=False)
    pods: list[DecidedPod] = field(default_factory=list, init=False)
    _began: StateMark = field(init=False)
    _group_cycles: int = field(default=1, init=False)
    _next_start: int = field(default=0, init=False)
    _has_own_volumes: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._began = self.mark()

    def mark(self) -> StateMark:
        """Return the version of the state that a cycle would read now."""
        selection = self.selection
        reserved = self._group_cycles if selection.reservations.by_gang else 0
        changes = selection.nodes.changes.position
        return StateMark(changes, self.suspension.reported, selection.nominator.version, reserved)

    def begin(self, queued: QueuedPod) -> None:
        """Record the state before the cycle of a popped pod or gang, which is the state after the cycle before."""
        mark = self.mark()
        self._end(mark)
        self._began, self._next_start = mark, self.selection.partial.order.next_start
        self._has_own_volumes = self._writes_volumes(queued.info)
        if isinstance(queued, QueuedGang):
            self._group_cycles += 1

    def decided(self, attempt: Attempt, failure: Failure | None) -> None:
        """Record a decision, before the pod of a failed attempt is released."""
        queued = attempt.queued
        found = DecidedPod(
            queued=queued,
            info=attempt.info,
            instance=attempt.instance,
            number=queued.attempts if attempt.number is None else attempt.number,
            began=self._began,
            ended=self._began,
            next_start=self._next_start,
            node_name="" if failure is not None else attempt.node_name,
            message="" if failure is None else failure.message,
            among=attempt.among,
            among_reason=attempt.among_reason,
            skipped=self._skipped(attempt, failure),
        )
        self.pods.append(found)

    def _end(self, mark: StateMark) -> None:
        # The members of a gang are decided in one cycle, and share its marks.
        for each in reversed(self.pods):
            if each.began is not self._began:
                break
            each.ended = mark

    def take(self) -> list[DecidedPod]:
        """Return the decisions right after the last cycle, and start again with none."""
        self._end(self.mark())
        taken, self.pods = self.pods, []
        return taken

    def _skipped(self, attempt: Attempt, failure: Failure | None) -> str:
        if attempt.gang is not None or attempt.queued.group is not None:
            return GANG
        if attempt.info.pod.has_deferred_resize:
            return RESIZE
        if attempt.is_of_earlier_state:
            return STATE_CHANGED
        if failure is not None and (failure.is_error or attempt.node_name):
            # With a node, Reserve or Permit failed, which a shadow does not run.
            return ERROR
        if failure is not None and failure.nominated_node:
            return PREEMPTION
        info, devices = attempt.info, self.selection.nodes.devices
        if info.pod.spec.resource_claims or any(devices.class_of_resource(name) for name in info.scalars):
            return DEVICES
        return VOLUMES if self._has_own_volumes else ""

    def _writes_volumes(self, info: PodInfo) -> bool:
        """Return whether a claim of the pod is not bound yet, so that Reserve would choose its volume."""
        claims = self.selection.nodes.storage.claims
        for reference in info.volumes.claims:
            claim = claims.get(reference.key)
            if claim is None or not claim.is_fully_bound:
                return True
        return False
