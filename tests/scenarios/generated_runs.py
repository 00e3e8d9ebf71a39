"""Runs random scenarios on both schedulers, on several pairs of control planes in parallel.

One control plane cannot be shared by several runs, because messages contain the number of nodes of the cluster.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from tests.scenarios.generation.scenarios import generate_scenario
from tests.scenarios.generation.scene import Json
from tests.scenarios.repetition import Difference, Run, persistent_difference, renamed
from tests.scenarios.scenario import scenario_of
from tests.scenarios.scenario_runner import CAREFUL, SCHEDULERS, ScenarioRunner

_MAX_RUNS = 5


@dataclass(frozen=True, slots=True)
class GeneratedRun:
    """Comparison of both schedulers in one random scenario.

    Attributes:
        document: The scenario in the format of a scenario file.
        runs: First runs of kube-scheduler and of Bayplan.
        run_count: Number of runs until both agreed or the limit was reached.
        first: Difference of the first run, possibly by chance; None for none.
        persistent: Difference that every repetition shows; None for none.
    """

    name: str
    document: Json
    runs: tuple[Run, Run]
    run_count: int
    first: Difference | None
    persistent: Difference | None


def run_generated(seed: int, indices: range, pairs: int) -> Iterator[GeneratedRun]:
    """Generate scenarios and run them on both schedulers.

    Args:
        pairs: Number of pairs of control planes that run in parallel.

    Yields:
        The comparisons, in the order in which they end.
    """
    waiting: SimpleQueue[int] = SimpleQueue()
    done: SimpleQueue[GeneratedRun | BaseException] = SimpleQueue()
    for index in indices:
        waiting.put(index)
    threads = [threading.Thread(target=_run_on_pair, args=(seed, waiting, done), daemon=True) for _ in range(pairs)]
    for thread in threads:
        thread.start()
    try:
        for _ in indices:
            ended = done.get()
            if isinstance(ended, BaseException):
                raise ended
            yield ended
    finally:
        # The threads stop their control planes when no scenario is left, also after an error.
        while not waiting.empty():
            waiting.get()
        for thread in threads:
            thread.join()


def _run_on_pair(seed: int, waiting: SimpleQueue[int], done: SimpleQueue[GeneratedRun | BaseException]) -> None:
    try:
        with ExitStack() as stack, ThreadPoolExecutor(len(SCHEDULERS)) as pool:
            runners = [stack.enter_context(ScenarioRunner(scheduler, CAREFUL)) for scheduler in SCHEDULERS]
            while True:
                done.put(_run(*generate_scenario(seed, waiting.get_nowait()), runners, pool))
    except Empty:
        return
    except BaseException as problem:  # noqa: BLE001 - passed on to the reader of the queue
        done.put(problem)


def _run(name: str, document: Json, runners: list[ScenarioRunner], pool: ThreadPoolExecutor) -> GeneratedRun:
    reference: list[Run] = []
    ours: list[Run] = []
    first: Difference | None = None
    persistent: Difference | None = None
    for repetition in range(_MAX_RUNS):
        # Each run has a new namespace: without a namespace controller, a deleted one stays in phase Terminating.
        run_name = f"{name}-{repetition}"
        scenario = scenario_of(run_name, json.loads(json.dumps(document).replace(name, run_name)))
        theirs, mine = (
            renamed(run, run_name, name) for run in pool.map(ScenarioRunner.run_by_steps, runners, [scenario] * 2)
        )
        reference.append(theirs)
        ours.append(mine)
        persistent = persistent_difference(reference, ours)
        first = first or persistent
        if persistent is None:
            break
    return GeneratedRun(name, document, (reference[0], ours[0]), len(ours), first, persistent)
