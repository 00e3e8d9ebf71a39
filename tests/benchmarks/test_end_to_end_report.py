"""What is made of many drains."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from xml.etree import ElementTree as ET

from benchmarks.audit_times import AuditTimes
from benchmarks.end_to_end import read_results
from benchmarks.end_to_end_drain import Drain
from benchmarks.end_to_end_report import compared, write_chart
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER

ONE = Drain("basic", 100, 1000, BAYPLAN, 1, 1000, 2.0, 4.0, 1000, 1.5, 100.0, 2000)


def other(**changed: object) -> Drain:
    """The same with something else."""
    return dataclasses.replace(ONE, **changed)  # type: ignore[arg-type] # fields by name


def test_medians_and_ratios() -> None:
    """Of each side the median; only workloads that both have drained are compared."""
    drains = [ONE, other(repetition=2, seconds=1.0), other(repetition=3, seconds=4.0)]
    drains += [other(scheduler=KUBE_SCHEDULER, seconds=5.0), other(workload="spread")]
    (found,) = compared(drains)
    assert found.medians(lambda drain: drain.rate) == (500.0, 200.0)
    assert found.ratio(lambda drain: drain.rate) == 2.5
    assert found.ratio(lambda drain: drain.told_rate) == 1.0
    assert found.medians(lambda drain: drain.cpu_ms_per_pod) == (1.5, 1.5)


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    """So that a run can be taken up again."""
    file = tmp_path / "runs.jsonl"
    assert read_results(file) == []
    written = [ONE, other(wrong=("node a is full",))]
    file.write_text("".join(json.dumps(dataclasses.asdict(drain)) + "\n" for drain in written))
    assert read_results(file) == written


def test_the_chart_shows_both(tmp_path: Path) -> None:
    """A bar for each scheduler, in proportion, and the ratio."""
    chart = tmp_path / "docs" / "chart.svg"
    write_chart([ONE, other(scheduler=KUBE_SCHEDULER, seconds=4.0)], chart)
    root = ET.fromstring(chart.read_text())  # noqa: S314 - written just now
    widths = [float(bar.attrib["width"]) for bar in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert widths[0] == 2 * widths[1]
    assert "500 (2.0x)" in [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]


def test_the_audit_log_is_read_as_it_grows(tmp_path: Path) -> None:
    """Whole lines alone, each once."""
    log = tmp_path / "audit.log"

    def entry(resource: str, name: str, code: int, **more: str) -> str:
        reference = {"resource": resource, "name": name, **more}
        at = "2026-01-01T00:00:01.5Z"
        event = {"verb": "create", "objectRef": reference, "responseStatus": {"code": code}, "stageTimestamp": at}
        return json.dumps(event, separators=(",", ":")) + "\n"

    told = entry("events", "e", 201) + entry("pods", "a", 201) + entry("pods", "a", 201, subresource="binding")
    half = entry("pods", "c", 409, subresource="binding") + entry("pods", "b", 201, subresource="binding")
    log.write_text(told + half[:10])
    times = AuditTimes(log)
    times.read()
    assert (list(times.created), list(times.bound), len(times.told)) == (["a"], ["a"], 1)
    log.write_text(told + half)
    times.read()
    assert list(times.bound) == ["a", "b"]
    assert times.bound["a"] == 1767225601.5
