"""Pods that hold devices, and a pod or gang of higher priority that needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from scheduler_core.config.profile_config import PreemptionSettings, ProfileConfig
from scheduler_core.model.devices import ResourceClaim, ResourceClaimStatus
from scheduler_core.model.pod import Pod
from tests.support.builders import pod
from tests.support.devices import DRIVER, claim, device, exactly, slice_of, using, with_reserved
from tests.support.gang_devices import claimant, device_rig, gang, report
from tests.support.gang_preemption import small_node
from tests.support.recording_claim_writer import RecordingClaimWriter
from tests.support.scheduling import DEFAULT_NAME, Rig


def served(*, devices: bool) -> tuple[Rig, RecordingClaimWriter]:
    """Return a scheduler whose profile preempts for devices or not, and the writer with the stored claims."""
    made, writer = device_rig()
    made.serve(ProfileConfig(scheduler_name=DEFAULT_NAME, preemption=PreemptionSettings(devices=devices)))
    return made, writer


def holder(name: str, node: str, *claims: str, priority: int = 0) -> Pod:
    """Return a running pod that uses claims; its UID is its name."""
    made = pod(name, node_name=node, namespace="ns", uid=name, priority=priority, requests={"cpu": "100m"})
    return using(made, *claims)


def held(name: str, device_name: str, *pods: str, pool: str = "a") -> ResourceClaim:
    """Return a claim that has a device and is reserved for pods."""
    results = [{"request": "r", "driver": DRIVER, "pool": pool, "device": device_name}]
    return with_reserved(claim(exactly("r"), name=name, allocation={"devices": {"results": results}}), *pods)


def pending(name: str, *claims: str, priority: int = 1) -> Pod:
    """Return a pod without a node that needs claims."""
    return using(pod(name, namespace="ns", priority=priority, requests={"cpu": "100m"}), *claims)


def deallocate(made: Rig, writer: RecordingClaimWriter, name: str) -> None:
    """Report that the API server has removed the allocation of a claim, as kube-controller-manager does."""
    old = writer.claims[f"ns/{name}"]
    new = writer.store(replace(old, status=ResourceClaimStatus()))
    made.scheduler.device_feed.updated(old, new)


def end_victims(made: Rig, writer: RecordingClaimWriter, victims: Sequence[Pod]) -> None:
    """Report that the victims of a preemption are deleted, and that their claim ``shared`` has lost its devices."""
    for each in victims:
        made.scheduler.feed.pod_deleted(each)
    deallocate(made, writer, "shared")


async def idle(made: Rig) -> None:
    """Wait until the running scheduler is idle; the clock advances while pods are bound."""
    task = asyncio.get_running_loop().create_task(made.scheduler.until_idle())
    while not task.done():
        await asyncio.sleep(0)
        if made.scheduler.binding_count:
            made.clock.advance(0.01)


def shared_by_two(*, devices: bool) -> tuple[Rig, RecordingClaimWriter, Sequence[Pod]]:
    """Return node ``a``, whose device is in use by a claim that pods ``v0`` and ``v1`` share, and a pending pod."""
    made, writer = served(devices=devices)
    victims = [holder("v0", "a", "shared"), holder("v1", "a", "shared")]
    report(made, writer, small_node("a"), slice_of([device("d0")], node="a"), held("shared", "d0", "v0", "v1"))
    report(made, writer, *victims, claim(exactly("r"), name="own"), pending("high", "own"))
    return made, writer, victims


def full(nodes: str = "a", *, devices: bool = True) -> tuple[Rig, RecordingClaimWriter]:
    """Return a scheduler and nodes with one device, which pod ``v-NODE`` of priority 0 uses with claim ``of-NODE``."""
    made, writer = served(devices=devices)
    for name in nodes:
        report(made, writer, small_node(name, 8), slice_of([device("d0")], node=name))
        report(made, writer, held(f"of-{name}", "d0", f"v-{name}", pool=name), holder(f"v-{name}", name, f"of-{name}"))
    return made, writer


def free(made: Rig, writer: RecordingClaimWriter, node: str = "a") -> None:
    """End the pod that uses the device of a node."""
    name = f"of-{node}"
    made.scheduler.feed.pod_deleted(holder(f"v-{node}", node, name))
    deallocate(made, writer, name)


def gang_without_devices(*, devices: bool) -> tuple[Rig, RecordingClaimWriter]:
    """Return a gang of two of higher priority than the pods that use the devices of nodes ``a`` and ``b``."""
    made, writer = full("ab", devices=devices)
    gang(made, 2)
    for number in range(2):
        report(made, writer, *claimant(f"train-{number}", exactly("r"), priority=2, requests={"cpu": "100m"}))
    return made, writer
