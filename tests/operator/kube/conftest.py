"""A scripted API server, a connection to it, and a clock whose sleeps return at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import pytest
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions

from scheduler_core.ports import Timer
from tests.support.fake_api import FakeApi


class InstantClock:
    """Real time with sleeps that are recorded and return at once; timers keep their real time."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self._ahead = 0.0

    def now(self) -> float:
        return time.monotonic() + self._ahead

    def pass_by(self, seconds: float) -> None:
        """Advance the clock without a sleep."""
        self._ahead += seconds

    def wall(self) -> datetime:
        return datetime.now(UTC)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            self.slept.append(seconds)
            self._ahead += seconds
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> InstantClock:
    return InstantClock()


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        yield api


@pytest.fixture
async def connection(api: FakeApi, clock: InstantClock) -> AsyncIterator[ApiConnection]:
    async with ApiConnection(api, ConnectionOptions(), clock) as connection:
        yield connection
