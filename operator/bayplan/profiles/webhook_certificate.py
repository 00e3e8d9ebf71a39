"""The generated certificate of the admission webhook, which the API server trusts by the webhook's ``caBundle``.

Each replica has a certificate of its own, whose key never leaves the process, and adds it to the bundle; no replica
needs access to Secrets. As with cert-manager's injected bundles, the field is not in the manifest, so neither Helm nor
a GitOps tool reverts it; should one do so, the next look adds the certificate again.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import logging
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from cryptography import x509

from bayplan.kube.http.api_request import JSON_PATCH, ApiRequest, Lane, path_part
from bayplan.kube.http.byte_stream import as_file, self_signed_pem
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.timing import jittered
from scheduler_core.errors import ClusterWriteError
from scheduler_core.ports import Clock

log = logging.getLogger(__name__)

_DAYS, _RENEW_DAYS = 90, 60
_LOOK_SECONDS = 60.0
_RETRY_SECONDS = 2.0
_LOGGED_FAILURE = 4
"""The first ones are expected if several replicas start at the same time."""
_MAX_CERTIFICATES = 16
"""Certificates in a bundle, newest first: restarts leave old ones, which a crash loop must not pile up."""
_END = b"-----END CERTIFICATE-----\n"


class GeneratedCertificate:
    """Certificate of this replica's webhook, renewed and published while :meth:`run` runs."""

    def __init__(self, connection: ApiConnection, clock: Clock, configuration: str) -> None:
        self._connection = connection
        self._clock = clock
        self._path = f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{path_part(configuration)}"
        self._names: tuple[str, ...] = ()
        self._certificate, self._key, self._served = b"", b"", b""
        self._renew_at = dt.datetime.min.replace(tzinfo=dt.UTC)
        self._file: asyncio.Future[Path] = asyncio.get_running_loop().create_future()

    async def files(self) -> tuple[Path, Path]:
        """Wait until the API server trusts the certificate; return the file in memory that has it and its key."""
        file = await asyncio.shield(self._file)
        return file, file

    async def run(self) -> None:
        """Publish the certificate, and look whether it is still published, until cancelled."""
        failures = 0
        with as_file(b"") as name:
            while True:
                try:
                    await self._refresh(Path(name))
                    failures, delay = 0, _LOOK_SECONDS
                except (ClusterWriteError, msgspec.DecodeError, KeyError, ValueError) as error:
                    failures, delay = failures + 1, jittered(_RETRY_SECONDS)
                    if failures == _LOGGED_FAILURE:
                        log.warning("The certificate of the admission webhook is not published, retrying: %s", error)
                await self._clock.sleep(delay)

    async def _refresh(self, file: Path) -> None:
        configuration = msgspec.json.decode(
            await self._connection.request(ApiRequest("GET", self._path, lane=Lane.READS))
        )
        clients = [webhook["clientConfig"] for webhook in configuration.get("webhooks") or ()]
        names = tuple(sorted({_host(client) for client in clients}))
        if names != self._names or self._clock.wall() >= self._renew_at:
            self._certificate, self._key = await asyncio.to_thread(self_signed_pem, names, _DAYS)
            self._names, self._renew_at = names, self._clock.wall() + dt.timedelta(days=_RENEW_DAYS)
        await self._publish(configuration["metadata"]["resourceVersion"], clients)
        # Served only from now on, when it is trusted; kopf loads a changed file.
        if self._served != self._certificate:
            await asyncio.to_thread(file.write_bytes, self._certificate + self._key)
            self._served = self._certificate
        if not self._file.done():
            self._file.set_result(file)

    async def _publish(self, version: str, clients: list[dict[str, Any]]) -> None:
        changes = [{"op": "test", "path": "/metadata/resourceVersion", "value": version}]
        for index, client in enumerate(clients):
            bundle = base64.b64decode(client.get("caBundle") or "")
            if self._certificate not in bundle:
                value = base64.b64encode(self._certificate + _valid(bundle, self._clock.wall())).decode()
                changes.append({"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": value})
        if changes[1:]:
            body = msgspec.json.encode(changes)
            await self._connection.request(
                ApiRequest("PATCH", self._path, body, content_type=JSON_PATCH, from_any_replica=True)
            )
            log.info("Published the certificate of the admission webhook for %s", ", ".join(self._names))


def _host(client: dict[str, Any]) -> str:
    """Return the name by which the API server verifies the certificate."""
    service = client.get("service")
    return f"{service['name']}.{service['namespace']}.svc" if service else urlsplit(client["url"]).hostname or ""


def _valid(bundle: bytes, now: dt.datetime) -> bytes:
    """Return the newest certificates of other replicas that have not expired."""
    found = []
    for pem in bundle.split(_END)[: _MAX_CERTIFICATES - 1]:
        try:
            if x509.load_pem_x509_certificate(pem + _END).not_valid_after_utc > now:
                found.append(pem + _END)
        except ValueError:
            continue
    return b"".join(found)
