"""A scheduler for gangs whose members need devices."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Unpack

from scheduler_core.model.devices import ResourceClaim, ResourceSlice
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.scheduler import SchedulerOptions, SchedulerPorts
from tests.support.builders import PodFields
from tests.support.devices import Body, claim, device_class, using, with_meta
from tests.support.gangs import group, member
from tests.support.recording_claim_writer import RecordingClaimWriter
from tests.support.scheduling import DEFAULT_NAME, Rig, configured, gang_rig


def device_rig(*, backtrack: bool = True, steps: int | None = None) -> tuple[Rig, RecordingClaimWriter]:
    """Return a scheduler with the DeviceClass ``gpu`` and without nodes, and the writer with the stored claims."""
    writer = RecordingClaimWriter()
    options = SchedulerOptions(gangs_backtrack=backtrack)
    made = gang_rig(options=options, ports=SchedulerPorts(claims=writer), serve=False)
    args: dict[str, object] = {} if steps is None else {"gangSearchSteps": steps}
    made.serve(configured(DEFAULT_NAME, "DynamicResources", args))
    made.columns.devices.assign(device_class())
    return made, writer


def report(made: Rig, writer: RecordingClaimWriter, *objects: Node | ResourceSlice | ResourceClaim | Pod) -> None:
    """Report objects as added, and store claims in the writer."""
    devices = made.columns.devices
    for each in objects:
        if isinstance(each, ResourceClaim):
            devices.assign(writer.store(each))
        elif isinstance(each, ResourceSlice):
            devices.assign(each)
        else:
            made.add(each)


def owned(user: Pod, *requests: Body, constraints: Sequence[Body] = ()) -> ResourceClaim:
    """Return the claim that was created from a template for a pod."""
    found = claim(*requests, name=f"claim-of-{user.metadata.name}", constraints=list(constraints))
    owner = OwnerReference(
        api_version="v1", kind="Pod", name=user.metadata.name, uid=user.metadata.uid, controller=True
    )
    return with_meta(found, owner_references=(owner,))


def claimant(
    name: str,
    *wanted: Body,
    shared: Sequence[str] = (),
    constraints: Sequence[Body] = (),
    **fields: Unpack[PodFields],
) -> list[Pod | ResourceClaim]:
    """Return a member of the gang ``train`` in namespace ``ns``, after the claim for its requests."""
    fields["namespace"] = "ns"
    user = member(name, **fields)
    if not wanted:
        return [using(user, *shared)]
    own = owned(user, *wanted, constraints=constraints)
    return [own, using(user, *shared, templates={"gpu": own.metadata.name})]


def gang(made: Rig, min_member: int) -> None:
    """Report the PodGroup ``ns/train``."""
    made.scheduler.group_feed.group_changed(group(min_member=min_member, namespace="ns"))


async def settled(made: Rig) -> None:
    """Run the scheduler until it is idle; the clock advances while pods are bound, so that conflicts are retried."""
    async with made.running():
        idle = asyncio.get_running_loop().create_task(made.scheduler.until_idle())
        while not idle.done():
            await asyncio.sleep(0)
            if made.scheduler.binding_count:
                made.clock.advance(0.01)


def in_use(made: Rig) -> dict[tuple[str, str], list[str]]:
    """Return the devices in use by pool, including shared devices."""
    allocated = made.columns.devices.hardware.allocated
    return {key: sorted([*usage.dedicated, *usage.shares]) for key, usage in allocated._pools.items()}
