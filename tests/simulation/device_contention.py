"""Steps in which more pods request devices than there are, while the operator cannot see its own write.

The response to the first allocation is lost and the watch of claims is stalled, so only the process's own state
protects the devices. Another step deletes a claim and its pod before the response to its allocation.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from scheduler_core.model.devices import ResourceClaim
from scheduler_core.model.pod import Pod
from tests.simulation import cluster_objects, device_objects
from tests.simulation.api_server import NODES, PODS
from tests.simulation.cluster_objects import happens, one_of
from tests.simulation.device_api import DeviceApi
from tests.simulation.device_objects import RESOURCE_CLAIMS, claim_names

if TYPE_CHECKING:
    from tests.simulation.cluster_steps import StepContext

COMPETE, REMOVE = "compete for devices", "delete a claim with its pod"
KINDS = (COMPETE, REMOVE, COMPETE, REMOVE, COMPETE)
"""Kinds of steps in a run with contention, in order."""


class DeviceContention:
    """Performs the steps."""

    def __init__(self, context: StepContext, api: DeviceApi) -> None:
        self._server = context.server
        self._network = context.network
        self._counts = context.counts
        self._api = api
        self._competitors: dict[str, list[Pod]] = {}
        self._removals = 0
        self.actions = {COMPETE: self._compete, REMOVE: self._arm_removal}

    def heal(self) -> None:
        """Create the competing pods that were delayed, and disarm the faults."""
        self._removals = 0
        for name in list(self._competitors):
            self._create(self._competitors.pop(name))

    def written(self, claim: ResourceClaim) -> None:
        """Apply armed faults when the operator has written an allocation, before the response."""
        pods = self._competitors.pop(claim.metadata.name, None)
        if pods is not None:
            self._counts.add("claim write failed")
            self._network.lose_response()
            self._network.stall(RESOURCE_CLAIMS, 6.0)
            self._network.loop.call_later(0.05, self._create, pods)
        elif self._removals:
            user = self._only_user(claim)
            if user is not None:
                self._removals -= 1
                self._network.loop.call_soon(self._remove, user, claim)

    def _compete(self, rng: random.Random, number: int) -> None:
        """Create claims for all cards of the cluster, and one pod; the other pods follow after its allocation."""
        pods = []
        for index in range(len(self._server.objects(NODES)) + 3):
            name = f"card{number}-{index}"
            spec = device_objects.card_spec(halves=1 if index and happens(rng, 0.5) else 2)
            self._server.put(RESOURCE_CLAIMS, device_objects.claim(name, self._server.new_uid(name), spec))
            competitor = cluster_objects.pod(rng, f"c{number}-{index}", self._server.new_uid(f"c{number}-{index}"))
            pods.append(device_objects.with_claims(cluster_objects.with_requests(competitor, 100), (name,), ()))
        self._competitors[f"card{number}-0"] = pods[1:]
        self._create(pods[:1])

    def _create(self, pods: list[Pod]) -> None:
        for each in pods:
            self._server.put(PODS, each)

    def _arm_removal(self, rng: random.Random, number: int) -> None:
        self._removals += one_of(rng, (2, 3))

    def _only_user(self, claim: ResourceClaim) -> Pod | None:
        users = [pod for pod in self._server.pods() if claim.metadata.name in claim_names(pod)]
        return users[0] if len(users) == 1 and not users[0].spec.node_name else None

    def _remove(self, pod: Pod, claim: ResourceClaim) -> None:
        """Delete a pod together with its claim, as a forced deletion of the namespace does."""
        current = self._server.pod(pod.metadata.name)
        stored = self._api.claim(claim.metadata.name)
        if current is None or current.metadata.uid != pod.metadata.uid or current.spec.node_name or stored is None:
            return
        self._counts.add("claim deleted")
        self._network.log(f"delete {pod.metadata.uid} and claim {claim.metadata.uid}")
        self._server.delete_pod(pod.metadata.name)
        self._server.remove(RESOURCE_CLAIMS, claim.metadata.name)
