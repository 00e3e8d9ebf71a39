"""``GET /debug/explain?namespace=NS&pod=NAME``: why a pod goes where it goes, from the scheduler that decides.

Owns the parameters, who may ask, and the HTTP answers. It must not know how an explanation comes about: that is handed
in. It runs in the scheduler's loop and so between two cycles; what is tried in thought is undone before it answers.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from aiohttp import web

from bayplan.explanation.model import Explanation
from bayplan.serving.local_callers import for_this_host, refusal
from bayplan.serving.readiness import Readiness
from scheduler_core.errors import SchedulerCoreError

PATH = "/debug/explain"

Explainer = Callable[[str, str], Explanation | None]
"""Explains the pod of a namespace and name; None if there is none."""


class ExplainEndpoint:
    """Answers questions about pods.

    Args:
        explain: Explains a pod.
        readiness: Until the process is ready, an explanation would be of half a cluster.
        is_suspended: Whether a cycle waits for an extender: what is tried in thought would disturb it.
    """

    def __init__(
        self, explain: Explainer, readiness: Readiness, is_suspended: Callable[[], bool] = lambda: False
    ) -> None:
        self._explain = explain
        self._readiness = readiness
        self._is_suspended = is_suspended

    @property
    def routes(self) -> list[web.RouteDef]:
        """What to add to a server."""
        return [web.get(PATH, for_this_host(self._answer))]

    async def _answer(self, request: web.Request) -> web.Response:
        missing = self._readiness.missing
        if missing:
            return refusal(503, f"not ready: {'; '.join(missing)}; ask again")
        if self._readiness.role:
            return refusal(503, f"{self._readiness.role}; ask the process that leads, or use --offline")
        if self._is_suspended():
            return refusal(503, "a scheduling cycle waits for an extender; ask again")
        namespace, name = request.query.get("namespace", ""), request.query.get("pod", "")
        if not namespace or not name:
            return refusal(400, "name a pod: ?namespace=NAMESPACE&pod=NAME")
        try:
            explanation = self._explain(namespace, name)
        except SchedulerCoreError as error:
            return refusal(422, f"pod {namespace}/{name} cannot be explained: {error}")
        if explanation is None:
            return refusal(404, f"there is no pod {namespace}/{name}; correct namespace or name")
        return web.Response(body=msgspec.json.encode(explanation), content_type="application/json")
