"""The ``bayplan`` command and its subcommands, and the conversion of errors to messages and exit codes.

Subcommands are imported only when they are called, because ``bayplan version`` and ``--help`` must not wait for the
import of numpy, kopf and aiohttp.
"""

from __future__ import annotations

import json
import platform
import shlex
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from bayplan import REFERENCE_VERSION, __version__
from bayplan.process.garbage_collection import import_without_gc
from bayplan.texts.document_formats import printable, printable_record
from scheduler_core.errors import ConfigError, SchedulerCoreError

if TYPE_CHECKING:
    from bayplan.texts.report_sections import ReportHead

_Command = TypeVar("_Command", bound=Callable[..., Any])

EXIT_ERROR = 1
EXIT_BAD_INPUT = 2

_ALWAYS_BAD_INPUT = ("diff", "replay")
"""Commands whose exit code 1 has another meaning, as of diff(1): every error has exit code 2."""

_SUBCOMMANDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "run": ("bayplan.cli.run:run", "Run the operator and its scheduler."),
        "simulate": ("bayplan.cli.simulate:simulate", "Schedule the pods in files, without a cluster."),
        "diff": ("bayplan.cli.diff:diff", "Show what another profile would decide."),
        "status": ("bayplan.cli.status:status", "Show the state of the running operator."),
        "explain": ("bayplan.cli.explain:explain", "Explain why a pod or gang is or is not scheduled."),
        "fit": ("bayplan.cli.fit:fit", "Report whether pods would be scheduled."),
        "rebalance": ("bayplan.cli.rebalance:rebalance", "Plan moves of running pods."),
        "reserve": ("bayplan.cli.reserve:reserve", "Reserve room for later pods, or list the reservations."),
        "validate": (
            "bayplan.cli.validate:validate",
            "Report all problems of manifests, without a cluster.",
        ),
        "replay": ("bayplan.cli.record:replay_command", "Replay a record of the operator."),
        "record": ("bayplan.cli.record:record", "Show or cut a record of the operator."),
        "bundle": ("bayplan.cli.bundle:bundle", "Write one archive for a ticket."),
        "history": ("bayplan.cli.profile_revisions:history", "Show the stored revisions of a profile."),
        "rollback": ("bayplan.cli.profile_revisions:rollback", "Roll a profile back to an earlier revision."),
        "promote": (
            "bayplan.cli.profile_revisions:promote",
            "Write the spec of a shadow profile into its live profile.",
        ),
        "import-config": (
            "bayplan.cli.import_config:import_config",
            "Convert a KubeSchedulerConfiguration to manifests.",
        ),
        "features": ("bayplan.cli.features:features", "List the feature gates."),
        "completion": ("bayplan.cli.object_names:completion", "Print the script that completes commands in a shell."),
        "version": ("bayplan.cli:version", "Print versions."),
    }
)


_NOT_REPEATED = ("output", "every", "pods", "gangs", "nodes", "fail_on_unschedulable")
"""Options that choose what is printed and the exit code."""


def given_command(context: click.Context) -> str:
    """Return the command as it was given, without the options that choose what is printed."""
    words = ["bayplan", str(context.command.name)]
    for parameter in context.command.params:
        name = str(parameter.name)
        if name in _NOT_REPEATED or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        value = context.params[name]
        if value is True:
            words.append(parameter.opts[0])
            continue
        option = () if isinstance(parameter, click.Argument) else (parameter.opts[0],)
        words += [word for each in (value if isinstance(value, tuple) else (value,)) for word in (*option, str(each))]
    return shlex.join(words)


def is_on_command_line(parameter: str) -> bool:
    """Return whether an option was given as a flag, not by the environment."""
    return click.get_current_context().get_parameter_source(parameter) is ParameterSource.COMMANDLINE


def report_head(context: click.Context, *summary: str, profiles: Iterable[str] = ()) -> ReportHead:
    """Return when and by which command a report is written, of which cluster, and with which profiles."""
    # Imported here because most commands write no report.
    from bayplan.texts.report_sections import ReportHead  # noqa: PLC0415

    params = context.params
    written = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    facts = [("written", written), ("command", given_command(context)), ("bayplan", __version__)]
    cluster = "files" if params.get("files") else str(params.get("server") or params.get("kube_context") or "")
    if not cluster:
        from bayplan.kube.credentials import current_context  # noqa: PLC0415

        cluster = current_context(params.get("kubeconfig"))
    named = (("cluster", cluster), ("profiles", ", ".join(profiles)))
    return ReportHead((*facts, *(each for each in named if each[1])), summary)


def feature_gates_option(text: str) -> Callable[[_Command], _Command]:
    """Return the option ``--feature-gates`` of a command that schedules in memory."""
    unused = "CompatiblePodGroups, CompositePodGroups and DRAWorkloadResourceClaims have no effect here."
    return click.option(
        "--feature-gates", metavar="NAME=BOOL,...", default="", help=f"{text} {unused} See `bayplan features`."
    )


def tie_and_sampling_options(command: _Command) -> _Command:
    """Add ``--seed`` and ``--percentage-of-nodes-to-score`` to a command that schedules in memory."""
    command = click.option(
        "--percentage-of-nodes-to-score",
        "percentage",
        type=click.IntRange(0, 100),
        help="Percentage for profiles that set none; 0 is kube-scheduler's formula.  [default: all nodes]",
    )(command)
    seed = click.option(
        "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed to resolve ties."
    )
    return seed(command)


def allow_invalid_option(reading: str) -> Callable[[_Command], _Command]:
    """Return the option ``--allow-invalid`` of a command that reads objects from files.

    Args:
        reading: Text before the help if the command reads files only with another option, such as ``With -f: ``.
    """
    text = "Read objects that the API server would reject, as far as possible, and print the problems as notes."
    return click.option("--allow-invalid", is_flag=True, help=f"{reading}{text}")


class LazyGroup(click.Group):
    """Command group whose subcommands are imported when they are called; their one-line help needs no import."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the list above."""
        del ctx
        return list(_SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand; None for an unknown name."""
        del ctx
        if cmd_name not in _SUBCOMMANDS:
            return None
        module, _, attribute = _SUBCOMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_without_gc(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand; the error for an unknown one suggests the nearest names."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in _SUBCOMMANDS and not ctx.resilient_parsing:
            from difflib import get_close_matches  # noqa: PLC0415 - its import takes long, and only a mistake needs it

            near = get_close_matches(name, _SUBCOMMANDS, n=2)
            hint = f" Did you mean {' or '.join(near)}?" if near else f" Commands: {', '.join(_SUBCOMMANDS)}."
            ctx.fail(f'No such command "{name}".{hint}')
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _SUBCOMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand; print an error of Bayplan as a message, and as a traceback only with ``--verbose``."""
        try:
            return super().invoke(ctx)
        except SchedulerCoreError as error:
            if ctx.params.get("verbose"):
                raise
            text = f"bayplan: {error}"
            # A configuration error has a line for each problem.
            click.echo(printable(text) if isinstance(error, ConfigError) else printable_record(text), err=True)
            bad_input = isinstance(error, ConfigError) or ctx.invoked_subcommand in _ALWAYS_BAD_INPUT
            ctx.exit(EXIT_BAD_INPUT if bad_input else EXIT_ERROR)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, message="%(prog)s %(version)s", help="Print the version and exit.")
def bayplan(verbose: bool) -> None:
    """Bayplan: a Kubernetes scheduler that is managed as an operator."""
    del verbose  # read by LazyGroup from the context


@click.command(short_help="Print versions.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Output format.")
def version(output: str) -> None:
    """Print the version of Bayplan, of the kube-scheduler whose behaviour it follows, and of Python."""
    versions = {
        "bayplan": __version__,
        "referenceKubeScheduler": REFERENCE_VERSION,
        "python": platform.python_version(),
    }
    if output == "json":
        click.echo(json.dumps(versions))
        return
    click.echo(f"Bayplan {versions['bayplan']}")
    click.echo(f"follows kube-scheduler {versions['referenceKubeScheduler']}")
    click.echo(f"Python {versions['python']}")
