"""The report of measurements of the core."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from benchmarks.core import cases, growth, medians, run, sizes
from benchmarks.core_drain import Measured, Size
from benchmarks.harness import ResultLines
from benchmarks.workloads import Workload, workload_named
from tests.support.tables import table

ONE = Measured("basic", 100, 50, 50, 10.0, 60.0, 40.0, created=50, points={"Score": 6.0, "Permit": 0.1})


def other(**changed: object) -> Measured:
    """Return ONE with changed fields."""
    return dataclasses.replace(ONE, **changed)  # type: ignore[arg-type] # fields by name


def _text_of(table: Table) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


@table(
    "measured, rate",
    ("one-attempt-each", ONE, 10_000.0),
    ("two-attempts-each", other(pods=100), 6250.0),
    ("none-bound", other(bound=0), 1e6 / 60),
)
def test_pods_a_second(measured: Measured, rate: float) -> None:
    """The rate counts created pods, whatever their attempts and binds."""
    assert measured.rate == pytest.approx(rate)


def test_too_many_bound_pods_are_rejected() -> None:
    """The error names the remedy."""
    with pytest.raises(ValueError, match=r"100\+5000: .* use more nodes"):
        sizes("100+5000")


def test_stored_results_are_not_measured_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that was interrupted continues, and new results are stored."""
    planned: list[tuple[Workload, Size]] = [(workload_named("basic"), Size(100, 50, 0, number)) for number in (1, 2)]
    lines = ResultLines(tmp_path / "core.jsonl", Measured)
    lines.add(ONE)
    results = run(planned, lines)
    stored = lines.read()[1:]
    assert [each.repetition for each in stored] == [2]
    assert results == [ONE, *stored]
    assert stored[0].bound == stored[0].created == 45
    assert {"PreFilter", "Score", "Bind"} <= stored[0].points.keys()
    assert "basic, 100 nodes, 0 pods beforehand, #2" in capsys.readouterr().err


def test_tables_show_medians() -> None:
    """Tables have medians of repetitions, and the table of growth has a column for each size."""
    runs = [ONE, other(repetition=2, decided_us=160.0), other(repetition=3, decided_us=360.0)]
    found = cases([*runs, other(nodes=5000, occupied=20_000)])
    assert [case.rate for case in found] == [5000.0, 10_000.0]
    assert "2,500-10,000" in _text_of(medians(found))
    assert "5,000 (160)" in _text_of(growth(found))
    assert "5,000 nodes, 20,000 bound" in _text_of(growth(found))
