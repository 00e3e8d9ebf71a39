"""Finds the operator's pods in a cluster, and connects a command to the pod of the leader through the API server.

The pods have the label :data:`PORT_LABEL`. One of them names the leader, as it sees the Lease; a second port-forward
leads there. The user needs the rights to list pods and to create ``pods/portforward``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec

from bayplan.cli.cluster_connection import ClusterChoice
from bayplan.kube.http.api_request import path_part
from bayplan.kube.http.connection import ApiConnection, ApiRequest, Lane
from bayplan.kube.http.deep_json import ObjectJsonDecoder
from bayplan.kube.http.port_forward import PortForward, port_forward
from bayplan.kube.leader_election import LeaderState
from scheduler_core.errors import ConfigError, ForbiddenError, Problem, ServerUnavailableError

PORT_LABEL = "bayplan.dev/local-port"
"""Label of the operator's pods; its value is the port of ``localAddress``."""

_INSTANCE_LABEL = "app.kubernetes.io/instance"
_NAME_LENGTH = 63
"""Length to which the kernel's host name, with which an identity starts, is cut."""


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str
    labels: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""
    conditions: tuple[_Condition, ...] | None = None


class _Pod(msgspec.Struct, frozen=True):
    """A pod of an operator, as far as it is read."""

    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def instance(self) -> str:
        """The installation, as ``namespace/release``; the pod itself if it is of no release."""
        release = (self.metadata.labels or {}).get(_INSTANCE_LABEL, self.metadata.name)
        return f"{self.metadata.namespace}/{release}"

    @property
    def is_running(self) -> bool:
        return self.status.phase == "Running" and self.metadata.deletion_timestamp is None

    @property
    def is_ready(self) -> bool:
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions or ())

    @property
    def port(self) -> int:
        text = (self.metadata.labels or {}).get(PORT_LABEL, "")
        if not text.isdecimal() or not 0 < int(text) < 1 << 16:
            raise ServerUnavailableError(
                f'pod {self.key} has the label {PORT_LABEL}: "{text}", which is no port: the operator has no '
                "localAddress; run the command in the pod with kubectl exec"
            )
        return int(text)


class _Pods(msgspec.Struct, frozen=True):
    items: tuple[_Pod, ...] | None = None


_PODS = ObjectJsonDecoder(_Pods)


@dataclass(frozen=True, slots=True)
class OperatorChoice:
    """Where the operator is that a command queries.

    Attributes:
        server: Address as given; None to look for the operator.
        operator: ``NAMESPACE`` or ``NAMESPACE/NAME`` of the operator, NAME being a Helm release or a pod; "" for any.
        cluster: The API server to look in.
    """

    server: str | None = None
    operator: str = ""
    cluster: ClusterChoice = field(default_factory=ClusterChoice)


@asynccontextmanager
async def connected_to_leader(
    connection: ApiConnection,
    choice: OperatorChoice,
    leader_of: Callable[[PortForward], Awaitable[LeaderState | None]] | None,
) -> AsyncIterator[PortForward]:
    """Forward a local port to the operator's leader.

    Args:
        leader_of: Queries the operator behind a port-forward for the leader, None if it leads itself; None for any pod.

    Raises:
        ServerUnavailableError: There is no operator in the cluster, its pods do not run, or there is no leader.
        ForbiddenError: The user may not list pods.
        ConfigError: There are several operators.
    """
    pods = _chosen(await _list(connection, choice), choice)
    first = next((pod for pod in pods if pod.is_ready), pods[0])
    async with port_forward(connection, first.metadata.namespace, first.metadata.name, first.port) as forward:
        state = None if leader_of is None or choice.operator == first.key else await leader_of(forward)
        if state is None:
            yield forward
            return
    if not state.holder:
        raise ServerUnavailableError(
            f"pod {first.key} is a standby and Lease {state.lease} has no holder; retry in a few seconds"
        )
    leader = _holder(pods, state.holder)
    if leader is None:
        raise ServerUnavailableError(
            f"{state.holder} holds Lease {state.lease}, and no running pod of {first.instance} has that host name; "
            "retry in a few seconds, or name the pod with --operator NAMESPACE/POD"
        )
    async with port_forward(connection, leader.metadata.namespace, leader.metadata.name, leader.port) as forward:
        yield forward


async def _list(connection: ApiConnection, choice: OperatorChoice) -> Sequence[_Pod]:
    namespace = choice.operator.partition("/")[0]
    if namespace:
        return await _list_in(connection, namespace)
    try:
        return await _list_in(connection, "")
    except ForbiddenError as error:
        own = choice.cluster.own_namespace
        try:
            found = await _list_in(connection, own)
        except ForbiddenError:
            found = ()
        if found:
            return found
        raise ForbiddenError(
            f"looking for the operator: {error}; name its namespace with --operator NAMESPACE if you may list pods "
            "there, or set --server"
        ) from error


async def _list_in(connection: ApiConnection, namespace: str) -> Sequence[_Pod]:
    path = f"/api/v1/namespaces/{path_part(namespace)}/pods" if namespace else "/api/v1/pods"
    params = (("labelSelector", PORT_LABEL),)
    answer = await connection.request(ApiRequest("GET", path, params=params, lane=Lane.READS))
    return _PODS.decode(answer).items or ()


def _chosen(pods: Sequence[_Pod], choice: OperatorChoice) -> Sequence[_Pod]:
    """Return the running pods of the one operator that is meant."""
    namespace, _, name = choice.operator.partition("/")
    where = f"in namespace {namespace}" if namespace else "in this cluster"
    remedy = "install it with Helm, choose another cluster with --context, or set --server"
    if name:
        pods = [pod for pod in pods if choice.operator in (pod.key, pod.instance)]
        where = f"{where} with the name {name}"
    if not pods:
        raise ServerUnavailableError(f"no Bayplan operator {where}: no pod has the label {PORT_LABEL}; {remedy}")
    instances = sorted({pod.instance for pod in pods})
    if len(instances) > 1:
        problem = f"{len(instances)} Bayplan operators are in this cluster: {', '.join(instances)}"
        raise ConfigError([Problem("--operator", f"{problem}; name one of them")])
    running = [pod for pod in pods if pod.is_running]
    if not running:
        states = ", ".join(f"{pod.key} ({pod.status.phase or 'no phase'})" for pod in pods)
        raise ServerUnavailableError(f"no pod of the operator runs: {states}; see kubectl describe pod")
    return running


def _holder(pods: Sequence[_Pod], identity: str) -> _Pod | None:
    """Return the pod of an identity, which starts with the host name: the pod's name, or its node's on hostNetwork."""
    host = identity.partition("_")[0]
    for pod in pods:
        if host in (pod.metadata.name[:_NAME_LENGTH], pod.spec.node_name):
            return pod
    return None
