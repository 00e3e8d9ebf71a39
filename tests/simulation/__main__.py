"""`make simulate-faults`: simulated cluster lifetimes with faults, one per seed, and the problems found.

The exit status is 1 if a seed fails, or if a kind of fault occurs too rarely.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.simulation.campaign import Campaign, run_campaign
from tests.simulation.fault_counts import FAULTS, shares
from tests.simulation.records import Records, replay_process
from tests.simulation.shrinking import shrink
from tests.simulation.simulated_hours import NightHours, add_hours
from tests.simulation.simulation import Outcome, run_seed

_MINIMUM_SHARE = 0.1
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
    parser.add_argument(
        "--hours", type=Path, metavar="FILE", help="Add the simulated hours to a file, and print their sum"
    )
    parser.add_argument("--record", type=Path, help="Record the operator (with --seed); FILE.2 for its second process")
    parser.add_argument("--replay", type=Path, help="Replay a file of --record, and exit with 1 if a decision differs")
    arguments = parser.parse_args()
    if arguments.replay is not None:
        return _replay(arguments.replay)
    if arguments.seed is not None:
        return _run_one(arguments.seed, trace=arguments.trace, record=arguments.record)
    began = time.monotonic()
    campaign = run_campaign(range(arguments.first, arguments.first + arguments.seeds), arguments.jobs)
    result = _report(campaign, time.monotonic() - began)
    if arguments.hours is not None:
        print(add_hours(arguments.hours, NightHours.of(campaign, arguments.first)))
    return result


def _replay(path: Path) -> int:
    decisions, difference = replay_process(path.read_bytes(), str(path))
    result = "all equal" if difference is None else f"then {difference}"
    print(f"{path}: {decisions} decisions replayed, {result}")
    return 0 if difference is None else 1


def _run_one(seed: int, *, trace: bool, record: Path | None) -> int:
    records = None if record is None else Records()
    outcome = run_seed(seed, records=records)
    if record is not None and records is not None:
        for number, process in enumerate(records.processes, 1):
            path = record if number == 1 else record.with_name(f"{record.name}.{number}")
            path.write_bytes(process.content)
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
        is_rare = share < _MINIMUM_SHARE and campaign.seeds >= _SEEDS_FOR_SHARES
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
        repeated = run_seed(failed)
        if repeated.problems:
            _print_failure(repeated)
        else:
            print(f"seed {failed} failed once and passes when repeated: the run depends on more than the seed")
    return 1 if campaign.failed or rare else 0


def _print_failure(outcome: Outcome) -> None:
    shrunk = shrink(outcome)
    print(f"\nseed {outcome.seed} FAILED; {len(shrunk.steps)} of its {len(outcome.steps)} steps reproduce the failure:")
    print("\n".join(shrunk.trace))
    for problem in outcome.problems:
        print(f"  {problem}")
    print(f"repeat with: make simulate-faults SEED={outcome.seed}\n")


if __name__ == "__main__":
    sys.exit(main())
