"""``bayplan version``: prints the versions of Bayplan, of the kube-scheduler that it follows, and of Python.

The module does not import the scheduler, so that the command is fast.
"""

from __future__ import annotations

import json
import platform
from importlib.metadata import version as distribution_version

import click

from bayplan import REFERENCE_VERSION


@click.command(short_help="Print versions.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Output format.")
def version(output: str) -> None:
    """Print the version of Bayplan, of the kube-scheduler whose behaviour it follows, and of Python."""
    versions = {
        "bayplan": distribution_version("bayplan"),
        "referenceKubeScheduler": REFERENCE_VERSION,
        "python": platform.python_version(),
    }
    if output == "json":
        click.echo(json.dumps(versions))
        return
    click.echo(f"Bayplan {versions['bayplan']}")
    click.echo(f"follows kube-scheduler {versions['referenceKubeScheduler']}")
    click.echo(f"Python {versions['python']}")
