"""Tests of ``python -m tests.parity.conformance``."""

import json
from pathlib import Path

from click.testing import CliRunner, Result

from tests.parity.conformance.__main__ import main

CASES = Path(__file__).parent / "cases" / "taints.jsonl.gz"


def explain_cases(text: str) -> Result:
    """Run the command on lines of cases."""
    return CliRunner().invoke(main, ["-"], input=text)


def case(name: str, **fields: object) -> str:
    return json.dumps({"name": name, "pod": {"metadata": {"name": "p"}}, **fields}) + "\n"


def test_results_are_in_the_order_of_the_cases() -> None:
    """Each case has one result, in the order of the cases."""
    result = CliRunner().invoke(main, [str(CASES)])
    assert result.exit_code == 0
    names = [json.loads(line)["name"] for line in result.stdout.splitlines()]
    assert names == [f"taints-1-{number:04d}" for number in range(60)]


def test_invalid_cases_are_skipped() -> None:
    """An invalid case is reported with its place, other cases have results, and the exit code is 1."""
    result = explain_cases(case("first") + "{}\n" + case("third", profile={"kind": "x"}) + case("last"))
    assert result.exit_code == 1
    assert [json.loads(line)["name"] for line in result.stdout.splitlines()] == ["first", "last"]
    errors = result.stderr.splitlines()
    assert errors[0].startswith("standard input, line 2: is not a case: ")
    assert errors[1].startswith("standard input, line 3 (third): ")
    assert errors[2] == "2 cases could not be run"


def test_an_unsupported_plugin_is_noted_once() -> None:
    """An unsupported plugin in the profiles of the cases is noted once."""
    profile = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"filter": {"enabled": [{"name": "GangScheduling"}]}}}],
    }
    result = explain_cases(case("a", profile=profile) + case("b", profile=profile))
    assert result.exit_code == 0
    assert (
        result.stderr == "note: plugin GangScheduling is not supported and is removed from the profiles of the cases\n"
    )


def test_a_missing_file_is_invalid_input() -> None:
    """A missing file is invalid input."""
    result = CliRunner().invoke(main, ["gone.jsonl"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "gone.jsonl: cannot be read" in result.stderr
