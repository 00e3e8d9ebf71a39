"""Scenarios played to kube-scheduler and to Bayplan, as a table of what each of them did.

    python -m benchmarks.scenarios
    python -m benchmarks.scenarios --only preemption -o json

Each scheduler has a control plane of its own; both play at the same time. Compared are the node of every pod, its
nomination, its conditions PodScheduled and DisruptionTarget with their messages, which pods are gone, and all events.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hack.scenarios.scenario import Scenario, read_scenarios
from hack.scenarios.stage import SCHEDULERS, Reading, Stage

SCENARIOS = Path(__file__).resolve().parents[1] / "tests" / "cluster" / "scenarios"


@dataclass(frozen=True, slots=True)
class Compared:
    """One scenario, played to both.

    Attributes:
        scenario: Its name.
        says: What it is about.
        reference: What kube-scheduler did.
        ours: What Bayplan did.
        differences: In what they differ.
    """

    scenario: str
    says: str
    reference: Reading
    ours: Reading
    differences: tuple[str, ...]


def compare(scenarios: Sequence[Scenario]) -> list[Compared]:
    """Play scenarios to both schedulers."""
    found = []
    with ExitStack() as stack, ThreadPoolExecutor(len(SCHEDULERS)) as pool:
        stages = [stack.enter_context(Stage(scheduler)) for scheduler in SCHEDULERS]
        for scenario in scenarios:
            futures = [pool.submit(stage.play, scenario) for stage in stages]
            reference, ours = (future.result() for future in futures)
            differences = tuple(reference.differences(ours))
            found.append(Compared(scenario.name, scenario.says, reference, ours, differences))
            sys.stderr.write(f"{scenario.name}: {'differs' if differences else 'same'}\n")
    return found


def show(compared: Sequence[Compared]) -> None:
    """Print the table, and the differences below it."""
    table = Table(title="What kube-scheduler and Bayplan do", show_lines=True)
    for column in ("scenario", *SCHEDULERS, "same"):
        table.add_column(column)
    for one in compared:
        table.add_row(one.scenario, one.reference.summary(), one.ours.summary(), "no" if one.differences else "yes")
    console = Console()
    console.print(table)
    for one in compared:
        for difference in one.differences:
            console.print(f"{one.scenario}: {difference}", markup=False, highlight=False)


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="scenarios whose names contain this")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    chosen = [scenario for scenario in read_scenarios(SCENARIOS) if arguments.only in scenario.name]
    compared = compare(chosen)
    if arguments.output == "json":
        print(json.dumps([asdict(one) for one in compared], indent=2))
    else:
        show(compared)
    sys.exit(any(one.differences for one in compared))


if __name__ == "__main__":
    main()
