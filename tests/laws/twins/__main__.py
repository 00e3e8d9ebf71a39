"""`make twins`: random lives, lived with and without reuse, and how their decisions differ.

The status is 1 when a life differs, or when reuse itself fails.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter

from tests.laws.twins.life import Life
from tests.laws.twins.twin import REAL, TINY

DECISIONS_PER_LIFE = 250


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.laws.twins", description=__doc__)
    parser.add_argument("--decisions", type=int, default=10_000, help="number of decisions, over all lives")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first life; the next lives count up")
    parser.add_argument(
        "--tiny", action="store_true", help="set every bound of the reuse and of the snapshot to a handful"
    )
    parser.add_argument("--gangs", action="store_true", help="let PodGroups come")
    parser.add_argument("--devices", action="store_true", help="let nodes have devices, and pods claims")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    begun, totals, errors, failed, seed = time.monotonic(), Counter[str](), Counter[str](), 0, given.seed
    while totals["decisions"] < given.decisions:
        life = Life(seed, TINY if given.tiny else REAL, has_gangs=given.gangs, has_devices=given.devices)
        counts = life.run(DECISIONS_PER_LIFE)
        for name in ("decisions", "placed", "gangs", "victims", "reused"):
            totals[name] += getattr(counts, name)
        errors.update(counts.reuse_errors)
        if counts.problem:
            failed += 1
            print(f"seed {seed} DIFFERS at {counts.problem}", flush=True)
        seed += 1
    seconds = time.monotonic() - begun
    print(
        f"{seed - given.seed} lives, {totals['decisions']} decisions: {totals['placed']} pods and {totals['gangs']} "
        f"gangs placed, {totals['reused']} cycles reused results, {totals['victims']} victims; "
        f"{totals['decisions'] / seconds:.0f} decisions/s"
    )
    print(f"{failed} lives differ; errors in reuse by plugin: {dict(errors) or 'none'}")
    return 1 if failed or errors.get("") else 0


if __name__ == "__main__":
    sys.exit(main())
