"""Binds of pods: a bounded number in flight, each with a known outcome.

An ambiguous response is settled by reading the pod: a 409, a timeout or a broken connection does not show whether the
pod is bound, and the scheduler reuses the pod's resources if the bind is reported as failed.

    sent --2xx--> bound
     |---409, 5xx, timeout, connection lost--> read the pod: this node --> bound
                                                             another node --> BoundElsewhereError
                                                             gone, other UID --> NotFoundError
                                                             unbound --> the error: the bind did not happen
"""

from __future__ import annotations

import msgspec

from bayplan.kube.http.api_request import ResponseLostError, ServerFailedError, Slots, path_part
from bayplan.kube.http.connection import ApiConnection, ApiRequest, Lane
from bayplan.kube.http.deep_json import ObjectJsonDecoder
from bayplan.kube.timing import SystemClock
from bayplan.kube.writes.api_dispatcher import POD_BINDING, WriteMetrics
from scheduler_core.errors import (
    BoundElsewhereError,
    ClusterWriteError,
    ConflictError,
    NotFoundError,
    ServerUnavailableError,
    WriteTimeoutError,
)
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Binding

_PODS = ObjectJsonDecoder(Pod)
_text = msgspec.json.Encoder().encode


def pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{path_part(namespace)}/pods/{path_part(name)}"


async def read_pod(
    connection: ApiConnection, namespace: str, name: str, *, lane: Lane = Lane.READS, seconds: float = 10.0
) -> Pod | None:
    """Read a pod from the API server; None if it is gone.

    Raises:
        ClusterWriteError: The request failed, or the response is not a pod.
    """
    path = pod_path(namespace, name)
    try:
        return _PODS.decode(await connection.request(ApiRequest("GET", path, timeout=seconds, lane=lane)))
    except NotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise ClusterWriteError(f"GET {path}: the response is not a readable pod: {error}") from error


def binding_body(binding: Binding) -> bytes:
    """Encode the v1 Binding as JSON; with its UID the server rejects a later pod of the same name."""
    annotations = b',"annotations":%b' % _text(dict(binding.annotations)) if binding.annotations else b""
    return (
        b'{"apiVersion":"v1","kind":"Binding","metadata":{"name":%b,"namespace":%b,"uid":%b%b},'
        b'"target":{"apiVersion":"v1","kind":"Node","name":%b}}'
        % (_text(binding.name), _text(binding.namespace), _text(binding.uid), annotations, _text(binding.node_name))
    )


class Binder:
    """Binds pods over the connection's bind lane.

    Args:
        timeout: Seconds for a bind's response, and for the read that may follow.

    Attributes:
        settled: Binds whose outcome had to be read.
    """

    def __init__(
        self, connection: ApiConnection, limit: int = 32, timeout: float = 10.0, calls: WriteMetrics | None = None
    ) -> None:
        self._connection = connection
        self._timeout = timeout
        self._calls = calls or WriteMetrics(SystemClock())
        self._slots = Slots(limit)
        # The server times out first, so that a bind that timed out here is not executed later.
        self._params = (("timeout", f"{max(int(timeout) - 1, 1)}s"),)
        self.waiting = 0
        self.in_flight = 0
        self.bound = 0
        self.settled = 0
        self.failed = 0

    async def bind(self, binding: Binding) -> None:
        """Bind a pod.

        Raises:
            BoundElsewhereError: The pod is bound to another node.
            NotFoundError: The pod, or this UID of it, is gone.
            WriteTimeoutError: The response was lost and the pod could not be read: the outcome is unknown.
            ClusterWriteError: Any other failure; the bind did not happen.
        """
        turn = self._slots.acquire()
        if turn is not None:
            self.waiting += 1
            try:
                await self._slots.wait(turn)
            finally:
                self.waiting -= 1
        self.in_flight += 1
        try:
            with self._calls.of(POD_BINDING):
                await self._bind(binding)
            self.bound += 1
        except ClusterWriteError:
            self.failed += 1
            raise
        finally:
            self.in_flight -= 1
            self._slots.release()

    async def _bind(self, binding: Binding) -> None:
        request = ApiRequest(
            "POST",
            f"{pod_path(binding.namespace, binding.name)}/binding",
            binding_body(binding),
            params=self._params,
            timeout=self._timeout,
            lane=Lane.BINDS,
        )
        try:
            await self._connection.request(request)
        except (ConflictError, WriteTimeoutError, ServerFailedError) as error:
            lost = isinstance(error, ResponseLostError)
            if await self._is_bound(binding, error, again=lost):
                return
        else:
            return
        # The server had just closed the keep-alive connection: the pod is unbound, so the bind is sent once more.
        try:
            await self._connection.request(request)
        except (ConflictError, WriteTimeoutError, ServerFailedError) as error:
            await self._is_bound(binding, error, again=False)

    async def _is_bound(self, binding: Binding, error: ClusterWriteError, *, again: bool) -> bool:
        """Read whether the pod is bound; return False only if it is unbound and the bind may be sent ``again``."""
        self.settled += 1
        where = f"{binding.namespace}/{binding.name}"
        try:
            pod = await read_pod(
                self._connection, binding.namespace, binding.name, lane=Lane.BINDS, seconds=self._timeout
            )
        except ClusterWriteError as unread:
            raise WriteTimeoutError(
                f"It is unknown whether pod {where} was bound to {binding.node_name}; read the pod before a retry: "
                f"{error.reason}; reading it: {unread.reason}"
            ) from error
        if pod is None or pod.metadata.uid != binding.uid:
            raise NotFoundError(f"Pod {where} with UID {binding.uid} is gone; there is nothing to bind.") from error
        node = pod.spec.node_name
        if node == binding.node_name:
            return True
        if node:
            raise BoundElsewhereError(
                f"Pod {where} is already bound to node {node}, not to {binding.node_name}: another scheduler won; "
                "run only one scheduler for a schedulerName.",
                node,
            ) from error
        if again:
            return False
        if isinstance(error, ConflictError):
            raise ClusterWriteError(f"Pod {where} was not bound: {error.reason}") from error
        raise ServerUnavailableError(f"Pod {where} was not bound, retry: {error.reason}") from error
