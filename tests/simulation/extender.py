"""In-memory extender that is slow or unavailable at times, and rejects nodes without a zone.

The extender reads the API server's state, which may have a newer version of a node than the scheduler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from scheduler_core.errors import ExtenderError
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Binding, ExtenderVerdict, NodeVictims
from tests.simulation.api_server import NODES
from tests.simulation.cluster_objects import ZONE
from tests.simulation.fault_counts import FaultCounts
from tests.simulation.network import Network

_USUAL_SECONDS = 0.02
_SLOW_SECONDS = 2.5
_MAXIMUM_SCORE = 10


def accepts(node: Node | None) -> bool:
    """Return whether the extender accepts a node."""
    return node is not None and ZONE in node.metadata.labels


class ModelExtender:
    """Implements :class:`scheduler_core.ports.ExtenderClient`."""

    def __init__(self, network: Network, counts: FaultCounts) -> None:
        self._network = network
        self._counts = counts

    async def filter(self, pod: Pod, node_names: Sequence[str]) -> ExtenderVerdict:
        """Accept the nodes with a zone."""
        await self._answer()
        left = tuple(name for name in node_names if self._accepts(name))
        return ExtenderVerdict(left, {name: "the node has no zone" for name in node_names if name not in left})

    async def prioritize(self, pod: Pod, node_names: Sequence[str]) -> Mapping[str, int]:
        """Prefer some nodes for some pods."""
        await self._answer()
        return {name: (len(pod.metadata.name) + len(name)) % (_MAXIMUM_SCORE + 1) for name in node_names}

    async def preempt(self, pod: Pod, victims: Mapping[str, NodeVictims]) -> Mapping[str, NodeVictims]:
        """Accept the candidates with a zone."""
        await self._answer()
        return {name: given for name, given in victims.items() if self._accepts(name)}

    async def bind(self, binding: Binding) -> None:
        """Fail: this extender does not bind."""
        raise ExtenderError("model", f"it cannot bind pod {binding.name}; do not call bind")

    async def close(self) -> None:
        """Do nothing: no connection is open."""

    async def _answer(self) -> None:
        fault = self._network.next_fault("extender")
        if fault == "slow":
            self._counts.add("extender slow")
        elif fault:
            self._counts.add("extender failed")
        await asyncio.sleep(_SLOW_SECONDS if fault == "slow" else _USUAL_SECONDS)
        if fault == "error":
            raise ExtenderError("model", "it is unavailable; start it")

    def _accepts(self, name: str) -> bool:
        return accepts(self._network.server.collection(NODES).objects.get(name))
