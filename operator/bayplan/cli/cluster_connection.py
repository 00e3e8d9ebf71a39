"""Options that select the API server for a command, and the connection to it with the rights of the user."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from bayplan.kube.credentials import open_connection
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.timing import SystemClock

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any] | click.Command)


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """Selected API server; None selects what kubectl would select.

    Attributes:
        namespace: Namespace of the stored revisions, as specified.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None

    @property
    def own_namespace(self) -> str:
        """Namespace in which an operator with the same kubeconfig stores revisions."""
        # Imported here because `bayplan status` must not wait for the import of pydantic.
        from bayplan.settings.operator_settings import Settings, revision_namespace  # noqa: PLC0415

        kubeconfig = None if self.kubeconfig is None else str(self.kubeconfig)
        return revision_namespace(Settings(kubeconfig=kubeconfig, context=self.context))

    def run(self, work: Callable[[ApiConnection], Awaitable[T]]) -> T:
        """Run a function with a connection, and close the connection.

        Raises:
            ConfigError: The kubeconfig cannot be used.
        """

        async def connected() -> T:
            async with await open_connection(
                self.kubeconfig, self.context, ConnectionOptions(), SystemClock()
            ) as connection:
                return await work(connection)

        return asyncio.run(connected())


def kubeconfig_options(command: Command) -> Command:
    command = click.option("--context", "kube_context", help="Context of the kubeconfig.")(command)
    return click.option(
        "--kubeconfig", type=click.Path(path_type=Path), help="Path of the kubeconfig.  [default: as kubectl]"
    )(command)


def cluster_options(command: Command) -> Command:
    """Add the options for :class:`ClusterChoice`: ``revision_namespace``, ``kubeconfig`` and ``kube_context``."""
    return click.option(
        "--revision-namespace",
        help="Namespace of the stored revisions, which is the operator's.  [default: all namespaces, or that of the "
        "context if you may not list revisions in all namespaces]",
    )(kubeconfig_options(command))
