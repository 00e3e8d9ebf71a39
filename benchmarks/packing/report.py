"""Prints the outcomes of replays as a table: means over the samples, by profile."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.packing.profiles import PUBLISHED
from benchmarks.packing.replay import Outcome

_WIDTH = 140
"""Width of the table if the output is not a terminal."""


def summary(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return means over the samples of each profile, the most allocated first."""
    found = []
    for name in dict.fromkeys(each.profile for each in outcomes):
        own = [each for each in outcomes if each.profile == name]

        def mean(of: Callable[[Outcome], float], own: Sequence[Outcome] = own) -> float:
            return statistics.fmean(map(of, own))

        allocated = [each.allocated_percent for each in own]
        found.append(
            {
                "profile": name,
                "draws": len(own),
                "allocated_percent": statistics.fmean(allocated),
                "lowest_percent": min(allocated),
                "highest_percent": max(allocated),
                "free_gpus": mean(lambda one: one.capacity_gpus - one.allocated_gpus),
                "fragmented_gpus": mean(lambda one: one.fragmented_gpus),
                "arrived": mean(lambda one: one.arrived),
                "pending": mean(lambda one: one.pending),
                "pending_gpus": mean(lambda one: one.arrived_gpus - one.allocated_gpus),
                "decided_us": mean(lambda one: one.decided_us),
                "bound_us": mean(lambda one: one.bound_us),
            }
        )
    return sorted(found, key=lambda row: -row["allocated_percent"])


def show(outcomes: Sequence[Outcome], *, compare: bool) -> None:
    """Print the table; ``compare`` adds the published figures."""
    table = Table(box=box.SIMPLE_HEAD)
    columns = ["allocated %", "range", *(["published"] if compare else [])]
    columns += ["GPUs free", "fragments", "pods pending", "GPUs pending", "µs to decide", "µs to bind"]
    table.add_column("profile", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    for row in summary(outcomes):
        published = PUBLISHED.get(row["profile"])
        cells = [f"{row['allocated_percent']:.1f}", f"{row['lowest_percent']:.1f}-{row['highest_percent']:.1f}"]
        if compare:
            cells.append("" if published is None else f"{published:.1f}")
        cells += [f"{row['free_gpus']:.0f}", f"{row['fragmented_gpus']:.0f}", f"{row['pending']:.0f}"]
        cells += [f"{row['pending_gpus']:.0f}", f"{row['decided_us']:.0f}", f"{row['bound_us']:.0f}"]
        table.add_row(row["profile"], *cells)
    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH)
    console.print(table)
    console.print(
        f"{outcomes[0].capacity_gpus:.0f} GPUs. Fragments: expected fragmentation of the free GPUs, in GPUs. "
        "Means over samples of arrivals, which are the same for each profile."
    )
