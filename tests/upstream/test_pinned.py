"""Verdicts are pinned, recorded and compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tables import table
from tests.upstream.__main__ import read_selection
from tests.upstream.builds import RELEASES
from tests.upstream.pinned import differing, read_expected, recorded, write_expected
from tests.upstream.verdicts import Outcome, Verdict, Verdicts

_HERE = Path(__file__).resolve().parent
PASS, FAIL = Outcome(Verdict.PASS), Outcome(Verdict.FAIL, "a reason")
OTHER = Outcome(Verdict.NOT_APPLICABLE, "feature gates: A=true")
PINNED = {"TestA/a": PASS, "TestA/b": FAIL, "TestC": OTHER}
FOUND = {"TestA/a": PASS, "TestA/b": Outcome(Verdict.FAIL), "TestC": OTHER}


@table(
    "changes, reported",
    ("as-pinned", {}, []),
    ("broken", {"TestA/a": Outcome(Verdict.FAIL)}, ["TestA/a: FAIL, expected PASS"]),
    ("fixed", {"TestA/b": PASS}, ["TestA/b: PASS, expected FAIL"]),
    ("new", {"TestD": PASS}, ["TestD: PASS, not pinned"]),
    (
        "another-class",
        {"TestC": Outcome(Verdict.NOT_APPLICABLE, "a clock of the test")},
        ["TestC: not applicable because of a clock of the test, expected feature gates: A=true"],
    ),
)
def test_every_difference_is_reported(changes: dict[str, Outcome], reported: list[str]) -> None:
    """A verdict that is better than the pinned one differs too, so that the file is updated."""
    assert differing(Verdicts(FOUND | changes), PINNED) == reported


@table(
    "only, reported",
    ("all", [], ["TestA/b: did not run", "TestC: did not run"]),
    ("one-test", ["TestA"], ["TestA/b: did not run"]),
    ("one-subtest", ["TestA/a"], []),
)
def test_a_missing_test_is_reported_if_it_was_selected(only: list[str], reported: list[str]) -> None:
    """A pinned test that did not run is reported only if it was selected."""
    assert differing(Verdicts({"TestA/a": PASS}), PINNED, only) == reported


def test_a_run_that_is_cut_off_is_reported() -> None:
    """An incomplete run is reported even if its verdicts are as pinned."""
    assert differing(Verdicts(FOUND, is_complete=False), PINNED) == ["the run was cut off"]


def test_a_package_without_pins_reports_failures() -> None:
    """In a package without pins only failures are reported."""
    assert differing(Verdicts(FOUND), None) == ["TestA/b: FAIL"]


def test_pins_are_read_as_written(tmp_path: Path) -> None:
    """Names with quotes and the package `.` are written and read."""
    file = tmp_path / "expected.toml"
    expected = {".": PINNED, "a/b": {'TestX/shouldn\'t_"stop"': PASS, "TestY": FAIL}}
    write_expected(file, expected)
    assert read_expected(file) == expected


def test_recording_keeps_reasons_and_adds_no_failure() -> None:
    """A failure without a pinned reason is not recorded, so that it is reported until a reason is added by hand."""
    found = Verdicts(FOUND | {"TestNew": Outcome(Verdict.FAIL)})
    pins = recorded(found, PINNED)
    assert pins == PINNED
    assert differing(found, pins) == ["TestNew: FAIL, not pinned"]


@table(
    "text", ("no-reason", '[a.FAIL.""]\nTestX = []\n'), ("twice", '[a.PASS]\nTestX = []\n[a.FAIL."why"]\nTestX = []\n')
)
def test_contradicting_pins_are_errors(tmp_path: Path, text: str) -> None:
    """A test has one verdict, and a reason unless it passes."""
    file = tmp_path / "expected.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match="TestX is listed twice or has no reason"):
        read_expected(file)


def test_the_selection_contains_tests_that_pass() -> None:
    """Each selected test is pinned for the newest version, and its applicable subtests pass."""
    expected = read_expected(_HERE / "expected" / f"{RELEASES[0]}.toml")
    for package, tests in read_selection(_HERE / "selection.toml").items():
        for test in tests:
            pins = [outcome.verdict for name, outcome in expected[package].items() if name.partition("/")[0] == test]
            assert Verdict.PASS in pins, f"{package}: {test}"
            assert Verdict.FAIL not in pins, f"{package}: {test}"


@pytest.mark.parametrize("minor", RELEASES)
def test_the_pinned_verdicts_can_be_read(minor: str) -> None:
    """Each version has pinned verdicts, and the tests of gangs pass."""
    outcomes = read_expected(_HERE / "expected" / f"{minor}.toml")["podgroup"].values()
    assert Verdict.PASS in {outcome.verdict for outcome in outcomes}
    assert Verdict.FAIL not in {outcome.verdict for outcome in outcomes}
