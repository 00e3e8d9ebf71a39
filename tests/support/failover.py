"""Two operator processes on one control plane, whose audit log attributes each write to one of them.

Binding is slow enough for a test to disrupt the leader before all pods are bound.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import yaml

from hack.controlplane import accounts
from hack.controlplane.api_client import ApiClient, Manifest
from hack.controlplane.credentials import User
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import install_crds
from hack.controlplane.servers import Options
from tests.support.operator_process import OperatorProcess

ONE, TWO = "one", "two"
LEASE_SECONDS = 8.0
RENEW_SECONDS = 6.0
PODS = 400
_ELECTION = {"leaderElect": True, "leaseDuration": LEASE_SECONDS, "renewDeadline": RENEW_SECONDS, "retryPeriod": 0.5}
_QPS = 75
_NODES = 10
_WAIT_SECONDS = 90.0
_POLL_SECONDS = 0.05
_WRITE_VERBS = frozenset({"create", "update", "patch", "delete"})
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata", "verbs": sorted(_WRITE_VERBS), "users": [ONE, TWO]}, {"level": "None"}],
}


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """Write request of one of the processes, successful or not.

    Attributes:
        user: User name of the process.
        at: Time at which the API server received the request, in seconds since the epoch.
        operation: Resource, subresource and verb, such as ``pods/binding create``.
        name: ``namespace/name`` of the object.
        code: HTTP status of the response.
    """

    user: str
    at: float
    operation: str
    name: str
    code: int

    @property
    def is_bind(self) -> bool:
        """Whether the request bound a pod."""
        return self.operation == "pods/binding create" and self.code == 201


@contextmanager
def failover_plane(directory: Path) -> Iterator[ControlPlane]:
    """Run a control plane with a user for each process and an audit log of their write requests.

    Args:
        directory: Directory for the audit policy.
    """
    policy = directory / "audit-policy.yaml"
    policy.write_text(yaml.safe_dump(_POLICY))
    users = tuple(User(name, ("system:masters",)) for name in (ONE, TWO))
    with ControlPlane(Options(audit=True, users=users, apiserver_args=[f"--audit-policy-file={policy}"])) as plane:
        install_crds(plane)
        yield plane


def logged_changes(plane: ControlPlane) -> list[LoggedChange]:
    """Return the write requests of both processes, except those for Leases, in the order of arrival."""
    found = []
    for event in plane.audit_events():
        reference = event["objectRef"]
        if reference["resource"] == "leases":
            continue
        at = datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp()
        parts = (reference["resource"], reference.get("subresource"))
        operation = f"{'/'.join(part for part in parts if part)} {event['verb']}"
        name = f"{reference.get('namespace', '')}/{reference.get('name', '')}"
        code = event.get("responseStatus", {}).get("code", 0)
        found.append(LoggedChange(event["user"]["username"], at, operation, name, code))
    return sorted(found, key=lambda one: one.at)


class Failover:
    """Nodes, pods and a profile of one test, and the processes that schedule them; a context manager.

    Args:
        plane: Control plane of :func:`failover_plane`.
        name: Name of the namespace, the profile and the Lease.
        directory: Directory for settings and logs.

    Attributes:
        api: Client with the administrator's rights.
        name: Name of the namespace, the profile and the Lease.
        one: First process, which leads first.
        two: Second process.
    """

    def __init__(self, plane: ControlPlane, name: str, directory: Path) -> None:
        self.api = ApiClient(plane)
        self.name = name
        self._plane = plane
        settings = directory / "settings.yaml"
        settings.write_text(yaml.safe_dump({"leaderElection": {**_ELECTION, "resourceName": name}}))
        flags = [f"--settings={settings}", f"--client-qps={_QPS}", "--client-burst=10"]
        self.one, self.two = (
            OperatorProcess(plane.kubeconfig_for(user), directory / f"{name}-{user}.log", flags) for user in (ONE, TWO)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with closing(self.api), self.one, self.two:
            self._plane.kubectl("delete", "schedulerprofile", self.name, "--ignore-not-found")

    def begin(self) -> None:
        """Start both processes, ``one`` as the leader, and wait until it has bound a quarter of the pods."""
        self.one.start()
        self.one.until(lambda: "Leading: Lease" in self.one.log, "the first process leads")
        self.two.start()
        self.api.create({"kind": "Namespace", "metadata": {"name": self.name}})
        amounts = {"cpu": "8", "memory": "64Gi", "pods": "110"}
        for index in range(_NODES):
            metadata = {"name": f"{self.name}-n{index}", "labels": {"for": self.name}}
            status = {"allocatable": amounts, "capacity": amounts}
            self.api.create({"kind": "Node", "metadata": metadata, "status": status})
        self.api.create_all([self._pod(f"p{index}") for index in range(PODS)])
        profile = {"kind": "SchedulerProfile", "metadata": {"name": self.name}, "spec": {}}
        self.api.create({"apiVersion": "bayplan.dev/v1alpha1", **profile})
        self.until(lambda: len(self.binds(ONE)) >= PODS // 4, "a quarter is bound")
        assert len(self.binds(ONE)) < PODS

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                logs = "\n".join(process.log[-2000:] for process in (self.one, self.two))
                raise AssertionError(f"not within {_WAIT_SECONDS:.0f} s: {what}\n{logs}")
            time.sleep(_POLL_SECONDS)

    def finish(self) -> None:
        """Wait until every pod is bound and the audit log has every bind."""
        path = f"/api/v1/namespaces/{self.name}/pods"
        self.until(lambda: not self.api.items(path, fieldSelector="spec.nodeName="), "every pod is bound")
        # Any status code counts: an API server that was frozen binds the pod, but cannot reply to a closed connection.
        bind = "pods/binding create"
        self.until(
            lambda: len({one.name for one in self.changes() if one.operation == bind}) == PODS, "all binds are logged"
        )

    def binds(self, user: str) -> list[LoggedChange]:
        """Return the successful binds of a process in the order of arrival."""
        return [one for one in self.changes() if one.user == user and one.is_bind]

    def changes(self) -> list[LoggedChange]:
        """Return the write requests of both processes for this test's objects."""
        return [one for one in logged_changes(self._plane) if self.name in one.name.split("/")]

    def changes_after_takeover(self) -> list[LoggedChange]:
        """Return the write requests of the old leader after the first one of the new leader."""
        changes = self.changes()
        first = next(one.at for one in changes if one.user == TWO)
        return [one for one in changes if one.user == ONE and one.at > first]

    def takeover_seconds(self, since: float) -> float:
        """Return the seconds from a time (since the epoch) until the new leader's first bind."""
        return self.binds(TWO)[0].at - since

    def violations(self) -> list[str]:
        """Return every violation: pods lost, bound twice or reported twice, nodes overcommitted."""
        pods = self.api.items(f"/api/v1/namespaces/{self.name}/pods")
        nodes = self.api.items("/api/v1/nodes", labelSelector=f"for={self.name}")
        bound = Counter(one.name for one in self.changes() if one.is_bind)
        events = self.api.items(f"/apis/events.k8s.io/v1/namespaces/{self.name}/events")
        reported = Counter(event["regarding"]["name"] for event in events if event["reason"] == "Scheduled")
        return [
            *(f"lost: {pod['metadata']['name']}" for pod in pods if not pod["spec"].get("nodeName")),
            *(f"bound twice: {name}" for name, times in bound.items() if times > 1),
            *(f"reported twice: {name}" for name, times in reported.items() if times > 1),
            *(f"overcommitted: {sentence}" for sentence in accounts.overcommitted(nodes, pods)),
        ]

    def _pod(self, name: str) -> Manifest:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
        spec = {"schedulerName": self.name, "nodeSelector": {"for": self.name}, "containers": [container]}
        return {"kind": "Pod", "metadata": {"name": name, "namespace": self.name}, "spec": spec}
