"""Settings of the HTTP server: the address, TLS and authorization.

Names follow kube-scheduler v1.37.1's flags if it has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from typing import Literal

from pydantic import Field

from bayplan.kube.leader_election import address_problem
from scheduler_core.config.config_model import ConfigModel, RuleProblem

DEFAULT_SERVE_ADDRESS = "127.0.0.1:10259"

TlsVersion = Literal["VersionTLS12", "VersionTLS13"]


class ServingSettings(ConfigModel):
    """Settings of the server of health, metrics, ``/debug`` and the page."""

    serve_address: str = Field(
        default=DEFAULT_SERVE_ADDRESS,
        description='host:port of /livez, /readyz and /metrics; "" disables the server. In a pod, use 0.0.0.0:10260 '
        "with 127.0.0.1:10259 as localAddress.",
    )
    local_address: str = Field(
        default="",
        description="host:port on loopback for local requests, which need no token: commands in the pod and kubectl "
        'port-forward. "" for none: local requests are then those to serveAddress, if it is loopback.',
    )
    advertise_address: str | None = Field(
        default=None,
        min_length=1,
        description="IP address at which other replicas reach the port of serveAddress. A leader writes it into its "
        "Lease, so that commands that query a standby follow it.",
    )
    secure_serving: bool = Field(
        default=False,
        description="Serve HTTPS. Without tlsCertFile a certificate is generated at start and stored in memory.",
    )
    tls_cert_file: str | None = Field(
        default=None,
        min_length=1,
        description="PEM file of the certificate for HTTPS, followed by its intermediates; reloaded when it changes.",
    )
    tls_private_key_file: str | None = Field(
        default=None, min_length=1, description="PEM file of the private key of tlsCertFile, without a passphrase."
    )
    tls_min_version: TlsVersion = Field(default="VersionTLS12", description="Minimum TLS version.")
    authorize_requests: bool = Field(
        default=False,
        description="Accept requests from other hosts only if the API server authenticates their bearer token and "
        "authorizes them to get the path; /livez, /readyz and /healthz are open to all.",
    )
    serve_page: bool = Field(
        default=False,
        description="Serve the read-only page at /page. Callers from other hosts need authorizeRequests and a token.",
    )
    page_viewers: int = Field(
        default=10, ge=1, le=1000, description="Maximum number of browsers that read the page at the same time."
    )

    def serving_problems(self) -> Iterator[RuleProblem]:
        """Validate the address, that a certificate has its key, and that tokens are not sent unencrypted."""
        if self.serve_address:
            yield from host_and_port_problems(
                "serveAddress", self.serve_address, f'"{DEFAULT_SERVE_ADDRESS}", or "" to disable the server'
            )
        yield from self._local_address_problems()
        problem = "" if self.advertise_address is None else address_problem(self.advertise_address)
        if problem:
            yield RuleProblem(("advertiseAddress",), problem)
        if self.tls_cert_file and not self.tls_private_key_file:
            yield RuleProblem(("tlsPrivateKeyFile",), "must be set together with tlsCertFile")
        if self.tls_private_key_file and not self.tls_cert_file:
            yield RuleProblem(("tlsCertFile",), "must be set together with tlsPrivateKeyFile")
        if self.serve_page and not self.serve_address:
            yield RuleProblem(("servePage",), "requires serveAddress: the page has no server of its own")
        if self.authorize_requests and not self.serves_tls:
            yield RuleProblem(
                ("authorizeRequests",), "requires secureServing or tlsCertFile: tokens must not be sent unencrypted"
            )

    def _local_address_problems(self) -> Iterator[RuleProblem]:
        if not self.local_address:
            return
        host, _, port = self.local_address.rpartition(":")
        if not _is_loopback(host.strip("[]")) or not port.isdigit() or int(port) > 65535:
            yield RuleProblem(
                ("localAddress",),
                f'must be a loopback address and a port such as "127.0.0.1:10259", not "{self.local_address}"',
            )
        elif int(port) and port == self.serve_address.rpartition(":")[2]:
            yield RuleProblem(("localAddress",), f"must have another port than serveAddress, {self.serve_address}")

    @property
    def serves_tls(self) -> bool:
        """Whether HTTPS is served: it is enabled, or there is a certificate for it."""
        return self.secure_serving or self.tls_cert_file is not None

    @property
    def serve_host_and_port(self) -> tuple[str, int] | None:
        """Address to listen on; None if the server is disabled."""
        return _host_and_port(self.serve_address)

    @property
    def local_host_and_port(self) -> tuple[str, int] | None:
        """Address to listen on for local requests; None for no separate one."""
        return _host_and_port(self.local_address)


def host_and_port_problems(field: str, address: str, example: str) -> Iterator[RuleProblem]:
    """Yield the problem of an address that is not host:port."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        yield RuleProblem((field,), f'must be host:port such as {example}, not "{address}"')


def _host_and_port(address: str) -> tuple[str, int] | None:
    if not address:
        return None
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _is_loopback(text: str) -> bool:
    try:
        return ip_address(text).is_loopback
    except ValueError:
        return False
