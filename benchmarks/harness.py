"""What the benchmarks share: the command line, stored results, the comparison of both schedulers, and output."""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.table import Table

from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER
from scheduler_core.errors import SchedulerCoreError

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

DEFAULT_FOLDER = Path("build/benchmarks")
"""Default folder of results; not part of the sources."""


def command_line(about: str | None, **numbers: float) -> argparse.ArgumentParser:
    """Return a parser with an option for each number, of the type of its default."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    return parser


def add_output(parser: argparse.ArgumentParser, results: str | None = None, *, show: bool = False) -> None:
    """Add the options for the results.

    Args:
        results: Default file below :data:`DEFAULT_FOLDER`; results are stored only on request if it is "", and never
            if it is None.
        show: Whether stored results can be shown without a measurement.
    """
    if results is not None:
        text = "file of JSON lines: store results, and reuse stored ones"
        parser.add_argument("--results", type=Path, default=DEFAULT_FOLDER / results if results else None, help=text)
    if show:
        parser.add_argument("--show", type=Path, help="show this file of results without a measurement")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")


def report(output: str, document: object, show: Callable[[], None]) -> None:
    """Print the document as JSON if ``--output`` is json, else show tables."""
    if output == "json":
        print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    else:
        show()


class UnreadableResultsError(SchedulerCoreError):
    """A file is not a valid file of results."""


class ResultLines(Generic[T]):
    """Results in a file, one line of JSON each, so that an interrupted run can be continued.

    Args:
        path: The file; it may be missing. None stores nothing.
        kind: A dataclass with fields of JSON types.
    """

    def __init__(self, path: Path | None, kind: type[T]) -> None:
        self._path = path
        self._decoder = msgspec.json.Decoder(kind)

    def read(self) -> list[T]:
        """Return results of earlier runs; none if there is no file.

        Raises:
            UnreadableResultsError: The file is not a valid file of results.
        """
        if self._path is None or not self._path.exists():
            return []
        found = []
        for number, line in enumerate(self._path.read_bytes().split(b"\n")[:-1], start=1):
            try:
                found.append(self._decoder.decode(line))
            except msgspec.MsgspecError as fault:
                raise UnreadableResultsError(
                    f"{self._path}, line {number}: {fault}; remove the file, or name another one for results"
                ) from fault
        return found

    def add(self, result: T) -> None:
        """Append a result; an incomplete line of an interrupted run is dropped."""
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a+b") as file:
            file.seek(0)
            whole = file.read()
            file.truncate(whole.rfind(b"\n") + 1)
            file.write(msgspec.json.encode(result) + b"\n")

    def complete(
        self, turns: Iterable[tuple[K, Callable[[], T]]], key: Callable[[T], K], line: Callable[[T], str]
    ) -> list[T]:
        """Run the measurements whose results are not stored; store and report each new result.

        Args:
            turns: The key of each measurement, and the function that runs it.

        Returns:
            Stored and new results.
        """
        found = self.read()
        done = set(map(key, found))
        for turn, measure in turns:
            if turn not in done:
                result = measure()
                found.append(result)
                self.add(result)
                sys.stderr.write(f"{line(result)}\n")
        return found


def grouped(results: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the results by key, in the order of the first result of each."""
    found: dict[K, list[T]] = {}
    for each in results:
        found.setdefault(key(each), []).append(each)
    return found


@dataclass(frozen=True, slots=True)
class Comparison(Generic[T]):
    key: tuple[Any, ...]
    own: Sequence[T]
    other: Sequence[T]

    @property
    def repetitions(self) -> list[int]:
        return [len(self.own), len(self.other)]

    def medians(self, of: Callable[[T], float]) -> tuple[float, float]:
        return statistics.median(map(of, self.own)), statistics.median(map(of, self.other))

    def ratio(self, of: Callable[[T], float]) -> float:
        own, other = self.medians(of)
        return own / other if other else 0.0

    def cell(self, of: Callable[[T], float], form: str) -> str:
        own, other = self.medians(of)
        return f"{own:{form}} / {other:{form}} = {self.ratio(of):.2f}x"

    def spreads(self, of: Callable[[T], float], form: str) -> str:
        spreads = [f"{min(map(of, side)):{form}}-{max(map(of, side)):{form}}" for side in (self.own, self.other)]
        return " / ".join(spreads)

    def counted(self, numbers: Mapping[str, tuple[str, Callable[[T], float]]]) -> dict[str, dict[str, Any]]:
        """Return both medians, both spreads and the ratio of each number."""
        return {
            name: {
                "medians": self.medians(of),
                "lowest": [min(map(of, side)) for side in (self.own, self.other)],
                "highest": [max(map(of, side)) for side in (self.own, self.other)],
                "ratio": self.ratio(of),
            }
            for name, (_, of) in numbers.items()
        }


def compared(
    results: Iterable[T], key: Callable[[T], tuple[Any, ...]], scheduler: Callable[[T], str]
) -> list[Comparison[T]]:
    """Return the situations with results of both schedulers, in the order of the runs."""
    found = []
    for each, own in grouped(results, key).items():
        sides = grouped(own, scheduler)
        if BAYPLAN in sides and KUBE_SCHEDULER in sides:
            found.append(Comparison(each, sides[BAYPLAN], sides[KUBE_SCHEDULER]))
    return found


def table(title: str, names: Iterable[str], numbers: Iterable[str], **style: Any) -> Table:
    """Return a table with columns of names, then columns of numbers."""
    made = Table(title=title, **style)
    for column in names:
        made.add_column(column, no_wrap=True)
    for column in numbers:
        made.add_column(column, justify="right")
    return made


def table_of(
    title: str, rows: Iterable[T], columns: Mapping[str, Callable[[T], object]], names: int = 1, **style: Any
) -> Table:
    """Return a table with a row for each of *rows*; the first columns are *names*, the others numbers."""
    heads = list(columns)
    made = table(title, heads[:names], heads[names:], **style)
    for each in rows:
        made.add_row(*(str(cell(each)) for cell in columns.values()))
    return made


def wide_console(width: int) -> Console:
    """Return a console of the terminal's width, or of this width if the output is not a terminal."""
    return Console() if sys.stdout.isatty() else Console(width=width)


def median_of(values: Sequence[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def percentile(ascending: Sequence[float], share: float) -> float:
    """Return a percentile: the lowest value that at least this share of the values does not exceed."""
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]


class Metrics:
    """Metrics of a scheduler, as its server writes them.

    Attributes:
        samples: Labels and value of each sample, by its name.
    """

    def __init__(self, text: str) -> None:
        self.samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self.samples.setdefault(sample.name, []).append((sample.labels, sample.value))

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the samples with these labels; 0 if there are none."""
        return sum(value for own, value in self.samples.get(name, ()) if labels.items() <= own.items())
