"""NodeReservations of the simulated cluster: their API, their delivery to each process, their pods, and checks.

The operator's own controller searches and holds the room.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from bayplan.reservations.reservation_controller import ReservationController
from bayplan.reservations.reserved_pods import KIND
from bayplan.resources.node_reservation import NodeReservation
from bayplan.resources.resource_model import API_VERSION, format_time
from msgspec.structs import replace

from scheduler_core.model.pod import Pod
from tests.simulation import cluster_objects
from tests.simulation.api_server import NAMESPACE, PODS
from tests.simulation.cluster_objects import happens, one_of
from tests.simulation.custom_resources import CustomResources, LateEvents
from tests.simulation.fault_counts import FaultCounts
from tests.simulation.network import Network
from tests.simulation.virtual_loop import LoopClock

if TYPE_CHECKING:
    from tests.simulation.operator_process import OperatorProcess

RESERVE, USE, DELETE = "reserve room", "create pods of a reservation", "delete a NodeReservation"
KINDS = (RESERVE, RESERVE, USE, RESERVE, USE, USE, DELETE, RESERVE, USE, RESERVE, USE, DELETE, USE)
"""Kinds of steps in a run with reservations, in order."""
LABEL = "reservation"
_SLACK_SECONDS = 15.0
"""Time for which an end is deferred at most, because a cycle waits for an extender."""


class NodeReservations(CustomResources):
    """The objects, and the steps that change them."""

    def __init__(self, network: Network, counts: FaultCounts) -> None:
        super().__init__(network)
        self._counts = counts
        self._wall = LoopClock(network.loop).wall
        self.actions = {RESERVE: self._reserve, USE: self._create_pods, DELETE: self._delete_any}
        self._server.on_reservation_request = self.respond

    def heal(self) -> None:
        """Delete the reservations that do not expire by themselves."""
        for name, body in list(self.bodies.items()):
            if "ttlSeconds" not in body["spec"]:
                self.remove(name)

    # -- API ----------------------------------------------------------------------------------------------------

    def status_written(self, body: dict[str, Any]) -> None:
        if body["status"].get("phase") == "Reserved":
            self._counts.add("room reserved")

    def remove(self, name: str) -> None:
        self._network.log(f"{KIND} {name} is deleted")
        super().remove(name)

    # -- steps --------------------------------------------------------------------------------------------------

    def _reserve(self, rng: random.Random, number: int) -> None:
        name = f"room{number}"
        spec: dict[str, Any] = {
            "count": one_of(rng, (1, 1, 2, 3)),
            "resources": {"cpu": f"{one_of(rng, (300, 500, 900))}m", "memory": "128Mi"},
            "owner": {"labels": {LABEL: name}},
            "priority": one_of(rng, (0, 5, 10, 100)),
        }
        if happens(rng, 0.7):
            spec["ttlSeconds"] = one_of(rng, (4, 10, 25))
        metadata = {
            "name": name,
            "namespace": NAMESPACE,
            "uid": self._server.new_uid(name),
            "generation": 1,
            "creationTimestamp": format_time(self._wall()),
        }
        self._network.log(f"{KIND} {name}: {spec['count']} pods of {spec['resources']['cpu']}")
        self.put({"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec})

    def _create_pods(self, rng: random.Random, number: int) -> None:
        if not self.bodies:
            return
        name = one_of(rng, sorted(self.bodies))
        cpu = int(self.bodies[name]["spec"]["resources"]["cpu"].rstrip("m"))
        for index in range(self.bodies[name]["spec"]["count"]):
            made = cluster_objects.pod(rng, f"r{number}-{index}", self._server.new_uid(f"r{number}-{index}"))
            labels = {**made.metadata.labels, LABEL: name}
            meta = replace(made.metadata, labels=labels, creation_timestamp=self._wall())
            made = replace(made, metadata=meta, spec=replace(made.spec, volumes=(), priority=0))
            self._server.put(PODS, cluster_objects.with_requests(made, cpu))

    def _delete_any(self, rng: random.Random, number: int) -> None:
        if self.bodies:
            self.remove(one_of(rng, sorted(self.bodies)))

    # -- checks -------------------------------------------------------------------------------------------------

    def check_now(self, process: OperatorProcess) -> Iterator[str]:
        """Yield rooms that are held longer than their time."""
        if process.is_over or not process.is_scheduling:
            return
        now = self._wall()
        by_uid = {body["metadata"]["uid"]: body for body in self.bodies.values()}
        for room in process.scheduler.reservations.held:
            body = by_uid.get(room.holder.uid) if room.holder.kind == KIND else None
            late = 0.0 if body is None else _seconds_late(body, now)
            if late > _SLACK_SECONDS:
                yield f"room is held for {KIND} {room.holder.name} {late:.0f} s after its time"

    def check_idle(self, process: OperatorProcess) -> Iterator[str]:
        """Yield room without a reservation, and reservations that should have ended, after a long quiet time."""
        uids = {body["metadata"]["uid"] for body in self.bodies.values()}
        for room in process.scheduler.reservations.held:
            if room.holder.kind == KIND and room.holder.uid not in uids:
                yield f"room is held for {KIND} {room.holder.name}, which does not exist"
        for name, body in self.bodies.items():
            phase = body.get("status", {}).get("phase")
            if phase not in ("Consumed", "Expired"):
                yield f"{KIND} {name} is {phase} after its time"


def is_owned(pod: Pod, name: str) -> bool:
    """Return whether a pod may use the room of a reservation."""
    return pod.metadata.labels.get(LABEL) == name


def _seconds_late(body: dict[str, Any], now: datetime) -> float:
    expires = NodeReservation.from_object(body).expiration
    return 0.0 if expires is None else (now - expires).total_seconds()


class ReservationWatch:
    """Watch of one process: the list first, then each change late and in order."""

    def __init__(
        self, reservations: NodeReservations, controller: ReservationController, clock: LoopClock, seed: str
    ) -> None:
        self._reservations = reservations
        self._controller = controller
        self._events = LateEvents(clock, f"{seed}/reservation watch")

    def start(self) -> None:
        """List, and watch from then on."""
        bodies = list(self._reservations.bodies.values())
        self._controller.listed(NodeReservation, bodies, self._reservations.version)
        self._reservations.listeners.append(self._changed)

    def _changed(self, body: dict[str, Any], is_deleted: bool) -> None:
        handle = self._controller.gone if is_deleted else self._controller.seen
        self._events.deliver(partial(handle, NodeReservation), body)
