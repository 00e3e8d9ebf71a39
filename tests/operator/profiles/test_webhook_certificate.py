"""Tests of the generated certificate of the admission webhook, which replicas add to one bundle."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from bayplan.kube.http.byte_stream import as_file, self_signed_pem
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.leader_election import WriteFence
from bayplan.profiles.webhook_certificate import GeneratedCertificate
from cryptography import x509

from tests.support.fake_api import FakeApi, ReceivedRequest, Response, error_response
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

PATH = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/bayplan.ns"
SERVICE = {"service": {"name": "bayplan-webhook", "namespace": "ns", "path": "/validate"}}
NAME = "bayplan-webhook.ns.svc"


class Configuration:
    """API server that stores a ValidatingWebhookConfiguration and applies JSON patches as Kubernetes does."""

    def __init__(self, api: FakeApi, client: dict[str, Any] | None = None) -> None:
        self.client = dict(SERVICE if client is None else client)
        self.version = 1
        self.patches = 0
        self.edit_before_patch = False
        api.on("GET", PATH, self._read)
        api.on("PATCH", PATH, self._patch)

    @property
    def bundle(self) -> list[x509.Certificate]:
        """Certificates that the API server trusts."""
        text = base64.b64decode(self.client.get("caBundle", ""))
        return x509.load_pem_x509_certificates(text) if text else []

    def _read(self, request: ReceivedRequest) -> Response:
        del request
        body = {"metadata": {"resourceVersion": str(self.version)}, "webhooks": [{"clientConfig": self.client}]}
        return Response(body=json.loads(json.dumps(body)))

    def _patch(self, request: ReceivedRequest) -> Response:
        assert request.headers["Content-Type"] == "application/json-patch+json"
        if self.edit_before_patch:
            self.edit_before_patch, self.version = False, self.version + 1
        test, *changes = request.json
        if (test["op"], test["path"], test["value"]) != ("test", "/metadata/resourceVersion", str(self.version)):
            return error_response(422, "the test failed")
        for change in changes:
            assert (change["op"], change["path"]) == ("add", "/webhooks/0/clientConfig/caBundle")
            self.client["caBundle"] = change["value"]
        self.version += 1
        self.patches += 1
        return Response()


class Replica:
    """Certificate of one replica, which does not hold the Lease."""

    def __init__(self, connection: ApiConnection, clock: VirtualClock) -> None:
        self.certificate = GeneratedCertificate(connection, clock, "bayplan.ns")
        self.task = asyncio.create_task(self.certificate.run())

    async def served(self) -> x509.Certificate:
        """Return the certificate that kopf would load."""
        file, key = await self.certificate.files()
        assert file == key
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file, key)
        return x509.load_pem_x509_certificate(file.read_bytes())


@asynccontextmanager
async def replicas(api: FakeApi, clock: VirtualClock, count: int = 1) -> AsyncIterator[list[Replica]]:
    fence = WriteFence(clock, "ns/bayplan")
    async with ApiConnection(api, ConnectionOptions(), clock, fence.check) as connection:
        found = [Replica(connection, clock) for _ in range(count)]
        yield found
        for each in found:
            each.task.cancel()
        await asyncio.wait([each.task for each in found])


async def settled(api: FakeApi, clock: VirtualClock, seconds: float) -> None:
    """Advance the time, and wait for the requests that this causes."""
    clock.advance(seconds)
    count = -1
    while count != len(api.received):
        count = len(api.received)
        await asyncio.sleep(0.1)


@table(
    "client, name",
    ("Service", SERVICE, x509.DNSName(NAME)),
    ("URL", {"url": "https://webhook.example.com:9443/validate"}, x509.DNSName("webhook.example.com")),
)
async def test_the_certificate_is_for_the_name_of_the_webhook(client: dict[str, Any], name: x509.GeneralName) -> None:
    """The certificate that is served is in the bundle, and is for the name by which the API server connects."""
    async with FakeApi() as api, replicas(api, VirtualClock()) as (replica,):
        configuration = Configuration(api, client)
        served = await replica.served()
        assert configuration.bundle == [served]
    names = served.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(names) == [name]


async def test_all_replicas_are_trusted() -> None:
    """Replicas that start at the same time, and one edit between read and write, lose no certificate."""
    clock = VirtualClock()
    async with FakeApi() as api:
        configuration = Configuration(api)
        configuration.edit_before_patch = True
        async with replicas(api, clock, count=3) as started:
            for _ in range(6):
                await settled(api, clock, 2)
            served = [await each.served() for each in started]
            assert len(set(configuration.bundle)) == 3
            assert set(configuration.bundle) == set(served)
            patches = configuration.patches
            await settled(api, clock, 600)
            assert configuration.patches == patches == 3


async def test_a_certificate_is_renewed_and_published_again() -> None:
    """A removed bundle gets the certificate again, and a new one is trusted and served before it expires."""
    clock = VirtualClock()
    async with FakeApi() as api:
        configuration = Configuration(api)
        async with replicas(api, clock) as (replica,):
            first = await replica.served()
            del configuration.client["caBundle"]
            await settled(api, clock, 60)
            assert configuration.bundle == [first]
            await settled(api, clock, 61 * 86_400)
            second = await replica.served()
            assert second != first
            assert second in configuration.bundle


async def test_old_certificates_are_dropped() -> None:
    """A bundle does not grow without bound, and loses what has expired and what is no certificate."""
    clock = VirtualClock()
    clock.advance((dt.datetime.now(dt.UTC) - clock.wall()).total_seconds())
    valid = [self_signed_pem([NAME], 90)[0] for _ in range(20)]
    expired = self_signed_pem([NAME], 0)[0]
    broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    async with FakeApi() as api:
        bundle = b"".join([expired, broken, *valid])
        configuration = Configuration(api, SERVICE | {"caBundle": base64.b64encode(bundle).decode()})
        async with replicas(api, clock) as (replica,):
            served = await replica.served()
    assert configuration.bundle[0] == served
    assert configuration.bundle[1:] == [x509.load_pem_x509_certificate(each) for each in valid[:13]]


async def test_a_missing_right_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """While the certificate cannot be published it is not served, and the reason is logged once."""
    clock = VirtualClock()
    async with FakeApi() as api:
        configuration = Configuration(api)
        api.on("PATCH", PATH, error_response(403, "not yours"))
        async with replicas(api, clock) as (replica,):
            for _ in range(6):
                await settled(api, clock, 2)
            files = asyncio.ensure_future(replica.certificate.files())
            await asyncio.sleep(0)
            assert not files.done()
            files.cancel()
    assert configuration.bundle == []
    assert len([line for line in caplog.messages if "not yours" in line]) == 1


def test_the_file_is_in_memory(tmp_path: Path) -> None:
    """A certificate that is replaced in its file in memory is read as the new one, as kopf does."""
    with as_file(b"") as name:
        Path(name).write_bytes(b"first, longer")
        Path(name).write_bytes(b"second")
        assert Path(name).read_bytes() == b"second"
    assert list(tmp_path.iterdir()) == []
