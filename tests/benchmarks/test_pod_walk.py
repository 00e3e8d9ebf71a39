"""How many calls, files and changes of file a reader follows along the path of one pod."""

from __future__ import annotations

import asyncio

from hack.pod_walk import PATHS
from tests.support.tables import table

_ANY = 10_000


@table(
    "path, calls, files, changes",
    ("known-class", "fast", 140, 45, 90),
    ("first-pod", "full", 400, 70, _ANY),
    ("gang-of-two", "gang of two", 600, _ANY, _ANY),
)
def test_a_path_stays_short(path: str, calls: int, files: int, changes: int) -> None:
    """The path has steps, and not more than the bounds."""
    walk = asyncio.run(PATHS[path]())
    assert 0 < len(walk.steps) <= calls
    assert 0 < walk.files <= files
    assert 0 < walk.changes <= changes
