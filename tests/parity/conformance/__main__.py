"""Prints the result of one attempt for the pod of each conformance case in a file, as one line of JSON, in their order.

The exit code is 1 if a case could not be run; it is reported on standard error.
"""

import os
import sys

import click

from scheduler_core.errors import ConfigError
from tests.parity.conformance.cases import STANDARD_INPUT
from tests.parity.conformance.runs import run_cases


@click.command()
@click.argument("source", metavar="FILE")
@click.option("--workers", type=click.IntRange(min=1), default=os.cpu_count() or 1)
def main(source: str, workers: int) -> None:
    """Run the cases of FILE, plain or gzip; - is standard input."""
    noted: set[str] = set()
    failed = 0
    try:
        for answers in run_cases(source, workers):
            sys.stdout.buffer.write(answers.output)
            for number, name, problem in answers.problems:
                failed += 1
                place = f"{'standard input' if source == STANDARD_INPUT else source}, line {number}"
                click.echo(f"{place}{f' ({name})' if name else ''}: {problem}", err=True)
            for plugin in set(answers.left_out) - noted:
                noted.add(plugin)
                click.echo(
                    f"note: plugin {plugin} is not supported and is removed from the profiles of the cases", err=True
                )
    except ConfigError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    sys.stdout.flush()
    if failed:
        click.echo(f"{failed} cases could not be run", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
