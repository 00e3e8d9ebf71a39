"""Tests of the feature gates: names, stages, values, and where they are listed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bayplan.cli import bayplan
from bayplan.serving.bayplan_metrics import feature_metrics
from bayplan.settings.feature_gates import GATES, FeatureGate, FeatureGates, Stage, gates_summary, parse_feature_gates
from bayplan.settings.operator_settings import load_settings
from click.testing import CliRunner
from prometheus_client import CollectorRegistry, generate_latest

from scheduler_core.errors import ConfigError
from tests.support.tables import table

DOCS = Path(__file__).resolve().parents[3] / "docs" / "operate" / "feature-gates.md"
KNOWN_GATES = (
    FeatureGate("Young", False, Stage.ALPHA, "1", "y"),
    FeatureGate("Grown", True, Stage.BETA, "1", "g"),
    FeatureGate("Done", True, Stage.GA, "1", "d", is_locked=True),
)


@table(
    "given, on",
    ("defaults", {}, {"Grown", "Done"}),
    ("off", {"Grown": False}, {"Done"}),
    ("all-alpha", {"AllAlpha": True}, {"Young", "Grown", "Done"}),
    ("all-beta", {"AllBeta": False}, {"Done"}),
    ("named-wins-over-all", {"AllBeta": False, "Grown": True}, {"Grown", "Done"}),
    ("locked-to-its-default", {"Done": True}, {"Grown", "Done"}),
)
def test_values(given: dict[str, bool], on: set[str]) -> None:
    """A gate has its own value, otherwise the value of its stage, otherwise its default."""
    gates = FeatureGates(given, KNOWN_GATES)
    assert {gate.name for gate in KNOWN_GATES if gates.is_on(gate.name)} == on


@table(
    "given, message",
    (
        "unknown",
        {"Groan": True},
        (
            'featureGates.Groan: "Groan" is not a feature gate of Bayplan (did you mean "Grown"?); remove it if it is '
            "one of Kubernetes, or use one of AllAlpha, AllBeta, Done, Grown, Young"
        ),
    ),
    ("locked", {"Done": False}, "featureGates.Done: is GA and locked to true; remove it"),
)
def test_invalid_values(given: dict[str, bool], message: str) -> None:
    """The error for an unknown gate lists the known gates, and that for a locked gate its value."""
    with pytest.raises(ConfigError) as raised:
        FeatureGates(given, KNOWN_GATES)
    assert str(raised.value) == message


@table(
    "text, gates",
    ("empty", "", {}),
    ("two", "A=true,B=false", {"A": True, "B": False}),
    ("spaces-and-case", " A = True , B=F,", {"A": True, "B": False}),
    ("the-last-counts", "A=true,A=false", {"A": False}),
)
def test_flag_syntax(text: str, gates: dict[str, bool]) -> None:
    """The flag has kube-scheduler's syntax."""
    assert parse_feature_gates(text) == gates


def test_invalid_flag_syntax() -> None:
    """Each entry of the flag that cannot be parsed is reported."""
    with pytest.raises(ConfigError) as raised:
        parse_feature_gates("A,B=yes,C=true")
    assert [problem.message for problem in raised.value.problems] == [
        '"A" must have the form ResultCache=false',
        '"B=yes" must have the form ResultCache=false',
    ]


def test_the_flag_overrides_gate_by_gate(tmp_path: Path) -> None:
    """A gate that the flag does not name keeps the value of the settings file."""
    path = tmp_path / "settings.yaml"
    path.write_text("featureGates: {ResultCache: false, GangPreemption: false}")
    settings = load_settings({"feature_gates": {"ResultCache": True}}, path)
    assert settings.feature_gates == {"ResultCache": True, "GangPreemption": False}


def test_an_unknown_gate_in_settings_is_an_error(tmp_path: Path) -> None:
    """The problem of an unknown gate names the field of the settings file."""
    path = tmp_path / "settings.yaml"
    path.write_text("featureGates: {ResultCach: false}")
    with pytest.raises(ConfigError, match=r'featureGates.ResultCach: .* is not .* \(did you mean "ResultCache"\?\)'):
        load_settings({}, path)


def test_the_command_lists_every_gate() -> None:
    """``bayplan features`` lists every gate, with -o json also in its configured state."""
    table = CliRunner().invoke(bayplan, ["features"]).output
    output = CliRunner().invoke(bayplan, ["features", "-o", "json", "--feature-gates", "AllBeta=false"]).output
    assert [line.split()[0] for line in table.splitlines()[1:]] == [gate.name for gate in GATES]
    assert [(each["name"], each["enabled"]) for each in json.loads(output)] == [(gate.name, False) for gate in GATES]


def test_the_help_lists_every_gate() -> None:
    """``bayplan run --help`` lists every gate with its stage and default."""
    output = "".join(CliRunner().invoke(bayplan, ["run", "--help"], terminal_width=4000).output.split())
    assert "".join(gates_summary().split()) in output


def test_the_documentation_lists_every_gate() -> None:
    """The table in the documentation equals the code."""
    rows = [
        f"| `{gate.name}` | {gate.stage.word} | {str(gate.default).lower()} | {gate.since} | {gate.description} |"
        for gate in GATES
    ]
    written = [line for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert written == rows


def test_the_metric_has_the_format_of_kube_scheduler() -> None:
    """The name and labels of the metric are those of kube-scheduler, and a GA gate has no stage."""
    registry = CollectorRegistry()
    registry.register(feature_metrics(FeatureGates({"Grown": False}, KNOWN_GATES)))
    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    assert lines == [
        'kubernetes_feature_enabled{name="AllAlpha",stage="ALPHA"} 0.0',
        'kubernetes_feature_enabled{name="AllBeta",stage="BETA"} 0.0',
        'kubernetes_feature_enabled{name="Young",stage="ALPHA"} 0.0',
        'kubernetes_feature_enabled{name="Grown",stage="BETA"} 0.0',
        'kubernetes_feature_enabled{name="Done",stage=""} 1.0',
    ]
