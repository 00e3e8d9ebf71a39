"""Runs drawn scenarios on both schedulers, on several pairs of control planes at once.

Pairs are needed because messages contain the number of nodes, so one control plane cannot be split between runs.
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

_PLAYED_AT_MOST = 5


@dataclass(frozen=True, slots=True)
class GeneratedRun:
    """Outcome of one drawn scenario.

    Attributes:
        name: Its name.
        document: The scenario, for a file.
        runs: What kube-scheduler and Bayplan did the first time.
        run_count: How often it was run, until both agreed or repetition was given up.
        first: The difference of the first run, by chance or not; None for none.
        persistent: The difference that every repetition showed; None for none.
    """

    name: str
    document: Json
    runs: tuple[Run, Run]
    run_count: int
    first: Difference | None
    persistent: Difference | None


def run_generated(seed: int, indices: range, pairs: int) -> Iterator[GeneratedRun]:
    """Draw scenarios and run them on both schedulers.

    Args:
        seed: Seed of all scenarios.
        indices: Numbers of the scenarios to draw.
        pairs: Number of pairs of control planes that run at once.

    Yields:
        The outcomes, in the order in which they end.
    """
    waiting: SimpleQueue[int] = SimpleQueue()
    done: SimpleQueue[GeneratedRun | BaseException] = SimpleQueue()
    for index in indices:
        waiting.put(index)
    threads = [threading.Thread(target=_lane, args=(seed, waiting, done), daemon=True) for _ in range(pairs)]
    for thread in threads:
        thread.start()
    try:
        for _ in indices:
            ended = done.get()
            if isinstance(ended, BaseException):
                raise ended
            yield ended
    finally:
        # On any exit the threads stop their own control planes.
        while not waiting.empty():
            waiting.get()
        for thread in threads:
            thread.join()


def _lane(seed: int, waiting: SimpleQueue[int], done: SimpleQueue[GeneratedRun | BaseException]) -> None:
    try:
        with ExitStack() as stack, ThreadPoolExecutor(len(SCHEDULERS)) as pool:
            stages = [stack.enter_context(ScenarioRunner(scheduler, CAREFUL)) for scheduler in SCHEDULERS]
            while True:
                done.put(_play(*generate_scenario(seed, waiting.get_nowait()), stages, pool))
    except Empty:
        return
    except BaseException as problem:  # noqa: BLE001 - passed on to the reader of the queue
        done.put(problem)


def _play(name: str, document: Json, stages: list[ScenarioRunner], pool: ThreadPoolExecutor) -> GeneratedRun:
    reference: list[Run] = []
    ours: list[Run] = []
    first: Difference | None = None
    persistent: Difference | None = None
    for repetition in range(_PLAYED_AT_MOST):
        # A namespace is not reused: no controller here would finish its deletion.
        again = f"{name}-{repetition}"
        scenario = scenario_of(again, json.loads(json.dumps(document).replace(name, again)))
        theirs, mine = (
            renamed(course, again, name) for course in pool.map(ScenarioRunner.run_by_steps, stages, [scenario] * 2)
        )
        reference.append(theirs)
        ours.append(mine)
        persistent = persistent_difference(reference, ours)
        first = first or persistent
        if persistent is None:
            break
    return GeneratedRun(name, document, (reference[0], ours[0]), len(ours), first, persistent)
