"""The operator's endpoints beside health and metrics: explain, status and debugging."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from bayplan.explanation.building import explain_pod
from bayplan.explanation.gang_building import explain_gang, named_gang
from bayplan.explanation.gang_model import GangExplanation
from bayplan.explanation.model import Explanation
from bayplan.extenders.states import extender_states
from bayplan.introspection.cache_check import check_cache
from bayplan.introspection.status_building import StatusSources, operator_status
from bayplan.introspection.status_model import ExtenderState, Status
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.leader_endpoint import LeaderState
from bayplan.kube.readiness import Readiness
from bayplan.kube.server_support import ServerSupport
from bayplan.kube.watches.cluster_informers import ClusterInformers
from bayplan.serving.debug import DebugEndpoints, DebugSources
from bayplan.serving.explain import ExplainEndpoint
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.cache_comparison import CacheDifference

E = TypeVar("E", Explanation, GangExplanation)


class ServedParts(Struct, frozen=True):
    """The parts of the process that the endpoints show.

    Attributes:
        started: The clock's time when the process started.
        leader: Returns the leader.
        is_profiling_enabled: Whether ``/debug/profile`` is served.
        selector: Label selector of the profiles that this process serves; "" for all.
        serves: Returns whether this process serves a scheduler name; None if no process does.
        server: Returns the version of the API server, and what it lacks.
    """

    scheduler: Scheduler
    informers: ClusterInformers
    readiness: Readiness
    connection: ApiConnection
    started: float
    leader: Callable[[], LeaderState]
    is_profiling_enabled: bool
    selector: str = ""
    serves: Callable[[str], bool | None] = lambda _: None
    server: Callable[[], ServerSupport] = ServerSupport

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to add to the server."""
        context = self.scheduler.context
        explain = ExplainEndpoint(self._explain, self.readiness, lambda: context.suspension.is_on, self._explain_gang)
        debug = DebugEndpoints(DebugSources(self._status, self._check_cache, self.leader, self.is_profiling_enabled))
        return [*explain.routes, *debug.routes]

    def _explain(self, namespace: str, name: str) -> Explanation | None:
        pod = self.informers.pods.known.get(f"{namespace}/{name}")
        return None if pod is None else self._located(explain_pod(self.scheduler, pod))

    def _explain_gang(self, namespace: str, name: str, source: GroupSource | None) -> GangExplanation | None:
        gang = named_gang(self.scheduler.context, namespace, name, source)
        return None if gang is None else self._located(explain_gang(self.scheduler, gang))

    def _located(self, explanation: E) -> E:
        """Name the process to query if another one serves the pod's profile."""
        name = explanation.scheduler_name
        if not name or self.serves(name) is not False:
            return explanation
        mine = f"this process serves the profiles that match {self.selector}"
        return replace(
            explanation, headline=f"{explanation.headline}; another process serves {name}, query that one ({mine})"
        )

    def _status(self, limit: int) -> Status:
        sources = StatusSources(
            self.scheduler, self.readiness, self.informers.by_resource, self._extenders, self.selector, self.server()
        )
        return operator_status(sources, self.started, limit)

    def _extenders(self, name: str) -> tuple[ExtenderState, ...]:
        live = self.scheduler.context.profiles.get(name)
        states = () if live is None else extender_states(live)
        return tuple(ExtenderState(state.url_prefix, state.state.value, state.last_error) for state in states)

    async def _check_cache(self) -> list[CacheDifference]:
        return await check_cache(self.connection, self.scheduler)
