"""Results are read from ginkgo's report and compared."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.__main__ import table, unexplained
from tests.e2e.suite_run import Result, results_in


def spec(text: str, state: str, message: str = "", kind: str = "It") -> dict[str, Any]:
    """Return one entry of ginkgo's report."""
    entry: dict[str, Any] = {"ContainerHierarchyTexts": ["Sched"], "LeafNodeText": text, "LeafNodeType": kind}
    entry |= {"State": state, "RunTime": 2_500_000_000}
    return entry | ({"Failure": {"Message": message}} if message else {})


def test_results() -> None:
    """Tests that a flag leaves out are ignored, and a failure of the setup is a failed test."""
    specs = [
        spec("binds", "passed"),
        spec("preempts", "failed", "Timed out.\nExpected a pod"),
        spec("needs GPUs", "skipped", "no GPU"),
        spec("left out", "skipped"),
        spec("", "passed", kind="BeforeSuite"),
        spec("", "failed", "no nodes", kind="BeforeSuite"),
    ]
    assert results_in([{"SpecReports": specs}, {"SpecReports": None}]) == {
        "Sched binds": Result("passed", "", 2.5),
        "Sched preempts": Result("failed", "Timed out.", 2.5),
        "Sched needs GPUs": Result("skipped", "no GPU", 2.5),
        "Sched BeforeSuite": Result("failed", "no nodes", 2.5),
    }


@pytest.mark.parametrize(
    ("reference", "ours", "reasons", "problem"),
    [
        pytest.param("passed", "passed", {}, "", id="both-pass"),
        pytest.param("skipped", "skipped", {}, "", id="both-skip"),
        pytest.param("passed", "failed", {}, "a: passed with kube-scheduler, failed with Bayplan", id="differs"),
        pytest.param("failed", "passed", {}, "a: failed with kube-scheduler, passed with Bayplan", id="better"),
        pytest.param("failed", "failed", {}, "a: failed with both, and reasons.toml has no reason", id="both-fail"),
        pytest.param("failed", "failed", {"a": "needs a kubelet"}, "", id="explained"),
        pytest.param("passed", "passed", {"a": "old"}, "a: passes; remove it from reasons.toml", id="fixed"),
    ],
)
def test_verdicts_without_a_reason(reference: str, ours: str, reasons: dict[str, str], problem: str) -> None:
    """A verdict that differs, or a failure with both, needs a reason, and a reason needs a test that does not pass."""
    problems = unexplained({"a": Result(reference)}, {"a": Result(ours)}, reasons)
    assert problems == ([problem] if problem else [])


def test_a_test_that_did_not_run_differs() -> None:
    """A test that is missing in one of the runs is reported as a difference."""
    assert unexplained({"a": Result("passed")}, {}, {}) == ["a: passed with kube-scheduler, not run with Bayplan"]


def test_the_table_shows_both_verdicts_and_messages() -> None:
    """The table prints a message once if it is the same for both."""
    lines = table({"a": Result("failed", "late")}, {"a": Result("failed", "late")})
    assert lines[1:] == ["failed          failed      a", " " * 28 + "late"]
