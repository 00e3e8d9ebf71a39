"""Gangs whose members compete for devices, with the feature gate GangDeviceBacktracking."""

from __future__ import annotations

import pytest

from scheduler_core.dry_run_assembly import Explainers
from scheduler_core.errors import ConfigError
from scheduler_core.model.devices import ResourceClaim, ResourceSlice
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.placement.requests import PlacementRequest
from tests.support.builders import node
from tests.support.cluster_state import cluster_state
from tests.support.devices import DRIVER, claim, device, exactly, slice_of
from tests.support.gang_devices import claimant, device_rig, gang, in_use, report, settled
from tests.support.gang_preemption import small_node
from tests.support.gangs import key
from tests.support.presence import present
from tests.support.scheduling import DEFAULT_NAME, Rig, configured
from tests.support.tables import table

LARGE = f'device.attributes["{DRIVER}"].model == "large"'
Objects = list[Node | ResourceSlice | ResourceClaim | Pod]


def devices_of(name: str, *models: str, cpus: int = 4) -> Objects:
    return [
        small_node(name, cpus),
        slice_of([device(f"d{index}", model) for index, model in enumerate(models)], node=name),
    ]


# kubernetes/kubernetes #138765: the first member takes the only device that the second can use.
SAME_NODE: Objects = [
    *devices_of("a", "large", "small"),
    *claimant("train-0", exactly("r")),
    *claimant("train-1", exactly("r", LARGE)),
]
# kubernetes/kubernetes #140097: the first member may use the CPUs of the node whose device the second needs.
OTHER_NODE: Objects = [
    *devices_of("a", "large"),
    node("b"),
    *claimant("train-0", requests={"cpu": "3"}),
    *claimant("train-1", exactly("r"), requests={"cpu": "2"}),
]
SHARED: Objects = [
    # The larger node is the better one for the first member.
    *devices_of("a", "small", cpus=64),
    *devices_of("b", "small", "large"),
    claim(exactly("r"), name="shared"),
    *claimant("train-0", shared=["shared"]),
    *claimant("train-1", exactly("r", LARGE), shared=["shared"]),
]
TWO_OF_ONE: Objects = [
    *devices_of("a", "large", "small", "small"),
    *claimant("train-0", exactly("r", count=2)),
    *claimant("train-1", exactly("r", LARGE)),
]


async def run_gang(objects: Objects, *, backtrack: bool, steps: int | None = None, needed: int = 2) -> Rig:
    """Run the scheduler for a gang; check that nothing stays allocated or assumed if the gang is not scheduled."""
    made, writer = device_rig(backtrack=backtrack, steps=steps)
    gang(made, needed)
    report(made, writer, *objects)
    await settled(made)
    if not made.bound:
        assert made.context.cache.assumed_count == 0
        assert in_use(made) == {}
        assert all(each.status.allocation is None for each in writer.claims.values())
    return made


@table(
    "objects",
    ("the only device for a later member", SAME_NODE),
    ("a claim that the members share", SHARED),
    ("two devices", TWO_OF_ONE),
)
async def test_other_devices_of_earlier_members(objects: Objects) -> None:
    """The gang is scheduled with the feature gate, and waits without it, as with kube-scheduler."""
    assert (await run_gang(objects, backtrack=False)).bound == {}
    assert sorted((await run_gang(objects, backtrack=True)).bound) == ["train-0", "train-1"]


async def test_another_node_of_an_earlier_member() -> None:
    """The first member moves to another node, because the second member needs the node with the device."""
    assert (await run_gang(OTHER_NODE, backtrack=True)).bound == {"train-0": "b", "train-1": "a"}


async def test_claims_get_the_devices_of_the_search() -> None:
    """The claims are allocated the devices that the search found."""
    made, writer = device_rig()
    gang(made, 2)
    report(made, writer, *SAME_NODE)
    await settled(made)
    found = {name: present(each.status.allocation).devices.results for name, each in writer.claims.items()}
    assert {name: [one.device for one in results] for name, results in found.items()} == {
        "ns/claim-of-train-0": ["d1"],
        "ns/claim-of-train-1": ["d0"],
    }


async def test_members_beyond_the_quorum() -> None:
    """A member without a device is not scheduled, and the others are if they meet the quorum."""
    objects = [*SAME_NODE, *claimant("train-2", exactly("r", LARGE))]
    made = await run_gang(objects, backtrack=True)
    assert len(made.bound) == 2
    assert "train-0" in made.bound


IMPOSSIBLE: Objects = [
    *devices_of("a", "large", "small"),
    *claimant("train-0", exactly("r", LARGE)),
    *claimant("train-1", exactly("r", LARGE)),
]


async def test_the_condition_of_an_impossible_gang() -> None:
    """The condition reports that no choice of nodes and devices is feasible."""
    made = await run_gang(IMPOSSIBLE, backtrack=True)
    assert made.bound == {}
    assert "; impossible: no choice of nodes and devices serves all of them (searched in" in made.condition.message


async def test_the_condition_at_the_limit_of_the_search() -> None:
    """The condition reports that the search ended at its limit."""
    made = await run_gang(SAME_NODE, backtrack=True, steps=4)
    assert made.bound == {}
    assert made.condition.message.endswith("; the search over members and devices gave up after 4 steps")


async def test_the_condition_without_the_feature_gate() -> None:
    """Without the feature gate the condition does not mention the search."""
    assert "search" not in (await run_gang(IMPOSSIBLE, backtrack=False)).condition.message


def test_an_invalid_step_limit_is_rejected() -> None:
    """The error message contains the field name gangSearchSteps."""
    made, _ = device_rig()
    with pytest.raises(ConfigError, match=r"gangSearchSteps"):
        made.scheduler.build(configured("p", "DynamicResources", {"gangSearchSteps": 0}))


@table(
    "objects, steps, nodes, text",
    ("fits", SAME_NODE, None, {"ns/train-0": "a", "ns/train-1": "a"}, ""),
    ("impossible", IMPOSSIBLE, None, None, "impossible"),
    ("gave up", SAME_NODE, 4, None, "gave up after 4 steps"),
)
def test_the_dry_run_of_a_gang_with_devices(
    objects: Objects, steps: int | None, nodes: dict[str, str] | None, text: str
) -> None:
    """A dry run returns the result of the next cycle, and changes nothing."""
    made, writer = device_rig(steps=steps)
    gang(made, 2)
    report(made, writer, *objects)
    found, instance = (
        present(made.queue.gangs.get(key(namespace="ns"))),
        present(made.context.profiles.get(DEFAULT_NAME)),
    )
    explainers = Explainers(made.context, made.scheduler.cycles, made.scheduler.reservations)
    request = PlacementRequest.of(found, instance)
    examined = explainers.gangs.examine(request, found, 3)
    # The first dry run may leave the free row of a hypothetical node.
    before = cluster_state(made.context)
    assert explainers.gangs.examine(request, found, 3).device_search == examined.device_search
    assert examined.placement == nodes
    assert text in examined.device_search
    assert bool(text) == bool(examined.device_search)
    assert cluster_state(made.context) == before
    assert in_use(made) == {}
