"""Tests of HttpExtender against a real server: requests, responses, and failures."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from bayplan.extenders.http_extender import (
    CallTally,
    Circuit,
    CircuitOptions,
    CircuitState,
    ExtenderParts,
    HttpExtender,
)
from bayplan.extenders.transport import Transport
from bayplan.kube.leader_election import NotLeadingError

from hack.controlplane.probes import free_port
from scheduler_core.config.profile_config import Extender
from scheduler_core.errors import ExtenderError, ServerUnavailableError
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Binding, ExtenderVerdict, NodeVictims
from tests.support.builders import pod
from tests.support.extender_server import ExtenderServer, Reply, passes_only, scores
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

POD = pod("p", uid="u")
VICTIM = pod("v", uid="uv", node_name="a")
OTHER = pod("o", uid="uo", node_name="a")


class Cluster:
    """Cluster with nodes a, b and c, and three pods."""

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self.is_unavailable = False

    async def pod(self, pod: Pod) -> bytes | None:
        return (await self.pods([pod])).get(pod.metadata.uid)

    async def pods(self, pods: Sequence[Pod]) -> Mapping[str, bytes]:
        if self.is_unavailable:
            raise ServerUnavailableError("the API server is away")
        return {
            each.metadata.uid: json.dumps({"metadata": {"name": each.metadata.name}}).encode()
            for each in pods
            if each.metadata.name not in self.gone
        }

    async def nodes(self, names: Sequence[str]) -> Mapping[str, bytes]:
        return {name: json.dumps({"metadata": {"name": name}}).encode() for name in names if name not in self.gone}

    def has_node(self, name: str) -> bool:
        return name in {"a", "b", "c"}

    def pod_on(self, node_name: str, uid: str) -> Pod | None:
        return OTHER if (node_name, uid) == ("a", "uo") else None


class World:
    """Clients of one extender, and their parts."""

    def __init__(self, server: ExtenderServer) -> None:
        self.server = server
        self.clock = VirtualClock()
        self.cluster = Cluster()
        self.tally = CallTally()
        self.closed = 0
        self.clients: list[HttpExtender] = []
        self.write_fence: Callable[[], None] = lambda: None

    def client(self, **fields: Any) -> HttpExtender:
        """Return a client with a verb for every extension point."""
        verbs = {f"{point}Verb": point for point in ("filter", "prioritize", "preempt", "bind")}
        given = {"urlPrefix": self.server.url, **verbs, "weight": 1, "nodeCacheCapable": True}
        extender = Extender.model_validate(given | fields)
        self.circuit = Circuit(self.clock, CircuitOptions(failures=3, seed=1), lambda: None)
        parts = ExtenderParts(
            Transport(extender), self.circuit, self.cluster, self.tally, self.clock, self._note_close, self.write_fence
        )
        self.clients.append(HttpExtender(extender, parts))
        return self.clients[-1]

    def _note_close(self) -> None:
        self.closed += 1


@pytest.fixture
def server() -> Iterator[ExtenderServer]:
    with ExtenderServer() as server:
        yield server


@pytest.fixture
async def world(server: ExtenderServer) -> AsyncIterator[World]:
    world = World(server)
    yield world
    for client in world.clients:
        await client.close()


async def test_a_filter_by_names(world: World) -> None:
    """An extender with its own cache gets names and returns names."""
    world.server.rules["filter"] = passes_only("b")
    verdict = await world.client().filter(POD, ["a", "b"])
    assert verdict == ExtenderVerdict(("b",), {"a": "not licensed"})
    (body,) = world.server.bodies("filter")
    assert body == {"Pod": {"metadata": {"name": "p"}}, "Nodes": None, "NodeNames": ["a", "b"]}


async def test_a_filter_by_nodes(world: World) -> None:
    """An extender without a cache gets nodes, in the order of the names, and returns nodes."""
    world.server.rules["filter"] = passes_only("a")
    verdict = await world.client(nodeCacheCapable=False).filter(POD, ["b", "a"])
    assert verdict == ExtenderVerdict(("a",), {"b": "not licensed"})
    (body,) = world.server.bodies("filter")
    assert [node["metadata"]["name"] for node in body["Nodes"]["items"]] == ["b", "a"]
    assert body["NodeNames"] is None


async def test_a_deleted_node_is_not_sent(world: World) -> None:
    """A node that was deleted during the call of another extender is not sent."""
    world.cluster.gone.add("b")
    world.server.rules["filter"] = passes_only("a", "b")
    assert (await world.client(nodeCacheCapable=False).filter(POD, ["b", "a"])).node_names == ("a",)


@table(
    "response, expected",
    ("nodes-from-an-extender-with-a-cache", {"Nodes": {"items": [{"metadata": {"name": "a"}}]}}, ("a",)),
    ("empty-response", {}, ()),
    ("no-nodes", {"NodeNames": [], "FailedNodes": {}}, ()),
)
async def test_filter_responses(world: World, response: Any, expected: tuple[str, ...]) -> None:
    """Names take precedence over nodes, and a response without both leaves no node."""
    world.server.rules["filter"] = lambda _: response
    assert (await world.client().filter(POD, ["a", "b"])).node_names == expected


async def test_names_from_an_extender_without_a_cache_are_ignored(world: World) -> None:
    """An extender without a cache must return nodes, as in kube-scheduler."""
    world.server.rules["filter"] = lambda _: {"NodeNames": ["a"]}
    assert (await world.client(nodeCacheCapable=False).filter(POD, ["a"])).node_names == ()


async def test_scores_are_unchanged(world: World) -> None:
    """Scores are returned unchanged, because the core scales and weights them."""
    world.server.rules["prioritize"] = scores(a=3, b=10)
    assert await world.client().prioritize(POD, ["a", "b", "c"]) == {"a": 3, "b": 10, "c": 0}


async def test_preemption_by_uid(world: World) -> None:
    """An extender with its own cache gets UIDs, and UIDs in its response become pods of the node."""
    world.server.rules["preempt"] = lambda _: {
        "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "uv"}, {"UID": "uo"}], "NumPDBViolations": 1}}
    }
    victims = {"a": NodeVictims((VICTIM,), 2), "b": NodeVictims((), 0)}
    assert await world.client().preempt(POD, victims) == {"a": NodeVictims((VICTIM, OTHER), 1)}
    (body,) = world.server.bodies("preempt")
    assert body["NodeNameToVictims"] is None
    assert body["NodeNameToMetaVictims"]["a"] == {"Pods": [{"UID": "uv"}], "NumPDBViolations": 2}


async def test_preemption_with_whole_pods(world: World) -> None:
    """An extender without a cache gets pods and returns UIDs."""
    world.server.rules["preempt"] = lambda _: {"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "uv"}]}}}
    chosen = await world.client(nodeCacheCapable=False).preempt(POD, {"a": NodeVictims((VICTIM,), 2)})
    assert chosen == {"a": NodeVictims((VICTIM,), 0)}
    (body,) = world.server.bodies("preempt")
    assert body["NodeNameToVictims"] == {
        "a": {"Pods": [{"metadata": {"name": "v"}, "spec": {"nodeName": "a"}}], "NumPDBViolations": 2}
    }
    assert body["NodeNameToMetaVictims"] is None


async def test_a_bind_request(world: World) -> None:
    """A bind request has the pod and the node."""
    world.server.rules["bind"] = lambda _: {}
    await world.client().bind(Binding("ns", "p", "u", "a"))
    assert world.server.bodies("bind") == [{"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "a"}]


async def test_requests_are_json_on_one_connection(world: World) -> None:
    """Consecutive calls share a connection, and trailing slashes of the URL prefix are ignored."""
    world.server.rules["x/filter"] = lambda _: {}
    client = world.client(urlPrefix=f"{world.server.url}/x//")
    for _ in range(3):
        await client.filter(POD, ["a"])
    assert len({call.connection for call in world.server.calls}) == 1
    assert {call.headers["content-type"] for call in world.server.calls} == {"application/json"}


@table(
    "response, reason",
    ("error-of-the-extender", {"Error": "no licence left"}, "no licence left"),
    ("unknown-node", {"NodeNames": ["z"]}, 'claims a filtered node "z" which is not found in the input node list'),
    ("status", Reply(b"{}", status=503), "failed filter with extender at URL {url}/filter, code 503"),
    ("created", Reply(b"{}", status=201), "failed filter with extender at URL {url}/filter, code 201"),
    ("not-json", Reply(b"<html>"), "sent an unreadable response to filter: "),
    ("empty", Reply(b""), "sent an unreadable response to filter: "),
    ("disconnect", Reply(disconnect=True), "call to filter failed: "),
)
async def test_filter_errors(world: World, response: Any, reason: str) -> None:
    """An error is an ExtenderError with the extender's or the reference's message, and is counted."""
    world.server.rules["filter"] = lambda _: response
    with pytest.raises(ExtenderError) as caught:
        await world.client().filter(POD, ["a"])
    assert caught.value.url == world.server.url
    assert caught.value.reason.startswith(reason.format(url=world.server.url))
    assert world.tally.errors == {"filter": 1}


@table(
    "response, reason",
    (
        "unknown-pod",
        {"a": {"Pods": [{"UID": "zz"}]}},
        "claims to preempt pod (UID: zz) on node: a, but the pod is not found on that node",
    ),
    ("unknown-node", {"z": {"Pods": []}}, 'claims to preempt on node "z", which does not exist'),
)
async def test_unknown_victims_are_an_error(world: World, response: Any, reason: str) -> None:
    """Victims that do not exist are an error."""
    world.server.rules["preempt"] = lambda _: {"NodeNameToMetaVictims": response}
    with pytest.raises(ExtenderError) as caught:
        await world.client().preempt(POD, {"a": NodeVictims((VICTIM,))})
    assert caught.value.reason == reason


async def test_a_bind_is_fenced(world: World) -> None:
    """Without the Lease the extender is not called to bind a pod."""

    def forbid_writes() -> None:
        raise NotLeadingError("lost")

    world.server.rules["bind"] = lambda _: {}
    world.write_fence = forbid_writes
    with pytest.raises(ExtenderError, match="lost"):
        await world.client().bind(Binding("ns", "p", "u", "a"))
    assert world.server.bodies("bind") == []


async def test_a_rejected_bind_is_an_error(world: World) -> None:
    """The extender's error for a bind is raised."""
    world.server.rules["bind"] = lambda _: {"Error": "taken"}
    with pytest.raises(ExtenderError, match="taken"):
        await world.client().bind(Binding("ns", "p", "u", "a"))


async def test_a_timeout_is_an_error(world: World) -> None:
    """A call without a response within httpTimeout fails."""
    held = threading.Event()
    world.server.rules["filter"] = lambda _: Reply(b"{}", gate=held)
    with pytest.raises(ExtenderError, match=r"sent no response to filter within 0\.2 s"):
        await world.client(httpTimeout="200ms").filter(POD, ["a"])
    held.set()


async def test_a_refused_connection_is_an_error(world: World) -> None:
    """The error of a refused connection is raised."""
    with pytest.raises(ExtenderError, match="call to filter failed: "):
        await world.client(urlPrefix=f"http://127.0.0.1:{free_port()}").filter(POD, ["a"])


async def test_a_call_on_a_closed_connection_is_repeated(world: World) -> None:
    """A call on a connection that the extender closed while idle is repeated on another connection."""
    world.server.rules |= {"filter": lambda _: {}, "bind": lambda _: {}}
    client = world.client()
    await client.filter(POD, ["a"])
    world.server.stop()
    world.server.start()
    await client.filter(POD, ["a"])
    assert len(world.server.bodies("filter")) == 2


async def test_a_broken_bind_is_not_repeated(world: World) -> None:
    """A bind whose connection broke is not repeated, because it may have been executed."""
    world.server.rules["bind"] = lambda _: Reply(disconnect=True)
    with pytest.raises(ExtenderError, match="broke the connection before its response to bind"):
        await world.client().bind(Binding("ns", "p", "u", "a"))
    assert len(world.server.bodies("bind")) == 1


async def test_a_deleted_pod_is_not_sent(world: World) -> None:
    """An extender is not called for a deleted pod."""
    world.cluster.gone.add("p")
    with pytest.raises(ExtenderError, match="not called for pod default/p, which is gone"):
        await world.client().filter(POD, ["a"])
    assert (world.server.calls, world.circuit.state) == ([], CircuitState.CLOSED)


async def fail(client: HttpExtender, times: int, match: str | None = None) -> None:
    """Call a filter that fails."""
    for _ in range(times):
        with pytest.raises(ExtenderError, match=match):
            await client.filter(POD, ["a"])


async def test_an_unavailable_api_server_does_not_open_the_circuit(world: World) -> None:
    """If the API server is unavailable, the call fails and the circuit stays closed."""
    world.cluster.is_unavailable = True
    client = world.client()
    await fail(client, 5, "the API server is away")
    assert client.state.state is CircuitState.CLOSED


async def test_failures_open_the_circuit_until_it_recovers(world: World) -> None:
    """Calls with an open circuit fail at once, and the success of a later trial call closes it."""
    world.server.rules["filter"] = lambda _: Reply(status=500)
    client = world.client()
    await fail(client, 3, "code 500")
    assert (client.state.state, client.state.since) == (CircuitState.OPEN, world.clock.wall())
    with pytest.raises(ExtenderError, match=r"circuit open until 00:00:00\.\d{3}Z; last error: .*code 500"):
        await client.prioritize(POD, ["a"])
    assert len(world.server.calls) == 3
    world.server.rules["filter"] = passes_only("a")
    world.clock.advance(1)
    assert (await client.filter(POD, ["a"])).node_names == ("a",)
    assert client.state.state is CircuitState.CLOSED


async def test_only_one_trial_call_at_a_time(world: World) -> None:
    """Other calls fail while a trial call is in flight, and after its cancellation the next call is the trial."""
    world.server.rules["filter"] = lambda _: Reply(status=500)
    client = world.client()
    await fail(client, 3)
    world.clock.advance(1)
    arrived, held = threading.Event(), threading.Event()

    def hold(_: Any) -> Reply:
        arrived.set()
        return Reply(b"{}", gate=held)

    world.server.rules["filter"] = hold
    trying = asyncio.create_task(client.filter(POD, ["a"]))
    assert await asyncio.to_thread(arrived.wait, 10)
    with pytest.raises(ExtenderError, match="until the current trial call has ended"):
        await client.filter(POD, ["a"])
    trying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trying
    held.set()
    world.server.rules["filter"] = lambda _: {}
    await client.filter(POD, ["a"])
    assert client.state.state is CircuitState.CLOSED


async def test_an_extenders_own_error_does_not_open_the_circuit(world: World) -> None:
    """An error in the extender's response does not open the circuit."""
    world.server.rules["filter"] = lambda _: {"Error": "no"}
    client = world.client()
    await fail(client, 5, "no")
    assert client.state.state is CircuitState.CLOSED


async def test_calls_are_counted(world: World) -> None:
    """Calls are counted by extension point."""
    world.server.rules |= {"filter": lambda _: {}, "prioritize": lambda _: []}
    client = world.client()
    for call in (client.filter, client.filter, client.prioritize):
        await call(POD, ["a"])
    counts = [(point, calls.count) for point, calls in world.tally.durations.items()]
    assert counts == [("filter", 2), ("prioritize", 1)]
    assert world.tally.errors == {"filter": 0, "prioritize": 0}


async def test_a_closed_client_is_not_used(world: World) -> None:
    """A closed client calls on_close once, and its calls fail."""
    client = world.client()
    await client.close()
    await client.close()
    assert (world.closed, client.is_closed) == (1, True)
    with pytest.raises(ExtenderError, match="is no longer called"):
        await client.filter(POD, ["a"])


async def test_verbs_that_are_not_set(world: World) -> None:
    """Without a verb no call is made, and the input is returned."""
    client = world.client(filterVerb="", prioritizeVerb="", preemptVerb="")
    victims = {"a": NodeVictims((VICTIM,))}
    assert (await client.filter(POD, ["a"])).node_names == ("a",)
    assert await client.prioritize(POD, ["a"]) == {"a": 0}
    assert await client.preempt(POD, victims) == victims
    assert world.server.calls == []
