"""What stands between the network and the answers: TLS, and the question who asks.

Owns how both follow from the settings. It must not know what is served.
"""

from __future__ import annotations

from msgspec import Struct

from bayplan.kube.access_reviews import AccessReviews
from bayplan.kube.connection import ApiConnection
from bayplan.serving.authorization import RequestAuthorization
from bayplan.serving.certificate import ServedCertificate
from bayplan.serving.debug import CACHE_PATH, STATUS_PATH
from bayplan.serving.explain import PATH as EXPLAIN_PATH
from bayplan.serving.serving_settings import ServingSettings
from scheduler_core.ports import Clock

COMMAND_PATHS = frozenset({STATUS_PATH, CACHE_PATH, EXPLAIN_PATH})
"""Paths that commands ask the leader for from the pod of a standby."""


class Protection(Struct, frozen=True):
    """How a server is protected; not at all as it is made here.

    Attributes:
        certificate: To serve HTTPS with; None serves plain HTTP.
        authorization: Who is let through; None lets all.
        clock: For the certificate's renewal; needed with one.
    """

    certificate: ServedCertificate | None = None
    authorization: RequestAuthorization | None = None
    clock: Clock | None = None


def protection_of(settings: ServingSettings, connection: ApiConnection, clock: Clock) -> Protection:
    """Make what the settings ask for.

    Args:
        settings: Of what is served.
        connection: Whom to ask about tokens and rights.
        clock: Time.

    Raises:
        ConfigError: The certificate's files cannot be used.
    """
    return Protection(
        ServedCertificate(settings) if settings.serves_tls else None,
        RequestAuthorization(AccessReviews(connection), clock, command_paths=COMMAND_PATHS)
        if settings.authorize_requests
        else None,
        clock,
    )
