"""Replaces bound pods during a run: deletes them with the claims that they name, and creates the next ones."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence

from bayplan.kube.http.connection import MERGE_PATCH, ApiConnection, ApiRequest
from msgspec.structs import replace

from benchmarks.device_hardware import CLAIMS_PATH
from benchmarks.workloads import PODS_PATH, Document, Workload, encoded

_SECONDS = 60.0
_NOW = json.dumps(
    {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "propagationPolicy": "Background"}
).encode()


class PodTurnover:
    """Deletions and creations of one run.

    Args:
        workload: The workload. For churn, half of the bound pods are deleted; with a number of pods in flight, all are
            deleted, and the next one is created for each.

    Attributes:
        keeps_up: Whether each bound pod is replaced at once.
    """

    def __init__(self, workload: Workload, pods: int) -> None:
        self.requests: Counter[str] = Counter()
        self.keeps_up = workload.in_flight > 0
        self._workload = workload
        self._pods = pods
        self._deleted = 0
        self._created = workload.in_flight or pods

    async def replace(self, connection: ApiConnection, bound: Sequence[str]) -> None:
        """Replace pods.

        Args:
            bound: Names of the pods bound so far, in order.
        """
        last = len(bound) if self._workload.in_flight else len(bound) // 2
        numbers = [int(name.rpartition("-")[2]) for name in bound[self._deleted : last]]
        self._deleted += len(numbers)
        await asyncio.gather(*(self._replace(connection, number) for number in numbers))

    async def _replace(self, connection: ApiConnection, number: int) -> None:
        await self._delete(connection, self._workload.pod(number))
        if self._created < self._pods:
            document = self._workload.pod(self._created)
            self._created += 1
            await self._send(connection, "POST pods", ApiRequest("POST", PODS_PATH, encoded(document)))

    async def _delete(self, connection: ApiConnection, pod: Document) -> None:
        """Delete a pod, and then its claims that are not of a template, as the controller of claims would."""
        name = pod["metadata"]["name"]
        await self._send(connection, "DELETE pods", ApiRequest("DELETE", f"{PODS_PATH}/{name}", _NOW))
        for claim in pod["spec"].get("resourceClaims", ()):
            if "resourceClaimName" in claim:
                path = f"{CLAIMS_PATH}/{claim['resourceClaimName']}"
                no_finalizers = encoded({"metadata": {"finalizers": None}})
                await self._send(connection, "DELETE resourceclaims", ApiRequest("DELETE", path))
                patch = ApiRequest("PATCH", path, no_finalizers, content_type=MERGE_PATCH)
                await self._send(connection, "PATCH resourceclaims", patch)

    async def _send(self, connection: ApiConnection, kind: str, request: ApiRequest) -> None:
        self.requests[kind] += 1
        await connection.request(replace(request, timeout=_SECONDS))
