"""``bayplan explain``: why a pod goes where it goes, or nowhere.

Owns the command's options and streams. It must not decide or word anything itself.
"""

from __future__ import annotations

import os
import sys

import click

from bayplan.conformance.cases import STANDARD_INPUT
from bayplan.conformance.run import run_cases


@click.command(short_help="Show what every plugin says about a pod.")
@click.option(
    "--cases",
    "source",
    required=True,
    metavar="FILE",
    help="Conformance cases, one JSON object a line, plain or gzip; - reads standard input.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=os.cpu_count() or 1,
    show_default="cores",
    help="Processes that work on cases; 1 answers line by line.",
)
@click.pass_context
def explain(context: click.Context, source: str, workers: int) -> None:
    """Show what every plugin says about a pod.

    With --cases, one attempt is made for the pod of each case and one JSON result a line is written in the conformance
    format, in the order of the cases. A case that cannot be run is reported on standard error and left out; the exit
    code is then 1.
    """
    failed = _run_cases(source, workers)
    if failed:
        click.echo(f"{failed} cases could not be run", err=True)
        context.exit(1)


def _run_cases(source: str, workers: int) -> int:
    output = sys.stdout.buffer
    noted: set[str] = set()
    failed = 0
    for answers in run_cases(source, workers):
        output.write(answers.output)
        for number, name, problem in answers.problems:
            failed += 1
            click.echo(f"{_place(source, number, name)}: {problem}", err=True)
        for plugin in answers.left_out:
            if plugin not in noted:
                noted.add(plugin)
                click.echo(f"note: plugin {plugin} is not built yet and left out of the cases' profiles", err=True)
    output.flush()
    return failed


def _place(source: str, number: int, name: str) -> str:
    file = "standard input" if source == STANDARD_INPUT else source
    return f"{file}, line {number}{f' ({name})' if name else ''}"
