"""Records the reservations of one life of the operator, and checks each decision.

A decision is right if the pod was schedulable at all and the node had room, by what the scheduler has received and what
it has reserved. The core's cache is not read, because it is under test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.pod_info import PodInfo
from tests.simulation.api_server import ApiServer
from tests.simulation.fault_counts import FaultCounts
from tests.simulation.plain_fit import misfit, requests_of, room_of
from tests.simulation.pod_groups import PodGroups
from tests.simulation.received import ReceivedFeed

if TYPE_CHECKING:
    from tests.simulation.gang_account import GangAccount
    from tests.simulation.records import Records

_TURNS = 1


@dataclass(slots=True)
class Hold:
    """A pod on a node: reserved, or bound at ``bound_at`` and not yet seen there.

    Attributes:
        pod: The pod.
        node_name: The node.
        bound_at: When the operator bound it; None before that.
        rival_node_name: The node to which another scheduler has bound it, as a read has shown; "" for none.
    """

    pod: Pod
    node_name: str
    bound_at: float | None = None
    rival_node_name: str = ""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Parts of the simulation that a ledger uses.

    Attributes:
        server: The API server.
        counts: Faults.
        turns: Number of turns each pod has taken; outlives the operator.
        say: Adds a line to the trace.
        complain: Called with each problem.
        now: Returns the time.
        bound: The node of every bound pod, by UID.
        ours: The node of each pod that the present life of the operator has bound, by UID.
        groups: PodGroups.
        on_placed: Called with each pod that was placed with its gang.
        has_devices: Whether the server has resource claims.
        records: Receives the record of each life; None for no records.
        shadow: Revision of a shadow of the default profile; "" for none.
    """

    server: ApiServer
    counts: FaultCounts
    turns: dict[str, int]
    say: Callable[[str], None]
    complain: Callable[[str], None]
    now: Callable[[], float]
    bound: dict[str, str]
    ours: dict[str, str]
    groups: PodGroups
    on_placed: Callable[[str], None]
    has_devices: bool = False
    records: Records | None = None
    shadow: str = ""


class ReservationLedger:
    """The ledger.

    Attributes:
        holds: Reservations by UID.
        lost: Pods that another scheduler has bound, as a read has shown and no watch yet, on their nodes, by UID.
        is_stopping: Whether attempts are being cancelled.
        is_closed: Whether the process is gone, so that nothing counts any more.
        gangs: Checks of gangs; None if nothing is placed.
    """

    gangs: GangAccount | None = None

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self.holds: dict[str, Hold] = {}
        self.lost: dict[str, Hold] = {}
        self.is_closed = False
        self.is_stopping = False
        self._received: ReceivedFeed | None = None

    def watch(self, received: ReceivedFeed) -> None:
        """Set the feed whose content the ledger checks against."""
        self._received = received
        received.on_gone = self._gone
        received.on_returned = self._returned

    def _gone(self, uid: str) -> None:
        """Note that a bound pod is gone: late events of a watch may show it again, but it uses nothing."""
        held = self.holds.get(uid)
        if held is not None and held.bound_at is not None:
            del self.holds[uid]

    def _returned(self, uid: str) -> None:
        """A read has shown that the bind of a pod never took effect."""
        self.holds.pop(uid, None)
        self._around.bound.pop(uid, None)
        if self.gangs is not None:
            self.gangs.returned(uid)

    def complain(self, what: str) -> None:
        """Report a problem."""
        if not self.is_closed:
            self._around.complain(what)

    def count(self, fault: str) -> None:
        """Count a fault that took effect."""
        if self.is_closed:
            return
        self._around.counts.add(fault)

    def take_turn(self, uid: str) -> bool:
        """Return whether the pod's label takes effect this time."""
        taken = self._around.turns.get(uid, 0)
        self._around.turns[uid] = taken + 1
        return taken < _TURNS

    def reserved(self, info: PodInfo, node_name: str) -> None:
        """Check and record a reservation."""
        if self.is_closed:
            return
        self._around.say(f"reserve {info.uid} on {node_name}")
        if info.uid in self.holds:
            self.complain(f"{info.uid} is reserved on {node_name}, and is on {self.holds[info.uid].node_name} still")
        if info.uid in self.lost:
            self.complain(f"{info.uid} is tried although a read has shown it on {self.lost[info.uid].node_name}")
        known = self._known(info.key)
        if known is None or known.metadata.uid != info.uid:
            self.complain(f"{info.uid} is tried although the scheduler has received its deletion")
        elif known.spec.node_name:
            self.complain(f"{info.uid} is tried although the scheduler has received that it is bound")
        elif known.spec.scheduling_gates or known.metadata.deletion_timestamp is not None:
            self.complain(f"{info.uid} is tried although it is gated or being deleted")
        problem = self._judge(info.pod, node_name)
        self.holds[info.uid] = Hold(info.pod, node_name)
        if self.gangs is not None and self.gangs.reserved(info.pod, problem):
            return
        if problem:
            self.complain(problem)

    def unreserved(self, info: PodInfo, node_name: str) -> None:
        """Check and record that a reservation is released."""
        if self.is_closed:
            return
        self._around.say(f"unreserve {info.uid} on {node_name}")
        now = self._around.server.pod(info.pod.metadata.name)
        is_there = now is not None and now.metadata.uid == info.uid and not now.is_terminal
        if is_there and self._around.ours.get(info.uid) == node_name and not self.is_stopping:
            self.complain(f"{info.uid} releases {node_name} although it is bound to it")
        held = self.holds.pop(info.uid, None)
        if held is not None and held.node_name != node_name:
            self.complain(f"{info.uid} releases {node_name}, but had {held.node_name}")
        if held is not None and held.rival_node_name:
            self.lost[info.uid] = Hold(held.pod, held.rival_node_name)
        if self.gangs is not None:
            self.gangs.ended(info.pod, is_bound=False)

    def bound_by_rival(self, uid: str, node_name: str) -> None:
        """Record a read that shows a pod on a node; the pod counts there when it releases its own reservation."""
        held = self.holds.get(uid)
        if held is not None and held.node_name != node_name:
            held.rival_node_name = node_name

    def prepares(self, info: PodInfo) -> None:
        """Check a pod whose PreBind begins."""
        if self.gangs is not None and not self.is_closed:
            self.gangs.prepares(info.uid)

    def bound(self, info: PodInfo, node_name: str) -> None:
        """Check and record that a pod was bound."""
        if self.is_closed:
            return
        self._around.say(f"bound {info.uid} to {node_name}")
        held = self.holds.get(info.uid)
        if self._around.bound.get(info.uid) != node_name:
            self.complain(f"{info.uid} is taken for bound to {node_name}, but is not")
        if held is None or held.node_name != node_name:
            self.complain(f"{info.uid} is bound to {node_name}, which was not reserved for it")
        else:
            held.bound_at = self._around.now()
        if self.gangs is not None:
            self.gangs.ended(info.pod, is_bound=True)

    def open_reservations(self) -> list[str]:
        """Return the UIDs of pods that are reserved and not bound."""
        return [uid for uid, hold in self.holds.items() if hold.bound_at is None]

    def unconfirmed_since(self, before: float) -> list[str]:
        """Return the UIDs of pods that were bound before a time and that no watch has confirmed yet."""
        found = []
        for uid, hold in self.holds.items():
            known = self._known(hold.pod.key)
            is_late = hold.bound_at is not None and hold.bound_at < before
            if is_late and known is not None and known.metadata.uid == uid and not known.spec.node_name:
                found.append(uid)
        return found

    def _judge(self, pod: Pod, node_name: str) -> str:
        """Return why a pod must not be put on a node; "" if it may."""
        assert self._received is not None
        node = self._received.nodes.get(node_name)
        if node is None:
            return f"{pod.metadata.uid} is put on {node_name} although the scheduler has received its deletion"
        there = [other for other in self._on(node_name) if other.metadata.uid != pod.metadata.uid]
        problem = misfit(pod, node, there)
        if not problem:
            return ""
        names = ", ".join(other.metadata.uid for other in there)
        return f"{pod.metadata.uid} is put on {node_name} beside {names or 'no pod'}: {problem}"

    def free_cpu(self) -> int:
        """Return the free milli-CPU on all nodes that the scheduler has received; 0 for an overcommitted node."""
        assert self._received is not None
        free = 0
        for name, node in self._received.nodes.items():
            free += max(0, room_of(node)[0] - sum(requests_of(pod)[0] for pod in self._on(name)))
        return free

    def _on(self, node_name: str) -> Iterator[Pod]:
        """Yield the pods that the scheduler must count on a node."""
        assert self._received is not None
        for pod in self._received.pods.values():
            if pod.spec.node_name == node_name and not pod.is_terminal:
                yield pod
        for uid, hold in list(self.holds.items()):
            if not self._is_unseen(hold.pod):
                if hold.bound_at is not None:
                    del self.holds[uid]
                continue
            if hold.node_name == node_name:
                yield hold.pod
        for uid, hold in list(self.lost.items()):
            if not self._is_unseen(hold.pod):
                del self.lost[uid]
            elif hold.node_name == node_name:
                yield hold.pod

    def _is_unseen(self, pod: Pod) -> bool:
        """Return whether the scheduler has received a pod, and not yet that it is bound."""
        known = self._known(pod.key)
        return known is not None and known.metadata.uid == pod.metadata.uid and not known.spec.node_name

    def _known(self, key: str) -> Pod | None:
        assert self._received is not None
        return self._received.pods.get(key)
