"""A profile of the event loop, and the stacks of all tasks.

It uses cProfile and not a sampling thread, because the event loop runs in one thread, and counts of calls are as useful
as times. While it runs Python code takes about half as much time again.
"""

from __future__ import annotations

import asyncio
import cProfile
import io
import marshal
import pstats

MAX_SECONDS = 60.0
_SHOWN_FUNCTIONS = 60


class ProfilerBusyError(Exception):
    """Another profile is in progress."""


class Profiler:
    """Profiler of the event loop, one profile at a time."""

    def __init__(self) -> None:
        self._is_running = False

    async def run(self, seconds: float) -> cProfile.Profile:
        """Profile everything that the event loop runs.

        Args:
            seconds: Duration, at most :data:`MAX_SECONDS`.

        Raises:
            ProfilerBusyError: Another profile is in progress.
        """
        if self._is_running:
            raise ProfilerBusyError
        self._is_running = True
        profile = cProfile.Profile()
        try:
            profile.enable()
            await asyncio.sleep(min(seconds, MAX_SECONDS))
        finally:
            profile.disable()
            self._is_running = False
        return profile


def profile_text(profile: cProfile.Profile, seconds: float) -> str:
    """Return the functions with the highest total time and those with the highest cumulative time."""
    out = io.StringIO()
    out.write(f"{seconds:g} seconds of the event loop; the profiler itself makes Python code slower.\n")
    stats = pstats.Stats(profile, stream=out)
    for order in ("tottime", "cumulative"):
        stats.sort_stats(order).print_stats(_SHOWN_FUNCTIONS)
    return out.getvalue()


def profile_bytes(profile: cProfile.Profile) -> bytes:
    """Return the profile in the file format of ``pstats`` and ``snakeviz``."""
    stats = pstats.Stats(profile, stream=io.StringIO())
    table: dict[object, object] = stats.stats  # type: ignore[attr-defined]  # documented, and missing in typeshed
    return marshal.dumps(table)


def tasks_text() -> str:
    """Return every task except the running one with its stack."""
    out = io.StringIO()
    tasks = sorted(asyncio.all_tasks() - {asyncio.current_task()}, key=asyncio.Task.get_name)
    out.write(f"{len(tasks)} tasks\n")
    for task in tasks:
        out.write(f"\n{task.get_name()}\n")
        task.print_stack(file=out)
    return out.getvalue()
