"""Credentials of an API server, from the pod's service account or from a plain kubeconfig.

A kubeconfig is plain if its user has a token, a token file or a client certificate in files. The client library reads
all others (:mod:`bayplan.kube.kubeconfig_access`), because the library's import takes a fifth of the start-up time.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from msgspec import Struct

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet mounts the token and the certificate authority."""

_DEFAULT_KUBECONFIG = "~/.kube/config"

Part = TypeVar("Part", bound=Struct)


@dataclass
class Credentials:
    """Address and credentials of an API server.

    The names are those of the client library's ``Configuration``, because the library's loader sets them here.

    Attributes:
        host: Scheme, host, port and prefix.
        api_key: The Authorization header by the key ``BearerToken``.
        ssl_ca_cert: File of the certificate authority; None with ``ca_cert_data`` None too for the system's.
        ca_cert_data: PEM text of the certificate authority.
        verify_ssl: Whether the server's certificate is verified.
        tls_server_name: Name in the server's certificate if it is not the host.
    """

    host: str = "http://localhost"
    api_key: dict[str, str] = field(default_factory=dict)
    ssl_ca_cert: str | None = None
    ca_cert_data: str | None = None
    verify_ssl: bool = True
    cert_file: str | None = None
    key_file: str | None = None
    tls_server_name: str | None = None
    proxy: str | None = None


def load_service_account(credentials: Credentials, directory: Path = SERVICE_ACCOUNT) -> None:
    """Load the service account of this pod; the environment has the API server's address.

    Args:
        credentials: Receives the address, the token and the certificate authority.
        directory: Has the token and the certificate authority.

    Raises:
        OSError: The address is not set, or a file cannot be read or is empty.
    """
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    if not host or not port:
        raise OSError("KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is not set")
    token, authority = directory / "token", directory / "ca.crt"
    for file in (token, authority):
        if not file.read_text(encoding="utf-8").strip():
            raise OSError(f"{file} is empty")
    credentials.host = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    credentials.ssl_ca_cert = str(authority)
    credentials.api_key["BearerToken"] = f"Bearer {token.read_text(encoding='utf-8')}"


def kubeconfig_files(path: Path | None) -> list[Path]:
    """Return the files of a kubeconfig: ``path``, or those of ``$KUBECONFIG``, or ``~/.kube/config``."""
    if path is not None:
        return [path]
    names = os.environ.get("KUBECONFIG") or _DEFAULT_KUBECONFIG
    return [Path(name).expanduser() for name in names.split(os.pathsep) if name]


class _Cluster(Struct, rename="kebab", forbid_unknown_fields=True):
    server: str
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None
    extensions: Any = None


class _User(Struct, rename="kebab", forbid_unknown_fields=True):
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    client_certificate: str = ""
    client_key: str = ""


class _Context(Struct):
    cluster: str
    user: str


class _Document(Struct, rename="kebab"):
    contexts: list[dict[str, Any]]
    clusters: list[dict[str, Any]]
    users: list[dict[str, Any]]
    current_context: str = ""


class PlainKubeconfig:
    """A context of a plain kubeconfig.

    Args:
        path: The file; None for ``$KUBECONFIG`` or ``~/.kube/config``. File names in it are relative to its folder.
        context: Name of the context; None for the current one.

    Raises:
        ValueError: The kubeconfig is not plain, or not valid.
        OSError: A file cannot be read.
    """

    def __init__(self, path: Path | None, context: str | None) -> None:
        # Several files in $KUBECONFIG are one name that does not exist here; the library reads them.
        file = path or Path(os.environ.get("KUBECONFIG") or _DEFAULT_KUBECONFIG).expanduser()
        self._folder = file.absolute().parent
        try:
            document = msgspec.convert(yaml.safe_load(file.read_bytes()), _Document)
            chosen = _named(document.contexts, context or document.current_context, "context", _Context)
            self._cluster = _named(document.clusters, chosen.cluster, "cluster", _Cluster)
            self._user = _named(document.users, chosen.user, "user", _User)
        except (yaml.YAMLError, msgspec.ValidationError) as error:
            raise ValueError(str(error)) from error
        self._authority = base64.b64decode(self._cluster.certificate_authority_data).decode("ascii")

    def load(self, credentials: Credentials) -> None:
        """Load everything; a token file is read again.

        Raises:
            ValueError: A certificate or key is not a file.
            OSError: The token file cannot be read.
        """
        cluster, user = self._cluster, self._user
        credentials.host = cluster.server
        credentials.verify_ssl = not cluster.insecure_skip_tls_verify
        credentials.tls_server_name = cluster.tls_server_name
        credentials.proxy = cluster.proxy_url
        if cluster.server.startswith("https"):
            credentials.ca_cert_data = self._authority or None
            credentials.ssl_ca_cert = None if self._authority else self._path(cluster.certificate_authority)
            credentials.cert_file = self._path(user.client_certificate)
            credentials.key_file = self._path(user.client_key)
        token = user.token
        if user.token_file and not token:
            token = (self._folder / user.token_file).read_text(encoding="utf-8")
        if token:
            credentials.api_key["BearerToken"] = f"Bearer {token}"

    def _path(self, name: str) -> str | None:
        if not name:
            return None
        path = self._folder / name
        if not path.is_file():
            raise ValueError(f"{path} is not a file")
        return str(path)


def _named(entries: Sequence[Mapping[str, Any]], name: str, key: str, kind: type[Part]) -> Part:
    for entry in entries:
        if entry.get("name") == name:
            return msgspec.convert(entry.get(key), kind)
    raise ValueError(f'no {key} "{name}"')
