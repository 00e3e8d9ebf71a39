"""PodGroups and pods of Jobs on a real API server, and a watch that records which gangs run at the same time.

No Job controller runs; :meth:`LiveGangs.job` creates its pods.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hack.controlplane.api_client import Manifest, address, condition_of, status_of
from hack.controlplane.launcher import ControlPlane
from tests.scenarios.scenario import pod_manifest
from tests.support.live_world import LiveWorld
from tests.support.pod_history import PodHistory

LABEL = "bayplan.dev/pod-group"
VERSION = "bayplan.dev/v1alpha1"
FOREVER = "1h"
_TERMINAL_PHASES = ("Succeeded", "Failed")


class LiveGangs(LiveWorld):
    """:class:`LiveWorld` with gangs."""

    def nodes(self, *names: str, **fields: Any) -> None:
        """Create nodes and wait until the operator has received them.

        The fields are those of ``node_manifest``, and ``zone``.
        """
        zone = fields.pop("zone", "")
        for name in names:
            self._node(name, labels={"zone": zone} if zone else {}, **fields)
        self._until_nodes_are_received()

    def group(self, name: str, min_member: int, version: str = VERSION, **spec: Any) -> str:
        """Create a PodGroup with further fields of its spec; return its UID."""
        spec = spec if version.startswith("scheduling.k8s.io") else {"minMember": min_member, **spec}
        manifest = self._group(name, version) | {"spec": spec}
        self._made.append(manifest)
        return str(self.api.create(manifest)["metadata"]["uid"])

    def job(self, name: str, count: int, *, first: int = 0, **fields: Any) -> list[str]:
        """Create all pods of a Job, with the Job as their owner.

        Args:
            name: Name of the Job and, by default, of the PodGroup.
            fields: Fields of ``pod_manifest``; ``run_for``, a Go duration after which a running pod succeeds; and
                ``group``, "" for none.

        Returns:
            Names of the pods.
        """
        names = [f"{name}-{number}" for number in range(first, first + count)]
        self.api.create_all([self.member(each, name, **fields) for each in names])
        return names

    def member(self, name: str, job: str, **fields: Any) -> Manifest:
        """Return a pod of a Job; the fields are those of :meth:`job`."""
        run_for, group = fields.pop("run_for", FOREVER), fields.pop("group", job)
        group_label = {LABEL: group} if group else {}
        labels = {**group_label, "job": job, **fields.pop("labels", {})}
        spec = {"schedulerName": self.token, "nodeSelector": {"for": self.token}, **fields.pop("spec", {})}
        manifest = pod_manifest(name, self.namespace, {"cpu": "1", **fields, "labels": labels, "spec": spec})
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": f"uid-of-{job}", "controller": True}
        manifest["metadata"] |= {"ownerReferences": [owner], "annotations": {"bayplan.dev/run-for": run_for}}
        return manifest

    def complete(self, job: str, *names: str) -> None:
        """Set phase Succeeded of pods of a Job, by default of all, as the kubelet does."""
        for name in names or self.pods(job):
            pod = {"kind": "Pod", "metadata": {"name": name, "namespace": self.namespace}}
            self.api.patch(pod, {"status": {"phase": "Succeeded"}}, subresource="status")

    def delete(self, *names: str) -> None:
        """Delete pods and wait until they do not exist."""
        for name in names:
            self.api.delete({"kind": "Pod", "metadata": {"name": name, "namespace": self.namespace}}, grace_seconds=0)
        self.until(lambda: not set(names) & set(self.pods()), f"{names} are deleted")

    def pods(self, job: str = "") -> dict[str, Manifest]:
        """Return the pods of a Job, or all pods, by name."""
        selector = {"labelSelector": f"job={job}"} if job else {}
        found = self.api.items(f"/api/v1/namespaces/{self.namespace}/pods", **selector)
        return {each["metadata"]["name"]: each for each in found}

    def bound(self, job: str = "") -> dict[str, str]:
        """Return the nodes of the bound pods that are not terminal, by name."""
        active = {
            name: pod for name, pod in self.pods(job).items() if status_of(pod).get("phase") not in _TERMINAL_PHASES
        }
        return {name: str(pod["spec"]["nodeName"]) for name, pod in active.items() if pod["spec"].get("nodeName")}

    def stored_group(self, name: str, version: str = VERSION) -> Manifest:
        """Return a PodGroup."""
        return self.api.get(address(self._group(name, version)))

    def status(self, name: str, version: str = VERSION) -> Manifest:
        """Return the status of a PodGroup; empty if it has none."""
        return status_of(self.stored_group(name, version))

    def reason(self, name: str) -> str:
        """Return the reason of the condition ``Scheduled``; "" if it does not exist."""
        return str(condition_of(self.stored_group(name), "Scheduled").get("reason", ""))

    def message(self, name: str) -> str:
        """Return the message of the condition ``Scheduled``."""
        return str(condition_of(self.stored_group(name), "Scheduled").get("message", ""))

    def counts(self, name: str) -> tuple[int, int, int]:
        """Return the numbers of members, of bound and of running members in the status."""
        status = self.status(name)
        return status.get("members", 0), status.get("scheduled", 0), status.get("running", 0)

    def until_bound(self, job: str, count: int) -> dict[str, str]:
        """Wait until *count* pods of a Job are bound; return their nodes."""
        self.until(lambda: len(self.bound(job)) == count, f"{count} pods of {job} are bound")
        return self.bound(job)

    def until_reason(self, name: str, reason: str) -> str:
        """Wait until the condition ``Scheduled`` of a group has a reason; return its message."""
        self.until(lambda: self.reason(name) == reason, f"the group {name} has reason {reason}")
        return self.message(name)

    def _group(self, name: str, version: str) -> Manifest:
        metadata = {"name": name, "namespace": self.namespace}
        return {"apiVersion": version, "kind": "PodGroup", "metadata": metadata}


class GangHistory(PodHistory):
    """Record of the Jobs with active bound pods, over time.

    Attributes:
        moments: Number of active bound pods by Job, after each write of a pod; Jobs without such pods are left out.
    """

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        super().__init__(plane, namespace, {})
        self.moments: list[dict[str, int]] = []
        self._job_of: dict[str, str] = {}

    def together(self, *jobs: str) -> list[dict[str, int]]:
        """Return the moments at which several of these Jobs had active bound pods."""
        return [moment for moment in self.moments if sum(job in moment for job in jobs) > 1]

    def order(self) -> list[str]:
        """Return the Jobs in the order of their first bound pods."""
        return list(dict.fromkeys(job for moment in self.moments for job in moment))

    def _record(self, kind: str, pod: Manifest) -> None:
        metadata, status = pod["metadata"], status_of(pod)
        is_active = pod["spec"].get("nodeName") and kind != "DELETED" and status.get("phase") not in _TERMINAL_PHASES
        if is_active:
            self._job_of[metadata["uid"]] = metadata.get("labels", {}).get("job", "")
        else:
            self._job_of.pop(metadata["uid"], None)
        self.moments.append(dict(Counter(self._job_of.values())))


live_gangs = LiveGangs.opened
