"""Prints results of gang measurements: medians, spread and ratios, as a table."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.gangs_drain import GangDrain
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER

_WIDTH = 140
"""Width of the table if the output is not a terminal."""
COUNTED: Mapping[str, tuple[str, Callable[[GangDrain], float]]] = {
    "pods/s": (".0f", lambda one: one.rate),
    "CPU ms/pod": (".2f", lambda one: one.cpu_ms_per_pod),
    "after the first bind": (".2f", lambda one: one.later_cpu_ms_per_pod),
    "attempts": (".0f", lambda one: one.attempts),
    "attempt ms": (".2f", lambda one: _or_nan(one.attempt_ms)),
    "search ms": (".2f", lambda one: _or_nan(one.algorithm_ms)),
    "peak MiB": (".0f", lambda one: one.peak_rss_mib),
    "in part ms": (".0f", lambda one: one.longest_partial_ms),
}
"""Reported numbers, in the order of the table; "after the first bind" refers to CPU ms/pod."""
_COMPARED = {
    "pods/s": "the rate",
    "CPU ms/pod": "the CPU",
    "after the first bind": "the CPU after the first bind",
    "attempt ms": "the time of an attempt",
    "peak MiB": "the memory",
}


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def summary(drains: Sequence[GangDrain]) -> list[dict[str, Any]]:
    """Return medians and spread for each backlog and scheduler, and ratios if there are results of both."""
    found = []
    for backlog, live in dict.fromkeys((each.backlog, each.live) for each in drains):
        sides = {
            scheduler: [
                each for each in drains if (each.backlog, each.live, each.scheduler) == (backlog, live, scheduler)
            ]
            for scheduler in dict.fromkeys(each.scheduler for each in drains)
        }
        medians = {
            scheduler: {name: statistics.median(map(of, own)) for name, (_, of) in COUNTED.items()}
            for scheduler, own in sides.items()
            if own
        }
        ratios = {}
        if len(medians) == 2:
            ours, theirs = medians[BAYPLAN], medians[KUBE_SCHEDULER]
            ratios = {name: ours[name] / theirs[name] if theirs[name] else 0.0 for name in _COMPARED}
        found.append(
            {
                "backlog": backlog,
                "live": live,
                "bound": {scheduler: min(each.bound for each in own) for scheduler, own in sides.items() if own},
                "medians": medians,
                "rates": {scheduler: [each.rate for each in own] for scheduler, own in sides.items() if own},
                "ratios": ratios,
            }
        )
    return found


def show(drains: Sequence[GangDrain]) -> None:
    """Print medians, and ratios below them.

    An attempt is that of a whole gang, and includes the search for nodes. A gang is bound in part from its first bind
    to its last.
    """
    table = Table(title="Gangs, medians", box=box.SIMPLE, pad_edge=False)
    for column in ("gangs", "of", "nodes"):
        table.add_column(column, justify="right")
    table.add_column("scheduler", no_wrap=True)
    for column in ("bound", *COUNTED, "spread of pods/s", "n"):
        table.add_column(column, justify="right")
    ratios = []
    for each in summary(drains):
        backlog = each["backlog"]
        of = f"{backlog.gangs} gangs" + (", live" if each["live"] else "")
        for scheduler, medians in each["medians"].items():
            rates = each["rates"][scheduler]
            table.add_row(
                str(backlog.gangs), str(backlog.size), str(backlog.nodes), scheduler, str(each["bound"][scheduler]),
                *(f"{medians[name]:{form}}" for name, (form, _) in COUNTED.items()),
                f"{min(rates):.0f}-{max(rates):.0f}", str(len(rates)),
            )  # fmt: skip
        if each["ratios"]:
            ratio_text = ", ".join(f"{each['ratios'][name]:.2f} x {words}" for name, words in _COMPARED.items())
            ratios.append(f"{of}, {BAYPLAN} / {KUBE_SCHEDULER}: {ratio_text}")
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    console.print(table)
    for line in ratios:
        console.print(line, highlight=False, soft_wrap=True)
