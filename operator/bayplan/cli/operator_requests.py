"""What commands ask of the running operator.

Owns the request, whether it goes by HTTP or HTTPS, and how refusals become errors. It must not know what the answers
mean.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping

import aiohttp
import msgspec
from yarl import URL

from bayplan.serving.local_callers import is_on_this_host
from scheduler_core.errors import ClusterWriteError, NotFoundError, ServerUnavailableError

DEFAULT_SERVER = "127.0.0.1:10259"
"""Where an operator on this host, or ``kubectl port-forward`` to one, serves."""

_TIMEOUT_SECONDS = 30.0


class _Refused(msgspec.Struct, frozen=True):
    """What a refusal says: the operator's own under ``error``, one for want of a right as Kubernetes says it."""

    error: str = ""
    message: str = ""


def ask_operator(server: str, path: str, params: Mapping[str, str], remedy: str = "") -> bytes:
    """Ask the operator.

    Args:
        server: Host and port of what it serves; HTTPS is tried before HTTP unless a scheme stands before them.
        path: What is asked for, from the root.
        params: Of the query.
        remedy: What else can be done when it cannot be reached, such as ``, or use --offline``.

    Returns:
        The body.

    Raises:
        NotFoundError: There is no such thing.
        ServerUnavailableError: It cannot be reached, or is not ready.
        ClusterWriteError: It refuses.
    """
    server = server.rstrip("/")
    status, answer = asyncio.run(_asked(server, path, params, remedy))
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


async def _asked(server: str, path: str, params: Mapping[str, str], remedy: str) -> tuple[int, bytes]:
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
    urls = [server + path] if "://" in server else [f"{scheme}://{server}{path}" for scheme in ("https", "http")]
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session:
            for url in urls[:-1]:
                try:
                    return await _answer(session, url, params)
                except aiohttp.ClientConnectorSSLError:
                    continue  # it speaks no TLS
            return await _answer(session, urls[-1], params)
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        # What speaks HTTPS only hangs up on HTTP.
        scheme = " without http://" if isinstance(error, aiohttp.ServerDisconnectedError) else ""
        message = (
            f"{server} cannot be asked ({str(error) or type(error).__name__}); run kubectl port-forward to the "
            f"operator, name it with --server{scheme}{remedy}"
        )
        raise ServerUnavailableError(message) from error


async def _answer(session: aiohttp.ClientSession, url: str, params: Mapping[str, str]) -> tuple[int, bytes]:
    async with session.get(url, params=params, ssl=_trust(URL(url).host or "")) as answer:
        return answer.status, await answer.read()


def _trust(host: str) -> ssl.SSLContext | bool:
    """Verify the operator, but on this host: its certificate may be its own, and nobody listens on loopback."""
    return not (host == "localhost" or is_on_this_host(host))
