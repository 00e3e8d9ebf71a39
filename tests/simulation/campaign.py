"""Runs many seeds in several processes and adds up the results."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context

from tests.simulation.simulation import run_seed

_SEEDS_PER_TASK = 25
"""Large enough that the start-up cost of a process does not matter."""


@dataclass(slots=True)
class Campaign:
    """Results of many runs.

    Attributes:
        jobs: Number of processes.
        failed: Seeds whose run failed, in order.
        problems: The first problem of each failed seed.
        counts: Fault counts of each run.
        virtual_seconds: Total virtual seconds of all runs.
    """

    seeds: int = 0
    jobs: int = 1
    failed: list[int] = field(default_factory=list)
    problems: dict[int, str] = field(default_factory=dict)
    counts: list[Mapping[str, int]] = field(default_factory=list)
    bound: int = 0
    virtual_seconds: float = 0.0


def run_campaign(seeds: Sequence[int], jobs: int = 0) -> Campaign:
    """Run all seeds and return the combined results.

    Args:
        jobs: Number of processes; 0 means one per processor.
    """
    jobs = jobs or os.cpu_count() or 1
    total = Campaign(jobs=jobs)
    if jobs == 1:
        parts = [_run_some(seeds)]
    else:
        chunks = [seeds[start : start + _SEEDS_PER_TASK] for start in range(0, len(seeds), _SEEDS_PER_TASK)]
        # Spawn instead of fork, because the caller may have threads.
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            parts = list(pool.map(_run_some, chunks))
    for part in parts:
        total.seeds += part.seeds
        total.failed += part.failed
        total.problems |= part.problems
        total.counts += part.counts
        total.bound += part.bound
        total.virtual_seconds += part.virtual_seconds
    return total


def _run_some(seeds: Sequence[int]) -> Campaign:
    part = Campaign()
    for seed in seeds:
        outcome = run_seed(seed)
        part.seeds += 1
        part.counts.append(outcome.counts)
        part.bound += outcome.bound
        part.virtual_seconds += outcome.seconds
        if outcome.problems:
            part.failed.append(seed)
            part.problems[seed] = outcome.problems[0]
    return part
