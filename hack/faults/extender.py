"""An extender in memory: slow at times, away at times, and particular about nodes.

Owns its answers. It leaves nodes that have a zone; it looks at the API server, so that it may know more of a node than
the scheduler that asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from hack.faults.api_server import NODES
from hack.faults.fault_counts import FaultCounts
from hack.faults.inhabitants import ZONE
from hack.faults.network import Network
from scheduler_core.errors import ExtenderError
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Binding, ExtenderVerdict, NodeVictims

_USUAL_SECONDS = 0.02
_SLOW_SECONDS = 2.5
_MOST_POINTS = 10


def suits(node: Node | None) -> bool:
    """Whether the extender leaves a node."""
    return node is not None and ZONE in node.metadata.labels


class ModelExtender:
    """Fulfils :class:`scheduler_core.ports.ExtenderClient`."""

    def __init__(self, network: Network, counts: FaultCounts) -> None:
        self._network = network
        self._counts = counts

    async def filter(self, pod: Pod, node_names: Sequence[str]) -> ExtenderVerdict:
        """Leave nodes with a zone."""
        del pod
        await self._answer()
        left = tuple(name for name in node_names if self._suits(name))
        return ExtenderVerdict(left, {name: "the node has no zone" for name in node_names if name not in left})

    async def prioritize(self, pod: Pod, node_names: Sequence[str]) -> Mapping[str, int]:
        """Prefer some nodes for some pods."""
        await self._answer()
        return {name: (len(pod.metadata.name) + len(name)) % (_MOST_POINTS + 1) for name in node_names}

    async def preempt(self, pod: Pod, victims: Mapping[str, NodeVictims]) -> Mapping[str, NodeVictims]:
        """Leave candidates with a zone."""
        del pod
        await self._answer()
        return {name: given for name, given in victims.items() if self._suits(name)}

    async def bind(self, binding: Binding) -> None:
        """It does not bind."""
        raise ExtenderError("model", f"it cannot bind pod {binding.name}; do not ask it")

    async def close(self) -> None:
        """Nothing is open."""

    async def _answer(self) -> None:
        how = self._network.next_fault("extender")
        if how == "slow":
            self._counts.add("extender slow")
        elif how:
            self._counts.add("extender failed")
        await asyncio.sleep(_SLOW_SECONDS if how == "slow" else _USUAL_SECONDS)
        if how == "refused":
            raise ExtenderError("model", "it is away; start it")

    def _suits(self, name: str) -> bool:
        return suits(self._network.server.collection(NODES).objects.get(name))
