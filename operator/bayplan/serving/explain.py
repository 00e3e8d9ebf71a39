"""``GET /debug/explain``: why a pod or a gang goes where it goes, from the scheduler that decides.

``?namespace=NS&pod=NAME`` asks about a pod, ``?namespace=NS&podgroup=NAME`` about a gang; ``&api=`` may name the API of
its PodGroup.

Owns the parameters, who may ask, and the HTTP answers. It must not know how an explanation comes about: that is handed
in. It runs in the scheduler's loop and so between two cycles; what is tried in thought is undone before it answers.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from aiohttp import web

from bayplan.explanation.gang_model import GangExplanation
from bayplan.explanation.model import Explanation
from bayplan.serving.local_callers import for_this_host, refusal
from bayplan.serving.readiness import Readiness
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.model.pod_group import GroupSource

PATH = "/debug/explain"

_SOURCES = {source.value: source for source in GroupSource}

Explainer = Callable[[str, str], Explanation | None]
"""Explains the pod of a namespace and name; None if there is none."""


GangExplainer = Callable[[str, str, GroupSource | None], GangExplanation | None]
"""Explains the gang of a namespace and name, and of an API unless that is None; None if there is none."""


def _no_gangs(namespace: str, name: str, source: GroupSource | None) -> GangExplanation | None:
    del namespace, name, source
    return None


class ExplainEndpoint:
    """Answers questions about pods and gangs.

    Args:
        explain: Explains a pod.
        readiness: Until the process is ready, an explanation would be of half a cluster.
        is_suspended: Whether a cycle waits for an extender: what is tried in thought would disturb it.
        explain_gang: Explains a gang.
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
        group, api = request.query.get("podgroup", ""), request.query.get("api", "")
        if not namespace or bool(name) == bool(group):
            usage = "?namespace=NAMESPACE&pod=NAME, or &podgroup=NAME instead of the pod"
            return refusal(400, f"name a pod or a PodGroup: {usage}")
        if api and api not in _SOURCES:
            return refusal(400, f"api {api} has no PodGroups that are read; choose one of {', '.join(_SOURCES)}")
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
            return refusal(404, f"there is no {what}; correct namespace or name")
        return web.Response(body=msgspec.json.encode(explanation), content_type="application/json")
