"""Credentials from a kubeconfig or from the pod's service account.

The only use of the Kubernetes client library: it supports every form of kubeconfig, credential plugins and token
rotation. Its HTTP client is not used: it takes three times as much CPU per bind as aiohttp alone.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import yaml
from kubernetes.aio import config
from kubernetes.aio.client import Configuration
from kubernetes.aio.config.config_exception import ConfigException

from bayplan.kube.connection import ApiConnection, ConnectionOptions
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.ports import Clock


class ConfiguredAccess:
    """Access to a cluster from the client library's configuration.

    Args:
        configuration: The loaded configuration.
        reload: Loads it again in place; called at most once a minute and after HTTP 401.
    """

    def __init__(self, configuration: Configuration, reload: Callable[[], Awaitable[None]]) -> None:
        self.configuration = configuration
        self._reload = reload
        self._fresh = True
        self._client_certificate = ""
        self._ssl_context = self._make_ssl_context()

    @property
    def base_url(self) -> str:
        """Scheme, host, port and prefix."""
        return str(self.configuration.host).rstrip("/")

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        """The verifying TLS context; None for a plain HTTP URL."""
        return self._ssl_context

    @property
    def server_name(self) -> str | None:
        """``tls-server-name`` of the kubeconfig."""
        return self.configuration.tls_server_name or None

    @property
    def proxy(self) -> str | None:
        """``proxy-url`` of the kubeconfig."""
        return self.configuration.proxy or None

    async def authorization(self) -> str | None:
        """Return the Authorization header after a reload; client certificates that a plugin renewed are loaded too."""
        if not self._fresh:
            await self._reload()
        self._fresh = False
        self._load_client_certificate()
        token = self.configuration.api_key.get("BearerToken")
        return " ".join(str(token).split()) if token else None

    def _make_ssl_context(self) -> ssl.SSLContext | None:
        if not self.base_url.startswith("https"):
            return None
        context = ssl.create_default_context(cafile=self.configuration.ssl_ca_cert or None)
        # Cluster CAs often lack extensions that strict mode (default since Python 3.13) requires; Go does not.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not self.configuration.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        self._ssl_context = context
        self._load_client_certificate()
        return context

    def _load_client_certificate(self) -> None:
        certificate = self.configuration.cert_file
        if self._ssl_context is not None and certificate and certificate != self._client_certificate:
            self._ssl_context.load_cert_chain(certificate, keyfile=self.configuration.key_file or None)
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
    configuration = Configuration()
    try:
        loader = await config.load_kube_config(  # type: ignore[no-untyped-call]  # the library has no annotations
            config_file=None if path is None else str(path),
            context=context,
            client_configuration=configuration,
            persist_config=False,
        )

        async def reload() -> None:
            await loader.load_and_set(configuration)

        return ConfiguredAccess(configuration, reload)
    except (ConfigException, yaml.YAMLError, TypeError, AttributeError, OSError) as error:
        where = path or "at $KUBECONFIG or ~/.kube/config"
        raise ConfigError([Problem("", f"kubeconfig {where} cannot be used: {error}; correct it")]) from error


def _load_service_account(configuration: Configuration) -> None:
    config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]  # the library has no annotations


async def from_service_account() -> ConfiguredAccess:
    """Return the access of the pod's service account.

    Raises:
        ConfigError: This process does not run in a pod with a service account token.
    """
    configuration = Configuration()
    try:
        _load_service_account(configuration)
    except (ConfigException, OSError) as error:
        problem = Problem("", f"not running in a cluster: {error}; set --kubeconfig")
        raise ConfigError([problem]) from error

    async def reload() -> None:
        _load_service_account(configuration)

    return ConfiguredAccess(configuration, reload)


async def open_connection(
    kubeconfig: Path | None, context: str | None, options: ConnectionOptions, clock: Clock, *, in_cluster: bool = False
) -> ApiConnection:
    """Open a connection with a kubeconfig, or with the service account if ``in_cluster``.

    Raises:
        ConfigError: The credentials cannot be loaded.
    """
    access = await (from_service_account() if in_cluster else from_kubeconfig(kubeconfig, context))
    return ApiConnection(access, options, clock)
