"""The number of pods that share a claim: those beyond the limit of ``status.reservedFor`` are rejected, not retried."""

from __future__ import annotations

from scheduler_core.model.devices import MAX_CONSUMERS
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from tests.support.builders import node, pod
from tests.support.devices import allocated_claim, claim, device, exactly, slice_of, using, with_meta, with_reserved
from tests.support.gang_devices import claimant, device_rig, gang, report, settled
from tests.support.presence import present
from tests.support.scheduling import Rig
from tests.support.tables import table

FULL = f"resource claim ns/shared has {MAX_CONSUMERS} consumers, the limit of status.reservedFor"


def world(*, is_allocated: bool = True) -> tuple[Rig, DeviceIndex]:
    """Return a scheduler with one node, one device, and the claim ``shared``."""
    made, writer = device_rig()
    shared = allocated_claim({"device": "d0"}, name="shared") if is_allocated else claim(exactly("r"), name="shared")
    big = node("n0", allocatable={"cpu": "1000", "memory": "1Ti", "pods": "1000"})
    report(made, writer, big, slice_of([device("d0")]), shared)
    return made, made.columns.devices


def users(count: int) -> list[Pod]:
    """Return pods that share the claim."""
    return [using(pod(f"p{number}", namespace="ns", uid=f"p{number}"), "shared") for number in range(count)]


async def all_tried(made: Rig) -> None:
    """Run the scheduler until no pod backs off."""
    for _ in range(4):
        await settled(made)
        made.clock.advance(20)
    await settled(made)


async def test_pods_beyond_the_limit_are_rejected_with_the_reason() -> None:
    """Of 258 pods that share a claim 256 are bound; the others are unschedulable and wait for an event."""
    made, devices = world()
    made.add(*users(MAX_CONSUMERS + 2))
    await all_tried(made)
    assert len(made.bound) == MAX_CONSUMERS
    shared = present(devices.claims.get("ns/shared"))
    assert len(shared.status.reserved_for) == MAX_CONSUMERS
    assert (made.condition.reason, FULL in made.condition.message) == ("Unschedulable", True)
    waiting = [queued for _, queued in made.queue.readings.places()]
    assert [each.rejected_by for each in waiting] == [frozenset({"DynamicResources"})] * 2
    attempts = [each.attempts for each in waiting]
    made.clock.advance(60)
    await settled(made)
    assert [each.attempts for each in waiting] == attempts


async def test_a_gang_of_more_pods_than_the_limit_is_rejected_as_a_whole() -> None:
    """No member of a gang of 258 that share a claim is bound, and the members' condition has the reason."""
    made, devices = world(is_allocated=False)
    gang(made, MAX_CONSUMERS + 2)
    members = [claimant(f"m{number}", shared=("shared",)) for number in range(MAX_CONSUMERS + 2)]
    made.add(*(each for of_member in members for each in of_member if isinstance(each, Pod)))
    await settled(made)
    assert not made.bound
    assert FULL in made.condition.message
    assert not devices.is_full(claim(exactly("r"), name="shared"))


async def test_a_consumer_that_ends_requeues_a_pod_that_waits() -> None:
    """When the claim loses a consumer, a pod that was rejected for the limit is tried and bound."""
    made, devices = world()
    made.add(*users(MAX_CONSUMERS + 1))
    await all_tried(made)
    assert len(made.bound) == MAX_CONSUMERS
    full = present(devices.claims.get("ns/shared"))
    meta = with_meta(full, resource_version="9999").metadata
    fewer = with_meta(
        with_reserved(full, *(each.uid for each in full.status.reserved_for[1:])),
        resource_version=meta.resource_version,
    )
    made.scheduler.device_feed.updated(full, fewer)
    await all_tried(made)
    assert len(made.bound) == MAX_CONSUMERS + 1


@table(
    "reserved, assumed, consumer, expected",
    ("one place is left", MAX_CONSUMERS - 1, 0, "new", False),
    ("all are written", MAX_CONSUMERS, 0, "new", True),
    ("the consumer is one of them", MAX_CONSUMERS, 0, "p0", False),
    ("the last place is assumed", MAX_CONSUMERS - 1, 1, "new", True),
    ("the consumer has the last place", MAX_CONSUMERS - 1, 1, "a0", False),
    ("all are assumed", 0, MAX_CONSUMERS, "new", True),
)
def test_written_and_assumed_consumers_count_once(
    reserved: int, assumed: int, consumer: str, *, expected: bool
) -> None:
    """Consumers whose reservation is written or assumed count once; dropping one makes room."""
    devices = DeviceIndex()
    held = with_reserved(allocated_claim({"device": "d0"}), *(f"p{number}" for number in range(reserved)))
    devices.assign(held)
    uid = held.metadata.uid
    for number in range(assumed):
        for _ in range(2):
            devices.assume_consumer(uid, f"a{number}")
    if reserved:
        devices.assume_consumer(uid, "p0")
    assert devices.is_full(held, consumer) is expected
    for number in range(assumed):
        for _ in range(2):
            devices.drop_consumer(uid, f"a{number}")
    assert devices.is_full(held, "new") is (reserved == MAX_CONSUMERS)
