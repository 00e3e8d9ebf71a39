"""Tests of ``bayplan explain --cases``."""

import json
from pathlib import Path

from bayplan.cli import bayplan
from click.testing import CliRunner, Result

FAMILY = Path(__file__).parents[2] / "parity" / "cases" / "taints.jsonl.gz"


def explained(text: str) -> Result:
    """Run the command on lines."""
    return CliRunner().invoke(bayplan, ["explain", "--cases", "-"], input=text)


def case(name: str, **fields: object) -> str:
    """A line."""
    return json.dumps({"name": name, "pod": {"metadata": {"name": "p"}}, **fields}) + "\n"


def test_answers_a_file_in_its_order() -> None:
    """One result for each case, in the order of the cases."""
    result = CliRunner().invoke(bayplan, ["explain", "--cases", str(FAMILY)])
    assert result.exit_code == 0
    names = [json.loads(line)["name"] for line in result.stdout.splitlines()]
    assert names == [f"taints-1-{number:04d}" for number in range(60)]


def test_leaves_out_what_cannot_be_run() -> None:
    """A bad line is reported with its place; the others are answered, and the exit code tells."""
    result = explained(case("first") + "{}\n" + case("third", profile={"kind": "x"}) + case("last"))
    assert result.exit_code == 1
    assert [json.loads(line)["name"] for line in result.stdout.splitlines()] == ["first", "last"]
    told = result.stderr.splitlines()
    assert told[0].startswith("standard input, line 2: is not a case: ")
    assert told[1].startswith("standard input, line 3 (third): ")
    assert told[2] == "2 cases could not be run"


def test_notes_a_plugin_that_is_not_built_once() -> None:
    """A case's profile may name any plugin of kube-scheduler; what is left out is noted once."""
    profile = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"filter": {"enabled": [{"name": "GangScheduling"}]}}}],
    }
    result = explained(case("a", profile=profile) + case("b", profile=profile))
    assert result.exit_code == 0
    assert result.stderr == "note: plugin GangScheduling is not built yet and left out of the cases' profiles\n"


def test_refuses_a_file_that_is_not_there() -> None:
    """A missing file is bad input."""
    result = CliRunner().invoke(bayplan, ["explain", "--cases", "gone.jsonl"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "gone.jsonl: cannot be read" in result.stderr
