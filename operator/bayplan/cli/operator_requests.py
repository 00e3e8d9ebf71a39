"""Requests of commands to the running operator, which follow the leader.

Without ``--server``, an operator on this host answers; if there is none, the command looks for one in the cluster of
the kubeconfig (:mod:`bayplan.cli.operator_location`). A standby on this host names the leader and its endpoint; the
command then sends its request there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import click
import msgspec
from yarl import URL

from bayplan.cli.operator_location import OperatorChoice, connected_to_leader
from bayplan.kube.credentials import SERVICE_ACCOUNT, open_connection
from bayplan.kube.http.api_request import UnauthorizedError
from bayplan.kube.http.connection import ConnectionOptions
from bayplan.kube.http.port_forward import PortForward
from bayplan.kube.leader_election import LeaderEndpoint, LeaderState, endpoint_problem, is_loopback
from bayplan.kube.timing import SystemClock
from bayplan.serving import LEADER_PATH
from bayplan.serving.authorization import is_on_this_host
from scheduler_core.errors import ClusterWriteError, ConfigError, ForbiddenError, NotFoundError, ServerUnavailableError

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any] | click.Command)

DEFAULT_SERVER = "127.0.0.1:10259"
"""Address of an operator on this host, or of ``kubectl port-forward`` to one."""
SERVER_VARIABLE = "BAYPLAN_SERVER"
"""Environment variable with the address of the operator."""

TOKEN_FILE = Path("/var/run/secrets/bayplan.dev/token")
"""Token of the pod's service account for the audience ``bayplan.dev``, which the chart mounts."""

_TIMEOUT_SECONDS = 30.0
_CONNECT_SECONDS = 5.0


class _Rejection(msgspec.Struct, frozen=True):
    """Body of an error: the operator's own in ``error``, an authorization error in ``message`` as in Kubernetes."""

    error: str = ""
    message: str = ""


class _Certificate(aiohttp.Fingerprint):
    """Required certificate; a connection with another one is dropped."""

    def check(self, transport: asyncio.Transport) -> None:
        try:
            super().check(transport)
        except aiohttp.ServerFingerprintMismatch:
            # Closing takes a round trip, and the loop ends before. Aborted later, since aiohttp reads the peer's name.
            asyncio.get_running_loop().call_soon(transport.abort)
            raise


@dataclass(frozen=True, slots=True)
class OperatorRequest:
    """Request of a command to the operator.

    Attributes:
        operator: Where the operator is. HTTPS is tried before HTTP unless its address has a scheme.
        remedy: What else the user can do if there is no response, such as ``, or use --offline``.
        follows_leader: Whether the request is sent to the leader if the server is a standby on this host.
        body: JSON that is posted; empty for a GET.
    """

    operator: OperatorChoice
    path: str
    params: Mapping[str, str]
    remedy: str = ""
    follows_leader: bool = True
    body: bytes = b""


def send_to_operator(request: OperatorRequest) -> bytes:
    """Send a request to the operator, and to the leader if the server is a standby.

    Raises:
        NotFoundError: The requested object does not exist.
        ServerUnavailableError: The operator cannot be reached or is not ready, or no leader can be reached.
        ClusterWriteError: The operator rejects the request.
    """
    server, status, answer = asyncio.run(_sent(request))
    if status == 200:
        return answer
    try:
        rejection = msgspec.json.decode(answer, type=_Rejection)
        text = rejection.error or rejection.message
    except msgspec.DecodeError:
        text = ""
    if status == 404 and text:
        raise NotFoundError(text)
    if status == 503:
        raise ServerUnavailableError(text or f"{server} is not ready; retry")
    message = text or f"HTTP {status}; is --server a Bayplan of this version?"
    raise ClusterWriteError(f"{server}: {message}")


async def _sent(request: OperatorRequest) -> tuple[str, int, bytes]:
    """Return the server that responded, the status and the body."""
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS, sock_connect=_CONNECT_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        server = request.operator.server
        if server is None and (_is_in_pod() or (not _names_cluster(request.operator) and await _is_served_here())):
            server = DEFAULT_SERVER
        if server is None:
            return await _through_cluster(session, request)
        server = server.rstrip("/")
        try:
            # A standby responds to a post itself: the leader accepts from other hosts only what is read.
            follows = request.follows_leader and not request.body
            state = await _leader_state(session, server) if follows else None
            if state is None:
                return server, *await _respond(session, server, request.path, request.params, request.body)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            # A server that accepts only HTTPS closes an HTTP connection.
            scheme = " without http://" if isinstance(error, aiohttp.ServerDisconnectedError) else ""
            message = (
                f"cannot connect to {server} ({_text(error)}); set the operator's address with --server{scheme}, or "
                f"leave --server and {SERVER_VARIABLE} out to look for the operator in the cluster of the kubeconfig"
                f"{request.remedy}"
            )
            raise ServerUnavailableError(message) from error
        return await _leaders_answer(session, server, state, request)


async def _through_cluster(session: aiohttp.ClientSession, request: OperatorRequest) -> tuple[str, int, bytes]:
    """Send a request to the leader in the cluster of the kubeconfig."""
    choice = request.operator
    cluster = choice.cluster
    try:
        connection = await open_connection(cluster.kubeconfig, cluster.context, ConnectionOptions(), SystemClock())
    except ConfigError as error:
        if _names_cluster(choice):
            raise
        raise ServerUnavailableError(
            f"no operator answers at {DEFAULT_SERVER}, and there is no cluster to look for one in: {error}"
            f"; or set --server{request.remedy}"
        ) from error

    async def answered(forward: PortForward, question: Awaitable[T]) -> T:
        try:
            return await question
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _forwarding_error(forward.pod, forward.error or error, request.remedy) from error

    def leader_of(forward: PortForward) -> Awaitable[LeaderState | None]:
        return answered(forward, _leader_state(session, forward.address))

    follow = leader_of if request.follows_leader else None
    async with connection, connected_to_leader(connection, choice, follow) as forward:
        sent = _respond(session, forward.address, request.path, request.params, request.body)
        return f"pod {forward.pod}", *await answered(forward, sent)


def _forwarding_error(pod: str, error: Exception, remedy: str) -> ClusterWriteError:
    if isinstance(error, UnauthorizedError):
        return error
    if isinstance(error, ForbiddenError):
        return ForbiddenError(
            f"you may not forward a port to pod {pod}; request the rights to get pods and to create pods/portforward "
            f"in its namespace, or set --server{remedy}"
        )
    return ServerUnavailableError(
        f"the port of pod {pod} cannot be forwarded ({_text(error)}); retry, or set --server{remedy}"
    )


def _is_in_pod() -> bool:
    return TOKEN_FILE.is_file() or SERVICE_ACCOUNT.is_dir()


def _names_cluster(choice: OperatorChoice) -> bool:
    return bool(choice.operator or choice.cluster.kubeconfig or choice.cluster.context)


async def _is_served_here() -> bool:
    """Return whether something listens at the default address of the operator."""
    host, _, port = DEFAULT_SERVER.partition(":")
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), _CONNECT_SECONDS)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def operator_options(command: Command) -> Command:
    """Add the options ``server`` and ``operator``, which with a kubeconfig select the operator to query."""
    command = click.option(
        "--operator",
        metavar="NAMESPACE[/NAME]",
        default="",
        help="Operator to look for in the cluster: its namespace, and the name of its Helm release or pod.",
    )(command)
    return click.option(
        "--server",
        metavar="URL",
        envvar=SERVER_VARIABLE,
        help=f"Address of the operator, also as {SERVER_VARIABLE}.  [default: {DEFAULT_SERVER} if an operator is on "
        "this host, otherwise the operator in the cluster of the kubeconfig]",
    )(command)


async def _leader_state(session: aiohttp.ClientSession, server: str) -> LeaderState | None:
    """Return what a standby on this host reports of the leader; None if the request is for the server itself."""
    host = URL(server if "://" in server else f"http://{server}").host or ""
    if not _is_here(host):
        return None
    status, answer = await _respond(session, server, LEADER_PATH, {})
    if status != 200:
        return None  # The operator is of an earlier version.
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
            f"{server} is a standby and Lease {state.lease} has no holder; retry in a few seconds{request.remedy}"
        )
    # An identity starts with the host name, which is the name of the pod.
    alternative = f"run kubectl port-forward pod/{state.holder.partition('_')[0]} and retry{request.remedy}"
    standby = f"{server} is a standby and {state.holder} leads"
    endpoint = state.endpoint
    if endpoint is None or endpoint_problem(endpoint):
        raise ServerUnavailableError(
            f"{standby}, but Lease {state.lease} has no valid endpoint of the leader; {alternative}"
        )
    try:
        headers = {} if is_loopback(endpoint.url) else {"Authorization": f"Bearer {_token()}"}
    except (OSError, ValueError) as error:
        raise ServerUnavailableError(
            f"{standby}; the leader accepts commands only from the operator's pods, where {TOKEN_FILE} is mounted "
            f"({_text(error)}); run the command in such a pod with kubectl exec, or {alternative}"
        ) from error
    try:
        url, trust = endpoint.url + request.path, _leaders_certificate(endpoint)
        status, answer = await _send(session, url, request.params, trust, headers=headers)
    except aiohttp.ServerFingerprintMismatch as error:
        raise ServerUnavailableError(
            f"{standby}, but the certificate of {endpoint.url} is not the one in Lease {state.lease}, so nothing was "
            f"sent; retry, or {alternative}"
        ) from error
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise ServerUnavailableError(
            f"{standby}, but the connection to {endpoint.url} failed ({_text(error)}); retry, or {alternative}"
        ) from error
    return endpoint.url, status, answer


async def _respond(
    session: aiohttp.ClientSession, server: str, path: str, params: Mapping[str, str], body: bytes = b""
) -> tuple[int, bytes]:
    urls = [server + path] if "://" in server else [f"{scheme}://{server}{path}" for scheme in ("https", "http")]
    for url in urls[:-1]:
        try:
            return await _send(session, url, params, _trust(URL(url).host or ""), body=body)
        except aiohttp.ClientConnectorSSLError:
            continue  # The server does not speak TLS.
    return await _send(session, urls[-1], params, _trust(URL(urls[-1]).host or ""), body=body)


async def _send(
    session: aiohttp.ClientSession,
    url: str,
    params: Mapping[str, str],
    trust: aiohttp.Fingerprint | bool,
    *,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    """Post a body, or get the path with the parameters if there is none."""
    sent: dict[str, Any] = {"params": params, "headers": headers}
    if body:
        sent = {"data": body, "headers": {"Content-Type": "application/json"}}
    # The operator does not redirect, so a redirect would lead to another server.
    async with session.request("POST" if body else "GET", url, ssl=trust, allow_redirects=False, **sent) as answer:
        return answer.status, await answer.read()


def _trust(host: str) -> bool:
    """Return whether to verify the certificate: not on this host, where it may be generated and loopback is safe."""
    return not _is_here(host)


def _leaders_certificate(endpoint: LeaderEndpoint) -> aiohttp.Fingerprint | bool:
    """Require the certificate of which the Lease has the fingerprint; nothing is sent to another server."""
    return _Certificate(bytes.fromhex(endpoint.certificate_sha256)) if endpoint.certificate_sha256 else True


def _token() -> str:
    return TOKEN_FILE.read_text(encoding="ascii").strip()


def _is_here(host: str) -> bool:
    return host == "localhost" or is_on_this_host(host)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
