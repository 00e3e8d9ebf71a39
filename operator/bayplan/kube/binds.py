"""Binds: a bounded number at once, and no doubt left about any of them.

Owns the request that binds a pod and what is concluded from its answer. Must not know the queue of other writes.

Why a bind is settled by reading: a 409, a time-out or a broken connection does not say whether the pod is bound, and
the scheduler gives the pod's resources away again when it is told that it is not.

    sent --2xx--> bound
     |---409, 5xx, time-out, connection lost--> read the pod: ours --> bound
                                                             another node --> BoundElsewhereError
                                                             gone, other UID --> NotFoundError
                                                             unbound --> the error, and the bind did not happen
"""

from __future__ import annotations

import msgspec

from bayplan.kube.api_calls import POD_BINDING, ApiCalls
from bayplan.kube.api_errors import AnswerLostError, ServerFailedError
from bayplan.kube.api_request import path_part
from bayplan.kube.connection import ApiConnection, ApiRequest, Lane
from bayplan.kube.deep_json import DeepDecoder
from bayplan.kube.slots import Slots
from bayplan.kube.system_clock import SystemClock
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

_PODS = DeepDecoder(Pod)
_text = msgspec.json.Encoder().encode


def pod_path(namespace: str, name: str) -> str:
    """The URL path of a pod."""
    return f"/api/v1/namespaces/{path_part(namespace)}/pods/{path_part(name)}"


async def read_pod(
    connection: ApiConnection, namespace: str, name: str, *, lane: Lane = Lane.READS, seconds: float = 10.0
) -> Pod | None:
    """The pod as the API server has it now; None when it is gone.

    Raises:
        ClusterWriteError: The API server could not be asked, or answered what is no pod.
    """
    path = pod_path(namespace, name)
    try:
        return _PODS.decode(await connection.request(ApiRequest("GET", path, timeout=seconds, lane=lane)))
    except NotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise ClusterWriteError(f"GET {path}: the answer is no pod that can be read: {error}") from error


def binding_body(binding: Binding) -> bytes:
    """The v1 Binding as JSON; its UID makes the server refuse a later pod of the same name."""
    return (
        b'{"apiVersion":"v1","kind":"Binding","metadata":{"name":%b,"namespace":%b,"uid":%b},'
        b'"target":{"apiVersion":"v1","kind":"Node","name":%b}}'
        % (_text(binding.name), _text(binding.namespace), _text(binding.uid), _text(binding.node_name))
    )


class Binder:
    """Binds pods over the connection's bind lane.

    Args:
        connection: To the API server.
        limit: Binds on the wire at once.
        timeout: Seconds for one bind's answer, and for the reading that may follow.
        calls: Where binds are counted; None for nowhere.

    Attributes:
        waiting: Binds that wait for one on the wire to end.
        in_flight: Binds on the wire.
        bound: Successful binds.
        settled: Binds whose outcome had to be read.
        failed: Binds that raised.
    """

    def __init__(
        self, connection: ApiConnection, limit: int = 32, timeout: float = 10.0, calls: ApiCalls | None = None
    ) -> None:
        self._connection = connection
        self._timeout = timeout
        self._calls = calls or ApiCalls(SystemClock())
        self._slots = Slots(limit)
        # The server gives up first, so that a bind that timed out here is not carried out afterwards.
        self._params = (("timeout", f"{max(int(timeout) - 1, 1)}s"),)
        self.limit = limit
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
            WriteTimeoutError: The answer was lost and the pod could not be read: the outcome is unknown.
            ClusterWriteError: Anything else; the bind did not happen.
        """
        turn = self._slots.take()
        if turn is not None:
            self.waiting += 1
            try:
                await self._slots.turn(turn)
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
            self._slots.give()

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
            lost = isinstance(error, AnswerLostError)
            if await self._is_bound(binding, error, again=lost):
                return
        else:
            return
        # A kept-alive connection that the server closed at that moment: read to be unbound, so it is sent once more.
        try:
            await self._connection.request(request)
        except (ConflictError, WriteTimeoutError, ServerFailedError) as error:
            await self._is_bound(binding, error, again=False)

    async def _is_bound(self, binding: Binding, error: ClusterWriteError, *, again: bool) -> bool:
        """Find out by reading; False only when the pod is unbound and the bind may be sent ``again``."""
        self.settled += 1
        where = f"{binding.namespace}/{binding.name}"
        try:
            pod = await read_pod(
                self._connection, binding.namespace, binding.name, lane=Lane.BINDS, seconds=self._timeout
            )
        except ClusterWriteError as unread:
            raise WriteTimeoutError(
                f"Whether pod {where} was bound to {binding.node_name} is unknown, read it before it is bound again: "
                f"{error.reason}; reading it: {unread.reason}"
            ) from error
        if pod is None or pod.metadata.uid != binding.uid:
            raise NotFoundError(f"Pod {where} with UID {binding.uid} is gone; nothing is left to bind.") from error
        node = pod.spec.node_name
        if node == binding.node_name:
            return True
        if node:
            raise BoundElsewhereError(
                f"Pod {where} is already bound to node {node}, not to {binding.node_name}: someone else was faster; "
                "let one scheduler alone bind the pods of a schedulerName.",
                node,
            ) from error
        if again:
            return False
        if isinstance(error, ConflictError):
            raise ClusterWriteError(f"Pod {where} was not bound: {error.reason}") from error
        raise ServerUnavailableError(f"Pod {where} was not bound, try again: {error.reason}") from error
