"""The report of drains."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from benchmarks.audit_times import AuditTimes
from benchmarks.end_to_end import compared, summary, without_events
from benchmarks.end_to_end_drain import Drain
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER
from tests.support.tables import table

ONE = Drain("basic", 100, 1000, BAYPLAN, 1, 1000, 2.0, 4.0, 1000, 1.5, 100.0, 2000)


def other(**changed: object) -> Drain:
    """Return ONE with changed fields."""
    return dataclasses.replace(ONE, **changed)  # type: ignore[arg-type] # fields by name


def test_medians_and_ratios() -> None:
    """Each side has its median; only workloads that both schedulers have drained are compared."""
    drains = [ONE, other(repetition=2, seconds=1.0), other(repetition=3, seconds=4.0)]
    drains += [other(scheduler=KUBE_SCHEDULER, seconds=5.0), other(workload="spread")]
    (found,) = compared(drains)
    assert found.medians(lambda drain: drain.rate) == (500.0, 200.0)
    assert found.ratio(lambda drain: drain.rate) == 2.5
    assert found.ratio(lambda drain: drain.reported_rate) == 1.0
    assert found.medians(lambda drain: drain.cpu_ms_per_pod) == (1.5, 1.5)


def test_load_by_process() -> None:
    """CPU time is divided by the pods bound after the first bindings; a process that did not run has none."""
    drain = other(busy={BAYPLAN: 1.0, "etcd": 0.5, "machine": 3.0, "seconds": 2.0}, first_bound=500)
    assert [drain.busy_ms_per_pod(name) for name in (BAYPLAN, "etcd", "kube-controller-manager")] == [2.0, 1.0, 0.0]
    assert drain.busy_processors == 1.5
    assert ONE.busy_processors == 0.0


def test_backlogs_of_other_sizes_are_compared_apart() -> None:
    """Backlogs of different sizes are not repetitions of each other."""
    drains = [each for pods in (10, 1000) for each in (other(pods=pods), other(pods=pods, scheduler=KUBE_SCHEDULER))]
    assert [each.key[2] for each in compared(drains)] == [10, 1000]


def test_cpu_is_reported_with_and_without_the_start() -> None:
    """CPU time without the start is divided by the pods that were pending at the first bindings."""
    drain = other(cpu_seconds=3.0, first_cpu_seconds=1.2, first_bound=100)
    assert drain.cpu_ms_per_pod == 3.0
    assert drain.later_cpu_ms_per_pod == pytest.approx(2.0)


@table("events, is_reported", ("one-for-each-pod", 1000, False), ("one-was-lost", 999, True), ("too-many", 1002, True))
def test_wrong_numbers_of_events_are_reported(events: int, *, is_reported: bool) -> None:
    """Each bound pod must have one event of reason Scheduled from either scheduler."""
    drains = [ONE, other(scheduler=KUBE_SCHEDULER, events=events)]
    found = [f"basic, 100 nodes, #1: kube-scheduler bound 1,000 pods and wrote {events:,} events of reason Scheduled"]
    assert without_events(drains) == (found if is_reported else [])
    (row,) = summary(drains)
    assert bool(row["without_events"]) is is_reported


def test_the_summary_has_medians_and_spread() -> None:
    """The summary has medians, lowest and highest values of both sides, and the ratio."""
    drains = [ONE, other(repetition=2, seconds=1.0), other(scheduler=KUBE_SCHEDULER, seconds=4.0)]
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
