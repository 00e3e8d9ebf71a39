"""The certificate of the server: generated, loaded from files, and reloaded."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from bayplan.kube.readiness import Readiness
from bayplan.serving.certificate import ServedCertificate
from bayplan.serving.deferred_server import Listener
from bayplan.serving.http_server import HealthServer
from bayplan.serving.server_protection import Protection
from bayplan.settings.serving_settings import ServingSettings
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from prometheus_client import CollectorRegistry

from scheduler_core.errors import ConfigError
from tests.support.certificates import Authority
from tests.support.virtual_clock import VirtualClock

LOOPBACK = "127.0.0.1"


@asynccontextmanager
async def served(certificate: ServedCertificate) -> AsyncIterator[int]:
    """Run a server with the certificate and yield its port."""
    protection = Protection(certificate, clock=VirtualClock())
    server = HealthServer(Listener((LOOPBACK, 0)), Readiness(()), CollectorRegistry(), protection=protection)
    await server.start()
    try:
        yield server.port
    finally:
        await server.stop()


async def peer(port: int, context: ssl.SSLContext) -> tuple[x509.Certificate, str]:
    """Return the certificate that a client receives, and the TLS version."""
    _, writer = await asyncio.open_connection(LOOPBACK, port, ssl=context)
    try:
        connection = writer.get_extra_info("ssl_object")
        return x509.load_der_x509_certificate(connection.getpeercert(binary_form=True)), connection.version()
    finally:
        writer.close()
        await writer.wait_closed()


def client_context(verify: bool = False, authority: str = "") -> ssl.SSLContext:
    """Return a client context that verifies nothing, or by one authority."""
    context = ssl.create_default_context(cadata=authority or None)
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    # The authority of these tests lacks extensions that strict mode requires.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def settings_of(certificate: Path, key: Path) -> ServingSettings:
    return ServingSettings(tls_cert_file=str(certificate), tls_private_key_file=str(key))


async def test_a_generated_certificate() -> None:
    """It is for loopback and the host name, with ECDSA on P-256, and no two servers share a key."""
    one, other = (ServedCertificate(ServingSettings(secure_serving=True)) for _ in range(2))
    async with served(one) as port, served(other) as second:
        certificate, version = await peer(port, client_context())
        another, _ = await peer(second, client_context())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "localhost" in names.get_values_for_type(x509.DNSName)
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == [LOOPBACK, "::1"]
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert isinstance(key.curve, ec.SECP256R1)
    assert version == "TLSv1.3"
    assert key != another.public_key()


@pytest.mark.parametrize(
    ("minimum", "maximum", "is_served"),
    [
        pytest.param("VersionTLS12", ssl.TLSVersion.TLSv1_2, True, id="1.2 by default"),
        pytest.param("VersionTLS13", ssl.TLSVersion.TLSv1_2, False, id="1.2 is rejected if 1.3 is the minimum"),
    ],
)
async def test_the_minimum_version(minimum: str, maximum: ssl.TLSVersion, *, is_served: bool) -> None:
    """Older TLS versions are rejected."""
    settings = ServingSettings.model_validate({"secureServing": True, "tlsMinVersion": minimum})
    client = client_context()
    client.maximum_version = maximum
    async with served(ServedCertificate(settings)) as port:
        if is_served:
            assert (await peer(port, client))[1] == "TLSv1.2"
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await peer(port, client)


async def test_files_are_served_and_verified(tmp_path: Path) -> None:
    """A client that trusts the authority verifies the certificate."""
    authority = Authority()
    certificate, key = authority.issue("localhost").write(tmp_path, "tls")
    async with served(ServedCertificate(settings_of(certificate, key))) as port:
        received, _ = await peer(port, client_context(verify=True, authority=authority.certificate))
    assert received.subject.rfc4514_string() == "CN=localhost"


async def test_changed_files_are_reloaded(tmp_path: Path) -> None:
    """New connections get the renewed certificate; an incomplete renewal is not used."""
    authority = Authority()
    certificate, key = authority.issue("first").write(tmp_path, "tls")
    one = ServedCertificate(settings_of(certificate, key))
    assert not await one.refresh()
    renewed = authority.issue("second")
    async with served(one) as port:
        certificate.write_text(renewed.certificate)
        assert not await one.refresh()
        assert (await peer(port, client_context()))[0].subject.rfc4514_string() == "CN=first"
        key.write_text(renewed.key)
        assert await one.refresh()
        assert (await peer(port, client_context()))[0].subject.rfc4514_string() == "CN=second"


async def test_the_server_reloads_the_files(tmp_path: Path) -> None:
    """A renewed certificate is used without a restart."""
    authority = Authority()
    certificate, key = authority.issue("first").write(tmp_path, "tls")
    one, clock = ServedCertificate(settings_of(certificate, key)), VirtualClock()
    reloading = asyncio.create_task(one.run(clock))
    renewed = authority.issue("second")
    certificate.write_text(renewed.certificate)
    key.write_text(renewed.key)
    async with served(one) as port:
        for _ in range(200):
            clock.advance(10)
            if (await peer(port, client_context()))[0].subject.rfc4514_string() == "CN=second":
                break
        else:
            raise AssertionError("the new certificate is not served")
    reloading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reloading


def with_passphrase(directory: Path) -> tuple[Path, Path]:
    certificate, key = Authority().issue("one").write(directory, "tls")
    private = ec.generate_private_key(ec.SECP256R1())
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"passphrase"))
    key.write_bytes(pem)
    return certificate, key


def of_two_pairs(directory: Path) -> tuple[Path, Path]:
    authority = Authority()
    return authority.issue("one").write(directory, "one")[0], authority.issue("two").write(directory, "two")[1]


def not_there(directory: Path) -> tuple[Path, Path]:
    return directory / "no.crt", directory / "no.key"


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        pytest.param(not_there, "No such file", id="no files"),
        pytest.param(of_two_pairs, "cannot be used", id="another's key"),
        pytest.param(with_passphrase, "provide one without", id="a passphrase"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, make: object, expected: str) -> None:
    """The process does not start, and the error names the files."""
    assert callable(make)
    with pytest.raises(ConfigError, match=expected) as raised:
        ServedCertificate(settings_of(*make(tmp_path)))
    assert "provide a PEM certificate and its private key" in str(raised.value)
