"""Lifetime of extender clients, which are closed with their framework instance."""

from __future__ import annotations

import asyncio

import pytest

from scheduler_core.config.profile_config import Extender
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.scheduler import SchedulerPorts
from tests.support.scheduling import Rig, profile, rig
from tests.support.scripted_extender import ScriptedExtender, extender, extender_profile


def made_with(clients: list[ScriptedExtender]) -> Rig:
    """Return a scheduler whose client factory records every client and rejects the URL ``bad``."""

    def make(name: str, config: Extender) -> ScriptedExtender:
        if config.url_prefix == "bad":
            raise ValueError("no such certificate")
        clients.append(ScriptedExtender(f"{name} {config.url_prefix}"))
        return clients[-1]

    return rig(serve=False, ports=SchedulerPorts(make_extender=make))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_client_is_closed_with_its_instance() -> None:
    """A client is closed once, when its profile is replaced; the new revision has its own client."""
    clients: list[ScriptedExtender] = []
    made = made_with(clients)
    made.serve(extender_profile(extender("one"), extender("two")))
    made.serve(extender_profile(extender("one")))
    await settle()
    assert [(client.url, client.closed) for client in clients] == [
        ("default-scheduler one", 1),
        ("default-scheduler two", 1),
        ("default-scheduler one", 0),
    ]


async def test_a_client_is_closed_after_the_last_pod_in_flight() -> None:
    """The client of a withdrawn profile stays open for attempts in flight, which may use it to bind."""
    clients: list[ScriptedExtender] = []
    made = made_with(clients)
    (instance,) = made.serve(extender_profile(extender()))
    instance.begin()
    made.scheduler.withdraw(instance.name)
    await settle()
    assert clients[0].closed == 0
    instance.end()
    await settle()
    assert clients[0].closed == 1


async def test_open_clients_are_closed_when_the_scheduler_stops() -> None:
    """When the scheduler stops, all clients are closed once, and clients that are closing are awaited."""
    clients: list[ScriptedExtender] = []
    made = made_with(clients)
    made.serve(extender_profile(extender("a")), extender_profile(extender("b"), name="other"))
    made.scheduler.withdraw("other")
    await made.scheduler.stop(0)
    assert [client.closed for client in clients] == [1, 1]
    await made.scheduler.stop(0)
    assert [client.closed for client in clients] == [1, 1]


async def test_a_client_that_fails_to_close_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """A client that fails to close does not prevent the others from closing."""

    class Stuck(ScriptedExtender):
        async def close(self) -> None:
            raise OSError("stuck")

    clients = {"stuck": Stuck(), "fine": ScriptedExtender()}
    made = rig(serve=False, ports=SchedulerPorts(make_extender=lambda _, config: clients[config.url_prefix]))
    made.serve(extender_profile(extender("stuck"), extender("fine")))
    await made.scheduler.stop(0)
    assert clients["fine"].closed == 1
    assert "failed to close" in caplog.text


async def test_an_invalid_extender_rejects_the_profile() -> None:
    """An invalid extender rejects the profile with its field path, and created clients are closed."""
    clients: list[ScriptedExtender] = []
    made = made_with(clients)
    with pytest.raises(ConfigError, match=r"extenders\[1\]: the extender cannot be called: no such certificate"):
        made.scheduler.build(extender_profile(extender("good"), extender("bad")))
    await settle()
    assert [client.closed for client in clients] == [1]


def test_problems_of_an_extender_have_their_fields() -> None:
    """Problems of an extender have field paths from the root of the profile."""

    def reject(_: str, __: Extender) -> ScriptedExtender:
        raise ConfigError([Problem("tlsConfig.caFile", "cannot be read; correct the path")])

    made = rig(serve=False, ports=SchedulerPorts(make_extender=reject))
    with pytest.raises(ConfigError) as raised:
        made.scheduler.build(extender_profile(extender()))
    assert [str(problem) for problem in raised.value.problems] == [
        "extenders[0].tlsConfig.caFile: cannot be read; correct the path"
    ]


def test_clients_are_not_closed_without_an_event_loop() -> None:
    """A client is not closed without an event loop, because it has no connection."""
    clients: list[ScriptedExtender] = []
    made = made_with(clients)
    made.scheduler.build(extender_profile(extender())).retire()
    assert clients[0].closed == 0
    asyncio.run(made.scheduler.stop(0))
    assert clients[0].closed == 1


def test_without_a_factory_no_extender_is_called() -> None:
    """Without a client factory, as in a simulation, the instance has no extenders and registers no events for them."""
    made = rig(serve=False)
    (instance,) = made.serve(extender_profile(extender()))
    assert (instance.extenders, "Extender" in instance.registrations) == ((), False)


def test_a_profile_without_extenders_has_none() -> None:
    """A profile without extenders creates no clients."""
    clients: list[ScriptedExtender] = []
    (instance,) = made_with(clients).serve(profile())
    assert (instance.extenders, clients) == ((), [])
