"""The operator's endpoints beside health and metrics (explain, status and debugging), and its complete server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from aiohttp import web
from msgspec.structs import replace

from bayplan.explanation.building import explain_gang, explain_pod, named_gang
from bayplan.explanation.documents import Explanation, GangExplanation, GangVerdict, Verdict
from bayplan.extenders.http_extender import extender_states
from bayplan.fit.claim_templates import read_templates
from bayplan.gangs.group_sources import watched_priority_classes
from bayplan.introspection.cache_debugger import check_cache
from bayplan.introspection.reports import shadow_report
from bayplan.introspection.status_building import StatusSources, operator_status
from bayplan.introspection.status_model import ExtenderState, ReservationCounts, Status
from bayplan.kube.leader_election import LeaderState
from bayplan.profiles.unserved_pods import profiles_not_live
from bayplan.reservations.reservation_list import reservation_counts
from bayplan.serving.authorization import RequestAuthorization
from bayplan.serving.bayplan_metrics import (
    OperatorSources,
    extender_metrics,
    feature_metrics,
    metrics_registry,
    operator_metrics,
    page_metrics,
)
from bayplan.serving.debug_endpoints import DebugEndpoints, DebugSources, ExplainCalls, ExplainEndpoint
from bayplan.serving.deferred_server import Listener, ServedCertificate, ServedParts
from bayplan.serving.fit_endpoint import FitAccess, FitEndpoint, FitSources
from bayplan.serving.http_server import HealthServer, protection_of
from bayplan.serving.kube_scheduler_metrics import api_call_metrics
from bayplan.settings.operator_settings import ServingSettings
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.snapshot.cluster_cache import CacheDifference

if TYPE_CHECKING:
    # Their modules are imported only if the page is served or a report is requested.
    from bayplan.page.report_documents import ReportDocuments
    from bayplan.serving.served_page import PageBuilder

E = TypeVar("E", Explanation, GangExplanation)

_NO_PROFILE = (Verdict.NO_PROFILE, GangVerdict.NO_PROFILE)


class Endpoints:
    """Endpoints of the operator beside health and metrics."""

    def __init__(self, parts: ServedParts) -> None:
        self._parts = parts

    def routes(
        self, documents: Callable[[], Awaitable[ReportDocuments]], authorization: RequestAuthorization | None
    ) -> list[web.RouteDef]:
        parts, context = self._parts, self._parts.scheduler.context
        explain = ExplainEndpoint(
            ExplainCalls(self.explain_named, self.explain_gang_named, self.namespaces_of),
            parts.readiness,
            lambda: context.suspension.is_on,
            parts.background,
        )
        debug = DebugEndpoints(
            DebugSources(
                self._status,
                self._check_cache,
                self.leader,
                parts.is_profiling_enabled,
                lambda name: shadow_report(parts.scheduler, name),
                documents,
            )
        )
        sources = FitSources(
            parts.scheduler,
            parts.readiness,
            lambda: context.suspension.is_on,
            partial(watched_priority_classes, parts.informers, parts.connection),
            parts.background,
            partial(read_templates, parts.connection),
        )
        fit = FitEndpoint(sources, FitAccess(authorization))
        return [*explain.routes, *debug.routes, *fit.routes]

    def explain_named(self, namespace: str, name: str) -> Explanation | None:
        """Explain a pod; None if it does not exist."""
        pod = self._parts.informers.pods.known.get(f"{namespace}/{name}")
        return None if pod is None else self._located(explain_pod(self._parts.scheduler, pod))

    def namespaces_of(self, name: str, is_gang: bool) -> list[str]:
        if is_gang:
            return sorted(
                {each.key.namespace for each in self._parts.scheduler.context.queue.gangs if each.key.name == name}
            )
        keys = (key.split("/", 1) for key in self._parts.informers.pods.known)
        return [namespace for namespace, known in keys if known == name]

    def explain_gang_named(self, namespace: str, name: str, source: GroupSource | None) -> GangExplanation | None:
        """Explain a gang of an API, None for any; None if it does not exist."""
        gang = named_gang(self._parts.scheduler.context, namespace, name, source)
        return None if gang is None else self._located(explain_gang(self._parts.scheduler, gang))

    def _located(self, explanation: E) -> E:
        """Name the process to query if another one serves the pod's profile, or the profile that would serve it."""
        name = explanation.scheduler_name
        if name and explanation.verdict in _NO_PROFILE:
            rejected = "; ".join(profiles_not_live(self._parts.profiles.readings() or (), name))
            if rejected:
                return replace(explanation, headline=f"{explanation.headline}; {rejected}")
        if not name or self._parts.serves(name) is not False:
            return explanation
        mine = f"this process serves the profiles that match {self._parts.selector}"
        return replace(
            explanation, headline=f"{explanation.headline}; another process serves {name}, query that one ({mine})"
        )

    def _status(self, limit: int, namespace: str) -> Status:
        sources = StatusSources(
            self._parts.scheduler,
            self._parts.readiness,
            self._parts.informers.by_resource,
            self.extenders,
            self._parts.selector,
            self._parts.support(),
            self._reservation_counts,
            self._parts.plans,
        )
        return operator_status(sources, self._parts.started, limit, namespace)

    def _reservation_counts(self, namespace: str) -> ReservationCounts | None:
        reservations = self._parts.reservations
        return None if reservations is None else reservation_counts(reservations.readings(namespace))

    def extenders(self, name: str) -> tuple[ExtenderState, ...]:
        """Return the extenders of a live profile by its scheduler name."""
        live = self._parts.scheduler.context.profiles.get(name)
        states = () if live is None else extender_states(live)
        return tuple(ExtenderState(state.url_prefix, state.state.value, state.last_error) for state in states)

    async def _check_cache(self) -> list[CacheDifference]:
        return await check_cache(self._parts.connection, self._parts.scheduler)

    def leader(self) -> LeaderState:
        """Return the leader, as this replica sees it."""
        election = self._parts.election
        return LeaderState(is_standby=False) if election is None else election.state


def operator_server(
    listener: Listener,
    settings: ServingSettings,
    parts: ServedParts,
    certificate: ServedCertificate | None,
    build_page: PageBuilder | None = None,
) -> HealthServer:
    """Build the server with all endpoints and metrics."""
    metrics = metrics_registry(parts.scheduler, parts.informers.by_resource)
    metrics.register(api_call_metrics(parts.writer))
    metrics.register(extender_metrics(parts.extenders))
    profiles, arrivals = parts.profiles, parts.informers.arrivals
    sources = OperatorSources(parts.election, parts.clock, profiles.reconciles, profiles.conditions, arrivals)
    metrics.register(operator_metrics(sources))
    metrics.register(feature_metrics(parts.gates))
    protection = protection_of(settings, certificate, parts.connection, parts.clock)
    endpoints = Endpoints(parts)
    if build_page is None:
        routes = endpoints.routes(lambda: _unserved_documents(parts, endpoints), protection.authorization)
        return HealthServer(listener, parts.readiness, metrics, routes, protection)
    page, documents = build_page(parts, endpoints, protection.authorization)
    metrics.register(page_metrics(documents.stream))
    routes = [*endpoints.routes(documents.read_report, protection.authorization), *page.routes]
    return HealthServer(listener, parts.readiness, metrics, routes, protection, background=documents)


async def _unserved_documents(parts: ServedParts, endpoints: Endpoints) -> ReportDocuments:
    """Return the documents of a page that is not served, whose modules are imported on the first request."""
    page = await asyncio.to_thread(import_module, "bayplan.serving.served_page")
    documents: ReportDocuments = await page.read_documents(parts, endpoints)
    return documents
