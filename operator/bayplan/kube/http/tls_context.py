"""TLS contexts of clients, and certificates in memory as files.

The contexts verify as Go's clients do, so that what works with kubectl works here. Go trusts every certificate that is
named as an authority, an intermediate one or the server's own among them. It does not require the extensions of RFC
5280 that OpenSSL's strict mode requires (default since Python 3.13).
"""

from __future__ import annotations

import os
import ssl
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class ClientContext(ssl.SSLContext):
    """A TLS context of a client, whose certificates can be renewed while sessions use it.

    Attributes:
        names: The name that the certificate must have, by host, for hosts whose certificate has another name. Why here:
            kopf opens its requests itself, and has no parameter for it.
        renewals: Number of times that the certificates were replaced.
    """

    names: dict[str, str]
    renewals: int
    _newest: ClientContext | None

    def renew(self, newest: ClientContext) -> None:
        """Use another context's certificates for all new connections.

        OpenSSL only adds to a context: a removed authority would stay trusted, and a certificate of another key type
        would stay beside the new one. So the context is replaced, behind the object that sessions have.
        """
        self._newest = newest
        self.renewals += 1

    def wrap_bio(self, incoming: Any, outgoing: Any, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """As in ``ssl.SSLContext``, with the newest certificates and for the name in the server's certificate."""
        if self._newest is not None:
            return self._newest.wrap_bio(incoming, outgoing, *arguments, **options)
        return super().wrap_bio(incoming, outgoing, *arguments, **self._named(options))

    def wrap_socket(self, sock: Any, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        """As in ``ssl.SSLContext``, with the newest certificates and for the name in the server's certificate."""
        if self._newest is not None:
            return self._newest.wrap_socket(sock, *arguments, **options)
        return super().wrap_socket(sock, *arguments, **self._named(options))

    def _named(self, options: dict[str, Any]) -> dict[str, Any]:
        host = options.get("server_hostname")
        return {**options, "server_hostname": self.names.get(host, host)} if host else options


def client_context(
    authority: str | None = None,
    authority_file: str | None = None,
    *,
    is_verified: bool = True,
    names: dict[str, str] | None = None,
) -> ClientContext:
    """Return a context.

    Args:
        authority: Certificates that are trusted, PEM.
        authority_file: A file with such certificates. If both are None, those of the system are trusted.
        names: See ``ClientContext``.

    Raises:
        OSError: The file cannot be read, or a certificate is invalid.
        ValueError: ``authority`` contains no certificate.
    """
    context = ClientContext(ssl.PROTOCOL_TLS_CLIENT)
    context.names = names or {}
    context.renewals, context._newest = 0, None  # noqa: SLF001 - a context's arguments cannot be extended
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not is_verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if authority is not None or authority_file is not None:
        context.load_verify_locations(cafile=authority_file, cadata=authority)
    else:
        context.load_default_certs()
    return context


@contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """Yield the path of a file with this content, readable by this user only and removed afterwards.

    OpenSSL reads keys and certificates only from files. The file is in memory where the system supports it: disks may
    be read-only, and a private key does not belong on a disk.
    """
    if sys.platform == "linux":
        with os.fdopen(os.memfd_create("bayplan", os.MFD_CLOEXEC), "wb") as memory:
            memory.write(content)
            memory.flush()
            yield f"/proc/self/fd/{memory.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
