"""Plugins that record the scheduler's calls, and plugins that fail on purpose.

Each life of the operator gets its own classes, bound to that life's ledger. :class:`Ledger` records the reservations.
:class:`Turnstile` waits, rejects, fails, raises or never answers, as a pod's label ``turn`` says, for the first
attempts of that pod only, so that in the end every pod passes. :class:`Doorman` rejects pods of the label
``door: closed``.
"""

from __future__ import annotations

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

TURN = "turn"
DOOR = "door"
TURNS = (
    "allow",
    "allow",
    "reject",
    "reject later",
    "silent",
    "refuse reserve",
    "raise at reserve",
    "fail pre-bind",
    "fail pre-bind",
    "reject at pre-bind",
    "reject at pre-bind",
    "raise at pre-bind",
    "slow pre-bind",
)
"""Values of the label that :class:`Turnstile` reads, as they are drawn; blanks are dashes in the label."""

_LABEL_CHANGED = ClusterEvent(Resource.POD, Action.UPDATE_POD_LABEL)
_PATIENCE_SECONDS = 6.0
_PAUSE_SECONDS = 4.0


class Ledger(ReservePlugin, PostBindPlugin):
    """Records what is reserved, released and bound."""

    name = "Ledger"
    ledger: ClassVar[ReservationLedger]

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Return none: the plugin rejects no pod."""
        return ()

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Record a reservation."""
        del state
        self.ledger.reserved(pod, node_name)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Remove a reservation."""
        del state
        self.ledger.unreserved(pod, node_name)

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Record a bind."""
        del state
        self.ledger.bound(pod, node_name)


class Turnstile(ReservePlugin, PermitPlugin, PreBindPlugin, PostBindPlugin):
    """Rejects or delays the first attempts of a pod."""

    name = "Turnstile"
    ledger: ClassVar[ReservationLedger]

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._handle = handle
        self._holds: dict[str, str] = {}

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Return the event for a change of the pod's own label."""
        return (EventRegistration(_LABEL_CHANGED, _is_own_turn),)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Reject or raise if the label says so."""
        del state
        if pod.uid in self._holds:
            self.ledger.complain(f"Turnstile reserves for {pod.key} twice")
        self._holds[pod.uid] = node_name
        if self._asks(pod, "refuse reserve"):
            self.ledger.count("reserve refused")
            self._activate_later(pod)
            return unschedulable("refused by the turnstile")
        if self._asks(pod, "raise at reserve"):
            self.ledger.count("plugin raised")
            raise RuntimeError("the turnstile is stuck")
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Release; harmless without a reservation, as when an earlier plugin rejected the pod."""
        del state, node_name
        self._holds.pop(pod.uid, None)

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """End the reservation: the pod is bound."""
        self.unreserve(state, pod, node_name)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        """Allow at once, later or never."""
        del state, node_name
        if self._asks(pod, "reject"):
            self.ledger.count("permit rejected")
            self._activate_later(pod)
            return PermitResult(unschedulable("rejected by the turnstile"))
        for how, fault in (("allow", "permit allowed late"), ("reject later", "permit rejected")):
            if self._asks(pod, how):
                self.ledger.count(fault)
                self._handle.clock.call_later(_PAUSE_SECONDS / 2, lambda: self._answer(pod, allow=how == "allow"))  # noqa: B023 - returns in this round
                return PermitResult(Status(Code.WAIT), _PATIENCE_SECONDS)
        if self._asks(pod, "silent"):
            self.ledger.count("permit timed out")
            self._handle.clock.call_later(_PATIENCE_SECONDS + _PAUSE_SECONDS, lambda: self._handle.activate([pod]))
            return PermitResult(Status(Code.WAIT), _PATIENCE_SECONDS)
        return PermitResult(SUCCESS)

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Return success: pods that pass need no work."""
        del state, node_name
        return SUCCESS if TURN in pod.pod.metadata.labels else SKIP

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Wait, fail, reject or raise."""
        del state, node_name
        self._holds.pop(pod.uid, None)
        self.ledger.prepares(pod)
        if self._asks(pod, "slow pre-bind"):
            await self._handle.clock.sleep(_PAUSE_SECONDS)
        if self._asks(pod, "fail pre-bind"):
            self.ledger.count("pre-bind failed")
            return error("the turnstile is out of order")
        if self._asks(pod, "reject at pre-bind"):
            self.ledger.count("pre-bind rejected")
            return unschedulable("the turnstile closes")
        if self._asks(pod, "raise at pre-bind"):
            self.ledger.count("plugin raised")
            raise RuntimeError("the turnstile is stuck")
        return SUCCESS

    def _asks(self, pod: PodInfo, how: str) -> bool:
        """Return whether the pod's label contains ``how`` and its first attempts are not over."""
        if pod.pod.metadata.labels.get(TURN) != how.replace(" ", "-"):
            return False
        return self.ledger.take_turn(pod.uid)

    def _answer(self, pod: PodInfo, *, allow: bool) -> None:
        waiting = self._handle.waiting_pods.get(pod.uid)
        if waiting is None:
            return
        if allow:
            waiting.allow(self.name)
        else:
            # A pod that is activated while it is in flight is retried when its attempt has failed.
            self._handle.activate([pod])
            waiting.reject(self.name, "rejected by the turnstile, late")

    def _activate_later(self, pod: PodInfo) -> None:
        """Activate a pod, because no event in the cluster shows that the turnstile is open again."""
        self._handle.clock.call_later(_PAUSE_SECONDS, lambda: self._handle.activate([pod]))


class Doorman(PreEnqueuePlugin):
    """Rejects pods until their label changes."""

    name = "Doorman"

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Return the event for a change of the pod's own label."""
        return (EventRegistration(_LABEL_CHANGED, _is_own_turn),)

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Reject the pod while the door is closed."""
        closed = pod.pod.metadata.labels.get(DOOR) == "closed"
        return unschedulable("the door is closed") if closed else SUCCESS


def plugin_types(ledger: ReservationLedger) -> tuple[type[Plugin], ...]:
    """Return the plugin classes of one life."""
    bound = {"ledger": ledger}
    return (type("Ledger", (Ledger,), dict(bound)), type("Turnstile", (Turnstile,), dict(bound)), Doorman)


def _is_own_turn(pod: Pod, old: object | None, new: object | None) -> Hint:
    del old
    return Hint.QUEUE if isinstance(new, Pod) and new.metadata.uid == pod.metadata.uid else Hint.SKIP
