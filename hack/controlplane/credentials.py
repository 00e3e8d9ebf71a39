"""Credentials for the test API server: bearer tokens, the service-account key, and kubeconfig files.

Users have static tokens and no client certificates: the standard library can write a token file, but issuing
certificates needs a further dependency or the openssl program.
"""

import base64
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

# The order of P-256's base point, SEC 2 version 2.0, section 2.4.2: a private key is a number from 1 to this minus 1.
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551

_CONTEXT = "bayplan"


@dataclass(frozen=True, slots=True)
class User:
    """A user that the API server identifies by a bearer token.

    Args:
        name: User name, as in RBAC subjects and in the audit log.
        groups: Groups; "system:masters" may do everything.
    """

    name: str
    groups: tuple[str, ...] = ()
    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)


def write_tokens(path: Path, users: Sequence[User]) -> None:
    """Write the file for `--token-auth-file`.

    Args:
        path: File to write, readable by the owner only.
    """
    rows = [f'{user.token},{json.dumps(user.name)},{user.name},"{",".join(user.groups)}"' for user in users]
    write_secret(path, "\n".join(rows) + "\n")


def write_service_account_key(path: Path) -> None:
    """Write a fresh private key (ECDSA on P-256, PEM of RFC 5915) that signs service-account tokens.

    Args:
        path: File to write, readable by the owner only.
    """
    scalar = (secrets.randbelow(_P256_ORDER - 1) + 1).to_bytes(32, "big")
    # ECPrivateKey: version 1, the key, and as [0] the curve's name (1.2.840.10045.3.1.7). The public half is optional.
    curve = bytes.fromhex("06082a8648ce3d030107")
    body = b"\x02\x01\x01" + b"\x04\x20" + scalar + b"\xa0" + bytes([len(curve)]) + curve
    encoded = base64.b64encode(b"\x30" + bytes([len(body)]) + body).decode()
    lines = [encoded[start : start + 64] for start in range(0, len(encoded), 64)]
    label = "EC PRIVATE KEY"
    write_secret(path, "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""]))


def write_kubeconfig(path: Path, server: str, ca_pem: str, user: User) -> None:
    """Write a kubeconfig that verifies the server and authenticates as one user.

    Args:
        path: File to write, readable by the owner only.
        ca_pem: Certificates to trust, PEM.
        user: User whose token the file contains.
    """
    authority = base64.b64encode(ca_pem.encode()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _CONTEXT, "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": user.name, "user": {"token": user.token}}],
        "contexts": [{"name": _CONTEXT, "context": {"cluster": _CONTEXT, "user": user.name, "namespace": "default"}}],
        "current-context": _CONTEXT,
    }
    write_secret(path, yaml.safe_dump(config, sort_keys=False))


def write_secret(path: Path, text: str) -> None:
    """Write a file that is readable by its owner only from its creation on."""
    path.touch(mode=0o600)
    path.write_text(text)
