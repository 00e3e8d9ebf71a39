"""Credentials for the test API server: bearer tokens, the service-account key, and kubeconfig files.

Users have static tokens and no client certificates: the API server identifies them by one line of a file.
"""

import base64
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

_CONTEXT = "bayplan"


@dataclass(frozen=True, slots=True)
class User:
    """A user that the API server identifies by a bearer token; the group "system:masters" may do everything."""

    name: str
    groups: tuple[str, ...] = ()
    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)


def write_tokens(path: Path, users: Sequence[User]) -> None:
    """Write the file for `--token-auth-file`, readable by the owner only."""
    rows = [f'{user.token},{json.dumps(user.name)},{user.name},"{",".join(user.groups)}"' for user in users]
    write_secret(path, "\n".join(rows) + "\n")


def write_service_account_key(path: Path) -> None:
    """Write a fresh key for service-account tokens (ECDSA on P-256, PEM of RFC 5915); only the owner reads it."""
    key = ec.generate_private_key(ec.SECP256R1())
    write_secret(path, key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode())


def write_kubeconfig(path: Path, server: str, ca_pem: str, user: User) -> None:
    """Write a kubeconfig with a user's token that verifies the server by *ca_pem*; only the owner reads it."""
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
