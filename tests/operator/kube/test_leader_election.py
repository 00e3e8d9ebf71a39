"""Tests of leader election on a scripted API server, with a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.leader_election import (
    ANNOTATION,
    ElectionOptions,
    LeaderElection,
    LeaderEndpoint,
    LeadershipLostError,
    NotLeadingError,
    WriteFence,
    announced_endpoint,
    announcement,
    other_leader,
)

from scheduler_core.errors import ConfigError
from tests.support.fake_api import FakeApi, Response, error_response
from tests.support.tables import table
from tests.support.virtual_clock import AutoAdvanceClock, VirtualClock

LEASES = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
LEASE = f"{LEASES}/bayplan"
OPTIONS = ElectionOptions("ns", "bayplan")


def lease(holder: str, version: str = "1", transitions: int = 3) -> Response:
    metadata = {"name": "bayplan", "namespace": "ns", "resourceVersion": version, "labels": {"team": "a"}}
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "acquireTime": "A", "leaseTransitions": transitions}
    return Response(body={"metadata": metadata, "spec": spec})


class SleepRecordingClock(VirtualClock):
    """Virtual clock that records the sleeps of its only user.

    Attributes:
        sleep_ends: Time at which the current sleep ends.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sleeps = 0
        self.sleep_ends = float("inf")
        self.changed = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Record the sleep, then sleep."""
        self.sleeps += 1
        self.sleep_ends = self.now() + seconds
        self.changed.set()
        await super().sleep(seconds)


class Candidate:
    """Candidate with identity "me", with its API connection and clock."""

    def __init__(self, api: FakeApi, options: ElectionOptions = OPTIONS) -> None:
        self.endpoint: LeaderEndpoint | None = LeaderEndpoint("http://127.0.0.1:1")
        self.clock = SleepRecordingClock()
        self.fence = WriteFence(self.clock, options.lease)
        self.connection = ApiConnection(api, ConnectionOptions(), self.clock, self.fence.check)
        self.election = LeaderElection(
            self.connection, options, self.clock, self.fence, identity="me", endpoint=lambda: self.endpoint
        )
        self.run = asyncio.ensure_future(self.election.run())
        self.run.add_done_callback(lambda _: self.clock.changed.set())

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds; check it whenever the candidate sleeps or ends."""
        async with asyncio.timeout(60):
            while not condition():
                self.clock.changed.clear()
                await self.clock.changed.wait()

    async def next_sleep(self, sleeps: int) -> None:
        """Wait until the candidate sleeps again or has ended."""
        await self.until(lambda: self.run.done() or self.clock.sleeps > sleeps)

    async def until_standby(self) -> None:
        """Wait until the first attempt to acquire the Lease is over."""
        await self.until(lambda: self.clock.sleeps > 0)

    async def until_leading(self) -> None:
        """Wait until the candidate leads and sleeps until its next renewal."""
        await self.until(lambda: self.election.leading.is_set() and self.clock.sleep_ends > self.clock.now())

    async def advance(self, seconds: float) -> None:
        """Advance the clock from sleep to sleep, and run the candidate's work after each."""
        until = self.clock.now() + seconds
        while not self.run.done() and self.clock.sleep_ends <= until:
            sleeps = self.clock.sleeps
            self.clock.advance(self.clock.sleep_ends - self.clock.now())
            await self.next_sleep(sleeps)
        if not self.run.done():
            self.clock.advance(max(until - self.clock.now(), 0))


@pytest.fixture
async def me(api: FakeApi) -> AsyncIterator[Candidate]:
    candidate = Candidate(api)
    yield candidate
    candidate.run.cancel()
    await asyncio.wait([candidate.run])
    await candidate.connection.close()


def spec(api: FakeApi, method: str) -> dict[str, Any]:
    """Return the Lease spec of the last write."""
    found: dict[str, Any] = api.requests(method)[-1].json["spec"]
    return found


async def test_a_missing_lease_is_created(api: FakeApi, me: Candidate) -> None:
    """The first candidate creates the Lease, with no transition."""
    api.on("POST", LEASES, lease("me", transitions=0))
    api.on("PUT", LEASE, lease("me"))
    await me.until_leading()
    written = spec(api, "POST")
    assert (written["holderIdentity"], written["leaseDurationSeconds"], written["leaseTransitions"]) == ("me", 15, 0)
    assert me.election.is_leading_until == me.clock.now() + 10


@table("holder, transitions", ("released", "", 4), ("already ours", "me", 3))
async def test_a_free_lease_is_acquired(api: FakeApi, me: Candidate, holder: str, transitions: int) -> None:
    """The write has the version that was read, keeps other fields, and counts a change of the holder."""
    api.on("GET", LEASE, lease(holder))
    api.on("PUT", LEASE, lease("me", "2"))
    await me.until_leading()
    put = api.requests("PUT")[0].json
    assert put["metadata"]["resourceVersion"] == "1"
    assert put["metadata"]["labels"] == {"team": "a"}
    assert put["spec"]["leaseTransitions"] == transitions


async def test_a_held_lease_is_acquired_after_its_duration(api: FakeApi, me: Candidate) -> None:
    """A held Lease is acquired when its version has not changed for its whole duration on this process's clock."""
    api.on("GET", LEASE, lease("other"))
    api.on("PUT", LEASE, lease("me", "2", 4))
    await me.until_standby()
    await me.advance(14.9)
    assert not api.requests("PUT")
    assert me.election.holder == "other"
    await me.advance(5)
    await me.until_leading()
    assert spec(api, "PUT")["leaseTransitions"] == 4


async def test_a_lease_is_acquired_when_it_expires(api: FakeApi, me: Candidate) -> None:
    """A standby retries at the moment when the Lease expires, whatever its jittered interval."""
    api.on("GET", LEASE, lease("other"))
    api.on("PUT", LEASE, lease("me", "2", 4))
    await me.until_standby()
    await me.advance(15)
    assert len(api.requests("PUT")) == 1


async def test_a_renewed_lease_is_not_acquired(api: FakeApi, me: Candidate) -> None:
    """Each new version of the Lease starts its duration again."""
    api.on("GET", LEASE, *(lease("other", str(version)) for version in range(100)))
    await me.until_standby()
    await me.advance(60)
    assert not api.requests("PUT")
    with pytest.raises(NotLeadingError):
        me.fence.check()


def written_annotations(api: FakeApi, method: str = "PUT") -> dict[str, str]:
    """Return the annotations of the last write of the Lease."""
    found: dict[str, str] = api.requests(method)[-1].json["metadata"]["annotations"]
    return found


async def test_a_leader_announces_its_endpoint(api: FakeApi, me: Candidate) -> None:
    """Each renewal announces the current endpoint; other annotations stay, and a release removes the announcement."""
    old = lease("")
    old.body["metadata"]["annotations"] = {"others": "stay", ANNOTATION: announcement("other", LeaderEndpoint("x"))}
    api.on("GET", LEASE, old)
    api.on("PUT", LEASE, *(lease("me", str(version)) for version in range(2, 100)))
    await me.until_leading()
    assert written_annotations(api) == {
        "others": "stay",
        ANNOTATION: '{"identity":"me","url":"http://127.0.0.1:1","certificateSha256":""}',
    }
    me.endpoint = LeaderEndpoint("https://192.0.2.1:1", "a" * 64)
    await me.advance(5)
    assert announced_endpoint(written_annotations(api)[ANNOTATION], "me") == me.endpoint
    me.endpoint = None
    await me.advance(5)
    assert written_annotations(api) == {}
    me.endpoint = LeaderEndpoint("http://127.0.0.1:1")
    api.on("GET", LEASE, lease("me"))
    await me.election.release(1)
    assert written_annotations(api) == {}


async def test_a_created_lease_announces_the_endpoint(api: FakeApi, me: Candidate) -> None:
    """A created Lease announces the endpoint from its first version on."""
    api.on("POST", LEASES, lease("me", transitions=0))
    api.on("PUT", LEASE, lease("me"))
    await me.until_leading()
    assert announced_endpoint(written_annotations(api, "POST")[ANNOTATION], "me") == me.endpoint


@table("writer, is_read", ("current holder", "other", True), ("earlier holder", "before", False))
async def test_a_standby_reads_the_leaders_endpoint(api: FakeApi, me: Candidate, writer: str, is_read: bool) -> None:
    """A standby reads the endpoint that the current holder announced, not the endpoint of an earlier holder."""
    endpoint = LeaderEndpoint("https://192.0.2.1:10259", "0" * 64)
    held = lease("other")
    held.body["metadata"]["annotations"] = {ANNOTATION: announcement(writer, endpoint)}
    api.on("GET", LEASE, held)
    await me.until_standby()
    assert me.election.leader_endpoint == (endpoint if is_read else None)


async def acquire_lease(api: FakeApi, me: Candidate) -> None:
    """Let the candidate acquire a free Lease and renew it."""
    api.on("GET", LEASE, lease(""))
    api.on("PUT", LEASE, *(lease("me", str(version)) for version in range(2, 100)))
    await me.until_leading()


async def test_a_leader_renews(api: FakeApi, me: Candidate) -> None:
    """Each renewal extends the time of leadership and keeps the acquire time of the Lease."""
    await acquire_lease(api, me)
    await me.advance(60)
    assert not me.run.done()
    assert me.election.is_leading_until == me.clock.now() + 10
    assert spec(api, "PUT")["acquireTime"] == "A"
    assert spec(api, "PUT")["leaseTransitions"] == 3


@table("response", ("error", error_response(500, "etcd is away")), ("busy", error_response(429, "slow")))
async def test_a_leader_that_cannot_renew_stops(api: FakeApi, me: Candidate, response: Response) -> None:
    """A leader that cannot renew ends at the renew deadline, before another process can acquire the Lease."""
    await acquire_lease(api, me)
    began = me.clock.now()
    api.on("PUT", LEASE, response)
    await me.advance(30)
    with pytest.raises(LeadershipLostError, match="not renewed within 10 s"):
        me.run.result()
    assert me.clock.now() - began <= 12
    with pytest.raises(NotLeadingError):
        me.fence.check()


async def test_a_renewal_without_a_response_is_cancelled(api: FakeApi, me: Candidate) -> None:
    """A renewal without a response is cancelled for a second attempt, and again at the renew deadline."""
    await acquire_lease(api, me)
    before = len(api.requests("PUT"))
    api.on("PUT", LEASE, Response(gate=asyncio.Event()))
    sleeps = me.clock.sleeps
    me.clock.advance(2)
    await api.until(lambda: len(api.requests("PUT")) == before + 1)
    me.clock.advance(5)
    await me.next_sleep(sleeps)
    me.clock.advance(2)
    await api.until(lambda: len(api.requests("PUT")) == before + 2)
    me.clock.advance(1)
    await me.until(me.run.done)
    with pytest.raises(LeadershipLostError):
        me.run.result()


async def test_a_renewal_whose_response_was_lost_is_repeated(api: FakeApi, me: Candidate) -> None:
    """After a conflict with its own write, a leader reads the Lease and renews it again."""
    await acquire_lease(api, me)
    api.on("PUT", LEASE, error_response(409, "changed"), lease("me", "8"))
    api.on("GET", LEASE, lease("me", "7"))
    await me.advance(2)
    assert api.requests("PUT")[-1].json["metadata"]["resourceVersion"] == "7"
    assert me.election.is_leading_until == me.clock.now() + 10


async def test_another_holder_ends_a_leader_at_once(api: FakeApi, me: Candidate) -> None:
    """A leader ends at once when another process has written itself to the Lease."""
    await acquire_lease(api, me)
    api.on("PUT", LEASE, error_response(409, "changed"))
    api.on("GET", LEASE, lease("other", "7"))
    await me.advance(2)
    with pytest.raises(LeadershipLostError, match='"other" holds it'):
        me.run.result()


async def test_a_release_clears_the_holder(api: FakeApi, me: Candidate) -> None:
    """A release clears the holder so that the next leader need not wait, and this process does not lead again."""
    await acquire_lease(api, me)
    api.on("GET", LEASE, lease("me", "2"))
    await me.election.release(1)
    written = spec(api, "PUT")
    assert (written["holderIdentity"], written["leaseTransitions"]) == ("", 3)
    with pytest.raises(NotLeadingError):
        me.fence.check()
    me.clock.advance(5)
    await me.until(me.run.done)
    assert me.run.result() is None


async def test_a_release_by_a_standby_writes_nothing(api: FakeApi, me: Candidate) -> None:
    """A release by a standby does not write the Lease of another process."""
    api.on("GET", LEASE, lease("other"))
    await me.until_standby()
    await me.election.release(1)
    assert not api.requests("PUT")


async def test_a_paused_process_does_not_lead_when_it_resumes(api: FakeApi, me: Candidate) -> None:
    """A process that was paused beyond its deadline sends nothing, and ends without reading the Lease."""
    await acquire_lease(api, me)
    requests = len(api.received)
    me.clock.advance(60)
    with pytest.raises(NotLeadingError):
        me.fence.check()
    await me.until(me.run.done)
    with pytest.raises(LeadershipLostError):
        me.run.result()
    assert len(api.received) == requests


async def test_a_lease_duration_is_rounded_up(api: FakeApi) -> None:
    """The written duration is rounded up: 3.9 s must not become 3 s if this process relies on a deadline of 3.5 s."""
    api.on("GET", LEASE, lease(""))
    api.on("PUT", LEASE, lease("me", "2"))
    candidate = Candidate(api, ElectionOptions("ns", "bayplan", 3.9, 3.5, 1.0))
    await candidate.until_leading()
    assert spec(api, "PUT")["leaseDurationSeconds"] == 4
    candidate.run.cancel()
    await asyncio.wait([candidate.run])
    await candidate.connection.close()


@table(
    "options, path",
    ("lease not longer than renew deadline", ElectionOptions("n", "l", 10, 10, 2), "leaseDuration"),
    ("no time for a second attempt", ElectionOptions("n", "l", 15, 2.4, 2), "renewDeadline"),
    ("below a second", ElectionOptions("n", "l", 0.5, 0.2, 0.1), "leaseDuration"),
    ("zero", ElectionOptions("n", "l", 15, 10, 0), "retryPeriod"),
)
async def test_durations_must_be_consistent(api: FakeApi, options: ElectionOptions, path: str) -> None:
    """Inconsistent durations are rejected with the field that is wrong."""
    clock = VirtualClock()
    with pytest.raises(ConfigError, match=f"leaderElection.{path}"):
        LeaderElection(ApiConnection(api, ConnectionOptions(), clock), options, clock, WriteFence(clock))


SHA = "0123456789abcdef" * 4


@table(
    "endpoint",
    ("IPv4", LeaderEndpoint("https://10.0.0.7:10259", SHA)),
    ("IPv6", LeaderEndpoint("https://[fd00::7]:10259", SHA)),
    ("loopback", LeaderEndpoint("https://127.0.0.1:10259", SHA)),
    ("plain HTTP on loopback", LeaderEndpoint("http://127.0.0.1:10259")),
    ("plain HTTP on loopback by IPv6", LeaderEndpoint("http://[::1]:10259")),
)
def test_an_announcement_is_read(endpoint: LeaderEndpoint) -> None:
    """The annotation decodes to the holder's endpoint."""
    assert announced_endpoint(announcement("me", endpoint), "me") == endpoint


@table(
    "url",
    ("cloud metadata service", "https://169.254.169.254:80"),
    ("cloud metadata service by IPv6", "https://[::ffff:169.254.169.254]:80"),
    ("link-local", "https://[fe80::1]:80"),
    ("IPv6 zone", "https://[fd00::1%eth0]:80"),
    ("multicast", "https://224.0.0.1:80"),
    ("unspecified address", "https://0.0.0.0:80"),
    ("broadcast", "https://255.255.255.255:80"),
    ("host name", "https://kubernetes.default.svc:443"),
    ("address as one number", "https://2130706433:80"),
    ("no port", "https://10.0.0.7"),
    ("port 0", "https://10.0.0.7:0"),
    ("port out of range", "https://10.0.0.7:99999"),
    ("path", "https://10.0.0.7:80/api/v1/secrets?a="),
    ("user and password", "https://user:password@10.0.0.7:80"),
    ("fragment", "https://10.0.0.7:80#x"),
    ("unclosed bracket", "https://[fd00::7:80"),
    ("plain HTTP to another host", "http://10.0.0.7:80"),
    ("file URL", "file:///etc/passwd"),
    ("unsupported protocol", "ftp://10.0.0.7:21"),
    ("empty", ""),
)
def test_a_forged_url_is_ignored(url: str) -> None:
    """A user who can write the Lease can choose only the IP address and the port of the endpoint."""
    assert announced_endpoint(announcement("me", LeaderEndpoint(url, SHA)), "me") is None


@pytest.mark.parametrize("fingerprint", ["", "00", SHA.upper(), f"{SHA}0", f"{SHA[:-1]}g"])
def test_https_needs_a_certificate_fingerprint(fingerprint: str) -> None:
    """An HTTPS endpoint without a valid fingerprint is ignored, because its certificate may be self-signed."""
    endpoint = LeaderEndpoint("https://10.0.0.7:10259", fingerprint)
    assert announced_endpoint(announcement("me", endpoint), "me") is None


@table(
    "text, holder",
    ("earlier leader", announcement("before", LeaderEndpoint("https://10.0.0.7:1", SHA)), "me"),
    ("released Lease", announcement("", LeaderEndpoint("https://10.0.0.7:1", SHA)), ""),
    ("missing", None, "me"),
    ("not a string", {"identity": "me"}, "me"),
    ("not JSON", "https://10.0.0.7:1", "me"),
    ("no URL", '{"identity":"me"}', "me"),
    ("URL is a number", '{"identity":"me","url":7}', "me"),
    ("too long", '{"identity":"me","url":"https://10.0.0.7:1"' + " " * 1024 + "}", "me"),
)
def test_an_invalid_announcement_is_ignored(text: object, holder: str) -> None:
    """An annotation that is not a valid announcement of the holder is ignored."""
    assert announced_endpoint(text, holder) is None


def held(holder: str, renewed: object, namespace: str = "ns") -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
    return {"metadata": {"name": "bayplan", "namespace": namespace}, "spec": spec}


def listed(*leases: dict[str, Any]) -> Response:
    return Response(body={"items": list(leases)})


@table(
    "responses, expected",
    ("no Lease", [listed()], ""),
    (
        "one of two is renewed",
        [
            listed(held("a_1", "10"), held("b_2", "20", "b")),
            listed(held("a_1", "10"), held("b_2", "22", "b")),
        ],
        "b_2 holds Lease b/bayplan",
    ),
    ("not renewed, as after a crash", [listed(held("a_1", "10"))], ""),
    ("released", [listed(held("", "10")), listed(held("", "12"))], ""),
    ("acquired by another meanwhile", [listed(held("a_1", "10")), listed(held("b_2", "12"))], ""),
    ("renewed by this process", [listed(held("me", "10")), listed(held("me", "12"))], ""),
    ("without a time", [listed(held("a_1", None))], ""),
    ("forbidden", [error_response(403, "no")], ""),
)
async def test_another_leader_is_found(responses: list[Response], expected: str) -> None:
    """A process without leader election finds who renews a Lease in any namespace."""
    async with FakeApi() as api:
        api.on("GET", "/apis/coordination.k8s.io/v1/leases", *responses)
        clock = AutoAdvanceClock()
        connection = ApiConnection(api, ConnectionOptions(), clock, lambda: None)
        assert await other_leader(connection, OPTIONS, clock, "me") == expected
        assert api.received[0].query["fieldSelector"] == "metadata.name=bayplan"
        await connection.close()


class Presence:
    """Process without leader election, with identity "me".

    Attributes:
        found: Reports of other processes.
    """

    def __init__(self, api: FakeApi) -> None:
        self.clock = SleepRecordingClock()
        self.connection = ApiConnection(api, ConnectionOptions(), self.clock, lambda: None)
        fence = WriteFence(self.clock, OPTIONS.lease)
        self.election = LeaderElection(self.connection, OPTIONS, self.clock, fence, identity="me")
        self.found: list[str] = []
        self.run = asyncio.ensure_future(self.election.be_found(self.found.append))
        self.run.add_done_callback(lambda _: self.clock.changed.set())

    async def attempts(self, count: int) -> None:
        """Wait until so many attempts to acquire the Lease have ended."""
        async with asyncio.timeout(60):
            for number in range(1, count + 1):
                while self.clock.sleeps < number and not self.run.done():
                    self.clock.changed.clear()
                    await self.clock.changed.wait()
                if number < count:
                    self.clock.advance(5)

    async def close(self) -> None:
        self.run.cancel()
        await asyncio.wait([self.run])
        await self.connection.close()


@pytest.fixture
async def presence(api: FakeApi) -> AsyncIterator[Presence]:
    presence = Presence(api)
    yield presence
    await presence.close()


def renewed(holder: str, time: str, version: str) -> Response:
    found = lease(holder, version)
    return Response(body={**found.body, "spec": {**found.body["spec"], "renewTime": time}})


async def test_a_process_without_election_holds_a_free_lease(api: FakeApi, presence: Presence) -> None:
    """It acquires a Lease without a holder, renews it in a third of its duration, and clears the holder at the end."""
    api.on("GET", LEASE, lease(""), lease("me", "2"))
    api.on("PUT", LEASE, lease("me", "2"))
    await presence.attempts(3)
    writes = [one.json["spec"]["holderIdentity"] for one in api.received if one.method == "PUT"]
    assert (writes, presence.found) == (["me", "me", "me"], [])
    assert not presence.election.leading.is_set()
    await presence.election.release(1)
    assert api.received[-1].json["spec"]["holderIdentity"] == ""


async def test_a_process_without_election_creates_the_lease(api: FakeApi, presence: Presence) -> None:
    """It creates a Lease that does not exist."""
    api.on("GET", LEASE, error_response(404, "no"))
    api.on("POST", LEASES, lease("me"))
    await presence.attempts(1)
    assert [one.method for one in api.received] == ["GET", "POST"]


async def test_a_process_without_election_reports_who_renews_the_lease(api: FakeApi, presence: Presence) -> None:
    """The holder of the Lease is left alone, and reported once it renews the Lease."""
    api.on("GET", LEASE, renewed("a_1", "10", "1"), renewed("a_1", "12", "2"))
    await presence.attempts(1)
    assert presence.found == []
    presence.clock.advance(5)
    await presence.attempts(2)
    assert presence.found == ["a_1 holds Lease ns/bayplan"]
    assert {one.method for one in api.received} == {"GET"}


async def test_a_process_without_election_takes_the_lease_of_a_crashed_one(api: FakeApi, presence: Presence) -> None:
    """A Lease that is not renewed for its duration is acquired, and its holder is not reported."""
    api.on("GET", LEASE, renewed("a_1", "10", "1"))
    api.on("PUT", LEASE, lease("me", "2"))
    await presence.attempts(4)
    assert [one.method for one in api.received] == ["GET", "GET", "GET", "GET", "PUT"]
    assert presence.found == []


async def test_a_process_without_election_needs_no_rights(api: FakeApi, presence: Presence) -> None:
    """If the user may not read or write Leases, the process sends no further request for them."""
    api.on("GET", LEASE, error_response(403, "no"))
    async with asyncio.timeout(60):
        await presence.run
    assert len(api.received) == 1
