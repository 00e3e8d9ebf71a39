"""Tests of the simulation's virtual time, API server, watches and plain filters."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import pytest
from bayplan.kube.http.api_request import ResourceExpiredError, ResponseLostError

from scheduler_core.model.pod import Pod
from tests.simulation.api_server import NODES, PODS, ApiServer
from tests.simulation.fault_counts import FaultCounts
from tests.simulation.network import Network
from tests.simulation.plain_fit import rejection_reason
from tests.simulation.virtual_loop import LoopClock, StalledError, VirtualLoop
from tests.support.builders import NodeFields, PodFields, node, pod
from tests.support.tables import table

T = TypeVar("T")


def run_in_virtual_time(work: Callable[[VirtualLoop], Awaitable[T]]) -> T:
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


def test_virtual_time_passes_while_all_tasks_sleep() -> None:
    """A sleep of one hour advances the virtual time by one hour."""

    async def sleep(loop: VirtualLoop) -> float:
        await asyncio.sleep(3600)
        return loop.time()

    assert run_in_virtual_time(sleep) == 3600


def test_a_wait_without_end_raises_an_error() -> None:
    """The loop raises StalledError if no task is runnable and no timer is set."""

    async def wait(loop: VirtualLoop) -> None:
        await loop.create_future()

    with pytest.raises(StalledError, match="was lost"):
        run_in_virtual_time(wait)


def test_a_loop_without_progress_raises_an_error() -> None:
    """The loop raises StalledError if a timer reschedules itself without delay."""

    async def spin(loop: VirtualLoop) -> None:
        def again() -> None:
            loop.call_later(0.0, again)

        again()
        await asyncio.sleep(1.0)

    with pytest.raises(StalledError, match="time does not pass"):
        run_in_virtual_time(spin)


def test_timers_of_a_killed_process_do_not_fire() -> None:
    """A timer of a dead clock does not fire, and timers of other clocks do."""
    fired: list[str] = []

    async def run(loop: VirtualLoop) -> None:
        clock, other = LoopClock(loop), LoopClock(loop)
        clock.call_later(1.0, lambda: fired.append("dead"))
        other.call_later(1.0, lambda: fired.append("alive"))
        clock.is_dead = True
        await asyncio.sleep(2.0)

    run_in_virtual_time(run)
    assert fired == ["alive"]


# -- the API server -------------------------------------------------------------------------------------------------


@table(
    "there, uid, status",
    ("bound", pod("a", uid="1"), "1", 201),
    ("another-uid", pod("a", uid="2"), "1", 409),
    ("already-bound", pod("a", uid="1", node_name="m"), "1", 409),
    ("deleted", pod("b", uid="1"), "1", 404),
)
def test_binds(there: Pod, uid: str, status: int) -> None:
    """A pod is bound once, and only with its own UID."""
    server = ApiServer()
    server.put(PODS, there)
    assert server.bind("a", uid, "n", "client")[0] == status


def test_deletions() -> None:
    """An unbound pod is deleted at once. A bound pod terminates first, and its deletion is reported once."""
    server, reported = ApiServer(), list[Pod]()
    server.on_deletion = reported.append
    server.put(PODS, pod("a"))
    server.put(PODS, pod("b", node_name="n"))
    for name in ("a", "b", "b"):
        server.delete_pod(name)
    [remaining] = server.pods()
    assert (remaining.metadata.name, remaining.metadata.deletion_timestamp is not None, len(reported)) == ("b", True, 1)


# -- watches --------------------------------------------------------------------------------------------------------


def test_a_watch_delivers_events_in_order() -> None:
    """Events of one resource arrive in order, even if earlier ones were delayed longer."""

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

    assert run_in_virtual_time(watch) == [101, 102]


def test_a_watch_resumes_from_a_version() -> None:
    """A resumed watch sends every later event once."""

    async def watch(loop: VirtualLoop) -> list[int]:
        server = ApiServer()
        network = network_of(loop, server)
        for name in ("a", "b", "c"):
            server.put(PODS, pod(name))
        return versions(await (await network.open(PODS, {"resourceVersion": "101"})).readany())

    assert run_in_virtual_time(watch) == [102, 103]


def test_a_compacted_version_cannot_be_resumed() -> None:
    """A watch from a compacted version fails with ResourceExpiredError."""

    async def watch(loop: VirtualLoop) -> None:
        server = ApiServer()
        network = network_of(loop, server)
        server.put(PODS, pod("a"))
        network.expire(PODS)
        await network.open(PODS, {"resourceVersion": "100"})

    with pytest.raises(ResourceExpiredError):
        run_in_virtual_time(watch)


def test_a_broken_connection_loses_undelivered_events() -> None:
    """A read of a broken watch raises ResponseLostError."""

    async def watch(loop: VirtualLoop) -> None:
        server = ApiServer()
        network = network_of(loop, server)
        stream = await network.open(NODES, {"resourceVersion": "100"})
        server.put(NODES, node("n"))
        network.drop(NODES, graceful=False)
        await stream.readany()

    with pytest.raises(ResponseLostError):
        run_in_virtual_time(watch)


# -- plain filters --------------------------------------------------------------------------------------------------

SMALL_NODE: NodeFields = {"allocatable": {"cpu": "1000m", "memory": "1024Mi", "pods": "2"}}
LARGE_POD: PodFields = {"requests": {"cpu": "600m", "memory": "10Mi"}}


@table(
    "fields, node_fields, others, reason",
    ("fits", LARGE_POD, SMALL_NODE, [], ""),
    ("cpu", LARGE_POD, SMALL_NODE, [LARGE_POD], "cpu: 600 of 1000"),
    ("memory", {"requests": {"memory": "2Gi"}}, SMALL_NODE, [], "memory: 0 of 1024"),
    ("pods", {}, SMALL_NODE, [{}, {}], "2 pods are on the node"),
    ("ports", {"ports": [80]}, SMALL_NODE, [{"ports": [80]}], "host ports"),
    ("cordoned", {}, {**SMALL_NODE, "unschedulable": True}, [], "the node is cordoned"),
    ("taint", {}, {**SMALL_NODE, "taints": ["k=v:NoSchedule"]}, [], "taint k"),
    ("soft-taint", {}, {**SMALL_NODE, "taints": ["k=v:PreferNoSchedule"]}, [], ""),
    ("selector", {"node_selector": {"zone": "a"}}, SMALL_NODE, [], "the node's label zone is None"),
)
def test_plain_filters(fields: PodFields, node_fields: NodeFields, others: list[PodFields], reason: str) -> None:
    """The plain filters return the reason why a pod must not run on a node."""
    there = [pod(f"other-{index}", **each) for index, each in enumerate(others)]
    found = rejection_reason(pod("mine", **fields), node("n", **node_fields), there)
    assert found.startswith(reason) if reason else found == ""
