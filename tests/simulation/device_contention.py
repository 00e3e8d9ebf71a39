"""Steps in which more pods want the same cards than there are, while the operator cannot see what it has written.

The answer to the first allocation is lost, and the watch of claims is stalled: only what the process remembers keeps
others from the devices. In another step a claim is deleted with its pod before its allocation is answered.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from scheduler_core.model.device_claims import ResourceClaim
from scheduler_core.model.pod import Pod
from tests.simulation import device_objects, inhabitants
from tests.simulation.api_server import NODES, PODS
from tests.simulation.device_api import DeviceApi
from tests.simulation.device_objects import RESOURCE_CLAIMS, claim_names
from tests.simulation.inhabitants import happens, one_of

if TYPE_CHECKING:
    from tests.simulation.world import Scene

COMPETE, REMOVE = "compete for cards", "remove a claim with its pod"
KINDS = (COMPETE, REMOVE, COMPETE, REMOVE, COMPETE)
"""Kinds of the steps in a run with contention, in their order."""


class DeviceContention:
    """Performs the steps.

    Args:
        scene: The parts of the simulation.
        api: The API server's part for claims.
    """

    def __init__(self, scene: Scene, api: DeviceApi) -> None:
        self._server = scene.server
        self._network = scene.network
        self._counts = scene.counts
        self._api = api
        self._competitors: dict[str, list[Pod]] = {}
        self._removals = 0
        self.acts = {COMPETE: self._compete, REMOVE: self._arm_removal}

    def heal(self) -> None:
        """Create the competitors that wait, and disarm."""
        self._removals = 0
        for name in list(self._competitors):
            self._create(self._competitors.pop(name))

    def written(self, claim: ResourceClaim) -> None:
        """Take effect when the operator has written an allocation, before it is answered."""
        pods = self._competitors.pop(claim.metadata.name, None)
        if pods is not None:
            self._counts.add("claim write failed")
            self._network.lose_answer()
            self._network.stall(RESOURCE_CLAIMS, 6.0)
            self._network.loop.call_later(0.05, self._create, pods)
        elif self._removals:
            user = self._only_user(claim)
            if user is not None:
                self._removals -= 1
                self._network.loop.call_soon(self._remove, user, claim)

    def _compete(self, rng: random.Random, number: int) -> None:
        """Create claims for all cards of the cluster, and one pod; the other pods follow when it has its devices."""
        pods = []
        for index in range(len(self._server.objects(NODES)) + 3):
            name = f"card{number}-{index}"
            spec = device_objects.card_spec(halves=1 if index and happens(rng, 0.5) else 2)
            self._server.put(RESOURCE_CLAIMS, device_objects.claim(name, self._server.new_uid(name), spec))
            shown = inhabitants.pod(rng, f"c{number}-{index}", self._server.new_uid(f"c{number}-{index}"))
            pods.append(device_objects.with_claims(inhabitants.with_requests(shown, 100), (name,), ()))
        self._competitors[f"card{number}-0"] = pods[1:]
        self._create(pods[:1])

    def _create(self, pods: list[Pod]) -> None:
        for each in pods:
            self._server.put(PODS, each)

    def _arm_removal(self, rng: random.Random, number: int) -> None:
        del number
        self._removals += one_of(rng, (2, 3))

    def _only_user(self, claim: ResourceClaim) -> Pod | None:
        users = [pod for pod in self._server.pods() if claim.metadata.name in claim_names(pod)]
        return users[0] if len(users) == 1 and not users[0].spec.node_name else None

    def _remove(self, pod: Pod, claim: ResourceClaim) -> None:
        """Delete a pod, and its claim with it, as when a namespace is deleted by force."""
        current = self._server.pod(pod.metadata.name)
        stored = self._api.claim(claim.metadata.name)
        if current is None or current.metadata.uid != pod.metadata.uid or current.spec.node_name or stored is None:
            return
        self._counts.add("claim deleted")
        self._network.say(f"remove {pod.metadata.uid} and claim {claim.metadata.uid}")
        self._server.end_pod(pod.metadata.name)
        self._server.remove(RESOURCE_CLAIMS, claim.metadata.name)
