"""Kueue's API for the admission check: it is looked up until it is served, then watched.

The state of the check is written by server-side apply, which leaves the states of other checks alone, and only if the
Workload has not changed since: a Workload that has lost its quota must not become Ready.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from bayplan.fit.claim_templates import claim_template_manifests
from bayplan.fit.room_search import FitDryRun
from bayplan.gangs.group_sources import priority_class_manifests
from bayplan.kube.http.api_request import APPLY_PATCH, METADATA_ONLY, ApiRequest, path_part
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.served_apis import served_resources
from bayplan.kube.watches.cluster_informers import ClusterInformers, FeedSink
from bayplan.kube.watches.informer import Informer
from bayplan.kube.watches.watch_stream import KubeObject
from bayplan.kueue.fit_checks import ACTIVE, FitChecks, StateWrite
from bayplan.kueue.workloads import EVICTED, EVICTED_BY_CHECK, GROUP, AdmissionCheck, ResourceFlavor, Workload
from bayplan.process.copies import BackgroundDocuments
from bayplan.resources.resource_model import format_time
from scheduler_core.errors import ClusterWriteError
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.ports import Clock
from scheduler_core.scheduler import Scheduler

log = logging.getLogger(__name__)

VERSIONS = ("v1beta2", "v1beta1")
"""Versions of Kueue's API that are read; the first one that is served is used."""
LOOKUP_SECONDS = 30.0
"""Interval between lookups of the API while it is not served."""
FIELD_MANAGER = "bayplan-fit"

T = TypeVar("T", bound=KubeObject)


def _condition(meta: ObjectMeta, kind: str, reason: str, message: str, since: datetime) -> dict[str, Any]:
    """Return a condition that is True."""
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": format_time(since),
        "observedGeneration": meta.generation,
    }


class KueueRequests:
    """Implementation of :class:`bayplan.kueue.fit_checks.CheckRequests`."""

    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection
        self.version = VERSIONS[0]

    async def write_state(self, write: StateWrite) -> None:
        meta = write.workload.metadata
        state: dict[str, Any] = {
            "state": write.state,
            "lastTransitionTime": format_time(write.since),
            "message": write.message,
        }
        if write.requeue_after_seconds is not None:
            state["requeueAfterSeconds"] = write.requeue_after_seconds
        if write.retry_count is not None:
            state["retryCount"] = write.retry_count
        # All of them, because an apply removes the fields that this manager has set in the states that it leaves out.
        states = [{"name": check, **state} for check in write.checks]
        if write.pod_set_updates is not None:
            # Once is enough: Kueue merges the updates of all checks.
            states[0]["podSetUpdates"] = write.pod_set_updates
        metadata = {
            "name": meta.name, "namespace": meta.namespace, "uid": meta.uid, "resourceVersion": meta.resource_version,
        }  # fmt: skip
        path = f"namespaces/{path_part(meta.namespace)}/workloads/{path_part(meta.name)}"
        status: dict[str, Any] = {"admissionChecks": states}
        if write.evicted is not None:
            status["conditions"] = [_condition(meta, EVICTED, EVICTED_BY_CHECK, write.evicted, write.since)]
        await self._apply("Workload", path, metadata, status)

    async def write_active(self, check: AdmissionCheck, message: str, since: datetime) -> None:
        meta = check.metadata
        condition = _condition(meta, ACTIVE, ACTIVE, message, since)
        # With the version, because the UID has no effect in an apply to the status of a custom resource.
        metadata = {"name": meta.name, "uid": meta.uid, "resourceVersion": meta.resource_version}
        path = f"admissionchecks/{path_part(meta.name)}"
        await self._apply("AdmissionCheck", path, metadata, {"conditions": [condition]})

    async def _apply(self, kind: str, path: str, metadata: dict[str, Any], status: dict[str, Any]) -> None:
        version = f"{GROUP}/{self.version}"
        body = {"apiVersion": version, "kind": kind, "metadata": metadata, "status": status}
        await self._connection.request(
            ApiRequest(
                "PATCH",
                f"/apis/{version}/{path}/status",
                msgspec.json.encode(body),
                content_type=APPLY_PATCH,
                params=(("fieldManager", FIELD_MANAGER), ("force", "true")),
                accept=METADATA_ONLY,
            )
        )

    async def priority_classes(self) -> list[dict[str, Any]]:
        return await priority_class_manifests(self._connection)

    async def claim_templates(self, namespace: str, names: Collection[str]) -> list[dict[str, Any]]:
        return await claim_template_manifests(self._connection, namespace, names)


class KueueAdmission:
    """The controller with its watches."""

    def __init__(
        self,
        scheduler: Scheduler,
        connection: ApiConnection,
        informers: ClusterInformers,
        clock: Clock,
        documents: BackgroundDocuments,
    ) -> None:
        self._connection = connection
        self._informers = informers
        self._clock = clock
        self._requests = KueueRequests(connection)
        self.checks = FitChecks(scheduler, FitDryRun(scheduler, documents), self._requests, clock)
        self._reason = ""

    async def run(self) -> None:
        """Look up Kueue's API until it is served, then answer Workloads, until cancelled."""
        self._requests.version = version = await self._served()
        log.info("Admission checks of controller bayplan.dev/fit are answered for Workloads of %s/%s", GROUP, version)
        checks, listed = self.checks, [asyncio.Event() for _ in range(3)]
        async with asyncio.TaskGroup() as tasks:
            watches: list[Informer[Any]] = [
                self._watch("workloads", Workload, (checks.workload_changed, checks.workload_deleted), listed[0]),
                self._watch("admissionchecks", AdmissionCheck, (checks.check_changed, checks.check_deleted), listed[1]),
                self._watch(
                    "resourceflavors", ResourceFlavor, (checks.flavor_changed, checks.flavor_deleted), listed[2]
                ),
            ]
            for informer in watches:
                tasks.create_task(informer.run())
            await checks.run(_all(listed))

    def _watch(
        self,
        plural: str,
        kind: type[T],
        handlers: tuple[Callable[[T], None], Callable[[T], None]],
        listed: asyncio.Event,
    ) -> Informer[T]:
        changed, deleted = handlers
        sink = FeedSink(changed, lambda _, new: changed(new), deleted, listed.set)
        path = f"/apis/{GROUP}/{self._requests.version}/{plural}"
        return self._informers.begin(f"{plural}.{GROUP}", path, kind, sink)

    async def _served(self) -> str:
        """Wait until Kueue's API is served, and return its version."""
        while True:
            try:
                for version in VERSIONS:
                    served = await served_resources(self._connection, f"/apis/{GROUP}/{version}")
                    if {"workloads", "admissionchecks", "resourceflavors"} <= served:
                        return version
                reason = f"the API server serves no Workloads of {GROUP}/{' or '.join(VERSIONS)}; install Kueue"
            except ClusterWriteError as error:
                reason = f"cannot determine whether {GROUP} is served: {error}"
            if reason != self._reason:
                log.info("Admission checks of Kueue are not answered: %s", reason)
                self._reason = reason
            self.checks.restored.set()
            await self._clock.sleep(LOOKUP_SECONDS)


async def _all(events: list[asyncio.Event]) -> None:
    for each in events:
        await each.wait()
