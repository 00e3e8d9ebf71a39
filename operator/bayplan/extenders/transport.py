"""HTTP connections to one extender: URL, TLS, timeout, and responses as bytes or an ExtenderError.

The TLS context is made at once and the session at the first call: a certificate that cannot be used must reject the
profile, but most instances that are built only for validation never call.

Follows kube-scheduler v1.37.1, pkg/scheduler/extender.go (``makeTransport``, ``send``), and client-go v0.37.1,
transport/transport.go: ``enableHTTPS`` without a CA means an unverified server, and the URL's scheme decides whether
TLS is used at all.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import logging
import os
import ssl
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from yarl import URL

from bayplan import __version__
from bayplan.kube.http.byte_stream import as_file, client_context
from bayplan.texts.yaml_documents import list_at, value_at
from scheduler_core.config.profile_config import Extender, ExtenderTLSConfig
from scheduler_core.errors import ConfigError, ExtenderError, Problem

_logger = logging.getLogger(__name__)

_LONGEST_FILE_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class AllowedFilesAndHosts:
    """Bounds for extenders of custom resources: a directory of files, and hosts such as ``*.svc``; empty allows any."""

    files: Path
    hosts: tuple[str, ...] = ()

    def check(self, extender: Extender) -> None:
        """Raise ConfigError if an extender is out of bounds, with paths from its root."""
        url = URL(extender.url_prefix)
        if url.raw_user is not None or url.raw_password is not None:
            message = "must not contain a user or password, which is readable in the profile; use tlsConfig"
            raise ConfigError([Problem("urlPrefix", message)])
        host = (url.host or "").lower().rstrip(".")
        if self.hosts and not any(_is(host, allowed.lower()) for allowed in self.hosts):
            message = f'must be on a host of the operator\'s setting allowedExtenderHosts; "{host}" is not allowed'
            raise ConfigError([Problem("urlPrefix", message)])


def read_file(path: str, field: str, bounds: AllowedFilesAndHosts | None) -> str:
    """Read a PEM file.

    Args:
        field: Field of ``tlsConfig``, for messages. The content of the file is never in a message.

    Raises:
        ConfigError: It is out of bounds, is not a regular file, is too long, or cannot be read.
    """
    try:
        # Symbolic links are resolved first: the files of a mounted Secret are links within its directory.
        real = Path(path).resolve()
        if bounds is not None and not real.is_relative_to(bounds.files.resolve()):
            message = f"must be in {bounds.files}, the operator's setting extenderFilesDirectory; mount it there"
            raise tls_problem(field, message)
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe must not block
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise tls_problem(field, "is not a regular file; correct the path")
            text = file.read(_LONGEST_FILE_BYTES + 1)
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not a path"
        raise tls_problem(field, f"cannot be read: {reason}; mount the file, or correct the path") from error
    if len(text) > _LONGEST_FILE_BYTES:
        raise tls_problem(field, f"is longer than {_LONGEST_FILE_BYTES >> 10} KiB; use a PEM file")
    try:
        return text.decode("ascii")
    except UnicodeDecodeError:
        raise tls_problem(field, "is not PEM; correct the path or the file") from None


def _is(host: str, allowed: str) -> bool:
    return host == allowed or (allowed.startswith("*.") and host.endswith(allowed[1:]))


def tls_problem(field: str, message: str) -> ConfigError:
    return ConfigError([Problem(f"tlsConfig.{field}", message)])


_MAX_RESPONSE_BYTES = 256 << 20
_CHUNK_BYTES = 1 << 16
# An extender may close an idle connection at any time; most wait longer than this.
_KEEP_ALIVE_SECONDS = 15.0
_RENEW_SECONDS = 60.0


class Transport:
    """Keep-alive connections to one extender; certificate files that are renewed in place are read again each minute.

    Raises:
        ConfigError: Its URL cannot be used or is out of bounds, or its certificates cannot be read.
    """

    def __init__(self, extender: Extender, bounds: AllowedFilesAndHosts | None = None) -> None:
        self._extender = extender
        # kube-scheduler follows redirects, which may lead out of bounds.
        self._follows_redirects = bounds is None
        self._prefix = extender.url_prefix.rstrip("/")
        self._loopback = _is_loopback(extender_host(extender.url_prefix))
        if bounds is not None:
            bounds.check(extender)
        self._bounds = bounds
        self._certificates = _certificates(extender, bounds)
        self._ssl = _ssl_context(extender, self._certificates)
        self._renew_at = 0.0
        self._renewal_error = ""
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def send(self, verb: str, body: bytes, *, repeat: bool) -> bytes:
        """Post a body.

        Args:
            repeat: Whether to send it again if the extender has closed the idle connection.

        Returns:
            The body of a response with status 200.

        Raises:
            ExtenderError: It is unreachable, too slow, or responded with another status.
        """
        try:
            return await self._post(verb, body)
        except aiohttp.ServerDisconnectedError as error:
            if not repeat:
                raise self._error(f"broke the connection before its response to {verb}") from error
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise self._failure(verb, error) from error
        try:
            return await self._post(verb, body)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise self._failure(verb, error) from error

    async def close(self) -> None:
        self._closed = True
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _post(self, verb: str, body: bytes) -> bytes:
        url = f"{self._prefix}/{verb}"
        server_name = self._extender.tls_config.server_name if self._extender.tls_config else ""
        self._renew_certificates()
        async with self._opened().post(
            URL(url),
            # Connections are reused only with the same context, so renewed certificates open new ones.
            ssl=self._ssl or True,
            data=body,
            headers={"Content-Type": "application/json"},
            server_hostname=server_name or None,
            allow_redirects=self._follows_redirects,
        ) as response:
            if response.status != 200:
                raise self._error(f"failed {verb} with extender at URL {url}, code {response.status}")
            chunks, size = [], 0
            async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                size += len(chunk)
                if size > _MAX_RESPONSE_BYTES:
                    raise self._error(f"sent a response to {verb} of more than {_MAX_RESPONSE_BYTES >> 20} MiB")
                chunks.append(chunk)
            return b"".join(chunks)

    def _renew_certificates(self) -> None:
        tls, now = self._extender.tls_config, asyncio.get_running_loop().time()
        if tls is None or not (tls.ca_file or tls.cert_file or tls.key_file) or now < self._renew_at:
            return
        is_first, self._renew_at = not self._renew_at, now + _RENEW_SECONDS
        if is_first:
            return
        try:
            certificates = _certificates(self._extender, self._bounds)
            # Another context opens new connections and loads the system's CAs again, so equal files keep it.
            if certificates != self._certificates:
                self._ssl = _ssl_context(self._extender, certificates)
                self._certificates = certificates
            self._renewal_error = ""
        except ConfigError as error:
            # The files may be read in the middle of a renewal; a lasting error is logged once.
            if str(error) != self._renewal_error:
                _logger.warning("%s: %s; the last valid certificates stay in use", self._extender.url_prefix, error)
            self._renewal_error = str(error)

    def _opened(self) -> aiohttp.ClientSession:
        if self._closed:
            raise self._error("is no longer called: its profile was replaced or the scheduler is stopping")
        if self._session is None:
            connector = aiohttp.TCPConnector(keepalive_timeout=_KEEP_ALIVE_SECONDS)
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=self._extender.http_timeout.seconds),
                # kube-scheduler uses a proxy from the environment too, but never for loopback.
                trust_env=not self._loopback,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": f"bayplan/{__version__}"},
            )
        return self._session

    def _failure(self, verb: str, error: Exception) -> ExtenderError:
        if isinstance(error, TimeoutError):
            return self._error(f"sent no response to {verb} within {self._extender.http_timeout.seconds:g} s")
        return self._error(f"call to {verb} failed: {str(error) or type(error).__name__}")

    def _error(self, reason: str) -> ExtenderError:
        return ExtenderError(self._extender.url_prefix, reason)


_Pem = tuple[str, str]
"""A PEM text and its field."""


def _certificates(
    extender: Extender, bounds: AllowedFilesAndHosts | None
) -> tuple[_Pem | None, _Pem | None, _Pem | None]:
    """Read the certificates of the CA, the client, and the client's key; None for those that are not set."""
    tls = extender.tls_config or ExtenderTLSConfig()
    return (
        _pem(tls.ca_data, tls.ca_file, "ca", bounds),
        _pem(tls.cert_data, tls.cert_file, "cert", bounds),
        _pem(tls.key_data, tls.key_file, "key", bounds),
    )


def _ssl_context(
    extender: Extender, certificates: tuple[_Pem | None, _Pem | None, _Pem | None]
) -> ssl.SSLContext | None:
    """Make the TLS context, None for the library's default; raises ConfigError with paths from the extender's root."""
    tls = extender.tls_config or ExtenderTLSConfig()
    if extender.tls_config is None and not extender.enable_https:
        return None
    authority, certificate, key = certificates
    is_verified = authority is not None or not (tls.insecure or extender.enable_https)
    try:
        context = client_context(None if authority is None else authority[0], is_verified=is_verified)
    except (ssl.SSLError, ValueError) as error:
        field = "" if authority is None else authority[1]
        raise tls_problem(field, f"contains no readable certificate ({error}); use PEM") from error
    if certificate is None or key is None:
        return context
    try:
        with as_file(certificate[0].encode()) as certificate_path, as_file(key[0].encode()) as key_path:
            # An empty password prevents a prompt on the terminal: keys must not be encrypted.
            context.load_cert_chain(certificate_path, key_path, password="")
    except (ssl.SSLError, ValueError) as error:
        message = f"and its key ({key[1]}) cannot be used together: {error}; use an unencrypted PEM pair"
        raise tls_problem(certificate[1], message) from error
    return context


def _pem(data: str, file: str, name: str, bounds: AllowedFilesAndHosts | None) -> _Pem | None:
    """Return a PEM text and its field; inline data win over files. None if neither is set."""
    if data:
        field = f"{name}Data"
        try:
            return base64.b64decode(data, validate=True).decode("ascii"), field
        except ValueError as error:
            raise tls_problem(field, "is not PEM in base64; correct it") from error
    if not file:
        return None
    field = f"{name}File"
    return read_file(file, field, bounds), field


def extender_host(url: str) -> str:
    """Return the host of an extender's ``urlPrefix``; raises ConfigError if that is not an HTTP URL."""
    try:
        parsed = URL(url)
    except ValueError as error:
        raise ConfigError([Problem("urlPrefix", f"is not a URL: {error}; correct it")]) from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise ConfigError([Problem("urlPrefix", f'must begin with http:// or https:// and a host, not "{url}"')])
    return parsed.host


def url_problems(document: Any, prefix: str) -> Iterator[Problem]:
    """Yield the problems of the URLs of extenders, which are otherwise found only when their clients are made."""
    for index, extender in enumerate(list_at(document, "extenders")):
        url = value_at(extender, "urlPrefix")
        if not isinstance(url, str):
            continue
        try:
            extender_host(url)
        except ConfigError as error:
            where = f"{prefix}.extenders[{index}]".lstrip(".")
            yield from (Problem(f"{where}.{each.path}", each.message) for each in error.problems)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
