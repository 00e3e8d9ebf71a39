"""Port forwarding to a pod through the API server, with the rights of the user.

Each connection to the local listener opens one WebSocket to the pod's subresource ``portforward``. Follows the
kubelet's ``v4.channel.k8s.io`` protocol (k8s.io/kubelet, pkg/cri/streaming/portforward, v0.37.1), which every API
server passes on to the kubelet.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp

from bayplan.kube.http.api_request import path_part
from bayplan.kube.http.connection import ApiConnection
from scheduler_core.errors import ClusterWriteError, ServerUnavailableError

_PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERRORS = 0, 1
_READ_BYTES = 1 << 16


class PortForward:
    """A listener on loopback that is connected to a port of a pod.

    Attributes:
        pod: The pod, as ``namespace/name``.
        address: Host and port of the listener.
        error: The last reason for which a connection to the pod failed; None without one.
    """

    def __init__(self, connection: ApiConnection, namespace: str, pod: str, port: int) -> None:
        self._connection = connection
        self._path = f"/api/v1/namespaces/{path_part(namespace)}/pods/{path_part(pod)}/portforward"
        self._port = port
        self.pod = f"{namespace}/{pod}"
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = ""
        self.error: ClusterWriteError | None = None

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection in a task, which :meth:`close` cancels."""
        # Not a coroutine, for which asyncio makes a task of its own: it logs an error if that task is cancelled.
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            parameters = (("ports", str(self._port)),)
            async with self._connection.websocket(self._path, parameters, _PROTOCOL) as socket:
                sending = asyncio.create_task(_send(reader, socket))
                try:
                    await self._receive(socket, writer)
                finally:
                    sending.cancel()
                    await asyncio.gather(sending, return_exceptions=True)
        except ClusterWriteError as error:
            self.error = error
        finally:
            writer.close()

    async def close(self) -> None:
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _receive(self, socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> None:
        has_begun: set[int] = set()
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            # The first byte of a frame is its channel: data of the port is channel 0, its errors are channel 1.
            channel, data = message.data[0], message.data[1:]
            if channel not in has_begun:
                has_begun.add(channel)
                data = data[2:]  # each channel starts with the port number
            if channel == _ERRORS and data:
                self.error = ServerUnavailableError(data.decode(errors="replace").strip())
                return
            if channel == _DATA and data:
                writer.write(data)
                with suppress(ConnectionError):
                    await writer.drain()


async def _send(reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> None:
    # The end of the input does not end the connection: the response still comes.
    with suppress(ConnectionError):
        while data := await reader.read(_READ_BYTES):
            await socket.send_bytes(bytes((_DATA,)) + data)


@asynccontextmanager
async def port_forward(connection: ApiConnection, namespace: str, pod: str, port: int) -> AsyncIterator[PortForward]:
    """Listen on a free port of 127.0.0.1, and connect it to a port of a pod; a connection to the pod may fail later."""
    forward = PortForward(connection, namespace, pod, port)
    server = await asyncio.start_server(forward.accept, "127.0.0.1", 0)
    host, local_port = server.sockets[0].getsockname()[:2]
    forward.address = f"{host}:{local_port}"
    try:
        yield forward
    finally:
        server.close()
        await forward.close()
