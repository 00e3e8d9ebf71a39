"""The certificate for HTTPS: from files that are reloaded when they change, or generated at start and stored in memory.

As in kube-scheduler, clients cannot verify a generated certificate; it only protects tokens from eavesdroppers.

    files ──changed──▶ loaded into a separate context ──valid──▶ used for new connections
                                        └──invalid──▶ logged; the last valid certificate stays in use
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
import ssl
from pathlib import Path

from bayplan.kube.http.tls_context import as_file, self_signed_pem
from bayplan.settings.serving_settings import ServingSettings, TlsVersion
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.ports import Clock

log = logging.getLogger(__name__)

_RELOAD_SECONDS = 10.0
_DAYS = 3650
"""Validity of a generated certificate, which must outlive the process; clients do not verify it."""
_VERSIONS: dict[TlsVersion, ssl.TLSVersion] = {
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}


class ServedCertificate:
    """Certificate with the TLS context of the server.

    Args:
        settings: Certificate files, if any, and the minimum TLS version.

    Attributes:
        context: TLS context of the server; each handshake uses the newest valid certificate.

    Raises:
        ConfigError: The files cannot be read, or the key does not belong to the certificate.
    """

    def __init__(self, settings: ServingSettings) -> None:
        self._minimum = _VERSIONS[settings.tls_min_version]
        self.context = self._new_context()
        # Called for each handshake. A context keeps one certificate for each type of key, so loading an RSA certificate
        # into a context with an ECDSA one would leave both.
        self.context.sni_callback = self._use_newest
        self._newest = self.context
        self._files: tuple[Path, Path] | None = None
        self._pem = b""
        self._last_error = ""
        if settings.tls_cert_file is None or settings.tls_private_key_file is None:
            names = ("localhost", socket.gethostname(), "127.0.0.1", "::1")
            self._use(b"".join(self_signed_pem(names, _DAYS)))
            return
        self._files = Path(settings.tls_cert_file), Path(settings.tls_private_key_file)
        try:
            self._use(self._read())
        except (OSError, ValueError) as error:
            raise ConfigError([Problem("tlsCertFile", self._unusable(error))]) from error

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the current certificate in DER, as lower-case hex; "" for an unusual form of PEM."""
        # The certificate comes first, followed by its intermediates.
        _, begin, rest = self._pem.decode("latin-1").partition("-----BEGIN CERTIFICATE-----")
        body, end, _ = rest.partition("-----END CERTIFICATE-----")
        try:
            return hashlib.sha256(ssl.PEM_cert_to_DER_cert(begin + body + end)).hexdigest()
        except ValueError:
            return ""

    async def run(self, clock: Clock) -> None:
        """Reload the files when they change, until cancelled."""
        while self._files is not None:
            await clock.sleep(_RELOAD_SECONDS)
            await self.refresh()

    async def refresh(self) -> bool:
        """Reload the files if they have changed and are valid; return whether they were reloaded."""
        try:
            # A file system may hang, so only reading runs in a thread; the context changes between two handshakes.
            pem = await asyncio.to_thread(self._read)
            is_new = pem != self._pem
            if is_new:
                self._use(pem)
        except (OSError, ValueError) as error:
            # The files may be read in the middle of a renewal; a lasting error is logged once.
            text = self._unusable(error)
            if text != self._last_error:
                log.warning("%s; the last valid certificate stays in use", text)
            self._last_error = text
            return False
        self._last_error = ""
        if is_new:
            log.info("Reloaded the certificate from %s", self._named)
        return is_new

    def _read(self) -> bytes:
        assert self._files is not None
        return b"\n".join(file.read_bytes() for file in self._files)

    def _use(self, pem: bytes) -> None:
        context = self._new_context()
        _load(context, pem)
        self._newest, self._pem = context, pem

    def _use_newest(self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: object) -> None:
        connection.context = self._newest

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
        return f"{certificate} and {key} cannot be used ({error}); provide a PEM certificate and its private key"


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """Load a certificate and its key from memory; the standard library accepts only files."""
    with as_file(pem) as path:
        context.load_cert_chain(path, password=_no_passphrase)


def _no_passphrase() -> str:
    # Without this callback OpenSSL would wait for input from the terminal.
    raise ValueError("the private key is encrypted; provide one without a passphrase")
