"""What the process does: where its time goes, and where its tasks stand.

Owns the profiler's switch and the text of both. It must not know the scheduler.

Why a profiler and no sampling thread: the one loop is the one thread that matters, and counts of calls tell as much as
times. While it runs everything costs about half as much again; that is said in what it prints.
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
    """A profile is being taken already."""


class Profiler:
    """Takes one profile at a time."""

    def __init__(self) -> None:
        self._is_running = False

    async def run(self, seconds: float) -> cProfile.Profile:
        """Profile everything that the loop does.

        Args:
            seconds: For how long.

        Raises:
            ProfilerBusyError: A profile is being taken already.
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
    """Give the functions that took most time themselves, and those that took most with what they called.

    Args:
        profile: What was measured.
        seconds: For how long.
    """
    out = io.StringIO()
    out.write(f"{seconds:g} seconds of the event loop; the profiler itself makes Python code slower.\n")
    stats = pstats.Stats(profile, stream=out)
    for order in ("tottime", "cumulative"):
        stats.sort_stats(order).print_stats(_SHOWN_FUNCTIONS)
    return out.getvalue()


def profile_bytes(profile: cProfile.Profile) -> bytes:
    """Give the profile as ``pstats`` and ``snakeviz`` read it from a file."""
    stats = pstats.Stats(profile, stream=io.StringIO())
    table: dict[object, object] = stats.stats  # type: ignore[attr-defined]  # documented, and missing in typeshed
    return marshal.dumps(table)


def tasks_text() -> str:
    """Give every task with its stack, the running one left out."""
    out = io.StringIO()
    tasks = sorted(asyncio.all_tasks() - {asyncio.current_task()}, key=asyncio.Task.get_name)
    out.write(f"{len(tasks)} tasks\n")
    for task in tasks:
        out.write(f"\n{task.get_name()}\n")
        task.print_stack(file=out)
    return out.getvalue()
