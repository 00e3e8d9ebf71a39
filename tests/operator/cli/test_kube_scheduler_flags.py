"""Tests of flags as kubeadm and its users write them: what kube-scheduler accepts is accepted, or names its remedy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
from bayplan.cli import bayplan
from bayplan.cli.kube_scheduler_flags import REMEDIES
from bayplan.cli.run import run
from click.testing import CliRunner

MIGRATE = Path(__file__).resolve().parents[3] / "docs" / "migrate.md"


def _parsed(*arguments: str) -> dict[str, Any]:
    with run.make_context("run", list(arguments)) as context:
        return {name: value for name, value in context.params.items() if value is not None}


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        pytest.param(["--leader-elect"], {"leader_elect": True}, id="no-value"),
        pytest.param(["--leader-elect=true"], {"leader_elect": True}, id="true"),
        pytest.param(["--leader-elect=T"], {"leader_elect": True}, id="t"),
        pytest.param(["--leader-elect=0"], {"leader_elect": False}, id="0"),
        pytest.param(["--leader_elect=false"], {"leader_elect": False}, id="underscore"),
        pytest.param(["--leader-elect", "--leader-elect=false"], {"leader_elect": False}, id="repeated-switch"),
        pytest.param(["--kubeconfig=/a"], {"kubeconfig": "/a"}, id="equals"),
        pytest.param(["--kubeconfig", "/a"], {"kubeconfig": "/a"}, id="space"),
        pytest.param(["--kubeconfig", "/a", "--kubeconfig=/b"], {"kubeconfig": "/b"}, id="repeated"),
        pytest.param(["--kubeconfig=/a_b=c"], {"kubeconfig": "/a_b=c"}, id="value-with-equals"),
        pytest.param(["--config", "/a_b"], {"config_file": Path("/a_b")}, id="config"),
        pytest.param(["-v=2"], {"verbosity": 2}, id="v-equals"),
        pytest.param(["-v", "2"], {"verbosity": 2}, id="v-space"),
        pytest.param(["-v2"], {"verbosity": 2}, id="v-attached"),
        pytest.param(["--v=2"], {"verbosity": 2}, id="long-v"),
        pytest.param(["--v", "1", "-v=3"], {"verbosity": 3}, id="repeated-v"),
        pytest.param(
            ["--feature-gates=GangPreemption=false,AllAlpha=T"],
            {"feature_gates": {"GangPreemption": False, "AllAlpha": True}},
            id="gates",
        ),
        pytest.param(
            ["--feature-gates", "AllAlpha=true", "--feature_gates=AllBeta=false", "--feature-gates=AllAlpha=false"],
            {"feature_gates": {"AllAlpha": False, "AllBeta": False}},
            id="repeated-gates",
        ),
        pytest.param(["--tls-min-version=VersionTLS13"], {"tls_min_version": "VersionTLS13"}, id="choice"),
    ],
)
def test_flags_that_both_have(arguments: list[str], found: dict[str, Any]) -> None:
    """The syntax is that of kube-scheduler."""
    assert _parsed(*arguments) == found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--leader-elect=yes"], 'invalid value "yes"; set true or false', id="no-boolean"),
        pytest.param(["--leader-elect", "true"], "as in --leader-elect=true", id="boolean-after-a-space"),
        pytest.param(["-v=x"], 'invalid level "x"; set 0 to 10', id="level"),
        pytest.param(["-v", "-2"], 'invalid level "-2"; set 0 to 10', id="negative-level"),
        pytest.param(["--v=99"], "must be at most 10, not 99", id="high-level"),
        pytest.param(
            ["--feature-gates=NodeSwap=true"],
            '"NodeSwap" is not a feature gate of Bayplan; remove it if it is one of Kubernetes',
            id="gate-of-kubernetes",
        ),
        pytest.param(["--feature-gates=AllAlpha"], '"AllAlpha" must have the form ResultCache=false', id="no-value"),
        pytest.param(["--bind_address", "::1"], "--bind-address is a flag of kube-scheduler", id="underscore"),
        pytest.param(["--leader-elekt"], "Did you mean", id="misspelt"),
        pytest.param(["scheduler.yaml"], "unexpected extra argument (scheduler.yaml)", id="argument"),
    ],
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
