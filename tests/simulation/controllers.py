"""Other components of the cluster: kubelets, the pod garbage collector, the volume controller and a provisioner.

Their delays depend on the run's seed and on the object's UID, so leaving out a step does not change other delays.
"""

from __future__ import annotations

import random

from msgspec.structs import replace

from scheduler_core.model.meta import AnnotatedMeta
from scheduler_core.model.pod import Pod
from scheduler_core.model.storage import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    ClaimPointer,
    CsiVolumeSource,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    VolumePhase,
)
from tests.simulation.api_server import CLAIMS, NODES, PODS, VOLUMES, ApiServer, Change
from tests.simulation.cluster_objects import DYNAMIC_CLASS
from tests.simulation.fault_counts import FaultCounts
from tests.simulation.virtual_loop import VirtualLoop

_SLOW_SECONDS = 2.0
_BOUND = VolumePhase("Bound")


class Controllers:
    """All controllers.

    Attributes:
        failing: Number of volumes whose provisioning will fail.
    """

    def __init__(self, loop: VirtualLoop, server: ApiServer, counts: FaultCounts, seed: int) -> None:
        self._loop = loop
        self._server = server
        self._counts = counts
        self._seed = seed
        self.failing = 0
        server.on_deletion = self._end_later
        server.collection(CLAIMS).listeners.append(self._claims_changed)
        server.collection(VOLUMES).listeners.append(self._claims_changed)
        self._is_sync_due = False

    def _random(self, what: str) -> float:
        return random.Random(f"{self._seed}/{what}").random()

    # -- pods ---------------------------------------------------------------------------------------------------

    def run(self, pod: Pod) -> None:
        """Start a bound pod, as its kubelet does."""
        self._loop.call_later(0.2 + self._random(f"start {pod.metadata.uid}"), self._started, pod)

    def _started(self, pod: Pod) -> None:
        now = self._server.pod(pod.metadata.name)
        if now is not None and now.metadata.uid == pod.metadata.uid and now.status.phase == "Pending":
            self._server.put(PODS, replace(now, status=replace(now.status, phase="Running")))

    def resize(self, pod: Pod) -> None:
        """Allocate the new resources of a pod, and make the resize later, as its kubelet does."""
        seconds = 0.3 + 3.0 * self._random(f"resize {pod.metadata.uid}")
        self._loop.call_later(seconds, self._resized, pod, False)
        self._loop.call_later(2.0 * seconds, self._resized, pod, True)

    def _resized(self, pod: Pod, is_made: bool) -> None:
        now = self._server.pod(pod.metadata.name)
        if now is not None and now.metadata.uid == pod.metadata.uid and now.spec.containers == pod.spec.containers:
            [granted] = now.status.container_statuses
            made = pod.spec.containers[0].resources if is_made else granted.resources
            granted = replace(granted, allocated_resources=pod.spec.containers[0].resources.requests, resources=made)
            self._server.put(PODS, replace(now, status=replace(now.status, container_statuses=(granted,))))

    def _end_later(self, pod: Pod) -> None:
        seconds = 0.1 + 8.0 * self._random(f"end {pod.metadata.uid}") ** 2
        if seconds > _SLOW_SECONDS:
            self._counts.add("pod terminated slowly")
        self._loop.call_later(seconds, self._ended, pod)

    def _ended(self, pod: Pod) -> None:
        now = self._server.pod(pod.metadata.name)
        if now is not None and now.metadata.uid == pod.metadata.uid:
            self._server.remove(PODS, pod.metadata.name)

    def collect(self, node_name: str, node_uid: str) -> None:
        """Delete the pods of a deleted node after a while, unless the node exists again."""
        self._loop.call_later(3.0 + 4.0 * self._random(f"collect {node_uid}"), self._collect, node_name)

    def _collect(self, node_name: str) -> None:
        if node_name in self._server.collection(NODES).objects:
            return
        for pod in [pod for pod in self._server.pods() if pod.spec.node_name == node_name]:
            self._server.remove(PODS, pod.metadata.name)

    # -- volumes ------------------------------------------------------------------------------------------------

    def _claims_changed(self, change: Change) -> None:
        if not self._is_sync_due:
            self._is_sync_due = True
            self._loop.call_later(0.3 + self._random(f"volumes {change.version}"), self._sync_claims)

    def _sync_claims(self) -> None:
        self._is_sync_due = False
        bound_volumes = {
            each.spec.claim_ref.uid: each
            for each in self._server.objects(VOLUMES)
            if each.spec.claim_ref is not None and each.spec.claim_ref.uid
        }
        for claim in self._server.objects(CLAIMS):
            if claim.spec.volume_name:
                continue
            volume = bound_volumes.get(claim.metadata.uid)
            if volume is not None:
                self._complete(claim, volume)
            elif claim.spec.storage_class_name == DYNAMIC_CLASS and SELECTED_NODE in claim.metadata.annotations:
                self._provision(claim)

    def _complete(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        self._server.put(VOLUMES, replace(volume, status=_BOUND))
        annotations = {**claim.metadata.annotations, BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}
        metadata = replace(claim.metadata, annotations=annotations)
        spec = replace(claim.spec, volume_name=volume.metadata.name)
        self._server.put(CLAIMS, replace(claim, metadata=metadata, spec=spec, status=_BOUND))

    def _provision(self, claim: PersistentVolumeClaim) -> None:
        if self.failing:
            self.failing -= 1
            self._counts.add("volume bind failed")
            others = {key: value for key, value in claim.metadata.annotations.items() if key != SELECTED_NODE}
            self._server.put(CLAIMS, replace(claim, metadata=replace(claim.metadata, annotations=others)))
            return
        name = f"pvc-{claim.metadata.uid}"
        pointer = ClaimPointer(claim.metadata.namespace, claim.metadata.name, claim.metadata.uid)
        spec = PersistentVolumeSpec(
            {"storage": "1Gi"},
            claim.spec.access_modes,
            pointer,
            DYNAMIC_CLASS,
            csi=CsiVolumeSource("csi.example.com", name),
        )
        volume = PersistentVolume(AnnotatedMeta(name, uid=name), spec, _BOUND)
        self._complete(claim, self._server.put(VOLUMES, volume))
