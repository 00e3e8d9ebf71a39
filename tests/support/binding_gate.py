"""Plugin that stops pods in the middle of their binding cycle.

The gate is a class attribute, shared by all instances, because a test may replace the profile.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import BindPlugin, PermitPlugin, PermitResult, PreBindPlugin
from scheduler_core.framework.status import SKIP, SUCCESS, Code, Status
from scheduler_core.framework.waiting_pods import WaitingPods
from scheduler_core.snapshot.pod_info import PodInfo


class Gate(PermitPlugin, PreBindPlugin, BindPlugin):
    """Lets pods wait at one extension point of the binding cycle until the test opens the gate."""

    name = "Gate"
    at: ClassVar[str]
    opened: ClassVar[asyncio.Event]

    @classmethod
    def stop_at(cls, at: str) -> None:
        """Let further pods wait at an extension point: ``permit``, ``preBind`` or ``bind``."""
        cls.at, cls.opened = at, asyncio.Event()

    @classmethod
    def open(cls, waiting: WaitingPods) -> None:
        """Release the waiting pods and let further pods pass."""
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
