"""Gangs on the real API server: PodGroups, pods as a Job's controller makes them, and what became of them.

Owns the short forms, the Job controller's part, which does not run here, and a watch that records which gangs held room
at the same time. It must not know what is tested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hack.controlplane.api_client import ApiClient, Manifest, address
from hack.controlplane.launcher import ControlPlane
from tests.scenarios.scenario import pod_manifest
from tests.support.live_world import LiveWorld
from tests.support.operator_process import OperatorProcess
from tests.support.pod_history import PodHistory

LABEL = "bayplan.dev/pod-group"
VERSION = "bayplan.dev/v1alpha1"
FOREVER = "1h"
_ENDED = ("Succeeded", "Failed")


class LiveGangs(LiveWorld):
    """A :class:`LiveWorld` with gangs."""

    def nodes(self, *names: str, **fields: Any) -> None:
        """Create nodes that the operator then has; the fields are those of ``node_manifest``, and ``zone``."""
        zone = fields.pop("zone", "")
        for name in names:
            self._node(name, labels={"zone": zone} if zone else {}, **fields)
        self._until_nodes_are_known()

    def group(self, name: str, min_member: int, version: str = VERSION, **spec: Any) -> str:
        """Create a PodGroup; its UID. The words are fields of its spec."""
        spec = spec if version.startswith("scheduling.k8s.io") else {"minMember": min_member, **spec}
        manifest = self._group(name, version) | {"spec": spec}
        self._made.append(manifest)
        return str(self.api.create(manifest)["metadata"]["uid"])

    def job(self, name: str, count: int, *, first: int = 0, **fields: Any) -> list[str]:
        """Create members as the controller of a Job does: all at once, each with its owner.

        Args:
            name: The Job and, unless the fields say otherwise, the PodGroup.
            count: How many.
            first: Number of the first one.
            fields: Those of ``pod_manifest``, and ``run_for``, a Go duration after which a member that runs succeeds,
                and ``group``, "" for none.

        Returns:
            The names of the pods.
        """
        names = [f"{name}-{number}" for number in range(first, first + count)]
        self.api.create_all([self.member(each, name, **fields) for each in names])
        return names

    def member(self, name: str, job: str, **fields: Any) -> Manifest:
        """A pod of a Job; the fields are those of :meth:`job`."""
        run_for, group = fields.pop("run_for", FOREVER), fields.pop("group", job)
        joined = {LABEL: group} if group else {}
        labels = {**joined, "job": job, **fields.pop("labels", {})}
        spec = {"schedulerName": self.token, "nodeSelector": {"for": self.token}, **fields.pop("spec", {})}
        manifest = pod_manifest(name, self.namespace, {"cpu": "1", **fields, "labels": labels, "spec": spec})
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": f"uid-of-{job}", "controller": True}
        manifest["metadata"] |= {"ownerReferences": [owner], "annotations": {"bayplan.dev/run-for": run_for}}
        return manifest

    def complete(self, job: str, *names: str) -> None:
        """Let pods of a Job succeed, by default all, as the kubelet reports it."""
        for name in names or self.pods(job):
            pod = {"kind": "Pod", "metadata": {"name": name, "namespace": self.namespace}}
            self.api.patch(pod, {"status": {"phase": "Succeeded"}}, subresource="status")

    def delete(self, *names: str) -> None:
        """Delete pods, and wait until they are gone."""
        for name in names:
            self.api.delete({"kind": "Pod", "metadata": {"name": name, "namespace": self.namespace}}, grace_seconds=0)
        self.until(lambda: not set(names) & set(self.pods()), f"{names} are gone")

    def pods(self, job: str = "") -> dict[str, Manifest]:
        """The pods of a Job, or all, by name."""
        selector = {"labelSelector": f"job={job}"} if job else {}
        found = self.api.items(f"/api/v1/namespaces/{self.namespace}/pods", **selector)
        return {each["metadata"]["name"]: each for each in found}

    def bound(self, job: str = "") -> dict[str, str]:
        """The nodes of the pods that are bound and have not ended, by name."""
        alive = {name: pod for name, pod in self.pods(job).items() if pod["status"].get("phase") not in _ENDED}
        return {name: str(pod["spec"]["nodeName"]) for name, pod in alive.items() if pod["spec"].get("nodeName")}

    def status(self, name: str, version: str = VERSION) -> Manifest:
        """The status of a PodGroup; empty while it has none."""
        status: Manifest = self.api.get(address(self._group(name, version))).get("status", {})
        return status

    def reason(self, name: str) -> str:
        """The reason of the condition ``Scheduled``; "" while there is none."""
        return str(self._scheduled(name).get("reason", ""))

    def message(self, name: str) -> str:
        """The message of the condition ``Scheduled``."""
        return str(self._scheduled(name).get("message", ""))

    def counts(self, name: str) -> tuple[int, int, int]:
        """Members, those that are bound, and those that run, by the status."""
        status = self.status(name)
        return status.get("members", 0), status.get("scheduled", 0), status.get("running", 0)

    def until_bound(self, job: str, count: int) -> dict[str, str]:
        """Wait until so many pods of a Job are bound; their nodes."""
        self.until(lambda: len(self.bound(job)) == count, f"{count} pods of {job} are bound")
        return self.bound(job)

    def until_reason(self, name: str, reason: str) -> str:
        """Wait until a group's condition has a reason; its message."""
        self.until(lambda: self.reason(name) == reason, f"the group {name} is {reason}")
        return self.message(name)

    def _scheduled(self, name: str) -> Manifest:
        conditions: list[Manifest] = self.status(name).get("conditions", [])
        return next((each for each in conditions if each["type"] == "Scheduled"), {})

    def _group(self, name: str, version: str) -> Manifest:
        metadata = {"name": name, "namespace": self.namespace}
        return {"apiVersion": version, "kind": "PodGroup", "metadata": metadata}


class GangHistory(PodHistory):
    """Which Jobs had pods with room, at every moment.

    Args:
        plane: Whose API server is watched.
        namespace: Whose pods.

    Attributes:
        moments: After each write of a pod, how many pods of each Job were bound and had not ended; Jobs without one
            are left out.
    """

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        super().__init__(plane, namespace, {})
        self.moments: list[dict[str, int]] = []
        self._held: dict[str, str] = {}

    def together(self, *jobs: str) -> list[dict[str, int]]:
        """Moments at which several of some Jobs held room."""
        return [moment for moment in self.moments if sum(job in moment for job in jobs) > 1]

    def order(self) -> list[str]:
        """Jobs in the order in which they first held room."""
        return list(dict.fromkeys(job for moment in self.moments for job in moment))

    def _record(self, kind: str, pod: Manifest) -> None:
        metadata, status = pod["metadata"], pod["status"]
        holds = pod["spec"].get("nodeName") and kind != "DELETED" and status.get("phase") not in _ENDED
        if holds:
            self._held[metadata["uid"]] = metadata.get("labels", {}).get("job", "")
        else:
            self._held.pop(metadata["uid"], None)
        self.moments.append(dict(Counter(self._held.values())))


@contextmanager
def live_gangs(plane: ControlPlane, operator: OperatorProcess, namespace: str) -> Iterator[LiveGangs]:
    """A world with a profile, which is removed at the end with its groups."""
    with ApiClient(plane) as api:
        world = LiveGangs(api, operator, namespace)
        yield world
        world.clean_up()
