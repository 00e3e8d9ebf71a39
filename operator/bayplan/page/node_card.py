"""One node with amounts, pods, taints, labels and reservation, on request."""

from __future__ import annotations

from msgspec import Struct

from bayplan.page.page_sources import PageSources
from bayplan.simulation.packing import PODS, devices_title
from scheduler_core.explain.device_problems import taint_text
from scheduler_core.model.pod_requests import CPU, MEMORY, amount_text, is_extended_resource
from scheduler_core.snapshot.indexes.device_index import DeviceUse
from scheduler_core.snapshot.pod_info import PodInfo

_PODS = 250
"""Maximum number of pods in the document."""


class NodeAmount(Struct, frozen=True, rename="camel"):
    """Requested and allocatable amount of a resource.

    Attributes:
        used, allocatable, free: Amounts for people.
        share: Used share, 0 to 1 or more; None if nothing is allocatable.
    """

    resource: str
    used: str
    allocatable: str
    free: str
    share: float | None


class NodePod(Struct, frozen=True, rename="camel"):
    """Pod on a node, with what it requests, for people."""

    pod: str
    priority: int
    requests: str


class NodeCard(Struct, frozen=True, rename="camel", kw_only=True):
    """A node.

    Attributes:
        unschedulable: Whether it is cordoned.
        held: Why it accepts no pods although it is schedulable, "" if it does.
        taints: Taints as kubectl writes them.
        pods: Pods, those with the highest priority first.
        omitted: Number of pods that are not in the document.
        nominated: Pods that are nominated to it.
        reservation: Gang that has reserved it, "" for none.
        command: Command that shows the node.
    """

    name: str
    unschedulable: bool
    held: str
    amounts: tuple[NodeAmount, ...]
    taints: tuple[str, ...]
    labels: dict[str, str]
    pods: tuple[NodePod, ...]
    omitted: int
    nominated: tuple[str, ...]
    reservation: str
    command: str


def read_node(sources: PageSources, name: str, devices: tuple[DeviceUse, ...]) -> NodeCard | None:
    """Return a node; None if it does not exist."""
    context = sources.scheduler.context
    columns = context.cache.columns
    row = columns.row_of(name)
    node = columns.nodes[row] if row >= 0 else None
    if node is None:
        return None
    pods = sorted(columns.pods[row].values(), key=lambda info: (-info.priority, info.key))
    reservation = sources.scheduler.reservations.on_node(name)
    return NodeCard(
        name=name,
        unschedulable=node.spec.unschedulable,
        held=columns.held.reason(name),
        amounts=(*_amounts(sources, row), *(_device_amount(use) for use in devices if use.node_name == name)),
        taints=tuple(map(taint_text, node.spec.taints)),
        labels=dict(sorted(node.metadata.labels.items())),
        pods=tuple(NodePod(info.key, info.priority, _requests(info)) for info in pods[:_PODS]),
        omitted=max(0, len(pods) - _PODS),
        nominated=tuple(sorted(info.key for info in context.queue.nominator.nominated_pods(name))),
        reservation="" if reservation is None else f"gang {reservation.key}",
        command=f"kubectl describe node {name}",
    )


def _amounts(sources: PageSources, row: int) -> list[NodeAmount]:
    columns = sources.scheduler.context.cache.columns
    found = [_amount(PODS, int(columns.pod_count[row]), int(columns.allowed_pods[row]))]
    for column, name in enumerate(columns.resources.keys):
        if not name:
            continue
        used, allocatable = int(columns.requested[column, row]), int(columns.allocatable[column, row])
        if name in (CPU, MEMORY) or used or (allocatable and is_extended_resource(name)):
            found.append(_amount(name, used, allocatable))
    return found


def _amount(name: str, used: int, allocatable: int) -> NodeAmount:
    used_text, all_text, free = (amount_text(name, each) for each in (used, allocatable, max(0, allocatable - used)))
    return NodeAmount(name, used_text, all_text, free, round(used / allocatable, 4) if allocatable else None)


def _device_amount(use: DeviceUse) -> NodeAmount:
    return _amount(devices_title(use.driver), use.in_use, use.devices)


def _requests(info: PodInfo) -> str:
    amounts = info.requests.accounted.items()
    return ", ".join(f"{amount_text(name, amount)} {name}" for name, amount in amounts if amount)
