"""Writes to pods: binds, status patches and deletions. After a conflict the pod is read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from bayplan.kube.http.api_request import InvalidRequestError, ResponseLostError, ServerFailedError, Slots, path_part
from bayplan.kube.http.connection import JSON, METADATA_ONLY, STRATEGIC_MERGE_PATCH, ApiConnection, ApiRequest, Lane
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
from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.ports import Binding, Clock, PodDeletion, PodStatusPatch

_REMEMBERED = 20_000
POD_SCHEDULED = "PodScheduled"

PodLookup = Callable[[str, str], Pod | None]
"""Maps namespace and name to the pod in the informer; None if it has none."""


def timestamp(moment: datetime) -> str:
    """Format a moment as ``metav1.Time``: whole seconds, UTC."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class PodWrites:
    """Sends status patches, with ``lastTransitionTime`` by the clock, and deletions."""

    def __init__(self, connection: ApiConnection, clock: Clock, lookup: PodLookup | None, timeout: float) -> None:
        self._connection = connection
        self._clock = clock
        self._lookup = lookup
        self._timeout = timeout
        self._written: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._unanswered: OrderedDict[str, None] = OrderedDict()

    async def patch_status(self, patch: PodStatusPatch) -> None:
        """Patch the status subresource; PodScheduled=False is set back to True if the response names a node.

        Raises:
            ConflictError: The pod has another UID.
            ServerUnavailableError: A transient failure, such as concurrent writes to the pod.
        """
        condition = patch.condition
        denies = condition is not None and condition.type == POD_SCHEDULED and condition.status == "False"
        answer = await self._patch(patch, JSON if denies else METADATA_ONLY)
        # A bind whose response was lost may have succeeded although its attempt failed. If the server executes the bind
        # after this patch, the bind sets the condition.
        if denies and _BOUND.decode(answer).spec.node_name:
            scheduled = PodCondition(POD_SCHEDULED, "True")
            await self._patch(PodStatusPatch(patch.namespace, patch.name, patch.uid, scheduled), METADATA_ONLY)

    async def _patch(self, patch: PodStatusPatch, accept: str) -> bytes:
        request = ApiRequest(
            "PATCH",
            f"{pod_path(patch.namespace, patch.name)}/status",
            self.patch_body(patch),
            content_type=STRATEGIC_MERGE_PATCH,
            timeout=self._timeout,
            accept=accept,
        )
        try:
            answer = await self._connection.request(request)
        except InvalidRequestError as error:
            # kube-apiserver 1.36 reports another UID as a change of an immutable field, not as a conflict.
            if "metadata.uid" in error.reason:
                raise ConflictError(f"Pod {patch.namespace}/{patch.name} with UID {patch.uid} is gone.") from error
            raise
        except ConflictError as error:
            await self._raise_if_ours(error, pod_path(patch.namespace, patch.name), patch.uid)
            raise
        if patch.condition is not None:
            self._written[patch.uid, patch.condition.type] = patch.condition.status
            if len(self._written) > _REMEMBERED:
                self._written.popitem(last=False)
        return answer

    async def delete(self, deletion: PodDeletion) -> None:
        """Set the condition if there is one, then delete exactly this UID.

        Raises:
            NotFoundError: The pod, or this UID of it, was gone before.
            ServerUnavailableError: A transient failure, such as concurrent writes to the pod.
        """
        path = pod_path(deletion.namespace, deletion.name)
        try:
            if deletion.condition is not None:
                await self.patch_status(
                    PodStatusPatch(deletion.namespace, deletion.name, deletion.uid, deletion.condition)
                )
            await self._delete(path, deletion.uid)
        except NotFoundError:
            # An earlier deletion whose response was lost was successful if the pod is gone now.
            if deletion.uid not in self._unanswered:
                raise
        except ConflictError as error:
            await self._raise_if_ours(error, path, deletion.uid)
            if deletion.uid not in self._unanswered:
                where = f"{deletion.namespace}/{deletion.name}"
                message = f"Pod {where} with UID {deletion.uid} is gone; there is nothing to delete."
                raise NotFoundError(message) from error
        self._unanswered.pop(deletion.uid, None)

    async def _delete(self, path: str, uid: str) -> None:
        options = msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}})
        try:
            await self._connection.request(ApiRequest("DELETE", path, options, timeout=self._timeout))
        except (WriteTimeoutError, ServerFailedError):
            # Both errors leave open whether the pod was deleted.
            self._unanswered[uid] = None
            if len(self._unanswered) > _REMEMBERED:
                self._unanswered.popitem(last=False)
            raise

    async def _raise_if_ours(self, conflict: ConflictError, path: str, uid: str) -> None:
        """Raise ServerUnavailableError, which is retriable, if a conflict was on this very pod."""
        # A conflict means another pod of this name or, rarely, concurrent writes to this one. The first ends the write,
        # the second is retried; client-go's patches and kube-scheduler's deletions give up on both.
        if await self._uid_now(path) == uid:
            raise ServerFailedError(f"Concurrent writes to the pod, retry: {conflict}") from conflict

    async def _uid_now(self, path: str) -> str | None:
        try:
            request = ApiRequest("GET", path, timeout=self._timeout, accept=METADATA_ONLY)
            return _UIDS.decode(await self._connection.request(request)).metadata.uid
        except NotFoundError:
            return None

    def patch_body(self, patch: PodStatusPatch) -> bytes:
        status: dict[str, Any] = {}
        if patch.condition is not None:
            status["conditions"] = [self._condition(patch, patch.condition)]
        if patch.nominated_node_name is not None:
            status["nominatedNodeName"] = patch.nominated_node_name or None
        # With the UID, the server rejects the patch of another pod of that name.
        return msgspec.json.encode({"metadata": {"uid": patch.uid}, "status": status})

    def _condition(self, patch: PodStatusPatch, condition: PodCondition) -> dict[str, Any]:
        body: dict[str, Any] = {
            "type": condition.type,
            "status": condition.status,
            "lastProbeTime": None,
            "reason": condition.reason or None,
            "message": condition.message or None,
        }
        if condition.observed_generation:
            body["observedGeneration"] = condition.observed_generation
        # The time at which the status changed, as podutil.UpdatePodCondition of kube-scheduler maintains it. A
        # strategic merge leaves an omitted field unchanged, so that nothing has to be read for it, and a restart does
        # not change it.
        if self._known_status(patch, condition.type) != condition.status:
            body["lastTransitionTime"] = timestamp(self._clock.wall())
        return body

    def _known_status(self, patch: PodStatusPatch, kind: str) -> str | None:
        pod = self._lookup(patch.namespace, patch.name) if self._lookup is not None else None
        if pod is not None and pod.metadata.uid == patch.uid:
            for condition in pod.status.conditions:
                if condition.type == kind:
                    return condition.status
        # The informer may not have the condition that was just written.
        return self._written.get((patch.uid, kind))


class _Uid(msgspec.Struct, frozen=True, gc=False):
    uid: str = ""


class _WithUid(msgspec.Struct, frozen=True, gc=False):
    metadata: _Uid


_UIDS = ObjectJsonDecoder(_WithUid)


class _PodSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_name: str = ""


class _MaybeBound(msgspec.Struct, frozen=True, gc=False):
    spec: _PodSpec = _PodSpec()


_BOUND = ObjectJsonDecoder(_MaybeBound)


def merged(earlier: PodStatusPatch, later: PodStatusPatch) -> PodStatusPatch | None:
    """Merge two patches into one with the effect of both.

    Returns:
        The condition and nomination of the later patch, each from the earlier patch if the later one has none; None
        if both set conditions of different types, which one patch cannot hold.
    """
    if earlier.condition is not None and later.condition is not None and earlier.condition.type != later.condition.type:
        return None
    nomination = later.nominated_node_name
    return PodStatusPatch(
        later.namespace,
        later.name,
        later.uid,
        later.condition if later.condition is not None else earlier.condition,
        nomination if nomination is not None else earlier.nominated_node_name,
    )


_PODS = ObjectJsonDecoder(Pod)
_text = msgspec.json.Encoder().encode


def pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{path_part(namespace)}/pods/{path_part(name)}"


async def read_pod(
    connection: ApiConnection, namespace: str, name: str, *, lane: Lane = Lane.READS, seconds: float = 10.0
) -> Pod | None:
    """Read a pod, None if it is gone; raises ClusterWriteError if that fails, or the response is no pod."""
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
    """Binds pods: a bounded number in flight, each with a known outcome.

    An ambiguous response is settled by reading the pod:

        sent --2xx--> bound
         |---409, 5xx, timeout, connection lost--> read the pod: this node --> bound
                                                                 another node --> BoundElsewhereError
                                                                 gone, other UID --> NotFoundError
                                                                 unbound --> the error: the bind did not happen

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
            # None of these errors shows whether the pod is bound, and the scheduler reuses the pod's resources if the
            # bind is reported as failed.
            lost = isinstance(error, ResponseLostError)
            if await self._is_bound(binding, error, again=lost):
                return
        else:
            return
        # The server had just closed the keep-alive connection: the pod is unbound, so the bind is sent once more.
        try:
            await self._connection.request(request)
        except (ConflictError, WriteTimeoutError, ServerFailedError) as error:
            # Raises unless the pod is bound: a second attempt that fails is not repeated.
            await self._is_bound(binding, error, again=False)

    async def _is_bound(self, binding: Binding, error: ClusterWriteError, *, again: bool) -> bool:
        """Read whether the pod is bound; return False only if it is unbound and the bind may be sent ``again``."""
        self.settled += 1
        where = f"{binding.namespace}/{binding.name}"
        try:
            # The lane of binds: it has a connection for each bind in flight, and no long list delays the read.
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
