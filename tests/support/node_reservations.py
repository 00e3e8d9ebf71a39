"""NodeReservations without an API server: objects, statuses and restarts of their controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bayplan.fit.room_search import FitDryRun
from bayplan.process.copies import BackgroundDocuments
from bayplan.reservations.reservation_controller import ReservationController
from bayplan.resources.node_reservation import NodeReservation
from bayplan.resources.resource_model import format_time

from scheduler_core.errors import ClusterWriteError, NotFoundError
from scheduler_core.model.pod import Pod
from tests.support.builders import pod
from tests.support.gang_preemption import small_node
from tests.support.scheduling import Rig, gang_rig

TRAIN = {"labels": {"app": "train"}}


class Reservations:
    """NodeReservations as the watch delivers them, with the statuses that the controller writes.

    Attributes:
        failures: Number of next writes that fail.
        failed_lists: Number of next lists of PriorityClasses that fail.
        lists: Number of lists of PriorityClasses.
    """

    def __init__(self, made: Rig) -> None:
        self.rig = made
        self.failures = self.failed_lists = self.lists = 0
        self._version = 0
        self._deleted = Counter[str]()
        self.bodies: dict[str, dict[str, Any]] = {}
        self.controller = self._controller()

    def _controller(self) -> ReservationController:
        dry_run = FitDryRun(self.rig.scheduler, BackgroundDocuments(self.rig.context, None))
        return ReservationController(self.rig.scheduler, dry_run, self, self.rig.clock)

    async def restart(self) -> None:
        """Replace the controller as a new process does, and let it run once."""
        self.replace_controller()
        await self.controller.look()

    def replace_controller(self) -> None:
        """Replace the controller as a new process does: nothing is held, and the objects are listed."""
        for room in self.rig.scheduler.reservations.held:
            self.rig.scheduler.reservations.held.end(room.holder.uid)
        self.controller = self._controller()
        self.controller.listed(NodeReservation, list(self.bodies.values()), str(self._version))

    async def write_status(self, namespace: str, name: str, uid: str, status: Mapping[str, Any]) -> None:
        assert namespace == "default"
        if self.failures:
            self.failures -= 1
            raise ClusterWriteError("the API server does not respond")
        if self.bodies[name]["metadata"]["uid"] != uid:
            raise NotFoundError(name)
        self.bodies[name] = {**self.bodies[name], "status": dict(status)}
        self._deliver(name)

    async def priority_classes(self) -> Sequence[dict[str, Any]]:
        self.lists += 1
        if self.failed_lists:
            self.failed_lists -= 1
            raise ClusterWriteError("the API server does not respond")
        api = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        return [{**api, "metadata": {"name": "high"}, "value": 10}]

    async def claim_templates(self, namespace: str, names: Collection[str]) -> Sequence[dict[str, Any]]:
        metadata = {"name": "one", "namespace": namespace}
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": metadata}
        request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
        return [{**body, "spec": {"spec": {"devices": {"requests": [request]}}}}] if "one" in names else []

    def _deliver(self, name: str) -> None:
        self._version += 1
        metadata = {**self.bodies[name]["metadata"], "resourceVersion": str(self._version)}
        self.bodies[name] = {**self.bodies[name], "metadata": metadata}
        self.controller.seen(NodeReservation, self.bodies[name])

    async def apply(self, name: str, **spec: Any) -> None:
        """Create or edit a reservation of one CPU for each pod."""
        old = self.bodies.get(name, {"metadata": {"generation": 0}})
        metadata = {
            "name": name,
            "namespace": "default",
            "uid": f"uid-of-{name[:20]}{self._deleted[name] or ''}",
            "generation": old["metadata"]["generation"] + 1,
            "creationTimestamp": old["metadata"].get("creationTimestamp", format_time(self.rig.clock.wall())),
        }
        own = {"owner": TRAIN, **({} if "template" in spec else {"resources": {"cpu": 1}}), **spec}
        self.bodies[name] = {**old, "metadata": metadata, "spec": own}
        self._deliver(name)
        await self.controller.look()

    def store_held(self, name: str, node_name: str) -> None:
        """Store a reservation of one pod whose room was held on a node before a restart."""
        now = format_time(self.rig.clock.wall())
        self._version += 1
        metadata = {"name": name, "namespace": "default", "uid": f"uid-of-{name}", "generation": 1}
        metadata |= {"creationTimestamp": now, "resourceVersion": str(self._version)}
        status = {"observedGeneration": 1, "phase": "Reserved", "reserved": 1, "reservedSince": now}
        status |= {"nodes": [{"name": node_name, "pods": 1}]}
        spec = {"owner": TRAIN, "resources": {"cpu": 1}}
        self.bodies[name] = {"metadata": metadata, "spec": spec, "status": status}

    async def delete(self, name: str) -> None:
        self._deleted[name] += 1
        self.controller.gone(NodeReservation, self.bodies.pop(name))
        await self.controller.look()

    async def later(self, seconds: float = 1.0) -> None:
        """Let time pass, and the controller run."""
        self.rig.clock.advance(seconds)
        await self.controller.look()

    def status(self, name: str = "room") -> dict[str, Any]:
        found: dict[str, Any] = self.bodies[name].get("status", {})
        return found

    def phase(self, name: str = "room") -> str:
        return str(self.status(name)["phase"])

    def condition(self, kind: str = "Reserved", name: str = "room") -> tuple[str, str, str]:
        """Return status, reason and message of a condition."""
        (found,) = (each for each in self.status(name).get("conditions", ()) if each["type"] == kind)
        return found["status"], found["reason"], found["message"]

    async def bound(self, *pods: Pod) -> dict[str, str]:
        """Add pods, schedule all that are active, and return the nodes by name."""
        self.rig.add(*pods)
        for _ in pods:
            if self.rig.queue.readings.is_idle:
                break
            await self.rig.attempt()
        return {each.metadata.name: self.rig.bound.get(each.metadata.name, "") for each in pods}


def two_nodes() -> Reservations:
    """Return a scheduler with two nodes of two CPUs."""
    return Reservations(gang_rig(small_node("a", zone="x"), small_node("b", zone="y")))


def own_pod(name: str, **fields: Any) -> Pod:
    return pod(name, requests={"cpu": "1"}, **{"labels": {"app": "train"}, **fields})


def other_pod(name: str, **fields: Any) -> Pod:
    return pod(name, requests={"cpu": "1"}, **fields)
