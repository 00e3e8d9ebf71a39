"""Steps that act on devices: pods with claims, drivers, and faults after an allocation.

Faults between the write of an allocation and the bind are armed in advance and take effect at that write, because a
step would rarely meet these milliseconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from scheduler_core.model.devices import ResourceClaim, ResourceSlice
from scheduler_core.model.pod import Pod
from tests.simulation import cluster_objects, device_objects
from tests.simulation.api_server import NODES, OPERATOR, PODS
from tests.simulation.cluster_objects import happens, one_of
from tests.simulation.device_api import DeviceApi
from tests.simulation.device_conditions import DevicePreparation
from tests.simulation.device_contention import DeviceContention
from tests.simulation.device_controller import ClaimController
from tests.simulation.device_objects import DEVICE_CLASSES, RESOURCE_CLAIMS, SLICES, claim_names
from tests.simulation.steps import COMMON_FAULTS, has_contention

if TYPE_CHECKING:
    from tests.simulation.cluster_steps import StepContext

_WATCHED = (RESOURCE_CLAIMS, RESOURCE_CLAIMS, SLICES, DEVICE_CLASSES)
_WRITE_FAULTS = (*COMMON_FAULTS, "conflict", "slow")
_NAMED = ("team-a", "team-b", "team-c")
"""Names of claims that several pods share."""

StepAction = Callable[[random.Random, int], None]


class DeviceSteps:
    """Performs the steps.

    Args:
        context: Parts of the simulation.
        api: API of resource claims.
    """

    def __init__(self, context: StepContext, api: DeviceApi) -> None:
        self._context = context
        self._server = context.server
        self._network = context.network
        self._supervisor = context.supervisor
        self._counts = context.counts
        self._api = api
        self._generations: dict[str, int] = {}
        self._armed: list[Callable[[ResourceClaim], None]] = []
        self.actions: dict[str, StepAction] = {
            "create pods with devices": self._create_pods,
            "create pods with extended resources": self._create_extended,
            "create a shared claim": self._create_shared,
            "delete a claim": self._delete_claim,
            "replace devices": self._replace_some,
            "withdraw devices": self._withdraw_some,
            "fail claim writes": self._fail_writes,
            "change an allocated claim": self._arm_change,
            "kill the operator after an allocation": lambda *_: self._armed.append(self._kill),
            "delete a device class": self._delete_class,
            "stall a watch of devices": self._stall,
            "drop a watch of devices": lambda rng, _: self._network.drop(one_of(rng, _WATCHED), graceful=False),
            "expire a watch of devices": lambda rng, _: self._network.expire(one_of(rng, _WATCHED)),
        }
        self._contention = DeviceContention(context, api)
        self._preparation = DevicePreparation(context, api)
        self.actions |= self._contention.actions

    def begin(self) -> None:
        """Create drivers and classes, and start the controller of claims."""
        ClaimController(self._network.loop, self._server, self._api, self._context.seed)
        for each in device_objects.device_classes():
            self._server.put(DEVICE_CLASSES, each)
        for node in self._server.objects(NODES):
            self._publish(node.metadata.name)

    def heal(self) -> None:
        """Disarm the faults, and create missing slices and classes."""
        self._armed.clear()
        self._contention.heal()
        for each in device_objects.device_classes():
            if each.metadata.name not in self._server.collection(DEVICE_CLASSES).objects:
                self._server.put(DEVICE_CLASSES, each)
        for node in self._server.objects(NODES):
            if f"{node.metadata.name}-devices" not in self._server.collection(SLICES).objects:
                self._publish(node.metadata.name)

    def written(self, old: ResourceClaim, new: ResourceClaim, client: str) -> None:
        """Apply armed faults when the operator has written an allocation."""
        if client != OPERATOR or old.status.allocation is not None or new.status.allocation is None:
            return
        self._contention.written(new)
        self._preparation.written(new)
        if self._armed:
            self._network.loop.call_soon(self._armed.pop(0), new)

    # -- pods and claims ----------------------------------------------------------------------------------------

    def _create_pods(self, rng: random.Random, number: int) -> None:
        for index in range(rng.randrange(1, 4)):
            name = f"d{number}-{index}"
            pod = cluster_objects.pod(rng, name, self._server.new_uid(name))
            named = tuple(each for each in _NAMED if happens(rng, 0.15))
            templates = ("gpu", "nic")[: 1 + happens(rng, 0.2)] if not named or happens(rng, 0.3) else ()
            self._server.put(PODS, device_objects.with_claims(pod, named, templates))

    def _create_extended(self, rng: random.Random, number: int) -> None:
        for index in range(rng.randrange(1, 4)):
            name = f"e{number}-{index}"
            pod = cluster_objects.pod(rng, name, self._server.new_uid(name))
            self._server.put(PODS, device_objects.with_extended_resource(pod, 2 if happens(rng, 0.25) else 1))

    def _create_shared(self, rng: random.Random, number: int) -> None:
        missing = [name for name in _NAMED if self._api.claim(name) is None]
        if missing:
            name = one_of(rng, missing)
            spec = device_objects.claim_spec(rng)
            self._server.put(RESOURCE_CLAIMS, device_objects.claim(name, self._server.new_uid(name), spec))

    def _delete_claim(self, rng: random.Random, number: int) -> None:
        used = {name for pod in self._server.pods() if not pod.is_terminal for name in claim_names(pod)}
        claims = [claim for claim in self._api.claims() if claim.metadata.name in used]
        if claims:
            self._delete(one_of(rng, claims))

    def _delete(self, claim: ResourceClaim) -> None:
        self._counts.add("claim deleted")
        self._network.log(f"delete claim {claim.metadata.uid}")
        self._api.delete(claim)

    # -- drivers --------------------------------------------------------------------------------------------------

    def _publish(self, node_name: str, delay: float = 0.0) -> None:
        """Publish the two slices of a node's pool; with a delay, the pool is incomplete until the second one."""
        generation = self._generations[node_name] = self._generations.get(node_name, 0) + 1
        rng = random.Random(f"{self._context.seed}/devices {node_name} {generation}")
        prepared = has_contention(self._context.seed)
        pair = list(device_objects.slices(rng, node_name, generation, prepared=prepared))
        rng.shuffle(pair)
        self._network.log(f"publish devices of {node_name}, generation {generation}")
        self._server.put(SLICES, pair[0])
        if delay:
            self._network.loop.call_later(delay, self._put_current, pair[1])
        else:
            self._server.put(SLICES, pair[1])

    def _put_current(self, new: ResourceSlice) -> None:
        if new.spec.pool.generation == self._generations[new.spec.pool.name]:
            self._server.put(SLICES, new)

    def _replace_some(self, rng: random.Random, number: int) -> None:
        self._replace(one_of(rng, self._server.objects(NODES)).metadata.name, 2.0 * rng.random())

    def _replace(self, node_name: str, delay: float) -> None:
        self._counts.add("devices replaced")
        self._publish(node_name, delay)

    def _withdraw_some(self, rng: random.Random, number: int) -> None:
        self._withdraw(one_of(rng, self._server.objects(NODES)).metadata.name, 1.0 + 8.0 * rng.random())

    def _withdraw(self, node_name: str, seconds: float) -> None:
        self._counts.add("devices withdrawn")
        self._network.log(f"withdraw devices of {node_name}")
        for name in (f"{node_name}-devices", f"{node_name}-counters"):
            self._server.remove(SLICES, name)
        # A slice whose publication is still delayed belongs to an older generation now.
        self._generations[node_name] = self._generations.get(node_name, 0) + 1
        self._network.loop.call_later(seconds, self._publish, node_name)

    def _delete_class(self, rng: random.Random, number: int) -> None:
        classes = self._server.objects(DEVICE_CLASSES)
        if classes:
            deleted = one_of(rng, classes)
            self._server.remove(DEVICE_CLASSES, deleted.metadata.name)
            self._network.loop.call_later(0.5 + 4.0 * rng.random(), self._server.put, DEVICE_CLASSES, deleted)

    # -- faults -------------------------------------------------------------------------------------------------

    def _fail_writes(self, rng: random.Random, number: int) -> None:
        self._network.arm("claim", one_of(rng, _WRITE_FAULTS), rng.randrange(1, 3))

    def _stall(self, rng: random.Random, number: int) -> None:
        self._network.stall(one_of(rng, _WATCHED), 15.0 * rng.random() ** 2)

    def _kill(self, claim: ResourceClaim) -> None:
        self._counts.add("operator killed after an allocation")
        self._supervisor.kill()

    def _arm_change(self, rng: random.Random, number: int) -> None:
        change = one_of(rng, (self._delete, self._touch, self._change_devices, self._delete_node, self._delete_pod))

        def strike(claim: ResourceClaim) -> None:
            self._counts.add("devices changed after an allocation")
            current = self._api.claim(claim.metadata.name)
            if current is not None and current.metadata.uid == claim.metadata.uid:
                change(current)

        self._armed.append(strike)

    def _touch(self, claim: ResourceClaim) -> None:
        """Change a claim, so that a write with its earlier version is a conflict."""
        self._counts.add("claim write conflict")
        annotations = {**claim.metadata.annotations, "touched": str(self._server.version)}
        self._server.put(RESOURCE_CLAIMS, replace(claim, metadata=replace(claim.metadata, annotations=annotations)))

    def _change_devices(self, claim: ResourceClaim) -> None:
        allocation = claim.status.allocation
        pools = sorted({each.pool for each in allocation.devices.results}) if allocation is not None else []
        if pools and self._server.version % 2:
            self._replace(pools[0], 0.5)
        elif pools:
            self._withdraw(pools[0], 3.0)

    def _delete_node(self, claim: ResourceClaim) -> None:
        allocation = claim.status.allocation
        pools = sorted({each.pool for each in allocation.devices.results}) if allocation is not None else []
        nodes = self._server.collection(NODES).objects
        if pools and pools[0] in nodes and len(nodes) > 1:
            deleted = self._server.remove(NODES, pools[0])
            self._context.controllers.collect(deleted.metadata.name, deleted.metadata.uid)

    def _delete_pod(self, claim: ResourceClaim) -> None:
        users: list[Pod] = [
            pod
            for pod in self._server.pods()
            if any(pod.metadata.uid == each.uid for each in claim.status.reserved_for)
        ]
        if users:
            self._server.delete_pod(users[-1].metadata.name)
