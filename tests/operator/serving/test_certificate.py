"""Tests of the server's certificate: generated, loaded from files, and reloaded."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from bayplan.serving.deferred_server import ServedCertificate
from bayplan.serving.http_server import Protection
from bayplan.settings.operator_settings import ServingSettings
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from hack.controlplane.certificates import Authority, KeyType
from scheduler_core.errors import ConfigError
from tests.support.http_servers import served
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

LOOPBACK = "127.0.0.1"


@asynccontextmanager
async def run_server(certificate: ServedCertificate) -> AsyncIterator[int]:
    """Run a server with the certificate and yield its port."""
    async with served(protection=Protection(certificate, clock=VirtualClock())) as server:
        yield server.port


async def server_certificate(port: int, context: ssl.SSLContext) -> tuple[x509.Certificate, str]:
    """Return the certificate that a client receives, and the TLS version."""
    _, writer = await asyncio.open_connection(LOOPBACK, port, ssl=context)
    try:
        connection = writer.get_extra_info("ssl_object")
        return x509.load_der_x509_certificate(connection.getpeercert(binary_form=True)), connection.version()
    finally:
        writer.close()
        await writer.wait_closed()


def client_context(verify: bool = False, authority: str = "") -> ssl.SSLContext:
    """Return a client context that verifies nothing, or that trusts one authority."""
    context = ssl.create_default_context(cadata=authority or None)
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    # The authority of these tests lacks extensions that strict mode requires.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def settings_of(certificate: Path, key: Path) -> ServingSettings:
    return ServingSettings(tls_cert_file=str(certificate), tls_private_key_file=str(key))


async def test_a_generated_certificate_is_unique() -> None:
    """A generated certificate is for loopback and the host name, uses ECDSA on P-256, and has its own key."""
    one, other = (ServedCertificate(ServingSettings(secure_serving=True)) for _ in range(2))
    async with run_server(one) as port, run_server(other) as second:
        certificate, version = await server_certificate(port, client_context())
        another, _ = await server_certificate(second, client_context())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "localhost" in names.get_values_for_type(x509.DNSName)
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == [LOOPBACK, "::1"]
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert isinstance(key.curve, ec.SECP256R1)
    assert version == "TLSv1.3"
    assert key != another.public_key()


@table(
    "minimum, maximum, is_served",
    ("1.2 by default", "VersionTLS12", ssl.TLSVersion.TLSv1_2, True),
    ("1.2 rejected with minimum 1.3", "VersionTLS13", ssl.TLSVersion.TLSv1_2, False),
)
async def test_the_minimum_version(minimum: str, maximum: ssl.TLSVersion, *, is_served: bool) -> None:
    """A client with an older TLS version than the minimum is rejected."""
    settings = ServingSettings.model_validate({"secureServing": True, "tlsMinVersion": minimum})
    client = client_context()
    client.maximum_version = maximum
    async with run_server(ServedCertificate(settings)) as port:
        if is_served:
            assert (await server_certificate(port, client))[1] == "TLSv1.2"
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await server_certificate(port, client)


async def test_files_are_served_and_verified(tmp_path: Path) -> None:
    """A client that trusts the authority verifies the served certificate."""
    authority = Authority()
    certificate, key = authority.issue("localhost").write(tmp_path, "tls")
    async with run_server(ServedCertificate(settings_of(certificate, key))) as port:
        received, _ = await server_certificate(port, client_context(verify=True, authority=authority.certificate))
    assert received.subject.rfc4514_string() == "CN=localhost"


async def test_changed_files_are_reloaded(tmp_path: Path) -> None:
    """New connections get the renewed certificate; a renewal of only one file is not used."""
    authority = Authority()
    certificate, key = authority.issue("first").write(tmp_path, "tls")
    one = ServedCertificate(settings_of(certificate, key))
    assert not await one.refresh()
    renewed = authority.issue("second")
    async with run_server(one) as port:
        certificate.write_text(renewed.certificate)
        assert not await one.refresh()
        assert (await server_certificate(port, client_context()))[0].subject.rfc4514_string() == "CN=first"
        key.write_text(renewed.key)
        assert await one.refresh()
        assert (await server_certificate(port, client_context()))[0].subject.rfc4514_string() == "CN=second"


@pytest.mark.parametrize(("before", "after"), [("ecdsa", "rsa"), ("rsa", "ecdsa")])
async def test_a_renewal_may_change_the_type_of_key(tmp_path: Path, before: KeyType, after: KeyType) -> None:
    """The renewed certificate is served, to clients of any TLS version, and it is the one that is announced."""
    authority = Authority()
    files = authority.issue("first", key_type=before).write(tmp_path, "tls")
    one = ServedCertificate(settings_of(*files))
    authority.issue("second", key_type=after).write(tmp_path, "tls")
    old_client = client_context()
    old_client.maximum_version = ssl.TLSVersion.TLSv1_2
    async with run_server(one) as port:
        assert await one.refresh()
        for client in (client_context(), old_client):
            certificate, _ = await server_certificate(port, client)
            assert certificate.subject.rfc4514_string() == "CN=second"
            assert certificate.fingerprint(SHA256()).hex() == one.fingerprint


async def test_the_server_reloads_the_files(tmp_path: Path) -> None:
    """A running server uses a renewed certificate without a restart."""
    authority = Authority()
    certificate, key = authority.issue("first").write(tmp_path, "tls")
    one, clock = ServedCertificate(settings_of(certificate, key)), VirtualClock()
    reloading = asyncio.create_task(one.run(clock))
    renewed = authority.issue("second")
    certificate.write_text(renewed.certificate)
    key.write_text(renewed.key)
    async with run_server(one) as port:
        for _ in range(200):
            clock.advance(10)
            if (await server_certificate(port, client_context()))[0].subject.rfc4514_string() == "CN=second":
                break
        else:
            raise AssertionError("the new certificate is not served")
    reloading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reloading


def key_with_passphrase(directory: Path) -> tuple[Path, Path]:
    certificate, key = Authority().issue("one").write(directory, "tls")
    private = ec.generate_private_key(ec.SECP256R1())
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"passphrase"))
    key.write_bytes(pem)
    return certificate, key


def files_of_two_pairs(directory: Path) -> tuple[Path, Path]:
    authority = Authority()
    return authority.issue("one").write(directory, "one")[0], authority.issue("two").write(directory, "two")[1]


def missing_files(directory: Path) -> tuple[Path, Path]:
    return directory / "no.crt", directory / "no.key"


@table(
    "make, expected",
    ("no files", missing_files, "No such file"),
    ("key of another certificate", files_of_two_pairs, "cannot be used"),
    ("key with passphrase", key_with_passphrase, "provide one without"),
)
def test_unusable_files_are_an_error(tmp_path: Path, make: object, expected: str) -> None:
    """Files that cannot be used are a configuration error that names the remedy."""
    assert callable(make)
    with pytest.raises(ConfigError, match=expected) as raised:
        ServedCertificate(settings_of(*make(tmp_path)))
    assert "provide a PEM certificate and its private key" in str(raised.value)
