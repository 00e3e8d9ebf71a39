"""Address of the leader's server, announced in an annotation of its Lease.

The annotation names the holder that wrote it: a leader of an earlier version keeps the annotation of its predecessor.
Any user who may write the Lease can choose the address, so :func:`endpoint_problem` checks it before any connection.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

import msgspec

ANNOTATION = "bayplan.dev/leader-endpoint"
_MAX_LENGTH = 1024
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


class LeaderEndpoint(msgspec.Struct, frozen=True, rename="camel"):
    """Endpoint of the leader.

    Attributes:
        url: Scheme, IP address and port.
        certificate_sha256: SHA-256 of the served certificate in DER, in lower-case hex; "" for plain HTTP.
    """

    url: str
    certificate_sha256: str = ""


class LeaderState(msgspec.Struct, frozen=True, rename="camel"):
    """The leader, as one replica sees it.

    Attributes:
        lease: Namespace and name of the Lease; "" without leader election.
        holder: Identity in the Lease; "" if it has no holder.
        endpoint: Endpoint of the holder; None if it announces none that can be used.
    """

    is_standby: bool
    lease: str = ""
    holder: str = ""
    endpoint: LeaderEndpoint | None = None


class _Announcement(msgspec.Struct, frozen=True, rename="camel"):
    identity: str
    url: str
    certificate_sha256: str = ""


def announcement(identity: str, endpoint: LeaderEndpoint) -> str:
    """Return the value of the annotation."""
    return msgspec.json.encode(_Announcement(identity, endpoint.url, endpoint.certificate_sha256)).decode()


def announced_endpoint(text: object, holder: str) -> LeaderEndpoint | None:
    """Parse the annotation.

    Args:
        text: Its value, None if the Lease has none.

    Returns:
        The endpoint; None if there is none, another process wrote it, or it must not be connected to.
    """
    if not isinstance(text, str) or len(text) > _MAX_LENGTH:
        return None
    try:
        found = msgspec.json.decode(text, type=_Announcement)
    except msgspec.DecodeError:
        return None
    endpoint = LeaderEndpoint(found.url, found.certificate_sha256)
    return endpoint if holder and found.identity == holder and not endpoint_problem(endpoint) else None


def endpoint_url(scheme: str, address: str, port: int) -> str:
    """Return the URL of an IP address and a port."""
    return f"{scheme}://{f'[{address}]' if ':' in address else address}:{port}"


def endpoint_problem(endpoint: LeaderEndpoint) -> str:
    """Return why an endpoint must not be connected to; "" if it may be.

    Plain HTTP is accepted only on loopback, where no token is sent; HTTPS only with the hash of a certificate.
    """
    try:
        parts = urlsplit(endpoint.url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        return f"the URL cannot be read: {error}"
    problem = address_problem(host)
    if problem:
        return problem
    if not port or endpoint.url != endpoint_url(parts.scheme, host, port):
        return "the URL must be scheme, IP address and port"
    if parts.scheme == "http":
        return "" if is_loopback(endpoint.url) else "plain HTTP is accepted on loopback only"
    if parts.scheme != "https":
        return f'the scheme must be https, not "{parts.scheme}"'
    return "" if _FINGERPRINT.fullmatch(endpoint.certificate_sha256) else "the SHA-256 of the certificate is missing"


def address_problem(text: str) -> str:
    """Return why a text is not the IP address of a replica; "" if it is one.

    Link-local addresses are rejected, because cloud providers serve credentials there.
    """
    address = _address(text)
    if address is None:
        return f'must be an IP address, not "{text}"'
    if address.is_link_local or address.is_multicast or address.is_unspecified or str(address) == "255.255.255.255":
        return f"must be the address of one host, not {text}"
    return ""


def is_loopback(url: str) -> bool:
    """Return whether the host of a URL is a loopback address."""
    address = _address(urlsplit(url).hostname or "")
    return address is not None and address.is_loopback


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an IP address, also IPv4 written as IPv6; None for a name and for an address with a zone."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        return None if address.scope_id else address.ipv4_mapped or address
    return address
