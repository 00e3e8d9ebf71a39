"""The simulation's own parts: an API server that refuses what a real one refuses, watches in order, a plain judge."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import pytest
from bayplan.kube.http.api_errors import ResourceExpiredError, ResponseLostError

from scheduler_core.model.pod import Pod
from tests.simulation.api_server import NODES, PODS, ApiServer
from tests.simulation.fault_counts import FaultCounts
from tests.simulation.network import Network
from tests.simulation.plain_fit import misfit
from tests.simulation.virtual_loop import LoopClock, StalledError, VirtualLoop
from tests.support.builders import NodeFields, PodFields, node, pod

T = TypeVar("T")


def on_virtual_time(work: Callable[[VirtualLoop], Awaitable[T]]) -> T:
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(asyncio.ensure_future(work(loop), loop=loop))
    finally:
        loop.close()


def network_of(loop: VirtualLoop, server: ApiServer) -> Network:
    return Network(loop, server, FaultCounts(), random.Random(1))


def versions(lines: bytes) -> list[int]:
    found = [msgspec.json.decode(line)["object"]["metadata"]["resourceVersion"] for line in lines.splitlines()]
    return [int(version) for version in found]


# -- time -----------------------------------------------------------------------------------------------------------


def test_time_passes_only_when_nothing_is_left_to_do() -> None:
    """An hour's sleep costs nothing and is an hour."""

    async def sleep(loop: VirtualLoop) -> float:
        await asyncio.sleep(3600)
        return loop.time()

    assert on_virtual_time(sleep) == 3600


def test_a_wait_without_end_is_told() -> None:
    """Nobody waits for ever in silence."""

    async def wait(loop: VirtualLoop) -> None:
        await loop.create_future()

    with pytest.raises(StalledError, match="was lost"):
        on_virtual_time(wait)


def test_a_loop_that_spins_is_told() -> None:
    """A timer that comes back at once, for ever, ends the run with its cause and not the test by its time limit."""

    async def spin(loop: VirtualLoop) -> None:
        def again() -> None:
            loop.call_later(0.0, again)

        again()
        await asyncio.sleep(1.0)

    with pytest.raises(StalledError, match="time does not pass"):
        on_virtual_time(spin)


def test_a_dead_clock() -> None:
    """What a killed process planned does not happen."""
    happened: list[str] = []

    async def live(loop: VirtualLoop) -> None:
        clock, other = LoopClock(loop), LoopClock(loop)
        clock.call_later(1.0, lambda: happened.append("dead"))
        other.call_later(1.0, lambda: happened.append("alive"))
        clock.is_dead = True
        await asyncio.sleep(2.0)

    on_virtual_time(live)
    assert happened == ["alive"]


# -- the API server -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "uid", "status"),
    [
        pytest.param(pod("a", uid="1"), "1", 201, id="bound"),
        pytest.param(pod("a", uid="2"), "1", 409, id="another-uid"),
        pytest.param(pod("a", uid="1", node_name="m"), "1", 409, id="bound-already"),
        pytest.param(pod("b", uid="1"), "1", 404, id="gone"),
    ],
)
def test_binds(there: Pod, uid: str, status: int) -> None:
    """A pod is bound once, by its UID."""
    server = ApiServer()
    server.put(PODS, there)
    assert server.bind("a", uid, "n", "us")[0] == status


def test_deletions() -> None:
    """An unbound pod is deleted at once; a bound one when its kubelet has stopped it, and it is reported once."""
    server, reported = ApiServer(), list[Pod]()
    server.on_deletion = reported.append
    server.put(PODS, pod("a"))
    server.put(PODS, pod("b", node_name="n"))
    for name in ("a", "b", "b"):
        server.end_pod(name)
    [left] = server.pods()
    assert (left.metadata.name, left.metadata.deletion_timestamp is not None, len(reported)) == ("b", True, 1)


# -- watches --------------------------------------------------------------------------------------------------------


def test_a_watch_keeps_its_order() -> None:
    """Events of one kind arrive in their order, also when the earlier ones were held back for longer."""

    async def watch(loop: VirtualLoop) -> list[int]:
        server = ApiServer()
        network = network_of(loop, server)
        stream = await network.open(PODS, {"resourceVersion": "100"})
        network.stall(PODS, 5.0)
        server.put(PODS, pod("a"))
        network.heal()
        server.put(PODS, pod("b"))
        seen: list[int] = []
        while len(seen) < 2:
            seen += versions(await stream.readany())
        return seen

    assert on_virtual_time(watch) == [101, 102]


def test_a_watch_resumes_where_it_was() -> None:
    """What happened while it was away is sent; nothing is sent twice."""

    async def watch(loop: VirtualLoop) -> list[int]:
        server = ApiServer()
        network = network_of(loop, server)
        for name in ("a", "b", "c"):
            server.put(PODS, pod(name))
        return versions(await (await network.open(PODS, {"resourceVersion": "101"})).readany())

    assert on_virtual_time(watch) == [102, 103]


def test_a_version_that_is_too_old() -> None:
    """A history that is forgotten cannot be resumed."""

    async def watch(loop: VirtualLoop) -> None:
        server = ApiServer()
        network = network_of(loop, server)
        server.put(PODS, pod("a"))
        network.expire(PODS)
        await network.open(PODS, {"resourceVersion": "100"})

    with pytest.raises(ResourceExpiredError):
        on_virtual_time(watch)


def test_a_connection_that_breaks() -> None:
    """What has not arrived is lost."""

    async def watch(loop: VirtualLoop) -> None:
        server = ApiServer()
        network = network_of(loop, server)
        stream = await network.open(NODES, {"resourceVersion": "100"})
        server.put(NODES, node("n"))
        network.drop(NODES, in_order=False)
        await stream.readany()

    with pytest.raises(ResponseLostError):
        on_virtual_time(watch)


# -- the plain judge ------------------------------------------------------------------------------------------------

ROOM: NodeFields = {"allocatable": {"cpu": "1000m", "memory": "1024Mi", "pods": "2"}}
HALF: PodFields = {"requests": {"cpu": "600m", "memory": "10Mi"}}


@pytest.mark.parametrize(
    ("fields", "node_fields", "others", "reason"),
    [
        pytest.param(HALF, ROOM, [], "", id="fits"),
        pytest.param(HALF, ROOM, [HALF], "cpu: 600 of 1000", id="cpu"),
        pytest.param({"requests": {"memory": "2Gi"}}, ROOM, [], "memory: 0 of 1024", id="memory"),
        pytest.param({}, ROOM, [{}, {}], "2 pods are there", id="pods"),
        pytest.param({"ports": [80]}, ROOM, [{"ports": [80]}], "host ports", id="ports"),
        pytest.param({}, {**ROOM, "unschedulable": True}, [], "the node is cordoned", id="cordoned"),
        pytest.param({}, {**ROOM, "taints": ["k=v:NoSchedule"]}, [], "taint k", id="taint"),
        pytest.param({}, {**ROOM, "taints": ["k=v:PreferNoSchedule"]}, [], "", id="soft-taint"),
        pytest.param({"node_selector": {"zone": "a"}}, ROOM, [], "the node's label zone is None", id="selector"),
    ],
)
def test_the_plain_judge(fields: PodFields, node_fields: NodeFields, others: list[PodFields], reason: str) -> None:
    """It returns why a pod must not run on a node."""
    there = [pod(f"other-{index}", **each) for index, each in enumerate(others)]
    found = misfit(pod("mine", **fields), node("n", **node_fields), there)
    assert found.startswith(reason) if reason else found == ""
