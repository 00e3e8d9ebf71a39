"""Reports of the benchmarks: stored results, medians, ratios, and messages on invalid results."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from benchmarks.audit_times import AuditTimes
from benchmarks.core import cases, growth, medians, run, sizes
from benchmarks.core_drain import Measured, Size
from benchmarks.end_to_end import compared, summary, without_events
from benchmarks.end_to_end_drain import Drain
from benchmarks.gangs import summary as gangs_summary
from benchmarks.gangs import wrong
from benchmarks.gangs_drain import GangBacklog, GangDrain
from benchmarks.harness import ResultLines, UnreadableResultsError, percentile
from benchmarks.latency import Latency
from benchmarks.latency import summary as latency_summary
from benchmarks.startup import longest_gap
from benchmarks.workloads import Workload, workload_named
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER
from tests.support.tables import table


@dataclass(frozen=True)
class Result:
    name: str
    problems: tuple[str, ...] = ()
    added_later: int = 0


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    """A run can be continued from its file; missing folders are created."""
    lines = ResultLines(tmp_path / "folder" / "runs.jsonl", Result)
    assert lines.read() == []
    written = [Result("a"), Result("b", ("node a is full",))]
    for each in written:
        lines.add(each)
    assert lines.read() == written


def test_an_incomplete_line_is_ignored(tmp_path: Path) -> None:
    """A killed run may leave an incomplete line; the next result replaces it."""
    file = tmp_path / "runs.jsonl"
    file.write_text('{"name":"a"}\n{"name":"b')
    lines = ResultLines(file, Result)
    assert lines.read() == [Result("a")]
    lines.add(Result("c"))
    assert lines.read() == [Result("a"), Result("c")]


def test_another_file_is_rejected(tmp_path: Path) -> None:
    """The error has the line and the remedy."""
    file = tmp_path / "runs.jsonl"
    file.write_text('{"name":"a"}\n{"named":"b"}\n')
    with pytest.raises(UnreadableResultsError, match=r"line 2: .*name another one for results"):
        ResultLines(file, Result).read()


CORE = Measured("basic", 100, 50, 50, 10.0, 60.0, 40.0, created=50, points={"Score": 6.0, "Permit": 0.1})


def _text_of(table: Table) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


@table(
    "measured, rate",
    ("one-attempt-each", CORE, 10_000.0),
    ("two-attempts-each", replace(CORE, pods=100), 6250.0),
    ("none-bound", replace(CORE, bound=0), 1e6 / 60),
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
    lines.add(CORE)
    results = run(planned, lines)
    stored = lines.read()[1:]
    assert [each.repetition for each in stored] == [2]
    assert results == [CORE, *stored]
    assert stored[0].bound == stored[0].created == 45
    assert {"PreFilter", "Score", "Bind"} <= stored[0].points.keys()
    assert "basic, 100 nodes, 0 pods beforehand, #2" in capsys.readouterr().err


def test_tables_show_medians() -> None:
    """Tables have medians of repetitions, and the table of growth has a column for each size."""
    runs = [CORE, replace(CORE, repetition=2, decided_us=160.0), replace(CORE, repetition=3, decided_us=360.0)]
    found = cases([*runs, replace(CORE, nodes=5000, occupied=20_000)])
    assert [case.rate for case in found] == [5000.0, 10_000.0]
    assert "2,500-10,000" in _text_of(medians(found))
    assert "5,000 (160)" in _text_of(growth(found))
    assert "5,000 nodes, 20,000 bound" in _text_of(growth(found))


DRAIN = Drain("basic", 100, 1000, BAYPLAN, 1, 1000, 2.0, 4.0, 1000, 1.5, 100.0, 2000)


def test_medians_and_ratios() -> None:
    """Each side has its median; only workloads that both schedulers have drained are compared."""
    drains = [DRAIN, replace(DRAIN, repetition=2, seconds=1.0), replace(DRAIN, repetition=3, seconds=4.0)]
    drains += [replace(DRAIN, scheduler=KUBE_SCHEDULER, seconds=5.0), replace(DRAIN, workload="spread")]
    (found,) = compared(drains)
    assert found.medians(lambda drain: drain.rate) == (500.0, 200.0)
    assert found.ratio(lambda drain: drain.rate) == 2.5
    assert found.ratio(lambda drain: drain.reported_rate) == 1.0
    assert found.medians(lambda drain: drain.cpu_ms_per_pod) == (1.5, 1.5)


def test_load_by_process() -> None:
    """CPU time is divided by the pods bound after the first bindings; a process that did not run has none."""
    drain = replace(DRAIN, busy={BAYPLAN: 1.0, "etcd": 0.5, "machine": 3.0, "seconds": 2.0}, first_bound=500)
    assert [drain.busy_ms_per_pod(name) for name in (BAYPLAN, "etcd", "kube-controller-manager")] == [2.0, 1.0, 0.0]
    assert drain.busy_processors == 1.5
    assert DRAIN.busy_processors == 0.0


def test_backlogs_of_other_sizes_are_compared_apart() -> None:
    """Backlogs of different sizes are not repetitions of each other."""
    drains = [
        each
        for pods in (10, 1000)
        for each in (replace(DRAIN, pods=pods), replace(DRAIN, pods=pods, scheduler=KUBE_SCHEDULER))
    ]
    assert [each.key[2] for each in compared(drains)] == [10, 1000]


def test_cpu_is_reported_with_and_without_the_start() -> None:
    """CPU time without the start is divided by the pods that were pending at the first bindings."""
    drain = replace(DRAIN, cpu_seconds=3.0, first_cpu_seconds=1.2, first_bound=100)
    assert drain.cpu_ms_per_pod == 3.0
    assert drain.later_cpu_ms_per_pod == pytest.approx(2.0)


@table("events, is_reported", ("one-for-each-pod", 1000, False), ("one-was-lost", 999, True), ("too-many", 1002, True))
def test_wrong_numbers_of_events_are_reported(events: int, *, is_reported: bool) -> None:
    """Each bound pod must have one event of reason Scheduled from either scheduler."""
    drains = [DRAIN, replace(DRAIN, scheduler=KUBE_SCHEDULER, events=events)]
    found = [f"basic, 100 nodes, #1: kube-scheduler bound 1,000 pods and wrote {events:,} events of reason Scheduled"]
    assert without_events(drains) == (found if is_reported else [])
    (row,) = summary(drains)
    assert bool(row["without_events"]) is is_reported


def test_the_summary_has_medians_and_spread() -> None:
    """The summary has medians, lowest and highest values of both sides, and the ratio."""
    drains = [DRAIN, replace(DRAIN, repetition=2, seconds=1.0), replace(DRAIN, scheduler=KUBE_SCHEDULER, seconds=4.0)]
    (row,) = summary(drains)
    rates = row["counted"]["pods/s"]
    assert rates == {"medians": (750.0, 250.0), "lowest": [500.0, 250.0], "highest": [1000.0, 250.0], "ratio": 3.0}
    assert (row["workload"], row["nodes"], row["repetitions"]) == ("basic", 100, [2, 1])


def test_the_audit_log_is_read_as_it_grows(tmp_path: Path) -> None:
    """Only complete lines are read, each once."""
    log = tmp_path / "audit.log"

    def entry(resource: str, name: str, code: int, **more: str) -> str:
        reference = {"resource": resource, "name": name, **more}
        at = "2026-01-01T00:00:01.5Z"
        event = {"verb": "create", "objectRef": reference, "responseStatus": {"code": code}, "stageTimestamp": at}
        return json.dumps(event, separators=(",", ":")) + "\n"

    expected = entry("events", "e", 201) + entry("pods", "a", 201) + entry("pods", "a", 201, subresource="binding")
    half = entry("pods", "c", 409, subresource="binding") + entry("pods", "b", 201, subresource="binding")
    log.write_text(expected + half[:10])
    times = AuditTimes(log)
    times.read()
    assert (list(times.created), list(times.bound), len(times.events)) == (["a"], ["a"], 1)
    log.write_text(expected + half)
    times.read()
    assert list(times.bound) == ["a", "b"]
    assert times.bound["a"] == 1767225601.5


GANGS = GangDrain(
    BAYPLAN, GangBacklog(10, 5, 3), 15, [], 1.0, 0.3, 100.0, 5, 2.0, 1.0, 7.0, 1, first_cpu_seconds=0.15, first_bound=5
)


def test_medians_and_ratios_of_gangs() -> None:
    """Each side has its median; a backlog that one scheduler has drained has no ratios; backlogs are separate rows."""
    drains = [
        GANGS,
        replace(GANGS, repetition=2, seconds=3.0),
        replace(GANGS, scheduler=KUBE_SCHEDULER, seconds=5.0, attempt_ms=None),
    ]
    both, alone = gangs_summary([*drains, replace(GANGS, backlog=GangBacklog(10, 6, 3))])
    assert both["ratios"]["pods/s"] == pytest.approx(10.0 / 3.0)
    assert both["rates"] == {BAYPLAN: [15.0, 5.0], KUBE_SCHEDULER: [3.0]}
    assert (alone["backlog"].gangs, alone["ratios"]) == (6, {})


@table(
    "drained, words",
    ("whole", GANGS, []),
    ("in-part", replace(GANGS, partial=["gang-1"]), ["only some members are on nodes of gang-1"]),
    ("pods-without-gang", replace(GANGS, attempts=0), ["15 pods were bound and no gang was attempted"]),
    ("none-bound", replace(GANGS, attempts=0, bound=0), []),
)
def test_problems_are_in_the_text(drained: GangDrain, words: list[str]) -> None:
    """Partly bound gangs, and pods that were bound without an attempt of a gang, are reported."""
    output = wrong([drained])
    assert len(output) == len(words)
    assert all(each in sentence for each, sentence in zip(words, output, strict=True))


LATENCY = Latency(BAYPLAN, 50, 1000, 2.0, 8.0, 1.0, 100, 1)


@table(
    "share, expected",
    ("median", 0.5, 50.0),
    ("99th-percentile", 0.99, 99.0),
    ("largest", 1.0, 100.0),
    ("smallest", 0.0, 1.0),
)
def test_percentiles(share: float, expected: float) -> None:
    """Percentiles of the values from 1 to 100 are the values themselves."""
    assert percentile([float(value) for value in range(1, 101)], share) == expected


def test_latencies_are_compared_by_rate() -> None:
    """Rows have medians and spread of repetitions; a rate that one scheduler lacks is left out."""
    runs = [LATENCY, replace(LATENCY, repetition=2, p99_ms=12.0), replace(LATENCY, rate=200)]
    (row,) = latency_summary([*runs, replace(LATENCY, scheduler=KUBE_SCHEDULER, p99_ms=5.0)])
    assert (row["nodes"], row["rate"], row["repetitions"]) == (100, 50, [2, 1])
    assert row["counted"]["p99 ms"] == {
        "medians": (10.0, 5.0),
        "lowest": [8.0, 5.0],
        "highest": [12.0, 5.0],
        "ratio": 2.0,
    }


@table("since, expected", ("all", 0.0, 5.0), ("gap-in-progress", 2.5, 3.0), ("earlier-gaps-excluded", 8.5, 1.0))
def test_the_longest_time_without_a_bind(since: float, expected: float) -> None:
    """The gap is between two bindings of which the later one is after the given time, in any order of the input."""
    assert longest_gap([9.0, 8.0, -3.0, 2.0, 5.0], since) == expected
