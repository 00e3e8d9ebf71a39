"""Plugins that record the scheduler's calls, and plugins that inject faults.

Each operator process has its own classes, bound to its ledger. Faults are injected only into the first attempts of a
pod, so that every pod can be bound in the end.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Hint, Resource
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import (
    PermitPlugin,
    PermitResult,
    Plugin,
    PostBindPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    ReservePlugin,
)
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.status import SKIP, SUCCESS, Code, Status, error, unschedulable
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.pod_info import PodInfo

if TYPE_CHECKING:
    from tests.simulation.ledger import ReservationLedger

FAULT_LABEL = "inject-fault"
GATE_LABEL = "gate"
INJECTED_FAULTS = (
    "allow",
    "allow",
    "reject",
    "reject later",
    "time out",
    "reject at reserve",
    "raise at reserve",
    "fail pre-bind",
    "fail pre-bind",
    "reject at pre-bind",
    "reject at pre-bind",
    "raise at pre-bind",
    "slow pre-bind",
)
"""Faults of :class:`FaultInjector`; a label contains dashes instead of blanks."""

_LABEL_CHANGED = ClusterEvent(Resource.POD, Action.UPDATE_POD_LABEL)
_PERMIT_TIMEOUT_SECONDS = 6.0
_DELAY_SECONDS = 4.0


class ReservationRecorder(ReservePlugin, PostBindPlugin):
    """Records each pod that is reserved, released or bound."""

    name = "ReservationRecorder"
    may_fork = True
    ledger: ClassVar[ReservationLedger]

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Return none: the plugin rejects no pod."""
        return ()

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Record a reservation."""
        self.ledger.reserved(pod, node_name)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Remove a reservation."""
        self.ledger.unreserved(pod, node_name)

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Record a bind."""
        self.ledger.bound(pod, node_name)


class FaultInjector(ReservePlugin, PermitPlugin, PreBindPlugin, PostBindPlugin):
    """Fails, rejects or delays the first attempts of a pod, by the pod's label :data:`FAULT_LABEL`."""

    name = "FaultInjector"
    may_fork = True
    ledger: ClassVar[ReservationLedger]

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._handle = handle
        self._process = os.getpid()
        self._reserved: dict[str, str] = {}

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Return the event of a label change of the pod itself."""
        return (EventRegistration(_LABEL_CHANGED, _is_own_update),)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Reject the pod or raise, if the label requests it."""
        if pod.uid in self._reserved:
            self.ledger.report_problem(f"FaultInjector: a second Reserve for {pod.key} before Unreserve")
        self._reserved[pod.uid] = node_name
        if os.getpid() != self._process:
            # In a copy of the process the activation would be lost; the fault is injected where the member is checked.
            return SUCCESS
        if self._injects(pod, "reject at reserve"):
            self.ledger.count("reserve rejected")
            self._activate_later(pod)
            return unschedulable("rejected by the fault injector")
        if self._injects(pod, "raise at reserve"):
            self.ledger.count("plugin raised")
            raise RuntimeError("injected exception")
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Remove the reservation; it may not exist, because an earlier plugin rejected the pod."""
        self._reserved.pop(pod.uid, None)

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Remove the reservation: the pod is bound."""
        self.unreserve(state, pod, node_name)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        """Allow, reject or let the pod wait."""
        if self._injects(pod, "reject"):
            self.ledger.count("permit rejected")
            self._activate_later(pod)
            return PermitResult(unschedulable("rejected by the fault injector"))
        for fault, counted in (("allow", "permit allowed late"), ("reject later", "permit rejected")):
            if self._injects(pod, fault):
                self.ledger.count(counted)
                self._handle.clock.call_later(_DELAY_SECONDS / 2, lambda: self._end_wait(pod, allow=fault == "allow"))  # noqa: B023 - returns in this round
                return PermitResult(Status(Code.WAIT), _PERMIT_TIMEOUT_SECONDS)
        if self._injects(pod, "time out"):
            self.ledger.count("permit timed out")
            self._handle.clock.call_later(
                _PERMIT_TIMEOUT_SECONDS + _DELAY_SECONDS, lambda: self._handle.activate([pod])
            )
            return PermitResult(Status(Code.WAIT), _PERMIT_TIMEOUT_SECONDS)
        return PermitResult(SUCCESS)

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Return SKIP for pods without the label."""
        return SUCCESS if FAULT_LABEL in pod.pod.metadata.labels else SKIP

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Wait, fail, reject or raise, if the label requests it."""
        self._reserved.pop(pod.uid, None)
        self.ledger.pre_bind_started(pod)
        if self._injects(pod, "slow pre-bind"):
            await self._handle.clock.sleep(_DELAY_SECONDS)
        if self._injects(pod, "fail pre-bind"):
            self.ledger.count("pre-bind failed")
            return error("injected error")
        if self._injects(pod, "reject at pre-bind"):
            self.ledger.count("pre-bind rejected")
            return unschedulable("rejected by the fault injector")
        if self._injects(pod, "raise at pre-bind"):
            self.ledger.count("plugin raised")
            raise RuntimeError("injected exception")
        return SUCCESS

    def _injects(self, pod: PodInfo, fault: str) -> bool:
        """Return whether the pod's label contains ``fault``, and the fault is still to be injected."""
        if pod.pod.metadata.labels.get(FAULT_LABEL) != fault.replace(" ", "-"):
            return False
        return self.ledger.inject_fault(pod.uid)

    def _end_wait(self, pod: PodInfo, *, allow: bool) -> None:
        waiting = self._handle.waiting_pods.get(pod.uid)
        if waiting is None:
            return
        if allow:
            waiting.allow(self.name)
        else:
            # A pod that is activated in flight is retried after its attempt has failed.
            self._handle.activate([pod])
            waiting.reject(self.name, "rejected late by the fault injector")

    def _activate_later(self, pod: PodInfo) -> None:
        """Activate a pod later, because no cluster event shows that the plugin accepts the pod now."""
        self._handle.clock.call_later(_DELAY_SECONDS, lambda: self._handle.activate([pod]))


class LabelGate(PreEnqueuePlugin):
    """Gates pods while their label :data:`GATE_LABEL` is ``closed``."""

    name = "LabelGate"
    may_fork = True

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Return the event of a label change of the pod itself."""
        return (EventRegistration(_LABEL_CHANGED, _is_own_update),)

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Reject the pod while its label is ``closed``."""
        closed = pod.pod.metadata.labels.get(GATE_LABEL) == "closed"
        return unschedulable("the label gate is closed") if closed else SUCCESS


def plugin_types(ledger: ReservationLedger) -> tuple[type[Plugin], ...]:
    """Return the plugin classes of one operator process."""
    bound = {"ledger": ledger}
    return (
        type("ReservationRecorder", (ReservationRecorder,), dict(bound)),
        type("FaultInjector", (FaultInjector,), dict(bound)),
        LabelGate,
    )


def _is_own_update(pod: Pod, old: object | None, new: object | None) -> Hint:
    return Hint.QUEUE if isinstance(new, Pod) and new.metadata.uid == pod.metadata.uid else Hint.SKIP
