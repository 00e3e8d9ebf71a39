"""The API server that a command asks with the rights of its user.

Owns the options that choose it, and the namespace of the kubeconfig's context. It must not know what is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from bayplan.kube.cluster_access import open_connection
from bayplan.kube.connection import ApiConnection, ConnectionOptions
from bayplan.kube.system_clock import SystemClock
from bayplan.settings import Settings, revision_namespace

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any] | click.Command)


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """Which API server; None for what kubectl would take.

    Attributes:
        kubeconfig: The file.
        context: Its context.
        namespace: Of the kept revisions, as asked for.
    """

    kubeconfig: Path | None
    context: str | None
    namespace: str | None

    @property
    def own_namespace(self) -> str:
        """Where an operator that is run with the same kubeconfig keeps revisions."""
        kubeconfig = None if self.kubeconfig is None else str(self.kubeconfig)
        return revision_namespace(Settings(kubeconfig=kubeconfig, context=self.context))

    def run(self, work: Callable[[ApiConnection], Awaitable[T]]) -> T:
        """Do something with a connection, and close it.

        Raises:
            ConfigError: The kubeconfig cannot be used.
        """

        async def connected() -> T:
            async with await open_connection(
                self.kubeconfig, self.context, ConnectionOptions(), SystemClock()
            ) as connection:
                return await work(connection)

        return asyncio.run(connected())


def cluster_options(command: Command) -> Command:
    """Add the options of which :class:`ClusterChoice` is made: ``namespace``, ``kubeconfig`` and ``kube_context``."""
    for option in (
        click.option("--context", "kube_context", help="A context of the kubeconfig."),
        click.option("--kubeconfig", type=click.Path(path_type=Path), help="As kubectl when left out."),
        click.option(
            "-n",
            "--namespace",
            help="Namespace of the kept revisions, the operator's own.  [default: all are searched, or that of the "
            "context where you may not list them everywhere]",
        ),
    ):
        command = option(command)
    return command
