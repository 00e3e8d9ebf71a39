"""Resource claim controller: creates claims from templates, ends reservations of deleted pods, and deallocates.

Follows kube-controller-manager v1.37.1, ``pkg/controller/resourceclaim``: a claim without reservations is deallocated
and loses its finalizer, and a claim that was created for a pod is deleted with the pod.
"""

from __future__ import annotations

import random

from msgspec.structs import replace

from scheduler_core.model.devices import DELETE_PROTECTION, ClaimConsumer, ResourceClaim, ResourceClaimStatus
from scheduler_core.model.pod import Pod, PodResourceClaimStatus
from tests.simulation.api_server import PODS, ApiServer, Change
from tests.simulation.device_api import DeviceApi
from tests.simulation.device_objects import RESOURCE_CLAIMS, claim, claim_spec
from tests.simulation.virtual_loop import VirtualLoop


class ClaimController:
    """The controller.

    Args:
        loop: Event loop with virtual time.
        api: API of resource claims.
        seed: Seed of delays and of the content of templates.
    """

    def __init__(self, loop: VirtualLoop, server: ApiServer, api: DeviceApi, seed: int) -> None:
        self._loop = loop
        self._server = server
        self._api = api
        self._seed = seed
        self._is_due = False
        server.collection(PODS).listeners.append(self._changed)
        server.collection(RESOURCE_CLAIMS).listeners.append(self._changed)

    def _random(self, what: str) -> random.Random:
        return random.Random(f"{self._seed}/{what}")

    def _changed(self, change: Change) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_later(0.2 + self._random(f"claims {change.version}").random(), self._sync)

    def _sync(self) -> None:
        self._is_due = False
        for pod in list(self._server.pods()):
            if not pod.is_terminal and pod.metadata.deletion_timestamp is None:
                self._create_claims(pod)
        pods = {pod.metadata.uid: pod for pod in self._server.pods()}
        for each in self._api.claims():
            self._sync_claim(each, pods)

    def _create_claims(self, pod: Pod) -> None:
        statuses = list(pod.status.resource_claim_statuses)
        for reference in pod.spec.resource_claims:
            if reference.resource_claim_template_name is None or any(each.name == reference.name for each in statuses):
                continue
            uid = self._server.new_uid(f"{pod.metadata.name}-{reference.name}")
            spec = claim_spec(self._random(f"template {pod.metadata.uid} {reference.name}"))
            self._server.put(RESOURCE_CLAIMS, claim(uid, uid, spec, owner=pod))
            statuses.append(PodResourceClaimStatus(reference.name, uid))
        if len(statuses) != len(pod.status.resource_claim_statuses):
            status = replace(pod.status, resource_claim_statuses=tuple(statuses))
            self._server.put(PODS, replace(pod, status=status))

    def _sync_claim(self, current: ResourceClaim, pods: dict[str, Pod]) -> None:
        status = current.status
        users = tuple(each for each in status.reserved_for if _still_uses(each, pods))
        is_ending = current.metadata.deletion_timestamp is not None
        if not users and (status.reserved_for or is_ending):
            finalizers = tuple(each for each in current.metadata.finalizers if each != DELETE_PROTECTION)
            metadata = replace(current.metadata, finalizers=finalizers)
            current = replace(current, metadata=metadata, status=ResourceClaimStatus())
            if is_ending and not finalizers:
                self._server.remove(RESOURCE_CLAIMS, current.metadata.name)
                return
            current = self._server.put(RESOURCE_CLAIMS, current)
        elif len(users) < len(status.reserved_for):
            current = self._server.put(RESOURCE_CLAIMS, replace(current, status=replace(status, reserved_for=users)))
        owners = current.metadata.owner_references
        owner = pods.get(owners[0].uid) if owners else None
        if owners and (owner is None or owner.is_terminal) and not is_ending:
            self._api.delete(current)


def _still_uses(consumer: ClaimConsumer, pods: dict[str, Pod]) -> bool:
    pod = pods.get(consumer.uid)
    if pod is None or pod.is_terminal:
        return False
    return bool(pod.spec.node_name) or pod.metadata.deletion_timestamp is None
