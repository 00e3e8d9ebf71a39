"""``bayplan features``: lists the feature gates."""

from __future__ import annotations

import json

import click

from bayplan.settings.feature_gates import GATES, FeatureGates, parse_feature_gates
from bayplan.texts.report_sections import table_of, text_of


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
    rows = []
    for gate in GATES:
        words = (str(gate.default).lower(), str(gates.is_on(gate.name)).lower())
        rows.append((gate.name, gate.stage.word, *words, gate.since, gate.description))
    click.echo(text_of([table_of(("NAME", "STAGE", "DEFAULT", "ENABLED", "SINCE", "DESCRIPTION"), rows)]))
