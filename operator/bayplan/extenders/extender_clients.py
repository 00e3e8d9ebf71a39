"""The clients of all extenders, the objects stored for them, and the counts of each extender.

A client is made when a profile is built, live or not, and closed when its instance is retired.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from bayplan.extenders.http_extender import (
    CallTally,
    Circuit,
    CircuitOptions,
    CircuitState,
    ExtenderParts,
    HttpExtender,
)
from bayplan.extenders.raw_objects import RawObjects, RawResource, Subscription
from bayplan.extenders.transport import AllowedFilesAndHosts, Transport
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.watches.informer import Informer
from scheduler_core.config.profile_config import Extender
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Clock

log = logging.getLogger(__name__)

_ENDED = frozenset({"Succeeded", "Failed"})

# As kube-scheduler sends them: pods without managedFields, nodes with them.
PODS = RawResource("/api/v1/pods", managed_fields=False)
NODES = RawResource("/api/v1/nodes", managed_fields=True)

MOST_UNUSED = 64
"""Maximum number of unused extenders whose counts are still exported."""


class ClusterObjects:
    """Implementation of :class:`bayplan.extenders.http_extender.ExtenderObjects` by the operator's informers."""

    def __init__(self, connection: ApiConnection, nodes: Informer[Node], pods: Informer[Pod]) -> None:
        self._nodes = nodes
        self._pods = pods
        self.raw_nodes = RawObjects(connection, NODES, nodes)
        self.raw_pods = RawObjects(connection, PODS, pods)

    async def pod(self, pod: Pod) -> bytes | None:
        return (await self.pods([pod])).get(pod.metadata.uid)

    async def pods(self, pods: Sequence[Pod]) -> Mapping[str, bytes]:
        metas = [pod.metadata for pod in pods]
        found = await self.raw_pods.read((meta.namespace, meta.name, meta.uid) for meta in metas)
        return {
            meta.uid: found[f"{meta.namespace}/{meta.name}"]
            for meta in metas
            if f"{meta.namespace}/{meta.name}" in found
        }

    async def nodes(self, names: Sequence[str]) -> Mapping[str, bytes]:
        found = await self.raw_nodes.read(("", name, "") for name in names)
        return {key[1:]: json for key, json in found.items()}

    def has_node(self, name: str) -> bool:
        return f"/{name}" in self._nodes.known

    def pod_on(self, node_name: str, uid: str) -> Pod | None:
        """Return a pod on a node, None if it is not there. Searches all pods: only for unusual responses."""
        for pod in self._pods.known.values():
            if pod.metadata.uid == uid:
                return pod if pod.spec.node_name == node_name else None
        return None

    async def close(self) -> None:
        await self.raw_nodes.close()
        await self.raw_pods.close()


_Subscriptions = Sequence[tuple[RawObjects[Any], Subscription[Any]]]


class ExtenderClients:
    """Factory and registry of the clients.

    Args:
        bounds: The files that they may use and the hosts that they may be on; None for no bounds.
        write_fence: Called before an extender binds a pod; raises if this process does not lead.

    Attributes:
        tallies: Counts by ``urlPrefix``; those of unused extenders stay, up to :data:`MOST_UNUSED`.
    """

    def __init__(
        self,
        objects: ClusterObjects,
        clock: Clock,
        circuits: CircuitOptions | None = None,
        bounds: AllowedFilesAndHosts | None = None,
        *,
        on_change: Callable[[], None] = lambda: None,
        write_fence: Callable[[], None] = lambda: None,
    ) -> None:
        self._bounds = bounds
        self._objects = objects
        self._clock = clock
        self._circuits = circuits or CircuitOptions()
        self._open: list[tuple[Extender, HttpExtender]] = []
        self.tallies: dict[str, CallTally] = {}
        self._on_change = on_change
        self._write_fence = write_fence

    def make(self, scheduler_name: str, extender: Extender) -> HttpExtender:
        """Make a client for one instance of a profile; raises ConfigError with paths from the extender's root."""
        transport = Transport(extender, self._bounds)
        self._drop_unused_tallies()
        subscriptions = self._subscriptions(scheduler_name, extender)
        circuit = Circuit(self._clock, self._circuits, lambda: self._changed(scheduler_name, extender, circuit))
        parts = ExtenderParts(
            transport=transport,
            circuit=circuit,
            objects=self._objects,
            tally=self.tallies.setdefault(extender.url_prefix, CallTally()),
            clock=self._clock,
            on_close=partial(self._closed, subscriptions),
            write_fence=self._write_fence,
        )
        client = HttpExtender(extender, parts)
        for objects, subscription in subscriptions:
            objects.subscribe(subscription)
        self._open.append((extender, client))
        return client

    def _subscriptions(self, scheduler_name: str, extender: Extender) -> _Subscriptions:
        selector = f"spec.schedulerName={scheduler_name},spec.nodeName="
        pods, nodes = self._objects.raw_pods, self._objects.raw_nodes
        found: list[tuple[RawObjects[Any], Subscription[Any]]] = [
            (pods, Subscription[Pod](partial(_waits, scheduler_name), selector))
        ]
        if extender.node_cache_capable:
            return found
        if extender.preempt_verb:
            selector = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
            found.append((pods, Subscription[Pod](_runs, selector)))
        if extender.filter_verb or extender.prioritize_verb:
            found.append((nodes, Subscription[Node](lambda _: True)))
        return found

    def _drop_unused_tallies(self) -> None:
        used = {extender.url_prefix for extender, _ in self._open}
        unused = [url for url in self.tallies if url not in used]
        for url in unused[:-MOST_UNUSED]:
            del self.tallies[url]

    @property
    def circuits_open(self) -> Mapping[str, bool]:
        """Whether any client of an extender has an open circuit, by ``urlPrefix`` of the extenders in use."""
        found: dict[str, bool] = {}
        for extender, client in self._open:
            is_open = client.state.state is not CircuitState.CLOSED
            found[extender.url_prefix] = found.get(extender.url_prefix, False) or is_open
        return found

    @property
    def stored_bytes(self) -> Mapping[str, int]:
        """Size of the JSON stored for extenders, by the plural of the resource."""
        return {"nodes": self._objects.raw_nodes.stored_bytes, "pods": self._objects.raw_pods.stored_bytes}

    async def close(self) -> None:
        for _, client in list(self._open):
            await client.close()
        await self._objects.close()

    def _closed(self, subscriptions: _Subscriptions) -> None:
        self._open = [(extender, client) for extender, client in self._open if not client.is_closed]
        for objects, subscription in subscriptions:
            objects.unsubscribe(subscription)

    def _changed(self, scheduler_name: str, extender: Extender, circuit: Circuit) -> None:
        subject = f"extender {extender.url_prefix} of profile {scheduler_name}"
        if circuit.state is CircuitState.OPEN:
            log.warning("%s is not called until %s: %s", subject, circuit.until, circuit.last_error)
        elif circuit.state is CircuitState.CLOSED:
            log.info("%s responds again", subject)
        self._on_change()


def _waits(scheduler_name: str, pod: Pod) -> bool:
    return not pod.spec.node_name and pod.spec.scheduler_name == scheduler_name


def _runs(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and pod.status.phase not in _ENDED
