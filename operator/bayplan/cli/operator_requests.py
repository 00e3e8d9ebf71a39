"""What commands ask of the running operator.

Owns the request and how its refusals become errors. It must not know what the answers mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import aiohttp
import msgspec

from bayplan.serving.local_callers import Refusal
from scheduler_core.errors import ClusterWriteError, NotFoundError, ServerUnavailableError

DEFAULT_SERVER = "http://127.0.0.1:10259"
"""Where an operator on this host, or ``kubectl port-forward`` to one, serves."""

_TIMEOUT_SECONDS = 30.0


def ask_operator(server: str, path: str, params: Mapping[str, str], remedy: str = "") -> bytes:
    """Ask the operator.

    Args:
        server: Scheme, host and port of what it serves.
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
        text = msgspec.json.decode(answer, type=Refusal).error
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
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(server + path, params=params) as got:
            return got.status, await got.read()
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        message = (
            f"{server} cannot be asked ({str(error) or type(error).__name__}); run kubectl port-forward to the "
            f"operator, name it with --server{remedy}"
        )
        raise ServerUnavailableError(message) from error
