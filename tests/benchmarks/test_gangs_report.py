"""What is made of many drains of gangs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from benchmarks.gangs import arguments_of, run, wrong
from benchmarks.gangs_drain import GangDrain
from benchmarks.gangs_report import show, summary
from benchmarks.gangs_workload import GangBacklog
from benchmarks.result_lines import ResultLines
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER

ONE = GangDrain(
    BAYPLAN, GangBacklog(10, 5, 3), 15, [], 1.0, 0.3, 100.0, 5, 2.0, 1.0, 7.0, 1, first_cpu_seconds=0.15, first_bound=5
)


def other(**changed: object) -> GangDrain:
    """The same with something else."""
    return dataclasses.replace(ONE, **changed)  # type: ignore[arg-type] # fields by name


def test_cpu_is_told_with_and_without_the_start() -> None:
    """Without it, of the pods that were left when the first bindings were seen."""
    assert (ONE.cpu_ms_per_pod, ONE.later_cpu_ms_per_pod) == pytest.approx((20.0, 15.0))


def test_medians_and_ratios() -> None:
    """Of each side the median; what only one has drained has no ratios, and another backlog is none of the same."""
    drains = [ONE, other(repetition=2, seconds=3.0), other(scheduler=KUBE_SCHEDULER, seconds=5.0, attempt_ms=None)]
    both, alone = summary([*drains, other(backlog=GangBacklog(10, 6, 3))])
    assert both["ratios"]["pods/s"] == pytest.approx(10.0 / 3.0)
    assert both["rates"] == {BAYPLAN: [15.0, 5.0], KUBE_SCHEDULER: [3.0]}
    assert (alone["backlog"].gangs, alone["ratios"]) == (6, {})


def test_the_table_tells_both(capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each scheduler, and the ratios below."""
    show([ONE, other(scheduler=KUBE_SCHEDULER, seconds=5.0)])
    told = capsys.readouterr().out
    assert f"5 gangs, {BAYPLAN} / {KUBE_SCHEDULER}: 5.00 x the rate, 1.00 x the CPU" in told


def test_what_is_known_is_not_run_again(tmp_path: Path) -> None:
    """Results are read as they were written, and a run that was whole starts nothing."""
    lines = ResultLines(tmp_path / "gangs.jsonl", GangDrain)
    lines.add(ONE)
    arguments = arguments_of(["--gangs", "5", "--nodes", "10", "--only", BAYPLAN])
    assert run(arguments, lines.read(), lines.add) == lines.read() == [ONE]


@pytest.mark.parametrize(
    ("drained", "words"),
    [
        pytest.param(ONE, [], id="whole"),
        pytest.param(other(partial=["gang-1"]), ["only some members are on nodes of gang-1"], id="in-part"),
        pytest.param(other(attempts=0), ["15 pods were bound and no gang was tried"], id="one-by-one"),
        pytest.param(other(attempts=0, bound=0), [], id="none-bound"),
    ],
)
def test_what_is_wrong_is_told(drained: GangDrain, words: list[str]) -> None:
    """Gangs on nodes in part, and pods that were bound as if they belonged to none."""
    told = wrong([drained])
    assert len(told) == len(words)
    assert all(each in sentence for each, sentence in zip(words, told, strict=True))
