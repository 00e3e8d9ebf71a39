"""A pod whose claims cannot be allocated on any node, and its explanation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scheduler_core.devices.records import DeviceFeatures
from scheduler_core.dry_run_assembly import Explainers
from scheduler_core.explain.device_findings import DeviceFindings, device_findings, problem_text
from scheduler_core.explain.findings import Unblocking
from scheduler_core.explain.nearest_nodes import near_misses
from scheduler_core.model.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import node, pod
from tests.support.devices import DRIVER, device, device_class, slice_of, using
from tests.support.presence import present
from tests.support.scheduling import Rig, default_rig

DeviceObject = ResourceSlice | DeviceClass | DeviceTaintRule | ResourceClaim
MODEL = f'device.attributes["{DRIVER}"].model == "{{}}"'
A100, H100, L4 = (MODEL.format(name) for name in ("a100", "h100", "l4"))
GPUS = device_class("gpu", f'device.driver == "{DRIVER}"')


class RejectedPod:
    """Rejected pod with claims in a cluster with nodes ``n0``, ``n1``, ...

    Args:
        objects: Slices, taint rules and claims of other pods.
        features: Feature gates of devices; None for the defaults.
    """

    def __init__(
        self,
        claims: Sequence[ResourceClaim],
        *objects: DeviceObject,
        nodes: int = 1,
        features: DeviceFeatures | None = None,
    ) -> None:
        options = SchedulerOptions(device_features=features or DeviceFeatures())
        self.made: Rig = default_rig(*(node(f"n{number}") for number in range(nodes)), options=options)
        self.columns = self.made.columns
        for each in (GPUS, *objects, *claims):
            self.columns.devices.assign(each)
        self.pod = using(pod("p", namespace="ns"), *(each.metadata.name for each in claims))
        instance = present(self.made.context.profiles.get(self.pod.spec.scheduler_name))
        self.instance = instance
        self.found = self.made.scheduler.cycles.examiner.examine(instance, self.columns.compile_pod(self.pod))

    @property
    def findings(self) -> DeviceFindings:
        """Device findings of the nodes."""
        return present(device_findings(self.columns, self.instance, self.found))

    def obstacles(self) -> list[tuple[str, str, int]]:
        """Return request, reason and number of nodes of each obstacle."""
        rows = range(self.columns.size)
        return [(each.request or "", each.reason, each.nodes) for each in self.findings.rejections(rows)]

    def problems(self) -> list[tuple[int, list[str]]]:
        """Return the groups of devices: their number, and the problems with the claims that cause them."""
        return [
            (group.devices, [problem_text(each, list(group.holders)) for each in group.problems])
            for group in self.findings.groups(range(self.columns.size))
        ]

    def details(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return the details of the nearest nodes."""
        misses = near_misses(self.columns, self.instance, self.found, 5, self.findings)
        return [(miss.node, lack.details) for miss in misses for lack in miss.lacks]

    def events(self) -> list[Unblocking]:
        """Return the events that would requeue the pod."""
        findings = device_findings(self.columns, self.instance, self.found)
        misses = near_misses(self.columns, self.instance, self.found, 5, findings)
        scheduler = self.made.scheduler
        explainers = Explainers(scheduler.context, scheduler.cycles, scheduler.reservations)
        return list(explainers.unblocking.find(self.instance, self.found, misses, findings))


def gpus(*models: str, node_name: str = "n0", **fields: Any) -> ResourceSlice:
    """Return a slice with a device ``d0``, ``d1``, ... of each model."""
    return slice_of([device(f"d{number}", model) for number, model in enumerate(models)], node=node_name, **fields)
