"""Commands that ask a standby get the leader's answer, over real sockets."""

from __future__ import annotations

import contextlib
import gc
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from bayplan.cli import bayplan, operator_requests
from bayplan.explanation.model import Explanation, Verdict
from bayplan.introspection.status_model import CacheState, Status
from bayplan.kube.access_reviews import Access, User
from bayplan.kube.leader_endpoint import LeaderEndpoint, LeaderState
from bayplan.serving.authorization import COMMAND_AUDIENCE, RequestAuthorization
from bayplan.serving.certificate import ServedCertificate
from bayplan.serving.debug import DebugEndpoints, DebugSources
from bayplan.serving.explain import ExplainEndpoint
from bayplan.serving.protection import COMMAND_PATHS, Protection
from bayplan.serving.readiness import Readiness
from bayplan.serving.serving_settings import ServingSettings
from click.testing import CliRunner, Result

from hack.controlplane.probes import free_port
from scheduler_core.snapshot.cache_comparison import CacheDifference
from tests.support.threaded_server import served_in_a_thread
from tests.support.virtual_clock import VirtualClock

LEADER = "bayplan-6f7c-leads_1_4711"
PORT_FORWARD = "run kubectl port-forward pod/bayplan-6f7c-leads and ask again"
TOKEN = "a-token-of-the-audience"


class Reviewer:
    """Knows one token of Bayplan's audience, whose account may get all paths of commands."""

    async def user_of(self, token: str, audience: str = "") -> User | None:
        return User("bayplan") if (token, audience) == (TOKEN, COMMAND_AUDIENCE) else None

    async def access(self, user: User, verb: str, path: str) -> Access:
        return Access(verb == "get" and path in COMMAND_PATHS)


@dataclass
class Replica:
    """What one process of the operator serves.

    Attributes:
        name: Part of its answers.
        state: Whom it says to lead.
        protection: TLS and authorization.
        asked: Paths of the requests that reached its handlers.
    """

    name: str
    state: LeaderState = field(default_factory=lambda: LeaderState(is_standby=False))
    protection: Protection = field(default_factory=Protection)
    asked: list[str] = field(default_factory=list)

    def routes(self) -> list[web.RouteDef]:
        readiness = Readiness(())
        if self.state.is_standby:
            readiness.stand_by(lambda: f"standby, {self.state.holder} leads")
        debug = DebugEndpoints(DebugSources(self._status, self._check_cache, lambda: self.state))
        return [*ExplainEndpoint(self._explain, readiness).routes, *debug.routes]

    def _explain(self, namespace: str, name: str) -> Explanation:
        self.asked.append("explain")
        headline = f"answer of {self.name}"
        return Explanation(
            namespace=namespace, name=name, scheduler_name="s", verdict=Verdict.PLACED, headline=headline
        )

    def _status(self, limit: int) -> Status:
        self.asked.append("status")
        version = f"of {self.name}"
        return Status(version, "", (), 1.0, 0, False, (), {}, {}, (), (), (), CacheState(0, 0), ())

    async def _check_cache(self) -> list[CacheDifference]:
        self.asked.append("cache")
        return []


@contextmanager
def standby(leader: Replica | None, holder: str = LEADER, endpoint: LeaderEndpoint | None = None) -> Iterator[str]:
    """A standby whose Lease names a leader, which runs if there is one; the standby's URL."""
    with ExitStack() as stack:
        if leader is not None:
            server = stack.enter_context(served_in_a_thread(Readiness(()), leader.routes(), leader.protection))
            endpoint = endpoint or server.endpoint("127.0.0.1")
        own = Replica("the standby", LeaderState(True, "bayplan/bayplan", holder, endpoint))
        served = stack.enter_context(served_in_a_thread(Readiness(()), own.routes()))
        yield f"http://127.0.0.1:{served.port}"


@pytest.fixture
def secure() -> Replica:
    """A leader with a certificate of its own that reviews every token."""
    certificate = ServedCertificate(ServingSettings(secure_serving=True))
    clock = VirtualClock()
    authorization = RequestAuthorization(Reviewer(), clock, lambda _: False, COMMAND_PATHS)
    return Replica("the leader", protection=Protection(certificate, authorization, clock))


@pytest.fixture
def token_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The mounted token, and a leader that counts as one on another host."""
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    monkeypatch.setattr(operator_requests, "TOKEN_FILE", file)
    monkeypatch.setattr(operator_requests, "is_loopback", lambda _: False)
    return file


def run(server: str, *arguments: str) -> Result:
    return CliRunner().invoke(bayplan, [*arguments, "--server", server])


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        pytest.param(("explain", "web"), "explain", id="explain"),
        pytest.param(("status",), "status", id="status"),
        pytest.param(("status", "--check-cache"), "cache", id="cache check"),
    ],
)
def test_the_leader_answers(secure: Replica, token_file: Path, arguments: tuple[str, ...], asked: str) -> None:
    """With the mounted token, over the certificate that its Lease announces."""
    with standby(secure) as server:
        result = run(server, *arguments)
    assert (result.exit_code, secure.asked) == (0, [asked]), result.output
    assert "standby" not in result.output


def test_a_leader_on_the_same_host_needs_no_token() -> None:
    """As for any caller there, also without HTTPS."""
    leader = Replica("the leader")
    with standby(leader) as server:
        assert "Answer of the leader" in run(server, "explain", "web").output


def test_a_process_that_leads_answers_itself() -> None:
    """With or without leader election."""
    leader = Replica("the leader")
    with served_in_a_thread(Readiness(()), leader.routes()) as server:
        assert "Answer of the leader" in run(f"http://127.0.0.1:{server.port}", "explain", "web").output


def test_a_standby_can_be_asked_itself(secure: Replica) -> None:
    """By its status alone: it has nothing to explain."""
    with standby(secure) as server:
        assert "bayplan of the standby, up" in run(server, "status", "--this-replica").output
    assert secure.asked == []


@pytest.mark.parametrize(
    ("holder", "endpoint", "told"),
    [
        pytest.param(
            "",
            None,
            "nobody holds Lease bayplan/bayplan: no leader is known; ask again in a few seconds, or use --offline",
            id="nobody leads",
        ),
        pytest.param(LEADER, None, f"bayplan/bayplan announces no address; {PORT_FORWARD}", id="an earlier version"),
        pytest.param(
            LEADER,
            LeaderEndpoint("https://169.254.169.254:80", "0" * 64),
            f"bayplan/bayplan announces no address; {PORT_FORWARD}",
            id="an address that is no replica's",
        ),
        pytest.param(
            LEADER, LeaderEndpoint(f"http://127.0.0.1:{free_port()}"), f"ask again, or {PORT_FORWARD}", id="it is gone"
        ),
    ],
)
def test_a_leader_that_cannot_be_asked(holder: str, endpoint: LeaderEndpoint | None, told: str) -> None:
    """The error says who leads and what else can be done."""
    with standby(None, holder, endpoint) as server:
        result = run(server, "explain", "web")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"bayplan: {server} is a standby and ")
    assert told in result.stderr


def test_without_a_token_nothing_is_sent(secure: Replica, token_file: Path) -> None:
    """Such as from a workstation, through a port-forward to a standby; at once, and not after a timeout."""
    token_file.unlink()
    began = time.monotonic()
    with standby(secure, endpoint=LeaderEndpoint("https://192.0.2.1:10259", "0" * 64)) as server:
        result = run(server, "status")
    assert result.exit_code == 1
    assert f"the leader answers the operator's own pods only, where {token_file} is mounted" in result.stderr
    assert f"run the command there with kubectl exec, or {PORT_FORWARD}" in result.stderr
    assert time.monotonic() - began < operator_requests._CONNECT_SECONDS


def test_another_certificate_gets_no_token(secure: Replica, token_file: Path) -> None:
    """Whoever listens at the leader's address is not sent the request."""
    forged: list[str] = []

    async def heard(request: web.Request) -> web.Response:
        forged.append(request.headers["Authorization"])
        return web.Response(text="{}")

    certificate = ServedCertificate(ServingSettings(secure_serving=True))
    protection = Protection(certificate, clock=VirtualClock())
    with served_in_a_thread(Readiness(()), [web.get("/debug/status", heard)], protection) as listener:
        url = f"https://127.0.0.1:{listener.port}"
        assert secure.protection.certificate is not None
        announced = LeaderEndpoint(url, secure.protection.certificate.fingerprint)
        with standby(None, endpoint=announced) as server:
            result = run(server, "status")
        assert (result.exit_code, forged) == (1, [])
        assert f"{url} shows another certificate than its Lease bayplan/bayplan announces" in result.stderr
        with standby(None, endpoint=LeaderEndpoint(url, certificate.fingerprint)) as server:
            run(server, "status")
        assert forged == [f"Bearer {TOKEN}"]


def test_a_connection_that_shows_another_certificate_is_dropped(token_file: Path) -> None:
    """Also if the other side does not answer its end; a connection that is left open is an error here."""
    certificate = ServedCertificate(ServingSettings(secure_serving=True))
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(lambda: certificate.context.wrap_socket(listener.accept()[0], server_side=True))
        endpoint = LeaderEndpoint(f"https://127.0.0.1:{listener.getsockname()[1]}", "0" * 64)
        with standby(None, endpoint=endpoint) as server:
            result = run(server, "status")
        gc.collect()
        received = b""
        with accepted.result() as connection, contextlib.suppress(OSError):
            received = connection.recv(1)
    assert (result.exit_code, received) == (1, b"")
    assert "shows another certificate" in result.stderr


def test_a_token_that_is_not_accepted(secure: Replica, token_file: Path) -> None:
    """The leader decides, by the rights of the token's account."""
    token_file.write_text("of-another-audience")
    with standby(secure) as server:
        result = run(server, "status")
    assert (result.exit_code, secure.asked) == (1, [])
    assert "Unauthorized: the token is not valid for audience bayplan.dev" in result.stderr


def test_a_leader_leads_nowhere_else(token_file: Path) -> None:
    """A redirect is not followed, so that the token reaches nobody else."""

    async def elsewhere(_: web.Request) -> web.Response:
        raise web.HTTPFound("http://127.0.0.1:1/")

    certificate = ServedCertificate(ServingSettings(secure_serving=True))
    protection = Protection(certificate, clock=VirtualClock())
    with (
        served_in_a_thread(Readiness(()), [web.get("/debug/status", elsewhere)], protection) as listener,
        standby(None, endpoint=listener.endpoint("127.0.0.1")) as server,
    ):
        result = run(server, "status")
    assert result.exit_code == 1
    assert "HTTP 302" in result.stderr
