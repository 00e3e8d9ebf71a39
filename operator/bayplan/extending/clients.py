"""The clients of all extenders, made when a profile is built and closed when it has ended.

Owns which clients are open, what is kept for them of the cluster, and the counts of each extender. It must not know
which profiles are live: an instance that is built has its clients, whatever becomes of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec import Struct

from bayplan.extending.circuit import Circuit, CircuitOptions, CircuitState
from bayplan.extending.extender_bounds import ExtenderBounds
from bayplan.extending.http_extender import ExtenderParts, HttpExtender
from bayplan.extending.raw_objects import RawObjects, RawResource, Wish
from bayplan.extending.tally import Tally
from bayplan.extending.transport import Transport
from bayplan.kube.connection import ApiConnection
from bayplan.kube.informer import Informer
from scheduler_core.config.extender_config import Extender
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Clock

log = logging.getLogger(__name__)

_ENDED = frozenset({"Succeeded", "Failed"})

# As kube-scheduler shows them: its pods are without managedFields, its nodes are not.
PODS = RawResource("/api/v1/pods", managed_fields=False)
NODES = RawResource("/api/v1/nodes", managed_fields=True)

MOST_UNUSED = 64
"""Extenders that are no longer used and whose counts are still exported."""


class ClusterObjects:
    """Fulfils :class:`bayplan.extending.http_extender.ExtenderObjects` with the operator's informers.

    Args:
        connection: To the API server.
        nodes: The informer of nodes.
        pods: The informer of pods.

    Attributes:
        raw_nodes: JSON of nodes.
        raw_pods: JSON of pods.
    """

    def __init__(self, connection: ApiConnection, nodes: Informer[Node], pods: Informer[Pod]) -> None:
        self._nodes = nodes
        self._pods = pods
        self.raw_nodes = RawObjects(connection, NODES, nodes)
        self.raw_pods = RawObjects(connection, PODS, pods)

    async def pod(self, pod: Pod) -> bytes | None:
        """A pod's JSON; None when it is gone."""
        return (await self.pods([pod])).get(pod.metadata.uid)

    async def pods(self, pods: Sequence[Pod]) -> Mapping[str, bytes]:
        """The JSON of pods by UID; without those that are gone."""
        metas = [pod.metadata for pod in pods]
        found = await self.raw_pods.read((meta.namespace, meta.name, meta.uid) for meta in metas)
        return {
            meta.uid: found[f"{meta.namespace}/{meta.name}"]
            for meta in metas
            if f"{meta.namespace}/{meta.name}" in found
        }

    async def nodes(self, names: Sequence[str]) -> Mapping[str, bytes]:
        """The JSON of nodes by name; without those that are gone."""
        found = await self.raw_nodes.read(("", name, "") for name in names)
        return {key[1:]: json for key, json in found.items()}

    def knows_node(self, name: str) -> bool:
        """Whether there is such a node."""
        return f"/{name}" in self._nodes.known

    def pod_on(self, node_name: str, uid: str) -> Pod | None:
        """A pod on a node; None when it is not there. Looks at all pods: asked for answers out of the common only."""
        for pod in self._pods.known.values():
            if pod.metadata.uid == uid:
                return pod if pod.spec.node_name == node_name else None
        return None

    async def close(self) -> None:
        """End what is under way."""
        await self.raw_nodes.close()
        await self.raw_pods.close()


class _Wishes(Struct, frozen=True):
    """What one client needs of the cluster."""

    pods: tuple[Wish[Pod], ...]
    nodes: tuple[Wish[Node], ...]


class ExtenderClients:
    """Makes the clients.

    Args:
        objects: What extenders are shown.
        clock: Time.
        circuits: When their circuits open.
        bounds: What they may make us open and call; None where nothing bounds them.

    Attributes:
        tallies: Counts by ``urlPrefix``. Those of extenders that are no longer used stay, up to :data:`MOST_UNUSED`.
        on_change: Told when the state of an extender has changed.
        write_fence: Asked before an extender is let bind a pod; raises when this process does not lead.
    """

    def __init__(
        self,
        objects: ClusterObjects,
        clock: Clock,
        circuits: CircuitOptions | None = None,
        bounds: ExtenderBounds | None = None,
    ) -> None:
        self._bounds = bounds
        self._objects = objects
        self._clock = clock
        self._circuits = circuits or CircuitOptions()
        self._open: list[tuple[Extender, HttpExtender]] = []
        self.tallies: dict[str, Tally] = {}
        self.on_change: Callable[[], None] = lambda: None
        self.write_fence: Callable[[], None] = lambda: None

    def _check_fence(self) -> None:
        # Clients may be older than the election that sets it.
        self.write_fence()

    def make(self, scheduler_name: str, extender: Extender) -> HttpExtender:
        """Make a client, for one instance of a profile.

        Args:
            scheduler_name: Whose pods it is asked about.
            extender: Its configuration.

        Raises:
            ConfigError: Its URL or its certificates cannot be used; paths from the extender's root.
        """
        transport = Transport(extender, self._bounds)
        self._drop_unused_tallies()
        wishes = _wishes(scheduler_name, extender)
        circuit = Circuit(self._clock, self._circuits, lambda: self._changed(scheduler_name, extender, circuit))
        parts = ExtenderParts(
            transport=transport,
            circuit=circuit,
            objects=self._objects,
            tally=self.tallies.setdefault(extender.url_prefix, Tally()),
            clock=self._clock,
            on_close=partial(self._closed, wishes),
            write_fence=self._check_fence,
        )
        client = HttpExtender(extender, parts)
        for pods in wishes.pods:
            self._objects.raw_pods.want(pods)
        for nodes in wishes.nodes:
            self._objects.raw_nodes.want(nodes)
        self._open.append((extender, client))
        return client

    def _drop_unused_tallies(self) -> None:
        used = {extender.url_prefix for extender, _ in self._open}
        unused = [url for url in self.tallies if url not in used]
        for url in unused[:-MOST_UNUSED]:
            del self.tallies[url]

    @property
    def circuits_open(self) -> Mapping[str, bool]:
        """Whether any client of an extender leaves it alone at present, by ``urlPrefix`` of those in use."""
        found: dict[str, bool] = {}
        for extender, client in self._open:
            is_open = client.state.state is not CircuitState.CLOSED
            found[extender.url_prefix] = found.get(extender.url_prefix, False) or is_open
        return found

    @property
    def kept_bytes(self) -> Mapping[str, int]:
        """How much JSON is kept for extenders, by the plural of the resource."""
        return {"nodes": self._objects.raw_nodes.kept_bytes, "pods": self._objects.raw_pods.kept_bytes}

    async def close(self) -> None:
        """Close every client; the process ends."""
        for _, client in list(self._open):
            await client.close()
        await self._objects.close()

    def _closed(self, wishes: _Wishes) -> None:
        self._open = [(extender, client) for extender, client in self._open if not client.is_closed]
        for pods in wishes.pods:
            self._objects.raw_pods.drop(pods)
        for nodes in wishes.nodes:
            self._objects.raw_nodes.drop(nodes)

    def _changed(self, scheduler_name: str, extender: Extender, circuit: Circuit) -> None:
        who = f"extender {extender.url_prefix} of profile {scheduler_name}"
        if circuit.state is CircuitState.OPEN:
            log.warning("%s is left alone until %s: %s", who, circuit.until, circuit.last_error)
        elif circuit.state is CircuitState.CLOSED:
            log.info("%s answers again", who)
        self.on_change()


def _wishes(scheduler_name: str, extender: Extender) -> _Wishes:
    verbs = bool(extender.filter_verb or extender.prioritize_verb)
    pods = [Wish[Pod](partial(_waits, scheduler_name), f"spec.schedulerName={scheduler_name},spec.nodeName=")]
    if extender.preempt_verb and not extender.node_cache_capable:
        pods.append(Wish[Pod](_runs, "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"))
    nodes = [Wish[Node](lambda _: True)] if verbs and not extender.node_cache_capable else []
    return _Wishes(tuple(pods), tuple(nodes))


def _waits(scheduler_name: str, pod: Pod) -> bool:
    return not pod.spec.node_name and pod.spec.scheduler_name == scheduler_name


def _runs(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and pod.status.phase not in _ENDED
