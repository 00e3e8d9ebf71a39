"""Credentials from a kubeconfig or from the pod's service account.

The only use of the Kubernetes client library: it reads the kubeconfigs that :mod:`bayplan.kube.credentials` does not
read, with every form of credentials. Its HTTP client takes three times as much CPU per bind as aiohttp alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from bayplan.kube.credentials import SERVICE_ACCOUNT, Credentials, PlainKubeconfig, load_service_account
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.http.tls_context import ClientContext, client_context
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.ports import Clock


class ConfiguredAccess:
    """Access to a cluster by loaded credentials.

    Args:
        credentials: The loaded credentials.
        reload: Loads it again in place; called at most once a minute and after HTTP 401.
    """

    def __init__(self, credentials: Credentials, reload: Callable[[], Awaitable[None]]) -> None:
        self.credentials = credentials
        self._reload = reload
        self._fresh = True
        self._client_certificate = ""
        self._ssl_context = self._make_ssl_context()

    @property
    def base_url(self) -> str:
        """Scheme, host, port and prefix."""
        return str(self.credentials.host).rstrip("/")

    @property
    def ssl_context(self) -> ClientContext | None:
        """The verifying TLS context; None for a plain HTTP URL."""
        return self._ssl_context

    @property
    def proxy(self) -> str | None:
        """``proxy-url`` of the kubeconfig."""
        return self.credentials.proxy or None

    async def authorization(self) -> str | None:
        """Return the Authorization header after a reload; client certificates that a plugin renewed are loaded too."""
        if not self._fresh:
            await self._reload()
        self._fresh = False
        self._load_client_certificate()
        token = self.credentials.api_key.get("BearerToken")
        return " ".join(str(token).split()) if token else None

    def _make_ssl_context(self) -> ClientContext | None:
        if not self.base_url.startswith("https"):
            return None
        credentials = self.credentials
        host, name = urlsplit(self.base_url).hostname or "", credentials.tls_server_name
        context = client_context(
            credentials.ca_cert_data or None,
            credentials.ssl_ca_cert or None,
            is_verified=credentials.verify_ssl,
            names={host: name} if name else None,
        )
        self._ssl_context = context
        self._load_client_certificate()
        return context

    def _load_client_certificate(self) -> None:
        certificate = self.credentials.cert_file
        if self._ssl_context is not None and certificate and certificate != self._client_certificate:
            self._ssl_context.load_cert_chain(certificate, keyfile=self.credentials.key_file or None)
            self._client_certificate = certificate


async def from_kubeconfig(path: Path | None = None, context: str | None = None) -> ConfiguredAccess:
    """Return the access that a kubeconfig configures.

    Args:
        path: The file; None for ``$KUBECONFIG`` or ``~/.kube/config``.
        context: Name of the context; None for the current one.

    Raises:
        ConfigError: The file does not exist or cannot be used.
    """
    if path is not None and not await asyncio.to_thread(path.is_file):
        raise ConfigError([Problem("", f"kubeconfig {path} does not exist; set --kubeconfig or KUBECONFIG")])
    credentials = Credentials()
    try:
        return ConfiguredAccess(credentials, await _loaded_kubeconfig(path, context, credentials))
    except (ValueError, OSError) as error:
        where = path or "at $KUBECONFIG or ~/.kube/config"
        raise ConfigError([Problem("", f"kubeconfig {where} cannot be used: {error}; correct it")]) from error


async def _loaded_kubeconfig(
    path: Path | None, context: str | None, credentials: Credentials
) -> Callable[[], Awaitable[None]]:
    """Load a kubeconfig, and return the function that loads it again."""
    try:
        plain = PlainKubeconfig(path, context)
        plain.load(credentials)
    except (ValueError, OSError):
        return await _loaded_by_library(path, context, credentials)

    async def reload() -> None:
        plain.load(credentials)

    return reload


async def _loaded_by_library(
    path: Path | None, context: str | None, credentials: Credentials
) -> Callable[[], Awaitable[None]]:
    """Load a kubeconfig of any form as :func:`_loaded_kubeconfig`; invalid ones get the library's message."""
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
    """Return the access of the pod's service account.

    Args:
        directory: Has the token and the certificate authority.

    Raises:
        ConfigError: This process does not run in a pod with a service account token.
    """
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
    """Open a connection with a kubeconfig.

    Raises:
        ConfigError: The credentials cannot be loaded.
    """
    return ApiConnection(await from_kubeconfig(kubeconfig, context), options, clock)
