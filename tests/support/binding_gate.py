"""A plugin at which pods stand still in the middle of their binding cycle.

Owns the gate. One for all instances, since a test has one scheduler and a profile may be replaced in it.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import BindPlugin, PermitPlugin, PermitResult, PreBindPlugin
from scheduler_core.framework.handle import WaitingPods
from scheduler_core.framework.status import SKIP, SUCCESS, Code, Status
from scheduler_core.snapshot.pod_info import PodInfo


class Gate(PermitPlugin, PreBindPlugin, BindPlugin):
    """Waits at one point of the binding cycle until the test lets it go on."""

    name = "Gate"
    at: ClassVar[str]
    opened: ClassVar[asyncio.Event]

    @classmethod
    def shut(cls, at: str) -> None:
        """From now on pods stop at a point: ``permit``, ``preBind`` or ``bind``."""
        cls.at, cls.opened = at, asyncio.Event()

    @classmethod
    def open(cls, waiting: WaitingPods) -> None:
        """Let go on who stands there, and pass who comes later."""
        cls.at = ""
        cls.opened.set()
        for each in waiting:
            each.allow(cls.name)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        return PermitResult(Status(Code.WAIT), 60) if self.at == "permit" else PermitResult()

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return SUCCESS if self.at == "preBind" else SKIP

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        await self.opened.wait()
        return SUCCESS

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        if self.at == "bind":
            await self.opened.wait()
        return SKIP
