"""The certificate that the operator serves HTTPS with.

Owns where it comes from and the TLS context that shows it. It must not know what is served. Two ways: files, which are
read again when they change, such as a mounted Secret that is renewed; or one that is made at start and lives in memory,
as kube-scheduler makes its own. Nobody can verify that one; it keeps tokens from who only listens.

    files ──changed──▶ tried in a context of its own ──fits──▶ shown to whoever connects from now on
                                        └──does not fit──▶ told; the last good one is shown on
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import ipaddress
import logging
import socket
import ssl
from pathlib import Path

from bayplan.file_in_memory import as_file
from bayplan.serving.serving_settings import ServingSettings, TlsVersion
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.ports import Clock

log = logging.getLogger(__name__)

_LOOK_SECONDS = 10.0
_DAYS = 3650
"""Of a certificate that is made here. It ends with the process, and nobody verifies it; it must not end before."""
_VERSIONS: dict[TlsVersion, ssl.TLSVersion] = {
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}


class ServedCertificate:
    """A certificate in the context that serves it.

    Args:
        settings: Which files, if any, and the least version of TLS.

    Attributes:
        context: For the server; it shows the newest good certificate.

    Raises:
        ConfigError: The files cannot be read, or are no pair of certificate and key.
    """

    def __init__(self, settings: ServingSettings) -> None:
        self._minimum = _VERSIONS[settings.tls_min_version]
        self.context = self._new_context()
        self._files: tuple[Path, Path] | None = None
        self._pem = b""
        self._told = ""
        if settings.tls_cert_file is None or settings.tls_private_key_file is None:
            self._take(self_signed_pem())
            return
        self._files = Path(settings.tls_cert_file), Path(settings.tls_private_key_file)
        try:
            self._take(self._read())
        except (OSError, ValueError) as error:
            raise ConfigError([Problem("tlsCertFile", self._unusable(error))]) from error

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate that is served now, in DER, as lower-case hex; "" for an unusual form of PEM."""
        # The certificate itself comes first, its intermediates after it.
        _, begin, rest = self._pem.decode("latin-1").partition("-----BEGIN CERTIFICATE-----")
        body, end, _ = rest.partition("-----END CERTIFICATE-----")
        try:
            return hashlib.sha256(ssl.PEM_cert_to_DER_cert(begin + body + end)).hexdigest()
        except ValueError:
            return ""

    async def run(self, clock: Clock) -> None:
        """Look after the files until cancelled."""
        while self._files is not None:
            await clock.sleep(_LOOK_SECONDS)
            await self.refresh()

    async def refresh(self) -> bool:
        """Take up the files if they have changed and fit; whether they did."""
        try:
            # A file system may hang; the context, which handshakes use, is changed between two of them.
            pem = await asyncio.to_thread(self._read)
            is_new = pem != self._pem
            if is_new:
                self._take(pem)
        except (OSError, ValueError) as error:
            # A renewal may be seen half-way; one that stays so is told once.
            text = self._unusable(error)
            if text != self._told:
                log.warning("%s; the last certificate is served on", text)
            self._told = text
            return False
        self._told = ""
        if is_new:
            log.info("The certificate of %s has changed and is served from now on", self._named)
        return is_new

    def _read(self) -> bytes:
        assert self._files is not None
        return b"\n".join(file.read_bytes() for file in self._files)

    def _take(self, pem: bytes) -> None:
        # A pair that does not fit leaves a context without a key, so it is tried elsewhere first.
        _load(self._new_context(), pem)
        _load(self.context, pem)
        self._pem = pem

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._minimum
        return context

    @property
    def _named(self) -> str:
        assert self._files is not None
        return str(self._files[0])

    def _unusable(self, error: Exception) -> str:
        assert self._files is not None
        certificate, key = self._files
        return f"{certificate} and {key} cannot be served ({error}); give a PEM certificate and its own key"


def self_signed_pem() -> bytes:
    """Make a certificate for this host and process, with its key, both PEM.

    ECDSA on P-256; for localhost, the host's name (a pod's own) and loopback's addresses.
    """
    # Imported here: with files of one's own, and for the other commands, it is not needed.
    from cryptography import x509  # noqa: PLC0415 - as said
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415 - as said
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - as said

    key = ec.generate_private_key(ec.SECP256R1())
    host = socket.gethostname()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"bayplan@{host}"[:64])])
    hosts = dict.fromkeys(("localhost", host))
    names: list[x509.GeneralName] = [x509.DNSName(each) for each in hosts if each.isascii()]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in ("127.0.0.1", "::1")]
    # The system's time, not the injected clock's: it is for the peer's eyes. An hour back, since clocks differ.
    began = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(began)
        .not_valid_after(began + dt.timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem) + private


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """Load a certificate and its key from memory; the standard library takes files only."""
    with as_file(pem) as path:
        context.load_cert_chain(path, password=_no_passphrase)


def _no_passphrase() -> str:
    # Otherwise OpenSSL would ask the terminal, and wait.
    raise ValueError("the key asks for a passphrase; give one without")
