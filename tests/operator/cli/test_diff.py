"""Tests of ``bayplan diff`` on files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from bayplan.cli import bayplan
from bayplan.comparison import Change, Outcome, ProfileReference, parse_label_query, parse_reference, reason_of
from click.testing import CliRunner, Result

from scheduler_core.errors import ConfigError
from tests.support.presence import present
from tests.support.tables import table

EXAMPLE = str(Path(__file__).parents[3] / "examples" / "simulate" / "cluster.yaml")
HOSTILE = "a\x1b[2J<script>\nFORGED"
SCRIPTS = 3
"""Number of scripts of a report: import map, documents, entry."""


def run(*args: str) -> Result:
    """Run the command on the example."""
    return CliRunner().invoke(bayplan, ["diff", *args, "--cluster", EXAMPLE])


def test_prints_tables() -> None:
    """The command prints summary, figures and pods, and exits with 1 because pods differ."""
    result = run("spread", "pack")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "10 pending pods decided on 6 nodes: 4 move",
        "",
        "                                          BEFORE                 AFTER",
        "profile                                   spread                 pack",
        "pods scheduled                            7                      7",
        "pods not scheduled                        3                      3",
        "running pods that would move              0                      0",
        "nodes without pods                        1                      2",
        "pods requested                            14 of 660 (2%)         14 of 660 (2%)",
        "cpu requested                             18.6 of 40 (46%)       18.6 of 40 (46%)",
        "memory requested                          55.1Gi of 160Gi (34%)  55.1Gi of 160Gi (34%)",
        "example.com/gpu requested                 2 of 2 (100%)          2 of 2 (100%)",
        "largest free cpu on one node              8                      8",
        "largest free memory on one node           48Gi                   48Gi",
        "free cpu that no compared pod can use     20.0%                  20.0%",
        "free memory that no compared pod can use  15.4%                  15.4%",
        "imbalance of cpu                          26.8%                  39.1%",
        "imbalance of memory                       33.0%                  35.9%",
        "zone skew (pods)                          2                      4",
        "",
        "POD         CHANGE  RUNS ON  BEFORE    AFTER     REASON",
        "shop/web-0  moves   -        zone-a-1  zone-a-2  NodeResourcesFit scores zone-a-2 27, zone-a-1 9",
        "shop/web-1  moves   -        zone-c-1  zone-a-2  NodeResourcesFit scores zone-a-2 37, zone-c-1 11",
        "shop/web-2  moves   -        zone-a-1  zone-a-2  NodeResourcesFit scores zone-a-2 46, zone-a-1 9",
        "shop/web-3  moves   -        zone-c-1  zone-a-2  NodeResourcesFit scores zone-a-2 56, zone-c-1 11",
    ]


@pytest.mark.parametrize("change", Change)
@pytest.mark.parametrize("reasons", [("", ""), ("0/2 nodes are available: 2 Insufficient cpu.", ""), ("", "gated")])
def test_every_difference_has_a_reason(change: Change, reasons: tuple[str, str]) -> None:
    """The column REASON is never empty, whatever the decisions state; for another reason it has both."""
    nodes = {Change.MOVES: ("a", "b"), Change.FITS_NOW: ("", "b"), Change.NO_LONGER_FITS: ("a", "")}.get(
        change, ("", "")
    )
    before, after = (Outcome(node, "Gated", reason) for node, reason in zip(nodes, reasons, strict=True))
    reason = reason_of(change, before, after)
    assert reason
    assert (change is Change.OTHER_REASON) == ("; then " in reason)


def test_equal_profiles_exit_with_0() -> None:
    result = run("spread", "spread")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "10 pending pods decided on 6 nodes: no difference")


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_documents_have_everything(output: str) -> None:
    """JSON and YAML output contain the same document."""
    result = run("spread", "pack", "-o", output)
    found: dict[str, Any] = json.loads(result.stdout) if output == "json" else yaml.safe_load(result.stdout)
    assert result.exit_code == 1
    assert found["summary"] == {
        "nodes": 6,
        "pending": 10,
        "rescheduled": 0,
        "differences": {"NoLongerFits": 0, "FitsNow": 0, "Moves": 4, "OtherReason": 0, "Preempted": 0, "Spared": 0},
    }
    assert found["differences"][0] == {
        "namespace": "shop",
        "name": "web-0",
        "change": "Moves",
        "runsOn": None,
        "before": {"node": "zone-a-1", "verdict": "Placed", "reason": None},
        "after": {"node": "zone-a-2", "verdict": "Placed", "reason": None},
        "reason": "NodeResourcesFit scores zone-a-2 27, zone-a-1 9",
    }
    assert (found["before"]["profile"], found["before"]["emptyNodes"], found["after"]["emptyNodes"]) == ("spread", 1, 2)
    assert found["after"]["resources"]["cpu"]["requested"] == 18600


def test_html_report() -> None:
    """HTML output has the summary, figures and pods, the documents of both profiles, and the scripts of a report."""
    result = run("spread", "pack", "-o", "html")
    assert result.exit_code == 1
    assert result.stdout.startswith("<!doctype html>")
    for text in ("10 pending pods decided on 6 nodes: 4 move", "<td>shop/web-3</td>", "<td>zone-a-2</td>"):
        assert text in result.stdout
    assert result.stdout.count("<script") == SCRIPTS
    found = present(re.search(r'id="documents">(.*?)</script>', result.stdout))
    documents = json.loads(found[1])
    assert documents["sides"] == {"before": "spread", "after": "pack"}
    uses = {side: each["used"]["cpu"] for side, each in documents["documents"]["nodes"].items()}
    assert uses["before"] != uses["after"]
    assert documents["documents"]["pending"]["after"]["command"] == f"bayplan diff spread pack --cluster {EXAMPLE}"


def test_untrusted_names_are_escaped(tmp_path: Path) -> None:
    """Control characters and markup in names are escaped in tables and HTML."""
    body = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "SchedulerProfile", "metadata": {"name": "p"}, "spec": {}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": HOSTILE}, "status": {"capacity": {"pods": "9"}}}
    lenient = {"plugins": {"multiPoint": {"disabled": [{"name": "NodeUnschedulable"}]}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": HOSTILE}, "spec": {"schedulerName": "p"}}
    cluster, other = tmp_path / "cluster.yaml", tmp_path / "other.yaml"
    cluster.write_text(yaml.safe_dump_all([body, {**node, "spec": {"unschedulable": True}}, pod]))
    other.write_text(yaml.safe_dump({**body, "spec": lenient}))
    for output in ("table", "html"):
        result = CliRunner().invoke(
            bayplan, ["diff", "p", str(other), "--cluster", str(cluster), "-o", output, "--allow-invalid"]
        )
        assert result.exit_code == 1
        assert "FORGED" in result.stdout
        assert "\x1b" not in result.stdout
        assert output == "table" or result.stdout.count("<script") == SCRIPTS
        assert not any(line.startswith("FORGED") for line in result.stdout.splitlines())


@table(
    "args, message",
    ("missing profile", ["spread", "nothing"], 'there is no SchedulerProfile "nothing"; existing: pack, spread'),
    ("file with two profiles", ["spread", EXAMPLE], "has 2 SchedulerProfiles (pack, spread); choose one with"),
    ("profile not in the file", ["spread", f"{EXAMPLE}#none"], 'there is no SchedulerProfile "none"'),
    ("invalid revision", ["spread", "pack@0"], '"0" is not a revision; write NAME@REVISION'),
    ("revision of files", ["spread", "pack@2"], "revisions of pack are stored in the live cluster"),
    ("missing file", ["spread", "none.yaml"], "cannot be read: No such file or directory"),
    ("selector", ["spread", "pack", "-l", "a in", "--reschedule", "empty"], '"a in" is not a label selector'),
    ("namespace without reschedule", ["spread", "pack", "-n", "shop"], "use them with --reschedule"),
)
def test_errors_exit_with_2(args: list[str], message: str) -> None:
    """An error exits with 2, because exit code 1 means differences."""
    result = run(*args)
    assert result.exit_code == 2
    assert message in result.stderr


def test_file_and_name_choose_a_profile() -> None:
    """FILE#NAME chooses one profile of a file, with the PluginConfigs of that file."""
    assert run("spread", f"{EXAMPLE}#pack").stdout.splitlines()[0] == "10 pending pods decided on 6 nodes: 4 move"


@table(
    "text, reference",
    ("name", "batch", ProfileReference("batch", "", "batch")),
    ("revision", "batch@7", ProfileReference("batch@7", "", "batch", "7")),
    ("revision by its hash", "batch@004783c2", ProfileReference("batch@004783c2", "", "batch", "004783c2")),
    ("file", "p.yaml", ProfileReference("p.yaml", "p.yaml", "")),
    ("name in a file", "dir/p#b", ProfileReference("dir/p#b", "dir/p", "b")),
    ("standard input", "-", ProfileReference("-", "-", "")),
)
def test_profile_references(text: str, reference: ProfileReference) -> None:
    """The form of an argument determines what it refers to."""
    assert parse_reference(text) == reference


@table(
    "text, matches",
    ("empty", "", ["", "web", "api"]),
    ("equal", "app=web", ["web"]),
    ("double equals sign", "app == web", ["web"]),
    ("not equal, or without the label", "app!=web", ["", "api"]),
    ("in", "app in (web, api)", ["web", "api"]),
    ("not in", "app notin (web,api)", [""]),
    ("exists", "app", ["web", "api"]),
    ("does not exist", "!app", [""]),
    ("two requirements", "app,app!=web", ["api"]),
)
def test_label_queries(text: str, matches: list[str]) -> None:
    """Label selectors are read as by kubectl."""
    matcher = parse_label_query(text)
    assert [app for app in ("", "web", "api") if matcher.matches({"app": app} if app else {})] == matches


@pytest.mark.parametrize("text", ["a=b=c", "a in (b", "in (b)", "-a-", "a=b c", ","])
def test_invalid_label_queries(text: str) -> None:
    """An invalid label selector is an error."""
    with pytest.raises(ConfigError, match="is not a label selector"):
        parse_label_query(text)
