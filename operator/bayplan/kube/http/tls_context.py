"""TLS contexts of clients, self-signed certificates of servers, and certificates in memory as files.

The contexts verify as Go's clients do, so that what works with kubectl works here. Go trusts every certificate that is
named as an authority, an intermediate one or the server's own among them. It does not require the extensions of RFC
5280 that OpenSSL's strict mode requires (default since Python 3.13).
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import socket
import ssl
import sys
import tempfile
from collections.abc import Iterable, Iterator
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


def self_signed_pem(names: Iterable[str], days: int) -> tuple[bytes, bytes]:
    """Generate a certificate and its private key (ECDSA on P-256), both in PEM.

    Args:
        names: Host names and IP addresses of the server; a name that is not ASCII is left out.
        days: Validity. Clients compare it with the system's time, not with an injected clock.
    """
    # Imported here, because it is not needed with certificate files or for other commands.
    from cryptography import x509  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - as above

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"bayplan@{socket.gethostname()}"[:64])])
    alternatives: list[x509.GeneralName] = []
    for each in dict.fromkeys(names):
        try:
            alternatives.append(x509.IPAddress(ipaddress.ip_address(each)))
        except ValueError:
            alternatives += [x509.DNSName(each)] if each.isascii() else []
    began = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)  # since clocks differ
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(began)
        .not_valid_after(began + dt.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem), private
