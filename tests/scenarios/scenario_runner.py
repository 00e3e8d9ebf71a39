"""Runs scenarios, one after the other, on a control plane with one scheduler.

Each scheduler has its own control plane, because messages contain the number of nodes of the cluster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from hack.controlplane.api_client import ApiClient, ApiRefusalError, Manifest, address, condition_of, status_of
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER, start_scheduler
from hack.controlplane.volume_controller import VolumeController
from tests.scenarios.scenario import SCHEDULER_NAME, Scenario, Step

SCHEDULERS = (KUBE_SCHEDULER, BAYPLAN)
"""The compared schedulers."""

_WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.1
_CLUSTER_SCOPED = (
    "/api/v1/nodes",
    "/apis/storage.k8s.io/v1/csinodes",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
)
_SETTLE_SECONDS = 0.3
_DECISION_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Pace:
    """Timing of a scenario.

    Attributes:
        quiet_seconds: A step ends when no object has changed for this time.
        final_quiet_seconds: The same for the last step, whose state is compared. Schedulers look once a second for pods
            whose backoff has ended, so that pods rejected together may be tried a second apart.
        careful: Whether to create a pod only after the previous pod was bound or rejected and after the scheduler has
            received the objects that the pod needs, and to record requests that the API server rejects. Used for
            random scenarios.
    """

    quiet_seconds: float = 0.4
    final_quiet_seconds: float = 1.3
    careful: bool = False


CAREFUL = Pace(quiet_seconds=1.3, careful=True)
"""The quiet time is longer than the interval of one second at which volumes are polled."""


@dataclass(frozen=True, slots=True)
class PodOutcome:
    """State of a pod.

    Attributes:
        node: Name of its node; "" if it is not bound.
        nominated: Its nominatedNodeName.
        scheduled: Status, reason and message of its condition PodScheduled.
        disrupted: Reason and message of its condition DisruptionTarget.
    """

    node: str
    nominated: str
    scheduled: tuple[str, str, str]
    disrupted: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """State of the cluster after a step of a scenario.

    Attributes:
        pods: Existing pods by name.
        gone: Names of deleted pods.
        events: Pod, type, reason, action, controller and note of every event; UIDs are replaced by names.
        missed_waits: States that pods did not reach in time.
        repeated: Pod and reason of events that were merged into a series, which keeps only the first note.
    """

    pods: dict[str, PodOutcome]
    gone: tuple[str, ...]
    events: tuple[tuple[str, ...], ...]
    missed_waits: tuple[str, ...]
    repeated: frozenset[tuple[str, str]] = frozenset()
    rejected_requests: tuple[str, ...] = ()

    def differences(self, other: Outcome) -> list[str]:
        """Return the differences from another outcome."""
        found = []
        for name in sorted({*self.pods, *other.pods}):
            mine, its = self.pods.get(name), other.pods.get(name)
            if mine != its:
                found.append(f"pod {name}:\n    {mine}\n    {its}")
        mine_only, its_only = set(self.events) - set(other.events), set(other.events) - set(self.events)
        found += [f"event only in the first: {event}" for event in sorted(mine_only)]
        found += [f"event only in the second: {event}" for event in sorted(its_only)]
        if self.gone != other.gone:
            found.append(f"gone: {self.gone} and {other.gone}")
        return found

    def summary(self) -> str:
        """Return a short summary of the pods' states."""
        parts = [
            f"{name} on {pod.node}"
            if pod.node
            else f"{name} waits for {pod.nominated}"
            if pod.nominated
            else f"{name} {pod.scheduled[1] or 'pending'}"
            for name, pod in sorted(self.pods.items())
        ]
        return ", ".join([*parts, *(f"{name} gone" for name in self.gone)])


class ScenarioRunner:
    """Control plane with a scheduler; a context manager.

    Args:
        scheduler: One of :data:`SCHEDULERS`.
        pace: Timing of the scenarios.
    """

    def __init__(self, scheduler: str, pace: Pace | None = None) -> None:
        self.scheduler = scheduler
        self._pace = pace or Pace()
        self._rejected_requests: list[str] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            plane = stack.enter_context(ControlPlane())
            plane.start_kwok()
            self.volumes = stack.enter_context(VolumeController(plane))
            self.api = stack.enter_context(ApiClient(plane))
            start_scheduler(plane, self.scheduler, SCHEDULER_NAME)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, value, traceback)

    def run(self, scenario: Scenario) -> Outcome:
        """Run a scenario on the empty cluster, delete its objects, and return the state after the last step."""
        return self.run_by_steps(scenario)[-1]

    def run_by_steps(self, scenario: Scenario) -> list[Outcome]:
        """Run a scenario on the empty cluster, delete its objects, and return the state after each step."""
        names: dict[str, str] = {}
        late: list[str] = []
        readings = []
        self._rejected_requests = []
        self.api.create({"kind": "Namespace", "metadata": {"name": scenario.name}})
        self._quiet(scenario.name, self._pace.quiet_seconds)
        try:
            for step in scenario.steps:
                self._do(step, scenario.name, names)
                late += self._wait(step, scenario.name)
                is_last = step is scenario.steps[-1]
                self._quiet(scenario.name, self._pace.final_quiet_seconds if is_last else self._pace.quiet_seconds)
                readings.append(self._read(scenario.name, names, late))
            return readings
        finally:
            self._clear(scenario.name)

    def _do(self, step: Step, namespace: str, names: dict[str, str]) -> None:
        previous_kind = "Pod"
        for manifest in step.creates:
            kind = manifest["kind"]
            if self._pace.careful and kind == "Pod" and previous_kind != "Pod":
                time.sleep(_SETTLE_SECONDS)
            previous_kind = kind
            made = self._attempt(f"create {kind}/{manifest['metadata']['name']}", self.api.create, manifest)
            if kind == "Pod" and made is not None:
                names[made["metadata"]["uid"]] = made["metadata"]["name"]
                self._await_decision(manifest)
        for change in step.changes:
            what = f"change {change.reference['kind']}/{change.reference['metadata']['name']}"
            self._attempt(what, self.api.patch, change.reference, change.patch, change.subresource)
        for manifest in step.deletes:
            self._attempt(f"delete {manifest['metadata']['name']}", self.api.delete, manifest)
        for name, node in step.binds.items():
            target = {"kind": "Node", "name": node}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
            self._attempt(f"bind {name}", self.api.request, "POST", path, body)

    def _attempt(self, what: str, request: Callable[..., Manifest | None], *arguments: Any) -> Manifest | None:
        try:
            return request(*arguments)
        except ApiRefusalError as error:
            if not self._pace.careful:
                raise
            self._rejected_requests.append(f"{what}: {error.status}")
            return None

    def _await_decision(self, manifest: Manifest) -> None:
        """Wait until the scheduler binds or rejects a pod, but not for long, if it is the pod's scheduler."""
        if not self._pace.careful or manifest["spec"].get("schedulerName") != SCHEDULER_NAME:
            return
        deadline = time.monotonic() + _DECISION_SECONDS
        while time.monotonic() < deadline:
            pod = self.api.get(address(manifest))
            if pod["spec"].get("nodeName") or condition_of(pod, "PodScheduled"):
                break
            time.sleep(_POLL_SECONDS / 2)
        # A rejection may start a preemption.
        time.sleep(_SETTLE_SECONDS / 2)

    def _wait(self, step: Step, namespace: str) -> list[str]:
        """Wait until pods reach the states of the step; return the states that are not reached in time."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while missing := list(self._missing(step, namespace)):
            if time.monotonic() > deadline:
                return missing
            time.sleep(_POLL_SECONDS)
        return []

    def _missing(self, step: Step, namespace: str) -> Iterator[str]:
        if not step.waits:
            return
        pods = {pod["metadata"]["name"]: pod for pod in self._pods(namespace)}
        for name in step.waits.get("bound", ()):
            if name not in pods or not pods[name]["spec"].get("nodeName"):
                yield f"{name} is not bound"
        for name in step.waits.get("unschedulable", ()):
            if name not in pods or not condition_of(pods[name], "PodScheduled").get("message"):
                yield f"{name} is not reported as unschedulable"
        for name in step.waits.get("nominated", ()):
            if name not in pods or not status_of(pods[name]).get("nominatedNodeName"):
                yield f"{name} is not nominated"
        yield from (f"{name} is not gone" for name in step.waits.get("gone", ()) if name in pods)

    def _quiet(self, namespace: str, seconds: float) -> None:
        """Wait until no pod, event or volume has changed for a time."""
        seen: Any = None
        since = time.monotonic()
        deadline = since + _WAIT_SECONDS
        while (now := time.monotonic()) - since < seconds and now < deadline:
            objects = [*self._pods(namespace), *self.api.items("/api/v1/persistentvolumes")]
            state = ([one["metadata"]["resourceVersion"] for one in objects], len(self._events(namespace)))
            if state != seen:
                seen, since = state, now
            time.sleep(_POLL_SECONDS)

    def _read(self, namespace: str, names: dict[str, str], late: list[str]) -> Outcome:
        pods = {}
        for pod in self._pods(namespace):
            scheduled, disrupted = condition_of(pod, "PodScheduled"), condition_of(pod, "DisruptionTarget")
            pods[pod["metadata"]["name"]] = PodOutcome(
                pod["spec"].get("nodeName", ""),
                status_of(pod).get("nominatedNodeName", ""),
                (scheduled.get("status", ""), scheduled.get("reason", ""), _named(scheduled, names)),
                (disrupted.get("reason", ""), _named(disrupted, names)),
            )
        written = self._events(namespace)
        events = {
            (
                event["regarding"]["name"],
                event["type"],
                event["reason"],
                event.get("action", ""),
                event.get("reportingController", ""),
                _named({"message": event.get("note", "")}, names),
            )
            for event in written
        }
        repeated = frozenset((one["regarding"]["name"], one["reason"]) for one in written if one.get("series"))
        gone = tuple(sorted(set(names.values()) - set(pods)))
        return Outcome(pods, gone, tuple(sorted(events)), tuple(late), repeated, tuple(self._rejected_requests))

    def _pods(self, namespace: str) -> list[Manifest]:
        return self.api.items(f"/api/v1/namespaces/{namespace}/pods")

    def _events(self, namespace: str) -> list[Manifest]:
        return self.api.items(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")

    def _clear(self, namespace: str) -> None:
        root = f"/api/v1/namespaces/{namespace}"
        for collection in (f"{root}/pods", f"{root}/persistentvolumeclaims", "/api/v1/persistentvolumes"):
            self.api.request("DELETE", collection, {"gracePeriodSeconds": 0})
            for item in self.api.items(collection):
                path = f"{collection}/{item['metadata']['name']}"
                self._request_if_exists("PATCH", path, {"metadata": {"finalizers": None}})
        budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
        self.api.request("DELETE", budgets)
        for collection in _CLUSTER_SCOPED:
            for one in self.api.items(collection):
                name = one["metadata"]["name"]
                if not name.startswith("system-"):
                    self._request_if_exists("DELETE", f"{collection}/{name}")

    def _request_if_exists(self, method: str, path: str, body: Any = None) -> None:
        try:
            self.api.request(method, path, body, "application/merge-patch+json")
        except ApiRefusalError as error:
            if error.status != 404:
                raise


def _named(condition: Manifest, names: dict[str, str]) -> str:
    message: str = condition.get("message", "")
    for uid, name in names.items():
        message = message.replace(uid, f"<uid of {name}>")
    return message
