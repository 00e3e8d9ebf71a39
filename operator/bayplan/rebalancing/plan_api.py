"""Watches RebalancePlans, evicts pods and writes statuses."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import msgspec

from bayplan.kube.custom_resources import ObjectPath, replace_status
from bayplan.kube.http.api_request import ApiRequest, path_part
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.watches.cluster_informers import ClusterInformers, FeedSink
from bayplan.process.copies import BackgroundDocuments
from bayplan.rebalancing.plan_controller import RebalancePlans, StoredPlan
from bayplan.rebalancing.pod_moves import EvictionRefusedError
from bayplan.resources.rebalance_plan import RebalancePlan
from bayplan.resources.resource_model import GROUP, VERSION
from scheduler_core.errors import ServerUnavailableError
from scheduler_core.ports import Clock
from scheduler_core.scheduler import Scheduler

log = logging.getLogger(__name__)

_SECONDS = 10.0
_SETTLE_SECONDS = 5.0
"""Maximum time that the first scheduling cycle waits for this room."""
_PLURAL = RebalancePlan.definition.plural


class ApiPlanRequests:
    """Requests through the connection of the operator."""

    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        """Evict a pod; raises what :meth:`PlanRequests.evict` raises."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        path = f"/api/v1/namespaces/{path_part(namespace)}/pods/{path_part(name)}/eviction"
        try:
            await self._connection.request(ApiRequest("POST", path, msgspec.json.encode(body), timeout=_SECONDS))
        except ServerUnavailableError as error:
            # 429 for a budget without allowed disruptions, and 500 if several budgets select the pod.
            raise EvictionRefusedError(str(error)) from error

    async def write_status(self, name: str, uid: str, status: dict[str, Any]) -> None:
        await replace_status(self._connection, ObjectPath(GROUP, VERSION, _PLURAL, name), uid, status)


class RebalancePlanSource:
    """The controller with its watch."""

    def __init__(
        self,
        scheduler: Scheduler,
        connection: ApiConnection,
        informers: ClusterInformers,
        clock: Clock,
        documents: BackgroundDocuments,
    ) -> None:
        self._informers = informers
        self.plans = RebalancePlans(scheduler, documents, ApiPlanRequests(connection), clock)

    async def settle(self) -> None:
        """Wait until the room of a move that an earlier process began is held again, at most some seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_SECONDS):
                await self.plans.restored.wait()

    async def run(self) -> None:
        """Watch the plans and make them, until cancelled."""
        plans, listed = self.plans, asyncio.Event()
        sink = FeedSink(plans.plan_changed, lambda _, new: plans.plan_changed(new), plans.plan_deleted, listed.set)
        path = f"/apis/{GROUP}/{VERSION}/{_PLURAL}"
        informer = self._informers.begin(f"{_PLURAL}.{GROUP}", path, StoredPlan, sink)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(informer.run())
            await plans.run(listed)
