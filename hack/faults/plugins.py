"""Plugins that watch the scheduler from inside, and plugins that misbehave on purpose.

Owns the classes; each life of the operator gets its own, bound to that life's ledger. Must not change the cluster.

:class:`Ledger` keeps its own account of what is reserved. :class:`Turnstile` waits, rejects, fails, raises or never
answers, as a pod's label ``turn`` says, for the first attempts of that pod only, so that in the end every pod passes.
:class:`Doorman` holds back pods of the label ``door: closed``.
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
    from hack.faults.ledger import ReservationLedger

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
    "turn away at pre-bind",
    "turn away at pre-bind",
    "raise at pre-bind",
    "slow pre-bind",
)
"""What a pod's label asks :class:`Turnstile` for, as it is drawn; blanks are dashes in the label."""

_LABEL_CHANGED = ClusterEvent(Resource.POD, Action.UPDATE_POD_LABEL)
_PATIENCE_SECONDS = 6.0
_PAUSE_SECONDS = 4.0


class Ledger(ReservePlugin, PostBindPlugin):
    """Writes down what is reserved, given back and bound."""

    name = "Ledger"
    ledger: ClassVar[ReservationLedger]

    def events_to_register(self) -> Sequence[EventRegistration]:
        """It rejects nobody."""
        return ()

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Write down."""
        del state
        self.ledger.reserved(pod, node_name)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Strike out."""
        del state
        self.ledger.unreserved(pod, node_name)

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Note as bound."""
        del state
        self.ledger.bound(pod, node_name)


class Turnstile(ReservePlugin, PermitPlugin, PreBindPlugin, PostBindPlugin):
    """Lets pods pass, later."""

    name = "Turnstile"
    ledger: ClassVar[ReservationLedger]

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._handle = handle
        self._holds: dict[str, str] = {}

    def events_to_register(self) -> Sequence[EventRegistration]:
        """A change of the pod's own label."""
        return (EventRegistration(_LABEL_CHANGED, _is_own_turn),)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Refuse or raise where that is asked for."""
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
        """Give back; harmless where nothing was reserved, as when a plugin before this one refused."""
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
        """Nothing to do for pods that pass."""
        del state, node_name
        return SUCCESS if TURN in pod.pod.metadata.labels else SKIP

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Take time, fail, turn away or raise."""
        del state, node_name
        self._holds.pop(pod.uid, None)
        self.ledger.prepares(pod)
        if self._asks(pod, "slow pre-bind"):
            await self._handle.clock.sleep(_PAUSE_SECONDS)
        if self._asks(pod, "fail pre-bind"):
            self.ledger.count("pre-bind failed")
            return error("the turnstile is out of order")
        if self._asks(pod, "turn away at pre-bind"):
            self.ledger.count("pre-bind turned away")
            return unschedulable("the turnstile closes")
        if self._asks(pod, "raise at pre-bind"):
            self.ledger.count("plugin raised")
            raise RuntimeError("the turnstile is stuck")
        return SUCCESS

    def _asks(self, pod: PodInfo, how: str) -> bool:
        """Whether the pod's label asks for ``how`` and its first attempts are not over."""
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
            # What is activated while it is in flight is retried when its attempt has failed.
            self._handle.activate([pod])
            waiting.reject(self.name, "rejected by the turnstile, late")

    def _activate_later(self, pod: PodInfo) -> None:
        """No event in the cluster says that the turnstile is open again, so it tells."""
        self._handle.clock.call_later(_PAUSE_SECONDS, lambda: self._handle.activate([pod]))


class Doorman(PreEnqueuePlugin):
    """Holds pods back until their label says otherwise."""

    name = "Doorman"

    def events_to_register(self) -> Sequence[EventRegistration]:
        """A change of the pod's own label."""
        return (EventRegistration(_LABEL_CHANGED, _is_own_turn),)

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Hold back."""
        closed = pod.pod.metadata.labels.get(DOOR) == "closed"
        return unschedulable("the door is closed") if closed else SUCCESS


def plugin_types(ledger: ReservationLedger) -> tuple[type[Plugin], ...]:
    """The classes of one life."""
    bound = {"ledger": ledger}
    return (type("Ledger", (Ledger,), dict(bound)), type("Turnstile", (Turnstile,), dict(bound)), Doorman)


def _is_own_turn(pod: Pod, old: object | None, new: object | None) -> Hint:
    del old
    return Hint.QUEUE if isinstance(new, Pod) and new.metadata.uid == pod.metadata.uid else Hint.SKIP
