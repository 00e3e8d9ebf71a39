"""Calls to a real server: what is sent, what answers come to, and what is done when it is not well."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from bayplan.extending.circuit import Circuit, CircuitOptions, CircuitState
from bayplan.extending.http_extender import ExtenderParts, HttpExtender
from bayplan.extending.tally import Tally
from bayplan.extending.transport import Transport
from bayplan.kube.leader_election import NotLeadingError

from hack.controlplane.probes import free_port
from scheduler_core.config.extender_config import Extender
from scheduler_core.errors import ExtenderError, ServerUnavailableError
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Binding, ExtenderVerdict, NodeVictims
from tests.support.builders import pod
from tests.support.extender_server import ExtenderServer, Reply, keeps, scores
from tests.support.virtual_clock import VirtualClock

POD = pod("p", uid="u")
VICTIM = pod("v", uid="uv", node_name="a")
OTHER = pod("o", uid="uo", node_name="a")


class Cluster:
    """Nodes a, b and c, and three pods."""

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self.away = False

    async def pod(self, pod: Pod) -> bytes | None:
        return (await self.pods([pod])).get(pod.metadata.uid)

    async def pods(self, pods: Sequence[Pod]) -> Mapping[str, bytes]:
        if self.away:
            raise ServerUnavailableError("the API server is away")
        return {
            each.metadata.uid: json.dumps({"metadata": {"name": each.metadata.name}}).encode()
            for each in pods
            if each.metadata.name not in self.gone
        }

    async def nodes(self, names: Sequence[str]) -> Mapping[str, bytes]:
        return {name: json.dumps({"metadata": {"name": name}}).encode() for name in names if name not in self.gone}

    def knows_node(self, name: str) -> bool:
        return name in {"a", "b", "c"}

    def pod_on(self, node_name: str, uid: str) -> Pod | None:
        return OTHER if (node_name, uid) == ("a", "uo") else None


class World:
    """Clients of one extender, and what they work with."""

    def __init__(self, server: ExtenderServer) -> None:
        self.server = server
        self.clock = VirtualClock()
        self.cluster = Cluster()
        self.tally = Tally()
        self.closed = 0
        self.clients: list[HttpExtender] = []
        self.write_fence: Callable[[], None] = lambda: None

    def client(self, **fields: Any) -> HttpExtender:
        """A client with a verb for everything."""
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
    """An extender that knows the nodes is sent names and answers names."""
    world.server.rules["filter"] = keeps("b")
    verdict = await world.client().filter(POD, ["a", "b"])
    assert verdict == ExtenderVerdict(("b",), {"a": "not licensed"})
    assert world.server.of("filter") == [{"Pod": {"metadata": {"name": "p"}}, "Nodes": None, "NodeNames": ["a", "b"]}]


async def test_a_filter_by_nodes(world: World) -> None:
    """Another one is sent the nodes, in the order of the names, and answers nodes."""
    world.server.rules["filter"] = keeps("a")
    verdict = await world.client(nodeCacheCapable=False).filter(POD, ["b", "a"])
    assert verdict == ExtenderVerdict(("a",), {"b": "not licensed"})
    (body,) = world.server.of("filter")
    assert [node["metadata"]["name"] for node in body["Nodes"]["items"]] == ["b", "a"]
    assert body["NodeNames"] is None


async def test_a_node_that_is_gone_is_not_shown(world: World) -> None:
    """It went while an extender before this one answered."""
    world.cluster.gone.add("b")
    world.server.rules["filter"] = keeps("a", "b")
    assert (await world.client(nodeCacheCapable=False).filter(POD, ["b", "a"])).node_names == ("a",)


VERDICTS = [
    pytest.param({"Nodes": {"items": [{"metadata": {"name": "a"}}]}}, ("a",), id="nodes-from-one-with-a-cache"),
    pytest.param({}, (), id="nothing"),
    pytest.param({"NodeNames": [], "FailedNodes": {}}, (), id="none-left"),
]


@pytest.mark.parametrize(("answer", "left"), VERDICTS)
async def test_verdicts(world: World, answer: Any, left: tuple[str, ...]) -> None:
    """Names go before nodes; neither leaves nothing."""
    world.server.rules["filter"] = lambda _: answer
    assert (await world.client().filter(POD, ["a", "b"])).node_names == left


async def test_names_of_one_without_a_cache_do_not_count(world: World) -> None:
    """As in kube-scheduler: it must answer nodes."""
    world.server.rules["filter"] = lambda _: {"NodeNames": ["a"]}
    assert (await world.client(nodeCacheCapable=False).filter(POD, ["a"])).node_names == ()


async def test_scores(world: World) -> None:
    """As they are given; the core scales and weights them."""
    world.server.rules["prioritize"] = scores(a=3, b=10)
    assert await world.client().prioritize(POD, ["a", "b", "c"]) == {"a": 3, "b": 10, "c": 0}


async def test_preemption_by_uid(world: World) -> None:
    """An extender that knows the pods is sent UIDs; what it answers becomes pods again, others of the node too."""
    world.server.rules["preempt"] = lambda _: {
        "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "uv"}, {"UID": "uo"}], "NumPDBViolations": 1}}
    }
    victims = {"a": NodeVictims((VICTIM,), 2), "b": NodeVictims((), 0)}
    assert await world.client().preempt(POD, victims) == {"a": NodeVictims((VICTIM, OTHER), 1)}
    (body,) = world.server.of("preempt")
    assert body["NodeNameToVictims"] is None
    assert body["NodeNameToMetaVictims"]["a"] == {"Pods": [{"UID": "uv"}], "NumPDBViolations": 2}


async def test_preemption_with_whole_pods(world: World) -> None:
    """Another one is sent pods; it answers UIDs all the same."""
    world.server.rules["preempt"] = lambda _: {"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "uv"}]}}}
    answered = await world.client(nodeCacheCapable=False).preempt(POD, {"a": NodeVictims((VICTIM,), 2)})
    assert answered == {"a": NodeVictims((VICTIM,), 0)}
    (body,) = world.server.of("preempt")
    assert body["NodeNameToVictims"] == {
        "a": {"Pods": [{"metadata": {"name": "v"}, "spec": {"nodeName": "a"}}], "NumPDBViolations": 2}
    }
    assert body["NodeNameToMetaVictims"] is None


async def test_a_bind(world: World) -> None:
    """The extender is told pod and node."""
    world.server.rules["bind"] = lambda _: {}
    await world.client().bind(Binding("ns", "p", "u", "a"))
    assert world.server.of("bind") == [{"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "a"}]


async def test_requests_are_json_on_one_connection(world: World) -> None:
    """Calls one after the other share a connection; slashes at the prefix's end do not count."""
    world.server.rules["x/filter"] = lambda _: {}
    client = world.client(urlPrefix=f"{world.server.url}/x//")
    for _ in range(3):
        await client.filter(POD, ["a"])
    assert len({call.connection for call in world.server.calls}) == 1
    assert {call.headers["content-type"] for call in world.server.calls} == {"application/json"}


# -- errors ---------------------------------------------------------------------------------------------------------

FILTER_ERRORS = [
    pytest.param({"Error": "no licence left"}, "no licence left", id="its-own"),
    pytest.param(
        {"NodeNames": ["z"]},
        'claims a filtered node "z" which is not found in the input node list',
        id="unknown-node",
    ),
    pytest.param(Reply(b"{}", status=503), "failed filter with extender at URL {url}/filter, code 503", id="status"),
    pytest.param(Reply(b"{}", status=201), "failed filter with extender at URL {url}/filter, code 201", id="created"),
    pytest.param(Reply(b"<html>"), "sent an unreadable response to filter: ", id="garbage"),
    pytest.param(Reply(b""), "sent an unreadable response to filter: ", id="empty"),
    pytest.param(Reply(disconnect=True), "call to filter failed: ", id="disconnect"),
]


@pytest.mark.parametrize(("answer", "reason"), FILTER_ERRORS)
async def test_filter_errors(world: World, answer: Any, reason: str) -> None:
    """Each is an ExtenderError in the extender's or the reference's words, and is counted."""
    world.server.rules["filter"] = lambda _: answer
    with pytest.raises(ExtenderError) as caught:
        await world.client().filter(POD, ["a"])
    assert caught.value.url == world.server.url
    assert caught.value.reason.startswith(reason.format(url=world.server.url))
    assert world.tally.errors == {"filter": 1}


PREEMPT_ERRORS = [
    pytest.param(
        {"a": {"Pods": [{"UID": "zz"}]}},
        "claims to preempt pod (UID: zz) on node: a, but the pod is not found on that node",
        id="unknown-pod",
    ),
    pytest.param({"z": {"Pods": []}}, 'claims to preempt on node "z", which does not exist', id="unknown-node"),
]


@pytest.mark.parametrize(("answer", "reason"), PREEMPT_ERRORS)
async def test_preempt_errors(world: World, answer: Any, reason: str) -> None:
    """Victims that are not there are an error."""
    world.server.rules["preempt"] = lambda _: {"NodeNameToMetaVictims": answer}
    with pytest.raises(ExtenderError) as caught:
        await world.client().preempt(POD, {"a": NodeVictims((VICTIM,))})
    assert caught.value.reason == reason


async def test_a_bind_by_who_does_not_lead(world: World) -> None:
    """The extender is not asked: it would bind the pod."""

    def refuse() -> None:
        raise NotLeadingError("lost")

    world.server.rules["bind"] = lambda _: {}
    world.write_fence = refuse
    with pytest.raises(ExtenderError, match="lost"):
        await world.client().bind(Binding("ns", "p", "u", "a"))
    assert world.server.of("bind") == []


async def test_a_bind_that_is_refused(world: World) -> None:
    """The extender's error is told."""
    world.server.rules["bind"] = lambda _: {"Error": "taken"}
    with pytest.raises(ExtenderError, match="taken"):
        await world.client().bind(Binding("ns", "p", "u", "a"))


async def test_a_late_answer(world: World) -> None:
    """After httpTimeout the call has failed."""
    held = threading.Event()
    world.server.rules["filter"] = lambda _: Reply(b"{}", held=held)
    with pytest.raises(ExtenderError, match=r"sent no response to filter within 0\.2 s"):
        await world.client(httpTimeout="200ms").filter(POD, ["a"])
    held.set()


async def test_nobody_listens(world: World) -> None:
    """The connection's error is told."""
    with pytest.raises(ExtenderError, match="call to filter failed: "):
        await world.client(urlPrefix=f"http://127.0.0.1:{free_port()}").filter(POD, ["a"])


async def test_a_connection_that_was_closed_while_idle(world: World) -> None:
    """The extender was started anew: the call is made again on another connection; a bind is not."""
    world.server.rules |= {"filter": lambda _: {}, "bind": lambda _: {}}
    client = world.client()
    await client.filter(POD, ["a"])
    world.server.stop()
    world.server.start()
    await client.filter(POD, ["a"])
    assert len(world.server.of("filter")) == 2


async def test_a_broken_bind_is_not_repeated(world: World) -> None:
    """It may have happened."""
    world.server.rules["bind"] = lambda _: Reply(disconnect=True)
    with pytest.raises(ExtenderError, match="broke the connection before its response to bind"):
        await world.client().bind(Binding("ns", "p", "u", "a"))
    assert len(world.server.of("bind")) == 1


async def test_a_pod_that_is_gone(world: World) -> None:
    """Nobody is asked about it."""
    world.cluster.gone.add("p")
    with pytest.raises(ExtenderError, match="not called for pod default/p, which is gone"):
        await world.client().filter(POD, ["a"])
    assert (world.server.calls, world.circuit.state) == ([], CircuitState.CLOSED)


async def test_an_api_server_that_is_away_is_not_the_extenders_fault(world: World) -> None:
    """The call fails, the circuit stays closed."""
    world.cluster.away = True
    client = world.client()
    for _ in range(5):
        with pytest.raises(ExtenderError, match="the API server is away"):
            await client.filter(POD, ["a"])
    assert client.state.state is CircuitState.CLOSED


# -- the circuit ----------------------------------------------------------------------------------------------------


async def test_failures_open_the_circuit_until_it_is_well_again(world: World) -> None:
    """Calls fail at once with the reason, one is let through later, and its success closes the circuit."""
    world.server.rules["filter"] = lambda _: Reply(status=500)
    client = world.client()
    for _ in range(3):
        with pytest.raises(ExtenderError, match="code 500"):
            await client.filter(POD, ["a"])
    assert (client.state.state, client.state.since) == (CircuitState.OPEN, world.clock.wall())
    with pytest.raises(ExtenderError, match=r"circuit open until 00:00:00\.\d{3}Z; last error: .*code 500"):
        await client.prioritize(POD, ["a"])
    assert len(world.server.calls) == 3
    world.server.rules["filter"] = keeps("a")
    world.clock.advance(1)
    assert (await client.filter(POD, ["a"])).node_names == ("a",)
    assert client.state.state is CircuitState.CLOSED


async def test_only_one_call_tries_an_extender_that_was_away(world: World) -> None:
    """The others fail at once while it is under way; when it is cancelled the next one tries."""
    world.server.rules["filter"] = lambda _: Reply(status=500)
    client = world.client()
    for _ in range(3):
        with pytest.raises(ExtenderError):
            await client.filter(POD, ["a"])
    world.clock.advance(1)
    arrived, held = threading.Event(), threading.Event()

    def hold(_: Any) -> Reply:
        arrived.set()
        return Reply(b"{}", held=held)

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
    """It is there: it may only dislike this pod."""
    world.server.rules["filter"] = lambda _: {"Error": "no"}
    client = world.client()
    for _ in range(5):
        with pytest.raises(ExtenderError, match="no"):
            await client.filter(POD, ["a"])
    assert client.state.state is CircuitState.CLOSED


async def test_calls_are_counted(world: World) -> None:
    """By what was asked."""
    world.server.rules |= {"filter": lambda _: {}, "prioritize": lambda _: []}
    client = world.client()
    await client.filter(POD, ["a"])
    await client.filter(POD, ["a"])
    await client.prioritize(POD, ["a"])
    assert {point: sum(counts) for point, counts in world.tally.counts.items()} == {"filter": 2, "prioritize": 1}
    assert world.tally.errors == {"filter": 0, "prioritize": 0}


async def test_a_closed_client_is_not_used(world: World) -> None:
    """It tells once that it is closed, and calls fail."""
    client = world.client()
    await client.close()
    await client.close()
    assert (world.closed, client.is_closed) == (1, True)
    with pytest.raises(ExtenderError, match="is no longer called"):
        await client.filter(POD, ["a"])


async def test_verbs_that_are_not_set(world: World) -> None:
    """Nothing is asked; nothing changes."""
    client = world.client(filterVerb="", prioritizeVerb="", preemptVerb="")
    victims = {"a": NodeVictims((VICTIM,))}
    assert (await client.filter(POD, ["a"])).node_names == ("a",)
    assert await client.prioritize(POD, ["a"]) == {"a": 0}
    assert await client.preempt(POD, victims) == victims
    assert world.server.calls == []
