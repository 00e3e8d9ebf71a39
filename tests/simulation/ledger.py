"""Records the reservations of one operator process, and checks each decision.

A decision is correct if the pod was schedulable and the node had capacity, by what the scheduler has received and
reserved. The core's cache is not read, because it is under test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.pod_info import PodInfo
from tests.simulation.api_server import ApiServer
from tests.simulation.fault_counts import FaultCounts
from tests.simulation.plain_fit import capacity_of, rejection_reason, requests_of
from tests.simulation.pod_groups import PodGroups
from tests.simulation.received import ReceivedFeed

if TYPE_CHECKING:
    from tests.simulation.gang_checks import GangChecks
    from tests.simulation.node_reservations import NodeReservations
    from tests.simulation.rebalance_plans import PlannedMoves
    from tests.simulation.records import Records

_INJECTIONS_PER_POD = 1


@dataclass(slots=True)
class Reservation:
    """A pod on a node: reserved, or bound at ``bound_at`` and not yet confirmed by a watch.

    Attributes:
        bound_at: Time at which the operator bound the pod; None before that.
        rival_node_name: Node to which another scheduler has bound the pod, as a read has shown; "" for none.
    """

    pod: Pod
    node_name: str
    bound_at: float | None = None
    rival_node_name: str = ""


@dataclass(frozen=True, slots=True)
class RunState:
    """Parts of a run that outlive an operator process.

    Attributes:
        injected_faults: Number of faults that were injected for each pod, by UID.
        log: Adds a line to the trace.
        report_problem: Called with each problem.
        now: Returns the time.
        bound: Node of every bound pod, by UID.
        ours: Node of each pod that the current operator process has bound, by UID.
        on_placed: Called with the UID of each pod that was scheduled with its gang.
        has_devices: Whether the server has resource claims.
        records: Receives the record of each process; None for no records.
        shadow: Revision of the shadow of the default profile; "" for none.
        false_successes: UID and node of each bind that was acknowledged but not performed.
        reservations: NodeReservations; None in a run without them.
        plans: RebalancePlans; None in a run without them.
    """

    server: ApiServer
    counts: FaultCounts
    injected_faults: dict[str, int]
    log: Callable[[str], None]
    report_problem: Callable[[str], None]
    now: Callable[[], float]
    bound: dict[str, str]
    ours: dict[str, str]
    groups: PodGroups
    on_placed: Callable[[str], None]
    has_devices: bool = False
    records: Records | None = None
    shadow: str = ""
    false_successes: set[tuple[str, str]] = field(default_factory=set)
    reservations: NodeReservations | None = None
    plans: PlannedMoves | None = None

    def acknowledge(self, uid: str, node_name: str) -> None:
        """Record a bind that is acknowledged but not performed: its binder has no reason to assume otherwise."""
        self.bound[uid] = node_name
        self.false_successes.add((uid, node_name))


def is_hypothetical(uid: str, node_name: str) -> bool:
    """Return whether a pod is of a fit request or a planned replacement, or a node one that a dry run has added."""
    return uid.startswith(("fit/", "moved/")) or "-new-" in node_name


class ReservationLedger:
    """The ledger.

    Attributes:
        reservations: Reservations by UID of the pod.
        bound_elsewhere: Pods that another scheduler has bound, as a read but no watch has shown, by UID.
        requested: Node of each pod of a dry run that is reserved now, by UID, if the pod or the node does not exist.
            The pod may be in the place of victims; it is released before the response.
        evicted: UIDs of the pods whose eviction for a preemptor was acknowledged, also before a watch shows it.
        is_stopping: Whether attempts are being cancelled.
        is_closed: Whether the process is over, so that nothing is checked any more.
        gangs: Checks of gangs; None for a ledger without a scheduler.
    """

    gangs: GangChecks | None = None

    def __init__(self, run_state: RunState) -> None:
        self._run_state = run_state
        self.reservations: dict[str, Reservation] = {}
        self.bound_elsewhere: dict[str, Reservation] = {}
        self.requested: dict[str, str] = {}
        self.evicted: set[str] = set()
        self.is_closed = False
        self.is_stopping = False
        self._received: ReceivedFeed | None = None

    def watch(self, received: ReceivedFeed) -> None:
        """Set the feed whose content the ledger compares with."""
        self._received = received
        received.on_gone = self._gone
        received.on_found_unbound = self._found_unbound

    def _gone(self, uid: str) -> None:
        """Remove a deleted bound pod: late watch events may still contain it, but it uses nothing."""
        reservation = self.reservations.get(uid)
        if reservation is not None and reservation.bound_at is not None:
            del self.reservations[uid]

    def _found_unbound(self, uid: str) -> None:
        """Remove a pod whose bind never took effect, as a read has shown."""
        self.reservations.pop(uid, None)
        self._run_state.bound.pop(uid, None)
        if self.gangs is not None:
            self.gangs.found_unbound(uid)

    def report_problem(self, what: str) -> None:
        """Report a problem."""
        if not self.is_closed:
            self._run_state.report_problem(what)

    def count(self, fault: str) -> None:
        """Count a fault that took effect."""
        if self.is_closed:
            return
        self._run_state.counts.add(fault)

    def inject_fault(self, uid: str) -> bool:
        """Return whether to inject the fault of the pod's label now, and count it if so."""
        count = self._run_state.injected_faults.get(uid, 0)
        self._run_state.injected_faults[uid] = count + 1
        return count < _INJECTIONS_PER_POD

    def reserved(self, info: PodInfo, node_name: str) -> None:
        """Check and record a reservation."""
        if self.is_closed:
            return
        self._run_state.log(f"reserve {info.uid} on {node_name}")
        if info.uid in self.reservations:
            self.report_problem(
                f"{info.uid} is reserved on {node_name}, and still reserved on {self.reservations[info.uid].node_name}"
            )
        if info.uid in self.bound_elsewhere:
            self.report_problem(
                f"{info.uid} is scheduled although a read has shown it on {self.bound_elsewhere[info.uid].node_name}"
            )
        if is_hypothetical(info.uid, node_name):
            self.requested[info.uid] = node_name
            return
        known = self._known(info.key)
        if known is None or known.metadata.uid != info.uid:
            self.report_problem(f"{info.uid} is scheduled although the scheduler has received its deletion")
        elif known.spec.node_name:
            self.report_problem(f"{info.uid} is scheduled although the scheduler has received that it is bound")
        elif known.spec.scheduling_gates or known.metadata.deletion_timestamp is not None:
            self.report_problem(f"{info.uid} is scheduled although it is gated or being deleted")
        problem = self._placement_problem(info.pod, node_name)
        self.reservations[info.uid] = Reservation(info.pod, node_name)
        if self.gangs is not None and self.gangs.reserved(info.pod, node_name, problem):
            return
        if problem:
            self.report_problem(problem)

    def unreserved(self, info: PodInfo, node_name: str) -> None:
        """Check and record that a reservation is released."""
        if self.is_closed:
            return
        self._run_state.log(f"unreserve {info.uid} on {node_name}")
        if is_hypothetical(info.uid, node_name):
            # Of an existing pod, Reserve may have failed before it was recorded.
            unrecorded = "" if info.uid.startswith("fit/") else node_name
            if self.requested.pop(info.uid, unrecorded) != node_name:
                self.report_problem(f"{info.uid} of a dry run releases {node_name}, which was not reserved for it")
            return
        now = self._run_state.server.pod(info.pod.metadata.name)
        is_there = now is not None and now.metadata.uid == info.uid and not now.is_terminal
        if is_there and self._run_state.ours.get(info.uid) == node_name and not self.is_stopping:
            self.report_problem(f"{info.uid} releases {node_name} although it is bound to it")
        reservation = self.reservations.pop(info.uid, None)
        if reservation is not None and reservation.node_name != node_name:
            self.report_problem(f"{info.uid} releases {node_name}, but was reserved on {reservation.node_name}")
        if reservation is not None and reservation.rival_node_name:
            self.bound_elsewhere[info.uid] = Reservation(reservation.pod, reservation.rival_node_name)
        if self.gangs is not None:
            self.gangs.ended(info.pod, is_bound=False)

    def bound_by_rival(self, uid: str, node_name: str) -> None:
        """Record a read that shows a pod on a node; the pod counts there after its own reservation is released."""
        reservation = self.reservations.get(uid)
        if reservation is not None and reservation.node_name != node_name:
            reservation.rival_node_name = node_name

    def pre_bind_started(self, info: PodInfo) -> None:
        """Check a pod whose PreBind starts."""
        if self.gangs is not None and not self.is_closed:
            self.gangs.pre_bind_started(info.uid)

    def bound(self, info: PodInfo, node_name: str) -> None:
        """Check and record that a pod was bound."""
        if self.is_closed:
            return
        self._run_state.log(f"bound {info.uid} to {node_name}")
        reservation = self.reservations.get(info.uid)
        is_acknowledged = (info.uid, node_name) in self._run_state.false_successes
        if self._run_state.bound.get(info.uid) != node_name and not is_acknowledged:
            self.report_problem(f"{info.uid} is recorded as bound to {node_name}, but is not bound there")
        if reservation is None or reservation.node_name != node_name:
            self.report_problem(f"{info.uid} is bound to {node_name}, which was not reserved for it")
        else:
            reservation.bound_at = self._run_state.now()
        if self.gangs is not None:
            self.gangs.ended(info.pod, is_bound=True)

    def open_reservations(self) -> list[str]:
        """Return the UIDs of pods that are reserved and not bound."""
        return [uid for uid, reservation in self.reservations.items() if reservation.bound_at is None]

    def unconfirmed_since(self, before: float) -> list[str]:
        """Return the UIDs of pods that were bound before a time and that no watch has confirmed."""
        found = []
        for uid, reservation in self.reservations.items():
            known = self._known(reservation.pod.key)
            is_late = reservation.bound_at is not None and reservation.bound_at < before
            if is_late and known is not None and known.metadata.uid == uid and not known.spec.node_name:
                found.append(uid)
        return found

    def _placement_problem(self, pod: Pod, node_name: str) -> str:
        """Return why a pod must not be assigned to a node; "" if it may."""
        assert self._received is not None
        node = self._received.nodes.get(node_name)
        if node is None:
            return f"{pod.metadata.uid} is assigned to {node_name} although the scheduler has received its deletion"
        there = [other for other in self._pods_on(node_name) if other.metadata.uid != pod.metadata.uid]
        problem = rejection_reason(pod, node, there)
        if not problem:
            return ""
        names = ", ".join(other.metadata.uid for other in there)
        return f"{pod.metadata.uid} is assigned to {node_name} with {names or 'no pod'}: {problem}"

    def free_cpu(self) -> int:
        """Return the free milli-CPU of all received nodes; an overcommitted node counts as 0."""
        assert self._received is not None
        free = 0
        for name, node in self._received.nodes.items():
            free += max(0, capacity_of(node)[0] - sum(requests_of(pod)[0] for pod in self._pods_on(name)))
        return free

    def _pods_on(self, node_name: str) -> Iterator[Pod]:
        """Yield the pods that the scheduler must count on a node."""
        assert self._received is not None
        leaving = self._received.leaving
        for pod in self._received.pods.values():
            is_gone = pod.is_terminal or pod.metadata.uid in leaving
            if pod.spec.node_name == node_name and not is_gone:
                yield pod
        for uid, reservation in list(self.reservations.items()):
            if not self._is_unconfirmed(reservation.pod):
                if reservation.bound_at is not None:
                    del self.reservations[uid]
                continue
            if reservation.node_name == node_name and uid not in leaving:
                yield reservation.pod
        for uid, reservation in list(self.bound_elsewhere.items()):
            if not self._is_unconfirmed(reservation.pod):
                del self.bound_elsewhere[uid]
            elif reservation.node_name == node_name and uid not in leaving:
                yield reservation.pod

    def _is_unconfirmed(self, pod: Pod) -> bool:
        """Return whether the scheduler has received a pod, but not that it is bound."""
        known = self._known(pod.key)
        return known is not None and known.metadata.uid == pod.metadata.uid and not known.spec.node_name

    def _known(self, key: str) -> Pod | None:
        assert self._received is not None
        return self._received.pods.get(key)
