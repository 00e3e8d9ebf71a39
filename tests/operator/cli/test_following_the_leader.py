"""Tests of commands that are sent to a standby and get the leader's response, over real sockets."""

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
from bayplan.explanation.documents import Explanation, Verdict
from bayplan.introspection.status_model import CacheState, Status
from bayplan.kube.leader_election import LeaderEndpoint, LeaderState
from bayplan.kube.readiness import Readiness
from bayplan.serving import COMMAND_PATHS
from bayplan.serving.authorization import COMMAND_AUDIENCE, Access, RequestAuthorization, User
from bayplan.serving.debug_endpoints import DebugEndpoints, DebugSources, ExplainCalls, ExplainEndpoint
from bayplan.serving.deferred_server import ServedCertificate
from bayplan.serving.http_server import Protection
from bayplan.settings.operator_settings import ServingSettings
from click.testing import CliRunner, Result

from hack.controlplane.probes import free_port
from scheduler_core.snapshot.cluster_cache import CacheDifference
from tests.support.http_servers import serve_in_thread
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

LEADER = "bayplan-6f7c-leads_1_4711"
PORT_FORWARD = "run kubectl port-forward pod/bayplan-6f7c-leads and retry"
TOKEN = "a-token-of-the-audience"


class Reviewer:
    """Reviewer that accepts one token of Bayplan's audience, whose user can get all command paths."""

    async def user_of(self, token: str, audience: str = "") -> User | None:
        return User("bayplan") if (token, audience) == (TOKEN, COMMAND_AUDIENCE) else None

    async def access(self, user: User, verb: str, path: str) -> Access:
        return Access(verb == "get" and path in COMMAND_PATHS)

    async def resource_access(self, user: User, verb: str, resource: str, namespace: str = "") -> Access:
        """Deny every request; only the page reviews access to resources."""
        return Access(allowed=False)


@dataclass
class Replica:
    """Operator process with its endpoints.

    Attributes:
        name: Name in its responses.
        state: Leader that it reports.
        protection: TLS and authorization.
        requests: Names of the requests that reached its handlers.
    """

    name: str
    state: LeaderState = field(default_factory=lambda: LeaderState(is_standby=False))
    protection: Protection = field(default_factory=Protection)
    requests: list[str] = field(default_factory=list)

    def routes(self) -> list[web.RouteDef]:
        readiness = Readiness(())
        if self.state.is_standby:
            readiness.stand_by(lambda: f"standby, {self.state.holder} leads")
        debug = DebugEndpoints(DebugSources(self._status, self._check_cache, lambda: self.state))
        return [*ExplainEndpoint(ExplainCalls(self._explain), readiness).routes, *debug.routes]

    def _explain(self, namespace: str, name: str) -> Explanation:
        self.requests.append("explain")
        headline = f"response of {self.name}"
        return Explanation(
            namespace=namespace, name=name, scheduler_name="s", verdict=Verdict.PLACED, headline=headline
        )

    def _status(self, limit: int, namespace: str) -> Status:
        assert namespace == ""
        self.requests.append("status")
        version = f"of {self.name}"
        return Status(version, "", (), 1.0, 0, False, (), {}, {}, (), (), (), CacheState(0, 0), ())

    async def _check_cache(self) -> list[CacheDifference]:
        self.requests.append("cache")
        return []


@contextmanager
def standby(leader: Replica | None, holder: str = LEADER, endpoint: LeaderEndpoint | None = None) -> Iterator[str]:
    """Run a standby and its leader, if any; yield the URL of the standby."""
    with ExitStack() as stack:
        if leader is not None:
            server = stack.enter_context(serve_in_thread(Readiness(()), leader.routes(), leader.protection))
            endpoint = endpoint or server.endpoint("127.0.0.1")
        own = Replica("the standby", LeaderState(True, "bayplan/bayplan", holder, endpoint))
        served = stack.enter_context(serve_in_thread(Readiness(()), own.routes()))
        yield f"http://127.0.0.1:{served.port}"


@pytest.fixture
def secure() -> Replica:
    """Return a leader with a generated certificate that reviews every token."""
    certificate = ServedCertificate(ServingSettings(secure_serving=True))
    clock = VirtualClock()
    authorization = RequestAuthorization(Reviewer(), clock, lambda _: False, COMMAND_PATHS)
    return Replica("the leader", protection=Protection(certificate, authorization, clock))


@pytest.fixture
def token_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Create the mounted token, and treat the leader's address as one of another host."""
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    monkeypatch.setattr(operator_requests, "TOKEN_FILE", file)
    monkeypatch.setattr(operator_requests, "is_loopback", lambda _: False)
    return file


def run(server: str, *arguments: str) -> Result:
    return CliRunner().invoke(bayplan, [*arguments, "--server", server])


@table(
    "arguments, expected",
    ("explain", ("explain", "web"), "explain"),
    ("status", ("status",), "status"),
    ("cache check", ("status", "--check-cache"), "cache"),
)
def test_a_command_to_a_standby_reaches_the_leader(
    secure: Replica, token_file: Path, arguments: tuple[str, ...], expected: str
) -> None:
    """The command sends the mounted token to the leader and requires the certificate announced in the Lease."""
    with standby(secure) as server:
        result = run(server, *arguments)
    assert (result.exit_code, secure.requests) == (0, [expected]), result.output
    assert "standby" not in result.output


def test_a_leader_on_the_same_host_needs_no_token() -> None:
    """A leader on the same host responds without a token, also without HTTPS."""
    leader = Replica("the leader")
    with standby(leader) as server:
        assert "Response of the leader" in run(server, "explain", "web").output


def test_a_leader_responds_without_a_second_request() -> None:
    """A leader responds to the command itself."""
    leader = Replica("the leader")
    with serve_in_thread(Readiness(()), leader.routes()) as server:
        assert "Response of the leader" in run(f"http://127.0.0.1:{server.port}", "explain", "web").output


def test_this_replica_shows_the_standby(secure: Replica) -> None:
    """``--this-replica`` shows the standby's own status."""
    with standby(secure) as server:
        assert "bayplan of the standby, up" in run(server, "status", "--this-replica").output
    assert secure.requests == []


@table(
    "holder, endpoint, expected",
    ("no leader", "", None, "Lease bayplan/bayplan has no holder; retry in a few seconds, or use --offline"),
    ("no announcement", LEADER, None, f"bayplan/bayplan has no valid endpoint of the leader; {PORT_FORWARD}"),
    (
        "invalid address",
        LEADER,
        LeaderEndpoint("https://169.254.169.254:80", "0" * 64),
        f"bayplan/bayplan has no valid endpoint of the leader; {PORT_FORWARD}",
    ),
    ("no listener", LEADER, LeaderEndpoint(f"http://127.0.0.1:{free_port()}"), f"retry, or {PORT_FORWARD}"),
)
def test_an_unreachable_leader(holder: str, endpoint: LeaderEndpoint | None, expected: str) -> None:
    """The error names the standby and the remedy."""
    with standby(None, holder, endpoint) as server:
        result = run(server, "explain", "web")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"bayplan: {server} is a standby and ")
    assert expected in result.stderr


def test_a_command_without_a_token_is_not_sent(secure: Replica, token_file: Path) -> None:
    """Without a mounted token the command fails before it connects to the leader."""
    token_file.unlink()
    with standby(secure, endpoint=LeaderEndpoint("https://192.0.2.1:10259", "0" * 64)) as server:
        result = run(server, "status")
    assert result.exit_code == 1
    assert f"the leader accepts commands only from the operator's pods, where {token_file} is mounted" in result.stderr
    assert f"run the command in such a pod with kubectl exec, or {PORT_FORWARD}" in result.stderr


def test_the_token_is_not_sent_to_another_certificate(secure: Replica, token_file: Path) -> None:
    """A server with another certificate at the leader's address does not get the token."""
    received_tokens: list[str] = []

    async def record(request: web.Request) -> web.Response:
        received_tokens.append(request.headers["Authorization"])
        return web.Response(text="{}")

    certificate = ServedCertificate(ServingSettings(secure_serving=True))
    protection = Protection(certificate, clock=VirtualClock())
    with serve_in_thread(Readiness(()), [web.get("/debug/status", record)], protection) as listener:
        url = f"https://127.0.0.1:{listener.port}"
        assert secure.protection.certificate is not None
        announced = LeaderEndpoint(url, secure.protection.certificate.fingerprint)
        with standby(None, endpoint=announced) as server:
            result = run(server, "status")
        assert (result.exit_code, received_tokens) == (1, [])
        assert f"the certificate of {url} is not the one in Lease bayplan/bayplan" in result.stderr
        with standby(None, endpoint=LeaderEndpoint(url, certificate.fingerprint)) as server:
            run(server, "status")
        assert received_tokens == [f"Bearer {TOKEN}"]


def test_a_connection_with_another_certificate_is_dropped(token_file: Path) -> None:
    """A connection with another certificate is closed by the command, also if the peer keeps it open."""
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
    assert "is not the one in Lease" in result.stderr


def test_a_rejected_token_is_an_error(secure: Replica, token_file: Path) -> None:
    """The error for a rejected token is the leader's."""
    token_file.write_text("of-another-audience")
    with standby(secure) as server:
        result = run(server, "status")
    assert (result.exit_code, secure.requests) == (1, [])
    assert "Unauthorized: the token is not valid for audience bayplan.dev" in result.stderr


def test_redirects_are_not_followed(token_file: Path) -> None:
    """A redirect is not followed, so the token is not sent to another server."""

    async def redirect(_: web.Request) -> web.Response:
        raise web.HTTPFound("http://127.0.0.1:1/")

    certificate = ServedCertificate(ServingSettings(secure_serving=True))
    protection = Protection(certificate, clock=VirtualClock())
    with (
        serve_in_thread(Readiness(()), [web.get("/debug/status", redirect)], protection) as listener,
        standby(None, endpoint=listener.endpoint("127.0.0.1")) as server,
    ):
        result = run(server, "status")
    assert result.exit_code == 1
    assert "HTTP 302" in result.stderr


def test_the_state_is_printed_again_until_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """With -w the operator is queried again after each pause, also after one in which it did not answer."""
    own = Replica("the leader")
    with serve_in_thread(Readiness(()), own.routes()) as server:
        pauses, address = list[float](), f"http://127.0.0.1:{server.port}"

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            # Not reachable in the second round.
            monkeypatch.setattr(operator_requests, "_TIMEOUT_SECONDS", 0.000_001 if len(pauses) == 1 else 30.0)
            if len(pauses) == 3:
                raise KeyboardInterrupt

        monkeypatch.setattr(time, "sleep", pause)
        result = run(address, "status", "-w")
    assert (own.requests, len(pauses)) == (["status"] * 2, 3)
    assert "cannot connect to" in result.stderr
    refused = run(address, "status", "-w", "-o", "json")
    assert (refused.exit_code, "leave out -o and --check-cache" in refused.stderr) == (2, True)
