"""Tests of ApiConnection: responses, credentials, and limits."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest
from bayplan.kube.http.api_request import (
    InvalidRequestError,
    ResourceExpiredError,
    ResponseLostError,
    ServerFailedError,
    UnauthorizedError,
    api_error,
)
from bayplan.kube.http.connection import JSON, ApiConnection, ApiRequest, ConnectionOptions, Lane

from scheduler_core.errors import (
    ClusterWriteError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    ServerUnavailableError,
    WriteTimeoutError,
)
from tests.operator.kube.conftest import InstantClock
from tests.support.fake_api import FakeApi, ReceivedRequest, Response, error_response
from tests.support.tables import table

PATH = "/api/v1/things/a"


@table(
    "status, kind",
    ("bad-request", 400, InvalidRequestError),
    ("unauthorized", 401, UnauthorizedError),
    ("forbidden", 403, ForbiddenError),
    ("not-found", 404, NotFoundError),
    ("conflict", 409, ConflictError),
    ("gone", 410, ResourceExpiredError),
    ("invalid", 422, InvalidRequestError),
    ("internal-error", 500, ServerFailedError),
    ("unavailable", 503, ServerFailedError),
    ("gateway-timeout", 504, WriteTimeoutError),
)
async def test_status_becomes_error(
    api: FakeApi, connection: ApiConnection, status: int, kind: type[ClusterWriteError]
) -> None:
    """An error response raises the exception of its status with the server's message."""
    api.on("GET", PATH, error_response(status, "because of it"))
    with pytest.raises(kind, match=rf"GET {PATH}: HTTP {status}: because of it") as caught:
        await connection.request(ApiRequest("GET", PATH))
    assert type(caught.value) is kind


async def test_response_body_and_headers(api: FakeApi, connection: ApiConnection) -> None:
    """A request sends its body, token and user agent, and returns the body of the response."""
    api.on("POST", PATH, Response(201, b"made"))
    assert await connection.request(ApiRequest("POST", PATH, b"{}", params=(("x", "1"),))) == b"made"
    [seen] = api.received
    assert (seen.body, seen.query) == (b"{}", {"x": "1"})
    assert seen.headers["Authorization"] == "Bearer fake"
    assert seen.headers["Content-Type"] == JSON
    assert seen.headers["User-Agent"].startswith("bayplan/")


async def test_retry_after_is_honoured(api: FakeApi, connection: ApiConnection, clock: InstantClock) -> None:
    """HTTP 429 is retried after the time that the server requests."""
    busy = Response(429, {"message": "busy"}, {"Retry-After": "3"})
    api.on("GET", PATH, busy, busy, Response(200, b"ok"))
    assert await connection.request(ApiRequest("GET", PATH)) == b"ok"
    assert clock.slept == [3.0, 3.0]


async def test_retry_after_ends_with_the_timeout(api: FakeApi, connection: ApiConnection) -> None:
    """HTTP 429 is an error if the wait would exceed the timeout."""
    api.on("GET", PATH, Response(429, {"message": "busy"}, {"Retry-After": "4"}))
    with pytest.raises(ServerUnavailableError, match="busy"):
        await connection.request(ApiRequest("GET", PATH, timeout=10.0))
    assert len(api.received) == 3


async def test_timeout_of_a_retried_request(
    api: FakeApi, connection: ApiConnection, clock: InstantClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retried bind gets its whole timeout again; a retried request of another lane gets the rest of its timeout."""
    send, seconds = ApiConnection._send, []

    async def recorded(self: ApiConnection, request: ApiRequest, deadline: float) -> tuple[int, float | None, bytes]:
        seconds.append(round(deadline - clock.now()))
        return await send(self, request, deadline)

    monkeypatch.setattr(ApiConnection, "_send", recorded)
    busy = Response(429, {"message": "busy"}, {"Retry-After": "4"})
    api.on("POST", PATH, busy, Response(201), busy, Response(201))
    for lane in (Lane.BINDS, Lane.LEASES):
        await connection.request(ApiRequest("POST", PATH, b"{}", timeout=10.0, lane=lane))
    assert seconds == [10, 10, 10, 6]


async def test_a_refused_connection_is_unavailable(clock: InstantClock, api: FakeApi) -> None:
    """A refused connection raises ServerUnavailableError, because nothing was sent."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

        class UnreachableApi(FakeApi):
            @property
            def base_url(self) -> str:
                return url

        async with ApiConnection(UnreachableApi(), ConnectionOptions(), clock) as connection:
            with pytest.raises(ServerUnavailableError, match="cannot be reached"):
                await connection.request(ApiRequest("GET", PATH))


async def test_lost_response(api: FakeApi, connection: ApiConnection) -> None:
    """A connection that breaks after the request was sent raises ResponseLostError: the outcome is unknown."""
    api.on("POST", PATH, Response(disconnect=True))
    with pytest.raises(ResponseLostError, match="broke before the response"):
        await connection.request(ApiRequest("POST", PATH, b"{}"))


async def test_timeout(api: FakeApi, connection: ApiConnection) -> None:
    """A request without a response in time raises WriteTimeoutError: the outcome is unknown."""
    api.on("POST", PATH, Response(gate=asyncio.Event()))
    with pytest.raises(WriteTimeoutError, match="no response in time"):
        await connection.request(ApiRequest("POST", PATH, b"{}", timeout=0.05))


class RotatingTokens(FakeApi):
    """Access to an API server with a sequence of tokens."""

    def __init__(self, api: FakeApi, tokens: list[str]) -> None:
        super().__init__()
        self._api = api
        self._tokens = iter(tokens)

    @property
    def base_url(self) -> str:
        return self._api.base_url

    async def authorization(self) -> str | None:
        return next(self._tokens)


async def test_renewed_token_after_401(api: FakeApi, clock: InstantClock) -> None:
    """After HTTP 401 the credentials are read again, and the request is repeated if they changed."""
    access = RotatingTokens(api, ["Bearer old", "Bearer new"])
    api.on("GET", PATH, error_response(401, "who?"), Response(200, b"ok"))
    async with ApiConnection(access, ConnectionOptions(), clock) as connection:
        assert await connection.request(ApiRequest("GET", PATH)) == b"ok"
    assert [seen.headers["Authorization"] for seen in api.received] == ["Bearer old", "Bearer new"]


class SlowCredentials(RotatingTokens):
    """Access whose credential plugin takes a while; it returns the token that is valid when it is run.

    Attributes:
        runs: How often the plugin was run.
    """

    def __init__(self, api: FakeApi, token: str) -> None:
        super().__init__(api, [])
        self.token = token
        self.runs = 0

    async def authorization(self) -> str | None:
        self.runs += 1
        await asyncio.sleep(0.01)
        return self.token


@table("lane", ("binds", Lane.BINDS), ("reads", Lane.READS), ("all", None))
@pytest.mark.parametrize(("renewed", "failures"), [("Bearer new", 0), ("Bearer old", 30)], ids=["renewed", "revoked"])
async def test_many_rejected_requests_renew_once(
    api: FakeApi, clock: InstantClock, lane: Lane | None, renewed: str, failures: int
) -> None:
    """Concurrent requests that are rejected with 401 run the credential plugin once, and all use the new token."""

    def respond(request: ReceivedRequest) -> Response:
        is_valid = request.headers["Authorization"] == "Bearer new"
        return Response(200, b"ok") if is_valid else error_response(401, "who?")

    lanes = [Lane.BINDS, Lane.WRITES, Lane.READS] if lane is None else [lane]
    access = SlowCredentials(api, "Bearer old")
    api.on("GET", PATH, respond)
    async with ApiConnection(access, ConnectionOptions(), clock) as connection:
        requests = [ApiRequest("GET", PATH, lane=lanes[number % len(lanes)]) for number in range(30)]
        with contextlib.suppress(UnauthorizedError):
            await connection.request(ApiRequest("GET", PATH))
        access.runs, access.token = 0, renewed
        results = await asyncio.gather(*map(connection.request, requests), return_exceptions=True)
    assert sum(isinstance(each, Exception) for each in results) == failures
    assert access.runs == 1


async def test_a_late_401_uses_the_token_that_another_request_renewed(api: FakeApi, clock: InstantClock) -> None:
    """A request whose 401 arrives after another request renewed the token is sent again with the new token."""
    renewed = asyncio.Event()
    rejected = Response(401, error_response(401, "who?").content, gate=renewed)
    access = SlowCredentials(api, "Bearer old")
    api.on("POST", "/late", rejected, Response(200, b"ok"))
    api.on("POST", "/early", error_response(401, "who?"), Response(200, b"ok"))
    async with ApiConnection(access, ConnectionOptions(), clock) as connection:
        slow = asyncio.create_task(connection.request(ApiRequest("POST", "/late", b"{}", lane=Lane.BINDS)))
        await api.until(lambda: bool(api.received))
        access.token = "Bearer new"
        assert await connection.request(ApiRequest("POST", "/early", b"{}", lane=Lane.BINDS)) == b"ok"
        renewed.set()
        assert await slow == b"ok"
    assert access.runs == 2


async def test_token_is_read_again_every_minute(api: FakeApi, clock: InstantClock) -> None:
    """The token is read again after a minute, so a rotated token is used without an HTTP 401 in between."""
    access = RotatingTokens(api, ["Bearer first", "Bearer second"])
    api.on("GET", PATH, Response())
    async with ApiConnection(access, ConnectionOptions(), clock) as connection:
        await connection.request(ApiRequest("GET", PATH))
        await connection.request(ApiRequest("GET", PATH))
        await clock.sleep(61.0)
        await connection.request(ApiRequest("GET", PATH))
    sent = [seen.headers["Authorization"] for seen in api.received]
    assert sent == ["Bearer first", "Bearer first", "Bearer second"]


@table(
    "lane, delays",
    ("binds-wait", Lane.BINDS, 3),
    ("writes-wait", Lane.WRITES, 3),
    ("leases-never-wait", Lane.LEASES, 0),
)
async def test_rate_limit(api: FakeApi, clock: InstantClock, lane: Lane, delays: int) -> None:
    """Requests beyond the burst wait for the rate limit, except requests for the Lease."""
    api.on("GET", PATH, Response())
    async with ApiConnection(api, ConnectionOptions(qps=0.001, burst=2), clock) as connection:
        for _ in range(5):
            await connection.request(ApiRequest("GET", PATH, lane=lane))
    assert len(clock.slept) == delays
    assert all(seconds > 900 for seconds in clock.slept)


async def test_lanes_do_not_share_connections(api: FakeApi, clock: InstantClock) -> None:
    """A bind is sent although all connections for other writes are in use."""
    gate = asyncio.Event()
    api.on("POST", PATH, Response(gate=gate))
    api.on("PUT", PATH, Response(200, b"bound"))
    options = ConnectionOptions(write_connections=1, bind_connections=1)
    async with ApiConnection(api, options, clock) as connection:
        stuck = [asyncio.create_task(connection.request(ApiRequest("POST", PATH, b"{}"))) for _ in range(3)]
        await api.until(lambda: len(api.received) == 1)
        assert await connection.request(ApiRequest("PUT", PATH, b"{}", lane=Lane.BINDS)) == b"bound"
        gate.set()
        await asyncio.gather(*stuck)
    assert api.max_concurrent["POST"] == 1


@table(
    "path",
    ("space", "/api/v1/pods/a b"),
    ("line-break", "/api/v1/pods/a\r\nX-More: 1"),
    ("not-ascii", "/api/v1/pods/\N{LATIN SMALL LETTER E WITH ACUTE}"),
    ("relative", "api/v1/pods"),
)
async def test_an_unquoted_path_is_rejected(api: FakeApi, connection: ApiConnection, path: str) -> None:
    """A path with unquoted characters is rejected, so a name cannot inject headers."""
    with pytest.raises(ClusterWriteError, match="quote its parts"):
        await connection.request(ApiRequest("POST", path, b"{}", lane=Lane.BINDS))
    assert api.received == []


async def test_a_closed_connection_rejects_requests(connection: ApiConnection) -> None:
    """A request on a closed connection fails at once with a clear message."""
    await connection.close()
    with pytest.raises(ServerUnavailableError, match="is closed"):
        await connection.request(ApiRequest("GET", PATH))


async def test_environment_proxy_is_not_used(
    api: FakeApi, clock: InstantClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection ignores the proxy of the environment."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    api.on("GET", PATH, Response(200, b"ok"))
    async with ApiConnection(api, ConnectionOptions(), clock) as connection:
        assert await connection.request(ApiRequest("GET", PATH)) == b"ok"


def test_an_error_body_that_is_no_status_is_shown() -> None:
    """An error body that is not a Status, such as a proxy's HTML page, becomes part of the message."""
    error = api_error("GET /x", 502, b"<html>bad gateway</html>")
    assert str(error) == "GET /x: HTTP 502: <html>bad gateway</html>"
