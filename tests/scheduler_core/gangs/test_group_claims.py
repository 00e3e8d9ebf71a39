"""Claims of PodGroups, with the feature gate DRAWorkloadResourceClaims: the claims are reserved for the group."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from scheduler_core.model.devices import ClaimConsumer, ResourceClaim
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import Pod, ResourceClaimReference
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup
from scheduler_core.scheduler import SchedulerOptions, SchedulerPorts
from tests.support.builders import node, pod
from tests.support.devices import claim, device, device_class, exactly, slice_of, using, with_meta
from tests.support.gang_devices import in_use, report, settled
from tests.support.presence import present
from tests.support.recording_claim_writer import RecordingClaimWriter
from tests.support.scheduling import Rig, default_rig
from tests.support.tables import table

KEY = GroupKey(GroupSource.NATIVE, "ns", "train")
BY_NAME = ResourceClaimReference("shared", resource_claim_name="shared")
BY_TEMPLATE = ResourceClaimReference("gpu", resource_claim_template_name="gpu")
GROUP = ClaimConsumer("podgroups", "train", "uid-of-train", "scheduling.k8s.io")


def world(*claims: ResourceClaimReference, is_on: bool = True) -> tuple[Rig, RecordingClaimWriter]:
    """Return a scheduler with two nodes of one device each, and a PodGroup of two members with claims."""
    writer = RecordingClaimWriter()
    options, ports = SchedulerOptions(group_claims=is_on), SchedulerPorts(claims=writer)
    made = default_rig(options=options, ports=ports, groups=[GroupSource.NATIVE])
    made.columns.devices.assign(device_class())
    for name in ("a", "b"):
        report(made, writer, node(name), slice_of([device("d")], node=name))
    made.scheduler.group_feed.group_changed(PodGroup(KEY, GROUP.uid, 2, resource_claims=claims))
    return made, writer


def members(*, names: Sequence[str] = (), template: str = "") -> list[Pod]:
    """Return two members that refer to claims by name, and to a claim created from the template ``gpu``."""
    templates = {"gpu": template} if template else {}
    pods = [pod(f"train-{number}", namespace="ns", group="train") for number in range(2)]
    return [using(each, *names, templates=templates) for each in pods]


def of_group(found: ResourceClaim, *, owner: str = "train", version: str = "v1beta1") -> ResourceClaim:
    """Return a claim that was created for a PodGroup."""
    controller = OwnerReference("PodGroup", owner, GROUP.uid, f"scheduling.k8s.io/{version}", controller=True)
    return with_meta(found, owner_references=(controller,))


def reserved_for(writer: RecordingClaimWriter, name: str) -> tuple[ClaimConsumer, ...]:
    """Return the consumers in a claim's ``reservedFor``."""
    return writer.claims[f"ns/{name}"].status.reserved_for


async def test_claim_by_name_is_reserved_for_the_group() -> None:
    """The claim is reserved once for the group, and both members are bound to the node of its device."""
    made, writer = world(BY_NAME)
    report(made, writer, claim(exactly("r"), name="shared"), *members(names=["shared"]))
    await settled(made)
    assert sorted(made.bound) == ["train-0", "train-1"]
    assert len(set(made.bound.values())) == 1
    assert reserved_for(writer, "shared") == (GROUP,)


@pytest.mark.parametrize("version", ["v1beta1", "v1"])
async def test_claim_of_a_template_is_reserved_for_the_group(version: str) -> None:
    """A claim whose owner is the group is reserved for the group, whatever the version of its API."""
    made, writer = world(BY_TEMPLATE)
    made_claim = of_group(claim(exactly("r"), name="made"), version=version)
    report(made, writer, made_claim, *members(template="made"))
    await settled(made)
    assert sorted(made.bound) == ["train-0", "train-1"]
    assert reserved_for(writer, "made") == (GROUP,)


async def test_claim_that_is_not_in_the_group_spec() -> None:
    """A claim whose entry has another name in the group is reserved for the pods."""
    made, writer = world(replace(BY_NAME, name="other"))
    report(made, writer, claim(exactly("r"), name="shared"), *members(names=["shared"]))
    await settled(made)
    assert sorted(each.name for each in reserved_for(writer, "shared")) == ["train-0", "train-1"]


async def test_member_after_the_quorum() -> None:
    """A later member uses the reservation of its group, and no claim is written."""
    made, writer = world(BY_NAME)
    report(made, writer, claim(exactly("r"), name="shared"), *members(names=["shared"]))
    await settled(made)
    writer.calls.clear()
    late = using(pod("train-2", namespace="ns", group="train"), "shared")
    report(made, writer, late)
    await settled(made)
    assert made.bound["train-2"] == made.bound["train-0"]
    assert writer.calls == []


@table(
    "is_on, owner, text",
    ("gate off", False, "train", "(Pod is not owner)"),
    ("another group", True, "other", "(neither Pod nor PodGroup train is the owner)"),
)
async def test_claim_with_another_owner(is_on: bool, owner: str, text: str) -> None:
    """The members are gated with kube-scheduler's message."""
    made, writer = world(BY_TEMPLATE, is_on=is_on)
    first, second = members(template="made")
    report(made, writer, of_group(claim(exactly("r"), name="made"), owner=owner), first, second)
    await settled(made)
    assert made.bound == {}
    assert in_use(made) == {}
    instance = present(made.context.profiles.get("default-scheduler"))
    queued = present(made.queue.find(first.metadata.uid))
    (message,) = [
        status.message for plugin in instance.pre_enqueue if not (status := plugin.pre_enqueue(queued.info)).is_success
    ]
    assert message == f"ResourceClaim ns/made was not created for Pod ns/train-0 {text}"
