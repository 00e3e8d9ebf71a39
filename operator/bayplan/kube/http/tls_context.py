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


def client_context(
    authority: str | None = None,
    authority_file: str | None = None,
    *,
    is_verified: bool = True,
) -> ssl.SSLContext:
    """Return a context.

    Args:
        authority: Certificates that are trusted, PEM.
        authority_file: A file with such certificates. If both are None, those of the system are trusted.

    Raises:
        OSError: The file cannot be read, or a certificate is invalid.
        ValueError: ``authority`` contains no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
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
