"""Tests of flags as kubeadm and its users write them: what kube-scheduler accepts is accepted, or names its remedy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
from bayplan.cli import bayplan
from bayplan.cli.run import REMEDIES, run
from click.testing import CliRunner

from tests.support.tables import table

MIGRATE = Path(__file__).resolve().parents[3] / "docs" / "migrate.md"


def _parsed(*arguments: str) -> dict[str, Any]:
    with run.make_context("run", list(arguments)) as context:
        return {name: value for name, value in context.params.items() if value is not None}


@table(
    "arguments, found",
    ("no-value", ["--leader-elect"], {"leader_elect": True}),
    ("true", ["--leader-elect=true"], {"leader_elect": True}),
    ("t", ["--leader-elect=T"], {"leader_elect": True}),
    ("0", ["--leader-elect=0"], {"leader_elect": False}),
    ("underscore", ["--leader_elect=false"], {"leader_elect": False}),
    ("repeated-switch", ["--leader-elect", "--leader-elect=false"], {"leader_elect": False}),
    ("equals", ["--kubeconfig=/a"], {"kubeconfig": "/a"}),
    ("space", ["--kubeconfig", "/a"], {"kubeconfig": "/a"}),
    ("repeated", ["--kubeconfig", "/a", "--kubeconfig=/b"], {"kubeconfig": "/b"}),
    ("value-with-equals", ["--kubeconfig=/a_b=c"], {"kubeconfig": "/a_b=c"}),
    ("config", ["--config", "/a_b"], {"config_file": Path("/a_b")}),
    ("v-equals", ["-v=2"], {"verbosity": 2}),
    ("v-space", ["-v", "2"], {"verbosity": 2}),
    ("v-attached", ["-v2"], {"verbosity": 2}),
    ("long-v", ["--v=2"], {"verbosity": 2}),
    ("repeated-v", ["--v", "1", "-v=3"], {"verbosity": 3}),
    (
        "gates",
        ["--feature-gates=GangPreemption=false,AllAlpha=T"],
        {"feature_gates": {"GangPreemption": False, "AllAlpha": True}},
    ),
    (
        "repeated-gates",
        ["--feature-gates", "AllAlpha=true", "--feature_gates=AllBeta=false", "--feature-gates=AllAlpha=false"],
        {"feature_gates": {"AllAlpha": False, "AllBeta": False}},
    ),
    ("choice", ["--tls-min-version=VersionTLS13"], {"tls_min_version": "VersionTLS13"}),
)
def test_flags_that_both_have(arguments: list[str], found: dict[str, Any]) -> None:
    """The syntax is that of kube-scheduler."""
    assert _parsed(*arguments) == found


@table(
    "arguments, message",
    ("no-boolean", ["--leader-elect=yes"], 'invalid value "yes"; set true or false'),
    ("boolean-after-a-space", ["--leader-elect", "true"], "as in --leader-elect=true"),
    ("level", ["-v=x"], 'invalid level "x"; set 0 to 10'),
    ("negative-level", ["-v", "-2"], 'invalid level "-2"; set 0 to 10'),
    ("high-level", ["--v=99"], "must be at most 10, not 99"),
    (
        "gate-of-kubernetes",
        ["--feature-gates=NodeSwap=true"],
        '"NodeSwap" is not a feature gate of Bayplan; remove it if it is one of Kubernetes',
    ),
    ("no-value", ["--feature-gates=AllAlpha"], '"AllAlpha" must have the form ResultCache=false'),
    ("underscore", ["--bind_address", "::1"], "--bind-address is a flag of kube-scheduler"),
    ("misspelt", ["--leader-elekt"], "Did you mean"),
    ("argument", ["scheduler.yaml"], "unexpected extra argument (scheduler.yaml)"),
)
def test_flags_that_are_rejected(arguments: list[str], message: str) -> None:
    """An error names the flag or its value, and what to do."""
    result = CliRunner().invoke(bayplan, ["run", *arguments])
    assert message in result.output
    assert result.exit_code == 2


def test_the_manifest_of_kubeadm() -> None:
    """Each flag of the static pod that Bayplan lacks is named at once, with what replaces it."""
    flags = ["--authentication-kubeconfig=/c", "--authorization-kubeconfig=/c", "--bind-address=127.0.0.1"]
    result = CliRunner().invoke(bayplan, ["run", *flags, "--kubeconfig=/c", "--leader-elect=true"])
    assert result.exit_code == 2
    lines = [line.removeprefix("Error: ") for line in result.output.splitlines() if "flag of kube-scheduler" in line]
    assert [line.partition(" ")[0] for line in lines] == [each.partition("=")[0] for each in flags]
    assert lines[2].endswith("does not have; use --serve-address HOST:PORT")


@pytest.mark.parametrize("flag", REMEDIES)
def test_each_flag_has_its_remedy(flag: str) -> None:
    """A flag that only kube-scheduler has is rejected with its remedy, and a flag in the remedy exists."""
    known = {name for parameter in run.params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert flag not in known
    assert set(re.findall(r"--[a-z-]+", REMEDIES[flag])) <= known
    with pytest.raises(click.UsageError, match=re.escape(REMEDIES[flag])):
        _parsed(f"{flag}=1")


def test_the_docs_list_the_flags() -> None:
    """The table in the docs contains each flag with a remedy."""
    text = MIGRATE.read_text(encoding="utf-8").partition("### The flags of kube-scheduler")[2].partition("\n## ")[0]
    listed = {name for row in text.splitlines() for name in re.findall(r"`(--[a-z0-9-]+)`", row.partition(" | ")[0])}
    grouped = {name for name in REMEDIES if name.startswith("--requestheader-")}
    assert set(REMEDIES) - grouped <= listed
