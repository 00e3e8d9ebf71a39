"""Runs scenarios with kube-scheduler and with Bayplan, and prints a table of the results of both.

    python -m benchmarks.scenarios
    python -m benchmarks.scenarios --only preemption -o json
    python -m benchmarks.scenarios --random 200 --seed 3 --pairs 3 --keep differences

Each scheduler has its own control plane; both run at the same time. The comparison covers the node of every pod, its
nomination, its conditions PodScheduled and DisruptionTarget with their messages, the deleted pods, and all events.
Random scenarios are compared after each step, and run again if they differ, so that remaining differences are not
random.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from benchmarks.harness import add_output, command_line, report
from tests.scenarios.generated_runs import GeneratedRun, run_generated
from tests.scenarios.scenario import Scenario, read_scenarios
from tests.scenarios.scenario_runner import SCHEDULERS, Outcome, ScenarioRunner

SCENARIOS = Path(__file__).resolve().parents[1] / "tests" / "cluster" / "scenarios"


@dataclass(frozen=True, slots=True)
class Compared:
    scenario: str
    says: str
    reference: Outcome
    ours: Outcome
    differences: tuple[str, ...]


def compare(scenarios: Sequence[Scenario]) -> list[Compared]:
    found = []
    with ExitStack() as stack, ThreadPoolExecutor(len(SCHEDULERS)) as pool:
        stages = [stack.enter_context(ScenarioRunner(scheduler)) for scheduler in SCHEDULERS]
        for scenario in scenarios:
            futures = [pool.submit(stage.run, scenario) for stage in stages]
            reference, ours = (future.result() for future in futures)
            differences = tuple(reference.differences(ours))
            found.append(Compared(scenario.name, scenario.description, reference, ours, differences))
            sys.stderr.write(f"{scenario.name}: {'differs' if differences else 'same'}\n")
    return found


def show(compared: Sequence[Compared]) -> None:
    table = Table(title="Results of kube-scheduler and Bayplan", show_lines=True)
    for column in ("scenario", *SCHEDULERS, "same"):
        table.add_column(column)
    for one in compared:
        table.add_row(one.scenario, one.reference.summary(), one.ours.summary(), "no" if one.differences else "yes")
    console = Console()
    console.print(table)
    for one in compared:
        for difference in one.differences:
            console.print(f"{one.scenario}: {difference}", markup=False, highlight=False)


def compare_generated(seed: int, indices: range, pairs: int, directory: Path) -> bool:
    """Run random scenarios with both schedulers, and store those that differ as files.

    Args:
        pairs: Number of pairs of control planes that run in parallel.

    Returns:
        Whether a scenario differs in all of its runs.
    """
    mix: Counter[str] = Counter()
    for generated in run_generated(seed, indices, pairs):
        last = generated.runs[0][-1]
        mix.update(["scenarios", *["steps"] * len(generated.runs[0]), *["by chance"] * (generated.run_count > 1)])
        mix.update((pod.node and "bound") or pod.scheduled[1] or "not tried" for pod in last.pods.values())
        mix.update(event[2] for event in last.events)
        mix.update(["requests refused"] * len(last.rejected_requests))
        outcome = "same" if generated.run_count == 1 else "same when run again"
        if generated.persistent:
            mix["different"] += 1
            outcome = f"differs after step {generated.persistent.step}"
        if generated.first:
            _keep(generated, directory)
        sys.stderr.write(f"{generated.name}: {len(generated.runs[0])} steps, {outcome}\n")
    print(", ".join(f"{count} {what}" for what, count in mix.items()))
    return mix["different"] > 0


def _keep(generated: GeneratedRun, directory: Path) -> None:
    """Write a scenario as a file that can be run again, with its differences as comments."""
    difference = generated.persistent or generated.first
    assert difference is not None
    directory.mkdir(parents=True, exist_ok=True)
    lines = [f"after step {difference.step}, {'always' if generated.persistent else 'not always'}:", *difference.what]
    for index, (its, mine) in enumerate(zip(*generated.runs, strict=True)):
        lines += [f"step {index}", *(f"  {each.summary()} {each.rejected_requests}" for each in (its, mine))]
    comment = "".join(f"# {line}\n" for outcome in lines for line in outcome.split("\n"))
    text = yaml.safe_dump(generated.document, sort_keys=False, width=120)
    (directory / f"{generated.name}.yaml").write_text(comment + text)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--only", default="", help="scenarios whose names contain this")
    add_output(parser)
    parser.add_argument("--random", type=int, default=0, metavar="N", help="run N random scenarios instead")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random scenarios")
    parser.add_argument("--start", type=int, default=0, help="number of the first random scenario")
    parser.add_argument("--pairs", type=int, default=2, help="pairs of control planes for random scenarios")
    parser.add_argument(
        "--keep", type=Path, default=Path("differences"), help="folder for random scenarios that differ"
    )
    arguments = parser.parse_args()
    if arguments.random:
        indices = range(arguments.start, arguments.start + arguments.random)
        sys.exit(compare_generated(arguments.seed, indices, arguments.pairs, arguments.keep))
    chosen = [scenario for scenario in read_scenarios(SCENARIOS) if arguments.only in scenario.name]
    compared = compare(chosen)
    report(arguments.output, compared, lambda: show(compared))
    sys.exit(any(one.differences for one in compared))


if __name__ == "__main__":
    main()
