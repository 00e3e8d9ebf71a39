"""Simulates the volume binder and an external provisioner on a control plane that has no controllers.

Volumes become Available, claims are bound to the volumes that name them, and a claim with a selected node gets a volume
there or loses the selected node. It polls instead of watching: there are few objects, and it runs in a thread.

    claim with a selected node --provisioned--> volume that names it --> both bound
                               --node fails---> selected node taken away
    volume that names a claim ---------------------------------------> both bound
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from hack.controlplane.api_client import ApiClient, ApiRefusalError, Manifest, status_of
from hack.controlplane.launcher import ControlPlane

PROVISIONER = "volumes.example.com"
"""Provisioner name for StorageClasses."""

SELECTED_NODE = "volume.kubernetes.io/selected-node"
_BOUND = "pv.kubernetes.io/bind-completed"
_HOST = "kubernetes.io/hostname"
_POLL_SECONDS = 0.1


class VolumeController:
    """Thread that simulates both; a context manager.

    Attributes:
        failing_nodes: Nodes on which provisioning fails.
        refused: How often a selected node was removed.
        working: Cleared, it does nothing, as a controller that is down.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self.failing_nodes: set[str] = set()
        self.refused = 0
        self.working = threading.Event()
        self.working.set()
        self._api = ApiClient(plane)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="volume-controller", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._api.close()

    def _run(self) -> None:
        while not self._ended.wait(_POLL_SECONDS):
            if self.working.is_set():
                try:
                    self._look()
                except (ApiRefusalError, OSError):
                    # Another writer was faster, or the server is down: the next pass sees the current state.
                    continue

    def _look(self) -> None:
        claims = self._api.items("/api/v1/persistentvolumeclaims")
        volumes = self._api.items("/api/v1/persistentvolumes")
        classes = {one["metadata"]["name"]: one for one in self._api.items("/apis/storage.k8s.io/v1/storageclasses")}
        unbound = [claim for claim in claims if not claim["spec"].get("volumeName")]
        by_key = {(claim["metadata"]["namespace"], claim["metadata"]["name"]): claim for claim in claims}
        named = set()
        for volume in volumes:
            volume |= {"apiVersion": "v1", "kind": "PersistentVolume"}
            pointer = volume["spec"].get("claimRef")
            if pointer is None:
                if status_of(volume).get("phase") != "Available":
                    self._api.patch(volume, {"status": {"phase": "Available"}}, "status")
                continue
            key = pointer["namespace"], pointer["name"]
            named.add(key)
            if key in by_key and status_of(volume).get("phase") != "Bound":
                self._bind(volume, by_key[key])
        for claim in unbound:
            node = claim["metadata"].get("annotations", {}).get(SELECTED_NODE)
            own = classes.get(claim["spec"].get("storageClassName", ""), {}).get("provisioner") == PROVISIONER
            if node and own and (claim["metadata"]["namespace"], claim["metadata"]["name"]) not in named:
                self._provision(claim | {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}, node)

    def _bind(self, volume: Manifest, claim: Manifest) -> None:
        claim |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
        name = volume["metadata"]["name"]
        self._api.patch(volume, {"spec": {"claimRef": {"uid": claim["metadata"]["uid"]}}})
        self._api.patch(volume, {"status": {"phase": "Bound"}}, "status")
        self._api.patch(claim, {"metadata": {"annotations": {_BOUND: "yes"}}, "spec": {"volumeName": name}})
        status = {"phase": "Bound", "capacity": volume["spec"]["capacity"]}
        self._api.patch(claim, {"status": status | {"accessModes": volume["spec"]["accessModes"]}}, "status")

    def _provision(self, claim: Manifest, node: str) -> None:
        if node in self.failing_nodes:
            self._api.patch(claim, {"metadata": {"annotations": {SELECTED_NODE: None}}})
            self.refused += 1
            return
        metadata, spec = claim["metadata"], claim["spec"]
        term = {"matchExpressions": [{"key": _HOST, "operator": "In", "values": [node]}]}
        self._api.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"pvc-{metadata['uid']}"},
                "spec": {
                    "capacity": spec["resources"]["requests"],
                    "accessModes": spec["accessModes"],
                    "storageClassName": spec["storageClassName"],
                    "csi": {"driver": PROVISIONER, "volumeHandle": metadata["uid"]},
                    "claimRef": {
                        "apiVersion": "v1",
                        "kind": "PersistentVolumeClaim",
                        "namespace": metadata["namespace"],
                        "name": metadata["name"],
                        "uid": metadata["uid"],
                    },
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
                },
            }
        )
