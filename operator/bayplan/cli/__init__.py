"""The ``bayplan`` command and its subcommands.

Owns the list of subcommands, each imported when it is called, and the one place where an error becomes a message and
an exit code. It must not know what a subcommand does. Why lazily: ``bayplan version`` and ``--help`` must not wait for
numpy, kopf and aiohttp.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import click

from bayplan.kept_imports import import_without_gc
from bayplan.printable import printable, printable_record
from scheduler_core.errors import ConfigError, SchedulerCoreError

EXIT_ERROR = 1
EXIT_BAD_INPUT = 2

_SUBCOMMANDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "run": ("bayplan.cli.run:run", "Run the operator and its scheduler."),
        "simulate": ("bayplan.cli.simulate:simulate", "Place the pods of files, without a cluster."),
        "status": ("bayplan.cli.status:status", "Show what the running operator is at."),
        "explain": ("bayplan.cli.explain:explain", "Show why a pod goes where it goes, or nowhere."),
        "validate": (
            "bayplan.cli.validate:validate",
            "Tell all that is wrong with manifests, without a cluster.",
        ),
        "history": ("bayplan.cli.history:history", "Show the kept revisions of a profile."),
        "rollback": ("bayplan.cli.rollback:rollback", "Take a profile back to an earlier revision."),
        "import-config": (
            "bayplan.cli.import_config:import_config",
            "Turn a KubeSchedulerConfiguration into manifests.",
        ),
        "features": ("bayplan.cli.features:features", "List the feature gates."),
        "version": ("bayplan.cli.version:version", "Print versions."),
    }
)


class LazyGroup(click.Group):
    """A group whose subcommands are imported when they are needed; their one-line helps need no import."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the list above."""
        del ctx
        return list(_SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand; None for a name that there is not."""
        del ctx
        if cmd_name not in _SUBCOMMANDS:
            return None
        module, _, attribute = _SUBCOMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_without_gc(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _SUBCOMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand; an error of ours is a message, not a traceback, unless one asks for it."""
        try:
            return super().invoke(ctx)
        except SchedulerCoreError as error:
            if ctx.params.get("verbose"):
                raise
            told = f"bayplan: {error}"
            # The problems of a configuration are a list already.
            click.echo(printable(told) if isinstance(error, ConfigError) else printable_record(told), err=True)
            ctx.exit(EXIT_BAD_INPUT if isinstance(error, ConfigError) else EXIT_ERROR)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error.")
def bayplan(verbose: bool) -> None:
    """Bayplan: a Kubernetes scheduler that is managed as an operator."""
    del verbose  # read by LazyGroup from the context
