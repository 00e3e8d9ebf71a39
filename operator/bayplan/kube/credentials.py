"""Credentials of an API server, from the pod's service account or from a plain kubeconfig.

A kubeconfig is plain if its user has a token, a token file or a client certificate in files. The client library reads
all others.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from msgspec import Struct

from bayplan.kube.http.byte_stream import client_context
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.ports import Clock

_logger = logging.getLogger(__name__)

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet mounts the token and the certificate authority."""

_DEFAULT_KUBECONFIG = "~/.kube/config"

Part = TypeVar("Part", bound=Struct)


@dataclass
class Credentials:
    """Address and credentials of an API server.

    The names are those of the client library's ``Configuration``, because the library's loader sets them here.

    Attributes:
        api_key: The Authorization header by the key ``BearerToken``.
        ssl_ca_cert: File of the certificate authority; None with ``ca_cert_data`` None too for the system's.
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
    """Load the service account of this pod; raises OSError if address, token or authority are missing or empty."""
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
    # Other fields, such as those of a credential plugin, are errors, so that the client library reads the kubeconfig.
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


class _NamedContext(Struct):
    name: str


class _Contexts(Struct, rename="kebab"):
    contexts: list[_NamedContext] | None = None
    current_context: str | None = None


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
        """Load everything, a token file again; raises ValueError or OSError if a file cannot be used."""
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


class ConfiguredAccess:
    """Implementation of :class:`bayplan.kube.http.api_request.ClusterAccess` by loaded credentials.

    Args:
        reload: Loads it again in place; called at most once a minute and after HTTP 401.
    """

    def __init__(self, credentials: Credentials, reload: Callable[[], Awaitable[None]]) -> None:
        self.credentials = credentials
        self._reload = reload
        self._fresh = True
        self._certificates: tuple[bytes | str | None, ...] = ()
        self._last_error = ""
        self._ssl_context = self._renewed_context() if self.base_url.startswith("https") else None

    @property
    def base_url(self) -> str:
        return str(self.credentials.host).rstrip("/")

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        return self._ssl_context

    @property
    def server_hostname(self) -> str | None:
        return self.credentials.tls_server_name or None

    @property
    def proxy(self) -> str | None:
        return self.credentials.proxy or None

    async def authorization(self) -> str | None:
        """Return the Authorization header after a reload; renewed certificates are loaded, too."""
        if not self._fresh:
            await self._reload()
        self._fresh = False
        if self._ssl_context is not None:
            self._renew_certificates()
        token = self.credentials.api_key.get("BearerToken")
        # A token file ends with a line feed, which a header must not have.
        return " ".join(str(token).split()) if token else None

    def _renew_certificates(self) -> None:
        try:
            # Cert-manager, kubeadm and the kubelet renew certificates in place.
            if self._read_certificates() != self._certificates:
                self._ssl_context = self._renewed_context()
                _logger.info("Loaded the renewed certificates for %s", self.base_url)
            self._last_error = ""
        except (OSError, ValueError) as error:
            # The files may be read in the middle of a renewal; a lasting error is logged once.
            if str(error) != self._last_error:
                _logger.warning(
                    "The certificates for %s cannot be loaded (%s); the last valid ones stay in use",
                    self.base_url,
                    error,
                )
            self._last_error = str(error)

    def _renewed_context(self) -> ssl.SSLContext:
        # Before the context loads the files: a renewal in between differs from this content and is loaded later.
        credentials, content = self.credentials, self._read_certificates()
        # OpenSSL only adds to a context: in the previous one a removed authority would stay trusted, and a certificate
        # of another key type would stay beside the new one.
        context = client_context(
            credentials.ca_cert_data or None, credentials.ssl_ca_cert or None, is_verified=credentials.verify_ssl
        )
        if credentials.cert_file:
            context.load_cert_chain(credentials.cert_file, keyfile=credentials.key_file or None)
        self._certificates = content
        return context

    def _read_certificates(self) -> tuple[bytes | str | None, ...]:
        credentials = self.credentials
        files = (credentials.ssl_ca_cert, credentials.cert_file, credentials.key_file)
        return credentials.ca_cert_data, *(Path(file).read_bytes() if file else None for file in files)


async def from_kubeconfig(path: Path | None = None, context: str | None = None) -> ConfiguredAccess:
    """Return the access that a kubeconfig configures; raises ConfigError if that cannot be used."""
    if path is not None and not await asyncio.to_thread(path.is_file):
        raise ConfigError([Problem("", f"kubeconfig {path} does not exist; set --kubeconfig or KUBECONFIG")])
    _check_context(kubeconfig_files(path), context)
    credentials = Credentials()
    try:
        return ConfiguredAccess(credentials, await _loaded_kubeconfig(path, context, credentials))
    except (ValueError, OSError) as error:
        where = path or "at $KUBECONFIG or ~/.kube/config"
        raise ConfigError([Problem("", f"kubeconfig {where} cannot be used: {error}; correct it")]) from error


def _check_context(files: Sequence[Path], context: str | None) -> None:
    """Raise ConfigError for a missing kubeconfig or context, with those that exist; the loader finds the rest."""
    names = ", ".join(str(file) for file in files)
    if not any(file.is_file() for file in files):
        raise ConfigError([Problem("", f"no kubeconfig: {names} does not exist; set KUBECONFIG or --kubeconfig")])
    try:
        documents = [msgspec.convert(yaml.safe_load(content), _Contexts) for content in _contents(files) if content]
    except (yaml.YAMLError, msgspec.ValidationError):
        return
    known = [each.name for document in documents for each in document.contexts or ()]
    chosen = context or next((each.current_context for each in documents if each.current_context), "")
    if chosen in known:
        return
    listed = f"contexts: {', '.join(known)}" if known else "it has no contexts"
    problem = f'has no context "{chosen}"' if chosen else "has no current context"
    raise ConfigError([Problem("", f"kubeconfig {names} {problem}; {listed}; set --context")])


def current_context(path: Path | None) -> str:
    """Return the name of the current context of a kubeconfig; "" if there is none, or if it cannot be read."""
    try:
        return _current_context(_contents(kubeconfig_files(path))) or ""
    except (OSError, ValueError, yaml.YAMLError):
        return ""


async def _loaded_kubeconfig(
    path: Path | None, context: str | None, credentials: Credentials
) -> Callable[[], Awaitable[None]]:
    """Load a kubeconfig, and return the function that loads it again."""
    files = kubeconfig_files(path)
    content, load = _contents(files), await _loader(path, context, credentials)
    # `kubectl config use-context` must not lead a running process to another cluster.
    context = context or _current_context(content)

    async def reload() -> None:
        nonlocal content, load
        # kubeadm renews the certificates within the file.
        newest = _contents(files)
        if newest == content:
            return await load()
        # Stored even if it cannot be used, so that the warning is logged once; loaded apart, so that the last valid
        # credentials stay in use.
        content, changed = newest, Credentials()
        try:
            newest_load = await _loader(path, context, changed)
        except (ValueError, OSError) as error:
            _logger.warning("The changed kubeconfig cannot be used (%s); the last valid one stays in use", error)
            return await load()
        if changed.host != credentials.host:
            _logger.warning("The changed kubeconfig has another server, %s; restart to connect to it", changed.host)
            return await load()

        async def load_changed() -> None:
            # A plugin may return other files of certificates each time.
            await newest_load()
            vars(credentials).update(vars(changed))

        load = load_changed
        vars(credentials).update(vars(changed))
        return None

    return reload


def _current_context(content: Sequence[bytes]) -> str | None:
    """Return the current context of a kubeconfig of several files: the first one that has it decides."""
    try:
        documents = [yaml.safe_load(each) for each in content]
    except yaml.YAMLError:
        return None
    found = (each["current-context"] for each in documents if isinstance(each, dict) and each.get("current-context"))
    return next((str(name) for name in found), None)


def _contents(files: Sequence[Path]) -> tuple[bytes, ...]:
    return tuple(file.read_bytes() if file.is_file() else b"" for file in files)


async def _loader(path: Path | None, context: str | None, credentials: Credentials) -> Callable[[], Awaitable[None]]:
    """Load a kubeconfig, and return the function that loads its token and its files again."""
    try:
        # Without the client library if possible: its import takes a fifth of the start-up time.
        plain = PlainKubeconfig(path, context)
        plain.load(credentials)
    except (ValueError, OSError):
        return await _loader_of_library(path, context, credentials)

    async def reload() -> None:
        plain.load(credentials)

    return reload


async def _loader_of_library(
    path: Path | None, context: str | None, credentials: Credentials
) -> Callable[[], Awaitable[None]]:
    """Load a kubeconfig of any form as :func:`_loader`; invalid ones get the library's message."""
    # Imported here because most kubeconfigs are plain, and the library is a quarter of all modules.
    from kubernetes.aio import config  # noqa: PLC0415
    from kubernetes.aio.config.config_exception import ConfigException  # noqa: PLC0415

    try:
        loader = await config.load_kube_config(  # type: ignore[no-untyped-call]  # the library has no annotations
            config_file=None if path is None else str(path),
            context=context,
            client_configuration=credentials,
            persist_config=False,
        )
    except (ConfigException, yaml.YAMLError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error

    async def reload() -> None:
        await loader.load_and_set(credentials)

    return reload


async def from_service_account(directory: Path = SERVICE_ACCOUNT) -> ConfiguredAccess:
    """Return the access of the pod's service account in a directory; raises ConfigError if there is none."""
    credentials = Credentials()

    async def reload() -> None:
        load_service_account(credentials, directory)

    try:
        await reload()
        return ConfiguredAccess(credentials, reload)
    except OSError as error:
        problem = Problem("", f"not running in a cluster: {error}; set --kubeconfig")
        raise ConfigError([problem]) from error


async def open_connection(
    kubeconfig: Path | None, context: str | None, options: ConnectionOptions, clock: Clock
) -> ApiConnection:
    """Open a connection with a kubeconfig; raises ConfigError if the credentials cannot be loaded."""
    return ApiConnection(await from_kubeconfig(kubeconfig, context), options, clock)
