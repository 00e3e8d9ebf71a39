"""Runs many cases, line by line in this process or in chunks over several; results come in the order of the lines.

Several processes because an attempt is pure computation without shared state, and one interpreter uses one core. A case
that cannot be run does not stop the others: it is a problem of its own line.
"""

from __future__ import annotations

import gc
import multiprocessing
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.errors import ConfigError, SchedulerCoreError
from scheduler_core.framework.registry import Registry
from scheduler_core.in_tree import default_plugins, in_tree_registry
from tests.parity.conformance.attempt import attempt_case
from tests.parity.conformance.cases import decode_case, read_lines
from tests.parity.conformance.results import result_line

_CHUNK_LINES = 24
"""Large enough that passing lines to a process costs little, small enough to keep all processes busy."""

_CHUNKS_WORTH_WORKERS = 5
"""With fewer chunks, starting processes costs more time than it saves."""

_CHUNKS_AHEAD_PER_WORKER = 3
"""Bounds what is read ahead of the slowest chunk."""


@dataclass(frozen=True, slots=True)
class CaseResults:
    """Results of some lines.

    Attributes:
        output: A result line for each case that could be run, in order.
        problems: Line number, name ("" if unknown) and error of each of the others.
        left_out: Plugins that the cases' profiles enable and that Bayplan does not have.
    """

    output: bytes
    problems: tuple[tuple[int, str, str], ...]
    left_out: tuple[str, ...]


def run_cases(source: str, workers: int = 1) -> Iterator[CaseResults]:
    """Run the cases of a file.

    Args:
        source: A path, plain or gzip, or ``-`` for standard input.
        workers: Number of processes; 1 runs in this process, line by line.

    Yields:
        Results, in the order of the lines.

    Raises:
        ConfigError: The file cannot be read.
    """
    lines = enumerate(read_lines(source), start=1)
    if workers == 1:
        for numbered in lines:
            yield answer([numbered])
        return
    chunks = _chunked(lines)
    first = list(islice(chunks, _CHUNKS_WORTH_WORKERS))
    if len(first) < _CHUNKS_WORTH_WORKERS:
        yield from map(answer, first)
        return
    yield from _spread(chain(first, chunks), workers)


def answer(lines: Iterable[tuple[int, bytes]]) -> CaseResults:
    """Run some lines in this process."""
    registry, defaults = _plugins()
    output: list[bytes] = []
    problems: list[tuple[int, str, str]] = []
    left_out: dict[str, None] = {}
    for number, line in lines:
        name = ""
        try:
            case = decode_case(line)
            name = case.name
            outcome = attempt_case(case, registry, defaults)
            output.append(result_line(name, outcome.examination))
            left_out.update(dict.fromkeys(outcome.left_out))
        except SchedulerCoreError as error:
            problems.append((number, name, _flat(error)))
        except Exception as error:  # noqa: BLE001 - a bug that shows in one case must not stop the others
            message = f"{type(error).__name__}: {error}; this is a bug in Bayplan: please report it with the case"
            problems.append((number, name, message))
    return CaseResults(b"".join(output), tuple(problems), tuple(left_out))


def _spread(chunks: Iterator[list[tuple[int, bytes]]], workers: int) -> Iterator[CaseResults]:
    # Forked processes have every module imported already; without fork, use the platform's default.
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("fork" if "fork" in methods else None)
    _plugins()
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin_worker) as pool:
        pending: deque[Future[CaseResults]] = deque()
        with warnings.catch_warnings():
            # All workers start at the first submission. The threads that a fork loses are numpy's, which an attempt
            # does not use.
            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
            pending.extend(pool.submit(_run_chunk, chunk) for chunk in islice(chunks, 1))
        for chunk in chunks:
            pending.append(pool.submit(_run_chunk, chunk))
            if len(pending) >= workers * _CHUNKS_AHEAD_PER_WORKER:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _begin_worker() -> None:
    # Imported objects live as long as the process: exempt them from collection.
    gc.freeze()
    gc.disable()


def _run_chunk(chunk: list[tuple[int, bytes]]) -> CaseResults:
    results = answer(chunk)
    # The objects of cases are cyclic; one collection per chunk is cheaper than those that the thresholds trigger.
    gc.collect()
    return results


def _chunked(lines: Iterator[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    while chunk := list(islice(lines, _CHUNK_LINES)):
        yield chunk


@cache
def _plugins() -> tuple[Registry, Plugins]:
    return in_tree_registry(), default_plugins()


def _flat(error: SchedulerCoreError) -> str:
    return "; ".join(str(problem) for problem in error.problems) if isinstance(error, ConfigError) else str(error)
