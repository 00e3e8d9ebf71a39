"""``bayplan version``: which Bayplan, which kube-scheduler it follows, which Python.

Owns the command only. It must not import the scheduler, so that it answers at once.
"""

from __future__ import annotations

import json
import platform
from importlib.metadata import version as distribution_version

import click

REFERENCE_VERSION = "v1.36.3"
"""The kube-scheduler whose behaviour Bayplan follows."""


@click.command(short_help="Print versions.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to print.")
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
