"""``bayplan explain``: why a pod goes where it goes, or nowhere.

Owns the command's options and streams. It must not decide or word anything itself.
"""

from __future__ import annotations

import sys

import click

from bayplan.conformance.attempt import attempt_case
from bayplan.conformance.cases import STANDARD_INPUT, decode_case, read_lines
from bayplan.conformance.results import result_line
from scheduler_core.errors import ConfigError, SchedulerCoreError
from scheduler_core.in_tree import default_plugins, in_tree_registry


@click.command(short_help="Show what every plugin says about a pod.")
@click.option(
    "--cases",
    "source",
    required=True,
    metavar="FILE",
    help="Conformance cases, one JSON object a line, plain or gzip; - reads standard input.",
)
@click.pass_context
def explain(context: click.Context, source: str) -> None:
    """Show what every plugin says about a pod.

    With --cases, one attempt is made for the pod of each case and one JSON result a line is written in the conformance
    format, in the order of the cases. A case that cannot be run is reported on standard error and left out; the exit
    code is then 1.
    """
    failed = _run_cases(source)
    if failed:
        click.echo(f"{failed} cases could not be run", err=True)
        context.exit(1)


def _run_cases(source: str) -> int:
    registry, defaults = in_tree_registry(), default_plugins()
    output = sys.stdout.buffer
    noted: set[str] = set()
    failed = 0
    for number, line in enumerate(read_lines(source), start=1):
        name = ""
        try:
            case = decode_case(line)
            name = case.name
            outcome = attempt_case(case, registry, defaults)
        except SchedulerCoreError as error:
            failed += 1
            click.echo(f"{_place(source, number, name)}: {_flat(error)}", err=True)
            continue
        for plugin in outcome.left_out:
            if plugin not in noted:
                noted.add(plugin)
                click.echo(f"note: plugin {plugin} is not built yet and left out of the cases' profiles", err=True)
        output.write(result_line(name, outcome.examination))
    output.flush()
    return failed


def _place(source: str, number: int, name: str) -> str:
    file = "standard input" if source == STANDARD_INPUT else source
    return f"{file}, line {number}{f' ({name})' if name else ''}"


def _flat(error: SchedulerCoreError) -> str:
    return "; ".join(str(problem) for problem in error.problems) if isinstance(error, ConfigError) else str(error)
