"""`make twins`: compares schedulers with and without cached results over random cluster lifetimes.

The exit status is 1 if a decision differs, or if the reuse of results fails.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter

from tests.laws.twins.cluster_run import ClusterRun
from tests.laws.twins.twin import REAL, TINY

DECISIONS_PER_RUN = 250


def main() -> int:
    """Run the comparison that the command line selects."""
    parser = argparse.ArgumentParser(prog="python -m tests.laws.twins", description=__doc__)
    parser.add_argument("--decisions", type=int, default=10_000, help="Number of decisions over all runs")
    parser.add_argument("--seed", type=int, default=0, help="Seed of the first run; each next run adds 1")
    parser.add_argument(
        "--tiny", action="store_true", help="Set the bounds of cached results and of the snapshot to a few entries"
    )
    parser.add_argument("--gangs", action="store_true", help="Create PodGroups")
    parser.add_argument("--devices", action="store_true", help="Create devices and resource claims")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    started, totals, errors, failed, seed = time.monotonic(), Counter[str](), Counter[str](), 0, arguments.seed
    while totals["decisions"] < arguments.decisions:
        run = ClusterRun(
            seed, TINY if arguments.tiny else REAL, has_gangs=arguments.gangs, has_devices=arguments.devices
        )
        counts = run.run(DECISIONS_PER_RUN)
        for name in ("decisions", "placed", "gangs", "victims", "reused"):
            totals[name] += getattr(counts, name)
        errors.update(counts.reuse_errors)
        if counts.problem:
            failed += 1
            print(f"seed {seed} DIFFERS at {counts.problem}", flush=True)
        seed += 1
    seconds = time.monotonic() - started
    print(
        f"{seed - arguments.seed} runs, {totals['decisions']} decisions: {totals['placed']} pods and {totals['gangs']} "
        f"gangs scheduled, {totals['reused']} cycles reused results, {totals['victims']} victims; "
        f"{totals['decisions'] / seconds:.0f} decisions/s"
    )
    print(f"{failed} runs differ; reuse errors by plugin: {dict(errors) or 'none'}")
    return 1 if failed or errors.get("") else 0


if __name__ == "__main__":
    sys.exit(main())
