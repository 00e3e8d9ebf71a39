"""``bayplan features``: lists the feature gates."""

from __future__ import annotations

import json

import click
from rich.text import Text

from bayplan.settings.feature_gates import GATES, FeatureGates, parse_feature_gates
from bayplan.texts.report_sections import plain_table, text_of


@click.command(short_help="List the feature gates.")
@click.option(
    "--feature-gates", "text", metavar="NAME=BOOL,...", default="", help="Show the state with these feature gates."
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Output format.")
def features(text: str, output: str) -> None:
    """List the feature gates: name, stage, default, version of Bayplan that introduced the stage, and description.

    Set them with `bayplan run --feature-gates`, the setting featureGates or the chart's settings.featureGates.
    """
    gates = FeatureGates(parse_feature_gates(text))
    if output == "json":
        documents = [
            {
                "name": gate.name,
                "stage": gate.stage.word,
                "default": gate.default,
                "locked": gate.is_locked,
                "since": gate.since,
                "enabled": gates.is_on(gate.name),
                "description": gate.description,
            }
            for gate in GATES
        ]
        click.echo(json.dumps(documents, indent=2))
        return
    table = plain_table("NAME", "STAGE", "DEFAULT", "ENABLED", "SINCE", "DESCRIPTION")
    for gate in GATES:
        words = (str(gate.default).lower(), str(gates.is_on(gate.name)).lower())
        table.add_row(gate.name, gate.stage.word, *words, gate.since, Text(gate.description))
    click.echo(text_of([table]))
