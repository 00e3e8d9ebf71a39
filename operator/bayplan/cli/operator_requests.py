"""Requests of commands to the running operator, which follow the leader.

A replica on this host that stands by names the leader and where it serves; the command then sends its request there.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec
from yarl import URL

from bayplan.kube.leader_endpoint import LeaderEndpoint, LeaderState, endpoint_problem, is_loopback
from bayplan.serving.debug import LEADER_PATH
from bayplan.serving.local_callers import is_on_this_host
from scheduler_core.errors import ClusterWriteError, NotFoundError, ServerUnavailableError

DEFAULT_SERVER = "127.0.0.1:10259"
"""Where an operator on this host, or ``kubectl port-forward`` to one, serves."""

TOKEN_FILE = Path("/var/run/secrets/bayplan.dev/token")
"""Token of the pod's service account for the audience ``bayplan.dev``, which the chart mounts."""

_TIMEOUT_SECONDS = 30.0
_CONNECT_SECONDS = 5.0


class _Refused(msgspec.Struct, frozen=True):
    """What a refusal says: the operator's own under ``error``, one for want of a right as Kubernetes says it."""

    error: str = ""
    message: str = ""


class _Certificate(aiohttp.Fingerprint):
    """A certificate to demand; a connection that shows another one is dropped."""

    def check(self, transport: asyncio.Transport) -> None:
        try:
            super().check(transport)
        except aiohttp.ServerFingerprintMismatch:
            # An orderly end takes a round trip, and the loop ends before. Later, since aiohttp reads the peer's name.
            asyncio.get_running_loop().call_soon(transport.abort)
            raise


@dataclass(frozen=True, slots=True)
class OperatorRequest:
    """What a command wants of the operator.

    Attributes:
        server: Host and port of what it serves; HTTPS is tried before HTTP unless a scheme stands before them.
        path: From the root.
        params: Of the query.
        remedy: What else can be done if no answer is to be had, such as ``, or use --offline``.
        follows_leader: Whether the leader has to answer, if the server is a standby on this host.
    """

    server: str
    path: str
    params: Mapping[str, str]
    remedy: str = ""
    follows_leader: bool = True


def ask_operator(request: OperatorRequest) -> bytes:
    """Send a request to the operator, to the leader if a standby is asked.

    Returns:
        The body.

    Raises:
        NotFoundError: There is no such thing.
        ServerUnavailableError: It cannot be reached, is not ready, or no leader can be reached.
        ClusterWriteError: It refuses.
    """
    server, status, answer = asyncio.run(_asked(request))
    if status == 200:
        return answer
    try:
        refused = msgspec.json.decode(answer, type=_Refused)
        text = refused.error or refused.message
    except msgspec.DecodeError:
        text = ""
    if status == 404 and text:
        raise NotFoundError(text)
    if status == 503:
        raise ServerUnavailableError(text or f"{server} is not ready; ask again")
    message = text or f"HTTP {status}; is --server a Bayplan of this version?"
    raise ClusterWriteError(f"{server}: {message}")


async def _asked(request: OperatorRequest) -> tuple[str, int, bytes]:
    """Who answered, the status and the body."""
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS, sock_connect=_CONNECT_SECONDS)
    server = request.server.rstrip("/")
    async with aiohttp.ClientSession(timeout=timeout) as session:
        try:
            state = await _leader_state(session, server) if request.follows_leader else None
            if state is None:
                return server, *await _answer(session, server, request.path, request.params)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            # What speaks HTTPS only hangs up on HTTP.
            scheme = " without http://" if isinstance(error, aiohttp.ServerDisconnectedError) else ""
            message = (
                f"{server} cannot be asked ({_text(error)}); run kubectl port-forward to the "
                f"operator, name it with --server{scheme}{request.remedy}"
            )
            raise ServerUnavailableError(message) from error
        return await _leaders_answer(session, server, state, request)


async def _leader_state(session: aiohttp.ClientSession, server: str) -> LeaderState | None:
    """What a standby on this host says of the leader; None if the server itself has to answer."""
    host = URL(server if "://" in server else f"http://{server}").host or ""
    if not _is_here(host):
        return None
    status, answer = await _answer(session, server, LEADER_PATH, {})
    if status != 200:
        return None  # an operator of an earlier version
    try:
        state = msgspec.json.decode(answer, type=LeaderState)
    except msgspec.DecodeError:
        return None
    return state if state.is_standby else None


async def _leaders_answer(
    session: aiohttp.ClientSession, server: str, state: LeaderState, request: OperatorRequest
) -> tuple[str, int, bytes]:
    """Send the request to the leader that a standby names."""
    if not state.holder:
        raise ServerUnavailableError(
            f"{server} is a standby and nobody holds Lease {state.lease}: no leader is known; ask again in a few "
            f"seconds{request.remedy}"
        )
    # An identity begins with the host's name, which is the pod's.
    other_way = f"run kubectl port-forward pod/{state.holder.partition('_')[0]} and ask again{request.remedy}"
    standby = f"{server} is a standby and {state.holder} leads"
    endpoint = state.endpoint
    if endpoint is None or endpoint_problem(endpoint):
        raise ServerUnavailableError(f"{standby}, whose Lease {state.lease} announces no address; {other_way}")
    try:
        headers = {} if is_loopback(endpoint.url) else {"Authorization": f"Bearer {_token()}"}
    except (OSError, ValueError) as error:
        raise ServerUnavailableError(
            f"{standby}; the leader answers the operator's own pods only, where {TOKEN_FILE} is mounted "
            f"({_text(error)}); run the command there with kubectl exec, or {other_way}"
        ) from error
    try:
        status, answer = await _get(
            session, endpoint.url + request.path, request.params, _leaders_certificate(endpoint), headers
        )
    except aiohttp.ServerFingerprintMismatch as error:
        raise ServerUnavailableError(
            f"{standby}, but {endpoint.url} shows another certificate than its Lease {state.lease} announces, so "
            f"nothing was sent; ask again, or {other_way}"
        ) from error
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise ServerUnavailableError(
            f"{standby}, but {endpoint.url} cannot be asked ({_text(error)}); ask again, or {other_way}"
        ) from error
    return endpoint.url, status, answer


async def _answer(
    session: aiohttp.ClientSession, server: str, path: str, params: Mapping[str, str]
) -> tuple[int, bytes]:
    """What the server that the user named answers."""
    urls = [server + path] if "://" in server else [f"{scheme}://{server}{path}" for scheme in ("https", "http")]
    for url in urls[:-1]:
        try:
            return await _get(session, url, params, _trust(URL(url).host or ""))
        except aiohttp.ClientConnectorSSLError:
            continue  # it speaks no TLS
    return await _get(session, urls[-1], params, _trust(URL(urls[-1]).host or ""))


async def _get(
    session: aiohttp.ClientSession,
    url: str,
    params: Mapping[str, str],
    trust: ssl.SSLContext | aiohttp.Fingerprint | bool,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    # The operator redirects nobody; whoever does leads somewhere else.
    async with session.get(url, params=params, ssl=trust, headers=headers, allow_redirects=False) as answer:
        return answer.status, await answer.read()


def _trust(host: str) -> bool:
    """Verify the operator, but on this host: its certificate may be its own, and nobody listens on loopback."""
    return not _is_here(host)


def _leaders_certificate(endpoint: LeaderEndpoint) -> aiohttp.Fingerprint | bool:
    """Demand the certificate that the Lease announces; a request is sent only after it was shown."""
    return _Certificate(bytes.fromhex(endpoint.certificate_sha256)) if endpoint.certificate_sha256 else True


def _token() -> str:
    return TOKEN_FILE.read_text(encoding="ascii").strip()


def _is_here(host: str) -> bool:
    return host == "localhost" or is_on_this_host(host)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
