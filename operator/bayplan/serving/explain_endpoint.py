"""``GET /debug/explain``: explains from the running scheduler why a pod or a gang is or is not scheduled.

``?namespace=NS&pod=NAME`` explains a pod, ``?namespace=NS&podgroup=NAME`` a gang; ``&api=`` may name the API of the
PodGroup. The handler runs in the scheduler's event loop and so between two cycles; a dry run is reverted before the
response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
from aiohttp import web

from bayplan.explanation.gang_model import GangExplanation
from bayplan.explanation.pod_model import Explanation
from bayplan.kube.readiness import Readiness
from bayplan.serving.endpoint_paths import EXPLAIN_PATH
from bayplan.serving.same_host_access import for_this_host, refusal
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.model.pod_group import POD_GROUP_SOURCES, GroupSource

_SOURCES = {source.value: source for source in POD_GROUP_SOURCES}

Explainer = Callable[[str, str], Explanation | None]
"""Explains the pod with a namespace and name; None if it does not exist."""


GangExplainer = Callable[[str, str, GroupSource | None], GangExplanation | None]
"""Explains the gang with a namespace and name, and an API unless that is None; None if it does not exist."""


def _no_gangs(namespace: str, name: str, source: GroupSource | None) -> GangExplanation | None:
    del namespace, name, source
    return None


class ExplainEndpoint:
    """Endpoint that explains pods and gangs.

    Args:
        readiness: Readiness of the process; before that an explanation would be based on an incomplete cluster.
        is_suspended: Whether a cycle is suspended, which a dry run would disturb.
    """

    def __init__(
        self,
        explain: Explainer,
        readiness: Readiness,
        is_suspended: Callable[[], bool] = lambda: False,
        explain_gang: GangExplainer = _no_gangs,
    ) -> None:
        self._explain = explain
        self._explain_gang = explain_gang
        self._readiness = readiness
        self._is_suspended = is_suspended

    @property
    def routes(self) -> list[web.RouteDef]:
        """Routes to add to a server."""
        return [web.get(EXPLAIN_PATH, for_this_host(self._respond))]

    async def _respond(self, request: web.Request) -> web.Response:
        missing = self._readiness.missing
        if missing:
            return refusal(503, f"not ready: {'; '.join(missing)}; retry")
        if self._readiness.role:
            return refusal(503, f"{self._readiness.role}; send the request to the leader, or use --offline")
        if self._is_suspended():
            # Shadow profiles decide within this turn of the loop; an extender, or a long search, takes longer.
            await asyncio.sleep(0)
        if self._is_suspended():
            return refusal(
                503, "a scheduling cycle is suspended, because it waits for an extender or takes long; retry"
            )
        namespace, name = request.query.get("namespace", ""), request.query.get("pod", "")
        group, api = request.query.get("podgroup", ""), request.query.get("api", "")
        if not namespace or bool(name) == bool(group):
            usage = "?namespace=NAMESPACE&pod=NAME, or &podgroup=NAME instead of the pod"
            return refusal(400, f"specify a pod or a PodGroup: {usage}")
        if api and api not in _SOURCES:
            return refusal(400, f'api: unsupported value "{api}": supported values: {", ".join(_SOURCES)}')
        what = f"PodGroup {namespace}/{group}" if group else f"pod {namespace}/{name}"
        explanation: Explanation | GangExplanation | None
        try:
            if group:
                explanation = self._explain_gang(namespace, group, _SOURCES.get(api))
            else:
                explanation = self._explain(namespace, name)
        except SchedulerCoreError as error:
            return refusal(422, f"{what} cannot be explained: {error}")
        if explanation is None:
            return refusal(404, f"{what} not found; check the namespace and the name")
        return web.Response(body=msgspec.json.encode(explanation), content_type="application/json")
