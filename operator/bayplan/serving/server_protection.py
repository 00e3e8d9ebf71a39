"""TLS and authorization of the HTTP server, as the settings define them."""

from __future__ import annotations

from msgspec import Struct

from bayplan.kube.access_reviews import AccessReviews
from bayplan.kube.http.connection import ApiConnection
from bayplan.serving.authorization import RequestAuthorization
from bayplan.serving.certificate import ServedCertificate
from bayplan.serving.endpoint_paths import COMMAND_PATHS, PAGE_PATH
from bayplan.settings.serving_settings import ServingSettings
from scheduler_core.ports import Clock


class Protection(Struct, frozen=True):
    """Protection of a server; none by default.

    Attributes:
        certificate: Certificate for HTTPS; None for plain HTTP.
        authorization: Authorization of requests; None accepts all.
        clock: Clock for reloads of the certificate; required with a certificate.
    """

    certificate: ServedCertificate | None = None
    authorization: RequestAuthorization | None = None
    clock: Clock | None = None


def protection_of(
    settings: ServingSettings,
    certificate: ServedCertificate | None,
    connection: ApiConnection,
    clock: Clock,
) -> Protection:
    """Return the protection that the settings define.

    Args:
        settings: Settings of the server.
        certificate: Certificate for HTTPS; None for plain HTTP.
        connection: Connection to the API server that reviews tokens and permissions.
        clock: Source of time.
    """
    own_paths = PAGE_PATH if settings.serve_page else ""
    return Protection(
        certificate,
        RequestAuthorization(AccessReviews(connection), clock, command_paths=COMMAND_PATHS, own_paths=own_paths)
        if settings.authorize_requests
        else None,
        clock,
    )
