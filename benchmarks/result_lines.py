"""Stores results of a benchmark, one line of JSON each, so that an interrupted run can be continued."""

from __future__ import annotations

from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from scheduler_core.errors import SchedulerCoreError

T = TypeVar("T")

DEFAULT_FOLDER = Path("build/benchmarks")
"""Default folder of results; not part of the sources."""


class UnreadableResultsError(SchedulerCoreError):
    """A file is not a valid file of results."""


class ResultLines(Generic[T]):
    """Results in a file.

    Args:
        path: The file; it may be missing.
        kind: A dataclass with fields of JSON types.
    """

    def __init__(self, path: Path, kind: type[T]) -> None:
        self._path = path
        self._decoder = msgspec.json.Decoder(kind)

    def read(self) -> list[T]:
        """Return results of earlier runs; none if there is no file.

        Raises:
            UnreadableResultsError: The file is not a valid file of results.
        """
        if not self._path.exists():
            return []
        found = []
        for number, line in enumerate(self._path.read_bytes().split(b"\n")[:-1], start=1):
            try:
                found.append(self._decoder.decode(line))
            except msgspec.MsgspecError as fault:
                raise UnreadableResultsError(
                    f"{self._path}, line {number}: {fault}; remove the file, or name another one for results"
                ) from fault
        return found

    def add(self, result: T) -> None:
        """Append a result; an incomplete line of an interrupted run is dropped."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a+b") as file:
            file.seek(0)
            whole = file.read()
            file.truncate(whole.rfind(b"\n") + 1)
            file.write(msgspec.json.encode(result) + b"\n")
