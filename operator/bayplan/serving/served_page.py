"""Builds the page of the operator from its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bayplan.introspection.status_building import profile_states
from bayplan.page.asset_files import read_assets
from bayplan.page.page_documents import PageDocuments
from bayplan.page.page_sources import PageSources
from bayplan.page.report_documents import ReportDocuments, operator_documents
from bayplan.serving.authorization import RequestAuthorization
from bayplan.serving.deferred_server import ServedParts
from bayplan.serving.page_access import PageAccess
from bayplan.serving.page_endpoints import PageEndpoints
from bayplan.settings.serving_settings import ServingSettings
from scheduler_core.metrics.attempt_reports import AttemptHistory

if TYPE_CHECKING:
    from bayplan.serving.operator_server import Endpoints


class PageBuilder:
    """Builder of the page; its construction reads files, so it is done in a thread."""

    def __init__(self, settings: ServingSettings) -> None:
        self._viewers = settings.page_viewers
        self._assets = read_assets()

    def __call__(
        self, parts: ServedParts, endpoints: Endpoints, authorization: RequestAuthorization | None
    ) -> tuple[PageEndpoints, PageDocuments]:
        """Return the endpoints of the page, and its documents, which must be started.

        Args:
            endpoints: The operator's other endpoints, which explain pods and gangs.
            authorization: Authorization of requests; None without.
        """
        documents = PageDocuments(page_sources(parts, endpoints), self._viewers)
        page = PageEndpoints(
            documents=documents,
            assets=self._assets,
            access=PageAccess(authorization),
            readiness=parts.readiness,
            leader=endpoints.leader,
            is_suspended=lambda: parts.scheduler.context.suspension.is_on,
        )
        return page, documents


def page_sources(parts: ServedParts, endpoints: Endpoints) -> PageSources:
    """Return what the documents of the page are built from.

    Args:
        endpoints: The operator's other endpoints, which explain pods and gangs.
    """
    context = parts.scheduler.context
    return PageSources(
        scheduler=parts.scheduler,
        readiness=parts.readiness,
        clock=parts.clock,
        started=parts.started,
        attempts=AttemptHistory() if parts.attempts is None else parts.attempts,
        writes=parts.writer.calls,
        find_pod=parts.informers.pods.known.get,
        explain_pod=endpoints.explain_named,
        explain_gang=endpoints.explain_gang_named,
        profile_states=lambda: profile_states(context, endpoints.extenders),
        profile_readings=parts.profiles.readings,
        server=parts.support,
    )


async def read_documents(parts: ServedParts, endpoints: Endpoints) -> ReportDocuments:
    """Return the documents of the page of an operator that does not serve it; rates are not measured."""
    return await operator_documents(page_sources(parts, endpoints), None)
