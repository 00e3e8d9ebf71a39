"""Devices in use: stored claims and allocations in flight are each counted once."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.devices.pools import AllocatedDevices
from scheduler_core.model.devices import AllocationResult, ResourceClaim
from tests.support.devices import DRIVER, allocated_claim, claim
from tests.support.presence import present

KEY = (DRIVER, "n0")


def usage_of_node(allocated: AllocatedDevices) -> dict[str, Any]:
    usage = allocated.usage(KEY)
    if usage is None:
        return {}
    shares = {name: (one.count, {k: v for k, v in one.consumed.items() if v}) for name, one in usage.shares.items()}
    return {"dedicated": dict(usage.dedicated), "shares": shares}


def share(device: str, share_id: str, amount: str = "1") -> dict[str, Any]:
    return {"device": device, "shareID": share_id, "consumedCapacity": {"memory": amount}}


def allocation(one: ResourceClaim) -> AllocationResult:
    assert one.status.allocation is not None
    return one.status.allocation


def test_dedicated_devices_and_shares() -> None:
    allocated = AllocatedDevices()
    allocated.put_claim(
        allocated_claim(
            {"device": "d0"}, {"device": "d1", "adminAccess": True}, share("d2", "x"), share("d2", "y", "2")
        )
    )
    assert usage_of_node(allocated) == {"dedicated": {"d0": 1}, "shares": {"d2": (2, {"memory": 3 * 10**9})}}
    usage = present(allocated.usage(KEY))
    assert [usage.uses(name) for name in ("d0", "d1", "d2")] == [True, False, True]


def test_shares_use_whole_devices_without_consumable_capacity() -> None:
    allocated = AllocatedDevices(consumable_capacity=False)
    allocated.put_claim(allocated_claim(share("d2", "x")))
    assert usage_of_node(allocated) == {"dedicated": {"d2": 1}, "shares": {}}


def test_a_stored_allocation_replaces_the_one_in_flight() -> None:
    allocated = AllocatedDevices()
    stored = allocated_claim({"device": "d0"})
    allocated.put_in_flight("held", allocation(stored))
    assert usage_of_node(allocated)["dedicated"] == {"d0": 1}
    allocated.put_claim(stored)
    assert usage_of_node(allocated)["dedicated"] == {"d0": 1}
    allocated.remove_in_flight("held")
    assert usage_of_node(allocated)["dedicated"] == {"d0": 1}
    allocated.put_claim(claim(name="held"))
    assert usage_of_node(allocated) == {}


def test_a_deleted_claim_in_flight_uses_its_devices() -> None:
    allocated = AllocatedDevices()
    allocated.put_in_flight("held", allocation(allocated_claim({"device": "d0"})))
    allocated.remove_claim("held")
    assert usage_of_node(allocated)["dedicated"] == {"d0": 1}
    allocated.remove_in_flight("held")
    assert usage_of_node(allocated) == {}


RESULTS = st.lists(
    st.one_of(
        st.sampled_from(("d0", "d1")).map(lambda name: {"device": name}),
        st.just({"device": "d0", "adminAccess": True}),
        st.builds(share, st.sampled_from(("d2", "d3")), st.sampled_from("xy"), st.sampled_from(("0", "1", "500m"))),
    ),
    max_size=3,
)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(("put", "remove", "put in flight", "remove in flight", "deallocate")),
        st.sampled_from("abc"),
        RESULTS,
    ),
    max_size=15,
)


@given(EVENTS)
def test_incremental_usage_equals_a_rebuild(events: list[tuple[str, str, list[dict[str, Any]]]]) -> None:
    allocated = AllocatedDevices()
    stored: dict[str, ResourceClaim] = {}
    in_flight: dict[str, ResourceClaim] = {}
    for action, uid, results in events:
        one = allocated_claim(*results, name=uid)
        revision, before = allocated.revision, usage_of_node(allocated)
        if action == "put":
            allocated.put_claim(one)
            stored[uid] = one
        elif action == "remove":
            allocated.remove_claim(uid)
            stored.pop(uid, None)
        elif action == "deallocate":
            allocated.put_claim(claim(name=uid))
            stored.pop(uid, None)
        elif action == "put in flight":
            allocated.put_in_flight(uid, allocation(one))
            in_flight[uid] = one
        else:
            allocated.remove_in_flight(uid)
            in_flight.pop(uid, None)
        fresh = AllocatedDevices()
        for effective in {**in_flight, **stored}.values():
            fresh.put_claim(effective)
        assert usage_of_node(allocated) == usage_of_node(fresh)
        assert usage_of_node(allocated) == before or allocated.revision > revision
