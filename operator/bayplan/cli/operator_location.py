"""Selects a cluster, finds the operator's pods in it, and connects a command to the leader through the API server.

The pods have the label :data:`PORT_LABEL`. One of them names the leader, as it sees the Lease; a second port-forward
leads there. The user needs the rights to list pods and to create ``pods/portforward``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from bayplan.kube.credentials import open_connection
from bayplan.kube.http.api_request import path_part
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions, ListPage, list_pages
from bayplan.kube.http.deep_json import ObjectJsonDecoder
from bayplan.kube.http.port_forward import PortForward, port_forward
from bayplan.kube.leader_election import LeaderState
from bayplan.kube.timing import SystemClock
from scheduler_core.errors import ConfigError, ForbiddenError, Problem, ServerUnavailableError
from scheduler_core.model.pod import Pod

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """Selected API server, None for that of kubectl, and the specified namespace of stored revisions."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None

    def reject_with(self, option: str) -> None:
        """Raise UsageError if a cluster is selected, because the option has another source of objects."""
        if self.kubeconfig or self.context:
            raise click.UsageError(f"--kubeconfig and --context choose a cluster; leave them out with {option}")

    @property
    def own_namespace(self) -> str:
        """Namespace in which an operator with the same kubeconfig stores revisions."""
        # Imported here because `bayplan status` must not wait for the import of pydantic.
        from bayplan.settings.operator_settings import Settings, revision_namespace  # noqa: PLC0415

        kubeconfig = None if self.kubeconfig is None else str(self.kubeconfig)
        return revision_namespace(Settings(kubeconfig=kubeconfig, context=self.context))

    def run(self, work: Callable[[ApiConnection], Awaitable[T]]) -> T:
        """Run a function with a connection; raises ConfigError if the kubeconfig cannot be used."""

        async def connected() -> T:
            async with await open_connection(
                self.kubeconfig, self.context, ConnectionOptions(), SystemClock()
            ) as connection:
                return await work(connection)

        return asyncio.run(connected())


def kubeconfig_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that select an API server, which the command gets as ``cluster``, a :class:`ClusterChoice`."""

    @wraps(command)
    def chosen(*, kubeconfig: Path | None, kube_context: str | None, **given: Any) -> None:
        cluster = ClusterChoice(kubeconfig, kube_context, given.pop("revision_namespace", None))
        command(cluster=cluster, **given)

    options = click.option("--context", "kube_context", help="Context of the kubeconfig.")(chosen)
    return click.option(
        "--kubeconfig", type=click.Path(path_type=Path), help="Path of the kubeconfig.  [default: as kubectl]"
    )(options)


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of :func:`kubeconfig_options`, and the namespace of revisions."""
    return click.option(
        "--revision-namespace",
        help="Namespace of the stored revisions, which is the operator's.  [default: all namespaces, or that of the "
        "context if you may not list revisions in all namespaces]",
    )(kubeconfig_options(command))


PORT_LABEL = "bayplan.dev/local-port"
"""Label of the operator's pods; its value is the port of ``localAddress``."""

_INSTANCE_LABEL = "app.kubernetes.io/instance"
_NAME_LENGTH = 63
"""Length to which the kernel's host name, with which an identity starts, is cut."""
_SECONDS = 10.0
_PODS = ObjectJsonDecoder(ListPage[Pod])


def _instance(pod: Pod) -> str:
    """Return the installation of a pod, as ``namespace/release``; the pod itself if it is of no release."""
    release = pod.metadata.labels.get(_INSTANCE_LABEL, pod.metadata.name)
    return f"{pod.metadata.namespace}/{release}"


def _is_running(pod: Pod) -> bool:
    return pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None


def _is_ready(pod: Pod) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)


def _port(pod: Pod) -> int:
    text = pod.metadata.labels.get(PORT_LABEL, "")
    if not text.isdecimal() or not 0 < int(text) < 1 << 16:
        raise ServerUnavailableError(
            f'pod {pod.key} has the label {PORT_LABEL}: "{text}", which is no port: the operator has no '
            "localAddress; run the command in the pod with kubectl exec"
        )
    return int(text)


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
    first = next((pod for pod in pods if _is_ready(pod)), pods[0])
    async with port_forward(connection, first.metadata.namespace, first.metadata.name, _port(first)) as forward:
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
            f"{state.holder} holds Lease {state.lease}, and no running pod of {_instance(first)} has that host name; "
            "retry in a few seconds, or name the pod with --operator NAMESPACE/POD"
        )
    async with port_forward(connection, leader.metadata.namespace, leader.metadata.name, _port(leader)) as forward:
        yield forward


async def _list(connection: ApiConnection, choice: OperatorChoice) -> Sequence[Pod]:
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
            found = []
        if found:
            return found
        raise ForbiddenError(
            f"looking for the operator: {error}; name its namespace with --operator NAMESPACE if you may list pods "
            "there, or set --server"
        ) from error


async def _list_in(connection: ApiConnection, namespace: str) -> Sequence[Pod]:
    path = f"/api/v1/namespaces/{path_part(namespace)}/pods" if namespace else "/api/v1/pods"
    params = (("labelSelector", PORT_LABEL),)
    pages = list_pages(connection, path, _PODS, params=params, seconds=_SECONDS)
    return [pod async for page in pages for pod in page.items or ()]


def _chosen(pods: Sequence[Pod], choice: OperatorChoice) -> Sequence[Pod]:
    """Return the running pods of the one operator that is meant."""
    namespace, _, name = choice.operator.partition("/")
    where = f"in namespace {namespace}" if namespace else "in this cluster"
    remedy = "install it with Helm, choose another cluster with --context, or set --server"
    if name:
        pods = [pod for pod in pods if choice.operator in (pod.key, _instance(pod))]
        where = f"{where} with the name {name}"
    if not pods:
        raise ServerUnavailableError(f"no Bayplan operator {where}: no pod has the label {PORT_LABEL}; {remedy}")
    instances = sorted({_instance(pod) for pod in pods})
    if len(instances) > 1:
        problem = f"{len(instances)} Bayplan operators are in this cluster: {', '.join(instances)}"
        raise ConfigError([Problem("--operator", f"{problem}; name one of them")])
    running = [pod for pod in pods if _is_running(pod)]
    if not running:
        states = ", ".join(f"{pod.key} ({pod.status.phase})" for pod in pods)
        raise ServerUnavailableError(f"no pod of the operator runs: {states}; see kubectl describe pod")
    return running


def _holder(pods: Sequence[Pod], identity: str) -> Pod | None:
    """Return the pod of an identity, which starts with the host name: the pod's name, or its node's on hostNetwork."""
    host = identity.partition("_")[0]
    for pod in pods:
        if host in (pod.metadata.name[:_NAME_LENGTH], pod.spec.node_name):
            return pod
    return None
