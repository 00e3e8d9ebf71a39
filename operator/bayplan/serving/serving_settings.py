"""Settings of what the operator serves: the address, TLS, and who may ask.

Owns the fields and their rules. It must not know what uses them. Why apart from the other settings: they are one
subject, and read best side by side. Names follow kube-scheduler v1.36.3's flags where it has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from bayplan.kube.leader_endpoint import address_problem
from scheduler_core.config.config_model import ConfigModel, RuleProblem

DEFAULT_SERVE_ADDRESS = "127.0.0.1:10259"

TlsVersion = Literal["VersionTLS12", "VersionTLS13"]


class ServingSettings(ConfigModel):
    """Where and to whom health, metrics and ``/debug`` are served."""

    serve_address: str = Field(
        default=DEFAULT_SERVE_ADDRESS,
        description='host:port of /livez, /readyz and /metrics; "" serves nothing. Use 0.0.0.0:10259 in a pod.',
    )
    advertise_address: str | None = Field(
        default=None,
        min_length=1,
        description="IP address at which other replicas reach the port of serveAddress. A leader writes it into its "
        "Lease, so that commands which ask a standby follow it.",
    )
    secure_serving: bool = Field(
        default=False,
        description="Serve HTTPS. Without tlsCertFile the certificate is made at start and kept in memory.",
    )
    tls_cert_file: str | None = Field(
        default=None,
        min_length=1,
        description="PEM file of the certificate to serve HTTPS with, its intermediates after it; read again when it "
        "changes.",
    )
    tls_private_key_file: str | None = Field(
        default=None, min_length=1, description="PEM file of the private key of tlsCertFile, without a passphrase."
    )
    tls_min_version: TlsVersion = Field(default="VersionTLS12", description="The oldest version of TLS to speak.")
    authorize_requests: bool = Field(
        default=False,
        description="Answer callers from other hosts only if the API server knows their bearer token and lets them "
        "get the path; /livez, /readyz and /healthz answer all.",
    )

    def serving_problems(self) -> Iterator[RuleProblem]:
        """The address can be listened on, a certificate has its key, and no token travels in the clear."""
        if self.serve_address:
            host, _, port = self.serve_address.rpartition(":")
            if not host or not port.isdigit() or int(port) > 65535:
                yield RuleProblem(
                    ("serveAddress",),
                    f'must be host:port such as "{DEFAULT_SERVE_ADDRESS}", or "" to serve nothing, '
                    f'not "{self.serve_address}"',
                )
        problem = "" if self.advertise_address is None else address_problem(self.advertise_address)
        if problem:
            yield RuleProblem(("advertiseAddress",), problem)
        if self.tls_cert_file and not self.tls_private_key_file:
            yield RuleProblem(("tlsPrivateKeyFile",), "must be given with tlsCertFile")
        if self.tls_private_key_file and not self.tls_cert_file:
            yield RuleProblem(("tlsCertFile",), "must be given with tlsPrivateKeyFile")
        if self.authorize_requests and not self.serves_tls:
            yield RuleProblem(
                ("authorizeRequests",), "needs secureServing or tlsCertFile: tokens must not travel in the clear"
            )

    @property
    def serves_tls(self) -> bool:
        """Whether HTTPS is served: it is asked for, or there is a certificate for it."""
        return self.secure_serving or self.tls_cert_file is not None

    @property
    def serve_host_and_port(self) -> tuple[str, int] | None:
        """Where to listen; None to serve nothing."""
        if not self.serve_address:
            return None
        host, _, port = self.serve_address.rpartition(":")
        return host.strip("[]"), int(port)
