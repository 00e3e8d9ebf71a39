"""A control plane with one scheduler on which scenarios are played, one after the other.

Owns the playing, the waiting and the clearing away, and what is read off the cluster. It must not judge: another
reading is compared with it. Why both schedulers do not share a control plane: the count of nodes is in their messages.

    empty --play: step, wait, quiet; step, wait, quiet ...--> read --cleared--> empty
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from hack.controlplane.api_client import ApiClient, ApiRefusalError, Manifest
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER, start_scheduler
from hack.controlplane.volume_controller import VolumeController
from hack.scenarios.scenario import SCHEDULER_NAME, Scenario, Step

SCHEDULERS = (KUBE_SCHEDULER, BAYPLAN)
"""Who is compared."""

_WAIT_SECONDS = 30.0
_QUIET_SECONDS = 0.4
_POLL_SECONDS = 0.1
_WIDE = ("/api/v1/nodes", "/apis/storage.k8s.io/v1/storageclasses", "/apis/scheduling.k8s.io/v1/priorityclasses")


@dataclass(frozen=True, slots=True)
class PodReading:
    """What became of a pod that still exists.

    Attributes:
        node: Where it is bound; "" where it is not.
        nominated: Its nominatedNodeName.
        scheduled: Status, reason and message of its condition PodScheduled.
        disrupted: Reason and message of its condition DisruptionTarget.
    """

    node: str
    nominated: str
    scheduled: tuple[str, str, str]
    disrupted: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Reading:
    """What one scheduler did in one scenario.

    Attributes:
        pods: Every pod that still exists.
        gone: Pods that do not.
        events: Pod, type, reason, action, controller and note of every event; UIDs are replaced by names.
        late: What was waited for in vain.
    """

    pods: dict[str, PodReading]
    gone: tuple[str, ...]
    events: tuple[tuple[str, ...], ...]
    late: tuple[str, ...]

    def differences(self, other: Reading) -> list[str]:
        """Say in what another reading differs."""
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
        """Say in few words what became of the pods."""
        parts = [
            f"{name} on {pod.node}"
            if pod.node
            else f"{name} waits for {pod.nominated}"
            if pod.nominated
            else f"{name} {pod.scheduled[1] or 'pending'}"
            for name, pod in sorted(self.pods.items())
        ]
        return ", ".join([*parts, *(f"{name} gone" for name in self.gone)])


class Stage:
    """A control plane with a scheduler; a context manager.

    Args:
        scheduler: Which one, of :data:`SCHEDULERS`.
    """

    def __init__(self, scheduler: str) -> None:
        self.scheduler = scheduler
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

    def play(self, scenario: Scenario) -> Reading:
        """Play a scenario on the empty cluster, and clear it away.

        Args:
            scenario: What is played.
        """
        names: dict[str, str] = {}
        late: list[str] = []
        self.api.create({"kind": "Namespace", "metadata": {"name": scenario.name}})
        self._quiet(scenario.name)
        try:
            for step in scenario.steps:
                self._do(step, names)
                late += self._wait(step, scenario.name)
                self._quiet(scenario.name)
            return self._read(scenario.name, names, late)
        finally:
            self._clear(scenario.name)

    def _do(self, step: Step, names: dict[str, str]) -> None:
        for manifest in step.creates:
            made = self.api.create(manifest)
            if manifest["kind"] == "Pod":
                names[made["metadata"]["uid"]] = made["metadata"]["name"]
        for manifest, change in step.changes:
            self.api.patch(manifest, change)
        for manifest in step.deletes:
            self.api.delete(manifest)

    def _wait(self, step: Step, namespace: str) -> list[str]:
        """Wait until pods are where the step says; those that never are."""
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
        for name in step.waits.get("refused", ()):
            if name not in pods or not _condition(pods[name], "PodScheduled").get("message"):
                yield f"{name} is not refused"
        for name in step.waits.get("nominated", ()):
            if name not in pods or not pods[name]["status"].get("nominatedNodeName"):
                yield f"{name} is not nominated"
        yield from (f"{name} is not gone" for name in step.waits.get("gone", ()) if name in pods)

    def _quiet(self, namespace: str) -> None:
        """Wait until nothing has changed for a while."""
        seen: Any = None
        since = time.monotonic()
        deadline = since + _WAIT_SECONDS
        while (now := time.monotonic()) - since < _QUIET_SECONDS and now < deadline:
            versions = [pod["metadata"]["resourceVersion"] for pod in self._pods(namespace)]
            looks = (versions, len(self._events(namespace)))
            if looks != seen:
                seen, since = looks, now
            time.sleep(_POLL_SECONDS)

    def _read(self, namespace: str, names: dict[str, str], late: list[str]) -> Reading:
        pods = {}
        for pod in self._pods(namespace):
            scheduled, disrupted = _condition(pod, "PodScheduled"), _condition(pod, "DisruptionTarget")
            pods[pod["metadata"]["name"]] = PodReading(
                pod["spec"].get("nodeName", ""),
                pod["status"].get("nominatedNodeName", ""),
                (scheduled.get("status", ""), scheduled.get("reason", ""), _named(scheduled, names)),
                (disrupted.get("reason", ""), _named(disrupted, names)),
            )
        events = {
            (
                event["regarding"]["name"],
                event["type"],
                event["reason"],
                event.get("action", ""),
                event.get("reportingController", ""),
                _named({"message": event.get("note", "")}, names),
            )
            for event in self._events(namespace)
        }
        gone = tuple(sorted(set(names.values()) - set(pods)))
        return Reading(pods, gone, tuple(sorted(events)), tuple(late))

    def _pods(self, namespace: str) -> list[Manifest]:
        return self.api.items(f"/api/v1/namespaces/{namespace}/pods")

    def _events(self, namespace: str) -> list[Manifest]:
        return self.api.items(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")

    def _clear(self, namespace: str) -> None:
        root = f"/api/v1/namespaces/{namespace}"
        for collection in (f"{root}/pods", f"{root}/persistentvolumeclaims", "/api/v1/persistentvolumes"):
            self.api.request("DELETE", collection, {"gracePeriodSeconds": 0})
            for held in self.api.items(collection):
                path = f"{collection}/{held['metadata']['name']}"
                self._ignoring_absence("PATCH", path, {"metadata": {"finalizers": None}})
        budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
        self.api.request("DELETE", budgets)
        for collection in _WIDE:
            for one in self.api.items(collection):
                name = one["metadata"]["name"]
                if not name.startswith("system-"):
                    self._ignoring_absence("DELETE", f"{collection}/{name}")

    def _ignoring_absence(self, method: str, path: str, body: Any = None) -> None:
        try:
            self.api.request(method, path, body, "application/merge-patch+json")
        except ApiRefusalError as error:
            if error.status != 404:
                raise


def _condition(pod: Manifest, kind: str) -> Manifest:
    conditions: list[Manifest] = pod["status"].get("conditions", [])
    return next((one for one in conditions if one["type"] == kind), {})


def _named(condition: Manifest, names: dict[str, str]) -> str:
    message: str = condition.get("message", "")
    for uid, name in names.items():
        message = message.replace(uid, f"<uid of {name}>")
    return message
