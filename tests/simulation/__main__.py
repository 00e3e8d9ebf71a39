"""`make simulate-faults`: cluster lifetimes with faults, one per seed, and the problems found.

The exit status is 1 when a seed fails, or when a kind of fault occurs too rarely.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.simulation.campaign import Campaign, run_campaign
from tests.simulation.fault_counts import FAULTS, shares
from tests.simulation.records import Records, replay_life
from tests.simulation.shrinking import shrink
from tests.simulation.simulation import Outcome, run_seed

_LEAST_SHARE = 0.1
_SEEDS_FOR_SHARES = 100
_SHOWN_FAILURES = 5


def main() -> int:
    """Run the campaign or the single seed that the command line selects."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="Number of seeds")
    parser.add_argument("--first", type=int, default=0, help="First seed")
    parser.add_argument("--seed", type=int, help="Run only this seed")
    parser.add_argument("--trace", action="store_true", help="Print every step (with --seed)")
    parser.add_argument("--jobs", type=int, default=0, help="Number of processes; 0 means one per processor")
    parser.add_argument("--record", type=Path, help="Record the operator (with --seed); its second life in FILE.2")
    parser.add_argument("--replay", type=Path, help="Replay a record of --record, and exit with 1 if it differs")
    given = parser.parse_args()
    if given.replay is not None:
        return _replay(given.replay)
    if given.seed is not None:
        return _run_one(given.seed, trace=given.trace, record=given.record)
    began = time.monotonic()
    campaign = run_campaign(range(given.first, given.first + given.seeds), given.jobs)
    return _report(campaign, time.monotonic() - began)


def _replay(path: Path) -> int:
    decisions, difference = replay_life(path.read_bytes(), str(path))
    ends = "all equal" if difference is None else f"then {difference}"
    print(f"{path}: {decisions} decisions replayed, {ends}")
    return 0 if difference is None else 1


def _run_one(seed: int, *, trace: bool, record: Path | None) -> int:
    records = None if record is None else Records()
    outcome = run_seed(seed, records=records)
    if record is not None and records is not None:
        for number, life in enumerate(records.lives, 1):
            path = record if number == 1 else record.with_name(f"{record.name}.{number}")
            path.write_bytes(life.content)
            _replay(path)
    if trace:
        print("\n".join(outcome.trace))
    print(
        f"seed {seed}: {len(outcome.steps)} steps, {outcome.bound} pods bound, {outcome.seconds:.0f} virtual seconds, "
        f"trace {outcome.digest}"
    )
    if outcome.problems:
        _print_failure(outcome)
    return 1 if outcome.problems else 0


def _report(campaign: Campaign, seconds: float) -> int:
    by_name = shares(campaign.counts)
    width = max(map(len, FAULTS))
    rare = []
    for name, share in by_name.items():
        is_rare = share < _LEAST_SHARE and campaign.seeds >= _SEEDS_FOR_SHARES
        if is_rare:
            rare.append(name)
        print(f"{name:{width}}  {share:6.1%} of the seeds{'  TOO RARE' if is_rare else ''}  ({FAULTS[name]})")
    print(
        f"{campaign.seeds} seeds, {campaign.bound} pods bound, {campaign.virtual_seconds:.0f} virtual seconds in "
        f"{seconds:.1f} s: {campaign.seeds / seconds:.1f} seeds/s with {campaign.jobs} processes"
    )
    if campaign.failed:
        print(f"{len(campaign.failed)} seeds failed:")
        for failed, problem in campaign.problems.items():
            print(f"  {failed}: {problem}", flush=True)
    for failed in campaign.failed[:_SHOWN_FAILURES]:
        again = run_seed(failed)
        if again.problems:
            _print_failure(again)
        else:
            print(f"seed {failed} failed and does not fail again: it depends on something besides the seed")
    return 1 if campaign.failed or rare else 0


def _print_failure(outcome: Outcome) -> None:
    least = shrink(outcome)
    print(f"\nseed {outcome.seed} FAILED; {len(least.steps)} of its {len(outcome.steps)} steps suffice:")
    print("\n".join(least.trace))
    for problem in outcome.problems:
        print(f"  {problem}")
    print(f"again: make simulate-faults SEED={outcome.seed}\n")


if __name__ == "__main__":
    sys.exit(main())
