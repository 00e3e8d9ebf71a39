"""Law: kopf and the lists beside it notice every deletion, however its watch is interrupted.

kopf runs; the API server is scripted. The periodic lists never run here, because their clock stands still.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable

import pytest
from bayplan.kube.custom_resources import CustomResources
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.timing import SystemClock
from bayplan.profiles.kopf_handlers import KopfOperator, Watched
from bayplan.profiles.profile_sources import PROFILES, ResourceLists
from bayplan.resources.object_store import Body, ObjectStore
from bayplan.resources.resource_model import CustomResource
from bayplan.resources.scheduler_profile import SchedulerProfile

from tests.support.fake_api import Disconnect, FakeApi, Hang, Response, Stream, error_response
from tests.support.kopf_server import KINDS, OWN, event, failure, listed, profile, script_discovery, script_lists
from tests.support.virtual_clock import VirtualClock

PATH = f"{OWN}/schedulerprofiles"
AWAY = Response(disconnect=True)


class Store:
    """Store of SchedulerProfiles that notes its content after each change."""

    def __init__(self) -> None:
        self._store = ObjectStore()
        self._changed = asyncio.Event()

    def seen(self, kind: type[CustomResource], body: Body) -> None:
        if kind is SchedulerProfile:
            self._store.seen(body)
            self._changed.set()

    def gone(self, kind: type[CustomResource], body: Body) -> None:
        del kind
        self._store.gone(body)
        self._changed.set()

    def listed(self, kind: type[CustomResource], bodies: Iterable[Body], resource_version: str) -> None:
        if kind is SchedulerProfile:
            self._store.listed(bodies, resource_version)
            self._changed.set()

    async def until(self, names: list[str]) -> None:
        """Wait until the store contains exactly these profiles."""
        async with asyncio.timeout(60):
            while [body["metadata"]["name"] for body in self._store.bodies()] != names:
                self._changed.clear()
                await self._changed.wait()


INTERRUPTED: dict[str, Callable[[asyncio.Event], tuple[list[Response | Stream], list[Response]]]] = {
    "the event follows after a disconnection": lambda gate: (
        [Stream(gate, Disconnect()), Stream(event("DELETED", profile("a", 7)), Hang())],
        [],
    ),
    "the resource version has expired": lambda gate: ([Stream(gate, failure(410))], []),
    "it has expired when the watch is opened again": lambda gate: (
        [Stream(gate, Disconnect()), Stream(failure(410))],
        [],
    ),
    "it has expired, and HTTP 410 is the status": lambda gate: (
        [Stream(gate, Disconnect()), error_response(410, "Expired")],
        [],
    ),
    "the watch fails": lambda gate: ([Stream(gate, failure(500))], []),
    "the server is away for some requests": lambda gate: (
        [Stream(gate, Disconnect()), AWAY, AWAY, Stream(failure(410))],
        [AWAY, error_response(503, "away")],
    ),
}


@pytest.mark.parametrize("how", INTERRUPTED)
@pytest.mark.parametrize("left", [[], ["b"]], ids=["none left", "one left"])
async def test_a_deletion_during_an_interruption_is_noticed(how: str, left: list[str]) -> None:
    """A profile that is deleted while the watch is interrupted is removed, without a periodic list."""
    gate, store = asyncio.Event(), Store()
    async with FakeApi() as api, ApiConnection(api, ConnectionOptions(), SystemClock()) as connection:
        script_discovery(api)
        for kind in KINDS:
            script_lists(api, f"{OWN}/{kind.definition.plural}", [])
        watches, failed_lists = INTERRUPTED[how](gate)

        def next_list() -> Response:
            if not gate.is_set():
                return listed(*(profile(name) for name in ("a", *left)))
            return failed_lists.pop(0) if failed_lists else listed(*map(profile, left), version=9)

        script_lists(api, PATH, watches, next_list)
        clock = VirtualClock()
        lists = ResourceLists(PROFILES, CustomResources(connection), store, clock)
        operator = KopfOperator(api, {kind: Watched(store, lists.request) for kind in KINDS})
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(operator.run(SystemClock())), group.create_task(lists.run())]
            await store.until(["a", *left])
            await api.until(lambda: any("watch" in each.query for each in api.requests("GET", PATH)))
            # The watch has begun, and no list is requested any more; only what follows can remove the profile.
            await _until_idle(api)
            gate.set()
            retrying = group.create_task(_retry(clock))
            await store.until(left)
            for task in (*tasks, retrying):
                task.cancel()


class RenewedCredentials(FakeApi):
    """API server whose clients have to log in again when their token or certificate is renewed."""

    def __init__(self) -> None:
        super().__init__()
        self.logins = 0
        self.accepted = 1
        self.tls: ssl.SSLContext | None = None

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        return self.tls

    async def authorization(self) -> str | None:
        self.logins += 1
        return f"Bearer {self.logins}"

    def next_list(self) -> Response:
        """Return a profile with the number of the login, and 401 for an expired token."""
        login = int(self.received[-1].headers["Authorization"].removeprefix("Bearer "))
        return listed(profile(f"for-{login}")) if login >= self.accepted else error_response(401, "expired")


@pytest.mark.parametrize("what", ["token", "certificate"])
async def test_renewed_credentials_are_used(what: str) -> None:
    """After a renewal kopf logs in again or starts again, and watches with the new credentials."""
    gate, store = asyncio.Event(), Store()
    async with RenewedCredentials() as api:
        script_discovery(api)
        for kind in KINDS:
            script_lists(api, f"{OWN}/{kind.definition.plural}", [])
        script_lists(api, PATH, [Stream(gate, failure(410))], api.next_list)
        operator = KopfOperator(api, {kind: Watched(store, lambda: None) for kind in KINDS})
        running = asyncio.create_task(operator.run(SystemClock()))
        await store.until(["for-1"])
        if what == "token":
            api.accepted = 2
        else:
            api.tls = ssl.create_default_context()
        gate.set()
        await store.until(["for-1", "for-2"])
        running.cancel()
        await asyncio.wait([running])
    assert api.logins == 2


async def _until_idle(api: FakeApi) -> None:
    """Wait until the lists that kopf's start requested have been answered."""
    count = -1
    while count != len(api.received):
        count = len(api.received)
        await asyncio.sleep(0.2)


async def _retry(clock: VirtualClock) -> None:
    """Let retries of failed lists come due; in sum less than the interval of the periodic lists."""
    while True:
        await asyncio.sleep(0.01)
        if clock.now() < 1000 + PROFILES.seconds - 1:
            clock.advance(0.1)
