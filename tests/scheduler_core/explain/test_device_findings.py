"""Device findings of rejected pods: obstacles of claims and problems of devices, with their exact texts."""

from __future__ import annotations

from typing import Any

from scheduler_core.devices.records import DeviceFeatures
from scheduler_core.model.devices import ResourceClaim
from tests.support.devices import (
    DRIVER,
    allocated_claim,
    alternative,
    claim,
    device,
    exactly,
    first_available,
    slice_of,
    taint_rule,
    with_group,
    with_reserved,
)
from tests.support.rejected_claims import A100, H100, DeviceObject, RejectedPod, gpus
from tests.support.tables import table

ALTERNATIVES = first_available("r", alternative("big", H100), alternative("small", A100, count=2))
COUNTERS = [{"name": "card", "counters": {"memory": {"value": "40Gi"}}}]
PART = [{"counterSet": "card", "counters": {"memory": {"value": "30Gi"}}}]
USED_SHARE = {"device": "d0", "shareID": "s", "consumedCapacity": {"memory": "20Gi"}}
POLICY_UP_TO_8GI = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "8Gi"}}
LIMITED: dict[str, Any] = {
    "capacity": {"memory": {"value": "24Gi", "requestPolicy": POLICY_UP_TO_8GI}},
    "allowMultipleAllocations": True,
}
TAINTED = taint_rule("t", {"key": "x", "effect": "NoSchedule"}, {"device": "d1"})
SHARED: dict[str, Any] = {"capacity": {"memory": {"value": "24Gi"}}, "allowMultipleAllocations": True}


@table(
    "claims, objects, obstacles",
    ("no devices", [claim(exactly("r"))], [], [("", "the node has no devices", 1)]),
    ("no device matches", [claim(exactly("r", H100))], [gpus("a100")], [("r", "needs 1 device, none can be used", 1)]),
    (
        "too few",
        [claim(exactly("r", A100, count=3))],
        [gpus("a100", "a100", "l4")],
        [("r", "needs 3 devices, 2 can be used", 1)],
    ),
    (
        "all, no device matches",
        [claim(exactly("r", H100, allocationMode="All"))],
        [gpus("a100")],
        [("r", "no device can be used", 1)],
    ),
    (
        "all, one in use",
        [claim(exactly("r", allocationMode="All"))],
        [gpus("a100", "a100"), allocated_claim({"device": "d1"})],
        [("r", "needs all devices that match, some of which cannot be used", 1)],
    ),
    (
        "alternatives",
        [claim(ALTERNATIVES)],
        [gpus("a100", "l4")],
        [("r", "none of 2 alternatives has enough devices", 1)],
    ),
    (
        "incomplete pool",
        [claim(exactly("r"))],
        [gpus("a100", count=2)],
        [("r", "a resource pool of the node is incomplete", 1)],
    ),
    (
        "invalid pool",
        [claim(exactly("r"))],
        [slice_of([device("d0"), device("d0")])],
        [("r", "a resource pool of the node is invalid", 1)],
    ),
    (
        "counters for one",
        [claim(exactly("r", count=2))],
        [
            slice_of([device("d0", consumesCounters=PART), device("d1", consumesCounters=PART)], count=2),
            slice_of(name="counters", sharedCounters=COUNTERS, count=2),
        ],
        [("r", "needs 2 devices; the shared counters or capacity suffice for fewer", 1)],
    ),
    (
        "requests compete",
        [claim(exactly("a", A100), exactly("b", A100))],
        [gpus("a100", "l4")],
        [("", "each request has devices alone, but not all of them together", 1)],
    ),
    (
        "matchAttribute",
        [claim(exactly("a"), exactly("b"), constraints=[{"matchAttribute": f"{DRIVER}/model"}])],
        [gpus("a100", "l4")],
        [("", f"matchAttribute {DRIVER}/model: no 2 usable devices have the same value", 1)],
    ),
    (
        "distinctAttribute",
        [claim(exactly("a", count=2), constraints=[{"distinctAttribute": f"{DRIVER}/model"}])],
        [gpus("a100", "a100")],
        [("", f"distinctAttribute {DRIVER}/model: no 2 usable devices have different values", 1)],
    ),
    (
        "one of two constraints",
        [
            claim(
                exactly("a", count=2),
                exactly("b"),
                constraints=[
                    {"matchAttribute": f"{DRIVER}/model", "requests": ["a"]},
                    {"matchAttribute": f"{DRIVER}/none", "requests": ["b"]},
                ],
            )
        ],
        [gpus("a100", "a100", "l4")],
        [("", f"matchAttribute {DRIVER}/none: no usable device has the attribute", 1)],
    ),
    (
        "claims compete",
        [claim(exactly("r", A100)), claim(exactly("r", A100), name="c1")],
        [gpus("a100", "l4")],
        [("", "each claim has devices alone, but not all of them together", 1)],
    ),
    (
        "allocated elsewhere",
        [
            claim(
                exactly("r"),
                allocation={
                    "devices": {"results": [{"request": "r", "driver": DRIVER, "pool": "n7", "device": "d0"}]},
                    "nodeSelector": {
                        "nodeSelectorTerms": [
                            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n7"]}]}
                        ]
                    },
                },
            )
        ],
        [],
        [("", "its devices are on node n7", 1)],
    ),
)
def test_obstacles_name_the_part_that_fails(
    claims: list[ResourceClaim], objects: list[DeviceObject], obstacles: list[tuple[str, str, int]]
) -> None:
    """The obstacle is the first part of the claims that has no devices: a request, a claim, or all claims."""
    assert RejectedPod(claims, *objects).obstacles() == obstacles


def test_obstacles_count_their_nodes() -> None:
    """Nodes with the same obstacle are counted together, and the obstacle with the most nodes is first."""
    slices = [gpus("a100", node_name=f"n{number}") for number in range(3)]
    assert RejectedPod([claim(exactly("r", H100))], *slices, nodes=4).obstacles() == [
        ("r", "needs 1 device, none can be used", 3),
        ("", "the node has no devices", 1),
    ]


@table(
    "wanted, objects, problems",
    (
        "selector of the request",
        exactly("r", H100),
        [gpus("a100", "a100", "l4")],
        [(2, ["model is a100, must be h100"]), (1, ["model is l4, must be h100"])],
    ),
    (
        "selector of the class",
        exactly("r", A100),
        [slice_of([device("d0", "a100")], driver="nic.example.com", pool="nic")],
        [(1, [f"driver is nic.example.com, must be {DRIVER}"])],
    ),
    (
        "in use",
        exactly("r"),
        [
            gpus("a100", "l4"),
            with_reserved(allocated_claim({"device": "d0"}, {"device": "d1"}), "train-0", "train-1"),
        ],
        [(2, ["in use by claim ns/held (pods train-0, train-1)"])],
    ),
    (
        "in use by a claim of a PodGroup",
        exactly("r"),
        [gpus("a100"), with_group(allocated_claim({"device": "d0"}), "train")],
        [(1, ["in use by claim ns/held (PodGroup train; not preempted)"])],
    ),
    (
        "taint of the driver",
        exactly("r"),
        [slice_of([device("d0", taints=[{"key": "ecc", "value": "bad", "effect": "NoSchedule"}])])],
        [(1, ["taint ecc=bad:NoSchedule is not tolerated"])],
    ),
    (
        "taint of a rule",
        exactly("r"),
        [gpus("l4"), taint_rule("t", {"key": "repair", "effect": "NoExecute"}, {"driver": DRIVER})],
        [(1, ["taint repair:NoExecute is not tolerated"])],
    ),
    (
        "capacity",
        exactly("r", capacity={"requests": {"memory": "40Gi"}}),
        [slice_of([device("d0", capacity={"memory": {"value": "24Gi"}}), device("d1")])],
        [(1, ["capacity memory is 24Gi, 40Gi requested"]), (1, ["capacity memory is not set, 40Gi requested"])],
    ),
    (
        "consumed capacity",
        exactly("r", capacity={"requests": {"memory": "10Gi"}}),
        [slice_of([device("d0", **SHARED)]), allocated_claim(USED_SHARE)],
        [(1, ["capacity memory has 4Gi of 24Gi left, 10Gi needed; used by claim ns/held"])],
    ),
    (
        "request policy",
        exactly("r", capacity={"requests": {"memory": "10Gi"}}),
        [slice_of([device("d0", **LIMITED)])],
        [(1, ["the request policy of capacity memory does not allow 10Gi"])],
    ),
    (
        "counters",
        exactly("r"),
        [
            slice_of([device("d0", consumesCounters=PART), device("d1", consumesCounters=PART)], count=2),
            slice_of(name="counters", sharedCounters=COUNTERS, count=2),
            allocated_claim({"device": "d0"}),
        ],
        [
            (1, ["in use by claim ns/held"]),
            (1, ["counter memory of card has 10Gi left, 30Gi needed; used by claim ns/held"]),
        ],
    ),
    (
        "the fewest problems first",
        exactly("r", H100),
        [gpus("a100", "h100"), TAINTED, allocated_claim({"device": "d0"})],
        [
            (1, ["taint x:NoSchedule is not tolerated"]),
            (1, ["model is a100, must be h100", "in use by claim ns/held"]),
        ],
    ),
)
def test_problems_of_devices(wanted: Any, objects: list[DeviceObject], problems: list[tuple[int, list[str]]]) -> None:
    """Devices with equal problems are counted as one group, and the group with the fewest problems is first."""
    assert RejectedPod([claim(wanted)], *objects).problems() == problems


def test_network_devices_are_counted_once() -> None:
    """A network device that three nodes can use counts as one device."""
    found = RejectedPod([claim(exactly("r", H100))], gpus("a100", node_name="", pool="net", allNodes=True), nodes=3)
    (group,) = found.findings.groups(range(found.columns.size))
    assert (group.devices, len(group.nodes), group.example) == (1, 3, f"{DRIVER}/net/d0")


def test_the_nearest_node_has_the_device_with_the_fewest_problems() -> None:
    """Nodes are ranked by the device with the fewest problems; nodes without devices are last."""
    found = RejectedPod(
        [claim(exactly("r", A100))],
        gpus("l4", node_name="n1"),
        gpus("a100", "l4", node_name="n2"),
        with_reserved(allocated_claim({"device": "d0", "pool": "n2"}), "train"),
        gpus("l4", node_name="n3"),
        taint_rule("t", {"key": "x", "effect": "NoSchedule"}, {"pool": "n3"}),
        nodes=4,
    )
    assert found.details() == [
        ("n1", ("request r: device n1/d0: model is l4, must be a100",)),
        ("n2", ("request r: device n2/d0: in use by claim ns/held (pod train)",)),
        ("n3", ("request r: device n3/d0: model is l4, must be a100; taint x:NoSchedule is not tolerated",)),
        ("n0", ("claim ns/c0: the node has no devices",)),
    ]


# -- alpha feature gates: compatibility groups, and node operations that devices skip ----------------------------------


ON = DeviceFeatures(compatibility_groups=True, optional_node_operations=True)
SLOTS = slice_of(name="counters", sharedCounters=[{"name": "card", "counters": {"slots": {"value": "7"}}}], count=2)
USED = with_reserved(allocated_claim({"device": "d0"}), "train")
NEEDS = "feature DRAOptionalNodeOperations, which the node does not declare"
SKIPPING = [slice_of([device("d0")], skipNodeOperations=["*"])]


def card_with_groups(*groups: list[str]) -> list[DeviceObject]:
    """Return slices of a card with one device for each list of compatibility groups."""
    consumed = [
        {"counterSet": "card", "counters": {"slots": {"value": "1"}}, "compatibilityGroups": each} for each in groups
    ]
    rows = [device(f"d{number}", consumesCounters=[each]) for number, each in enumerate(consumed)]
    return [slice_of(rows, count=2), SLOTS]


def skipping() -> ResourceClaim:
    """Return a claim that is allocated to a device whose operations are skipped."""
    result = {"request": "r", "driver": "d", "pool": "p", "device": "x", "skipNodeOperations": ["*"]}
    return claim(exactly("r"), allocation={"devices": {"results": [result]}})


@table(
    "wanted, objects, reason",
    (
        "groups",
        claim(exactly("r", count=2)),
        card_with_groups(["a"], ["b"]),
        "needs 2 devices; the shared counters, capacity or compatibility groups allow fewer",
    ),
    ("skipped operations", claim(exactly("r")), SKIPPING, "needs 1 device, none can be used"),
    ("allocated", skipping(), [], f"its devices need {NEEDS}"),
)
def test_obstacles(wanted: ResourceClaim, objects: list[DeviceObject], reason: str) -> None:
    """The obstacles contain the expected reason of each claim."""
    assert [text for _, text, _ in RejectedPod([wanted], *objects, features=ON).obstacles()] == [reason]


@table(
    "objects, problems",
    (
        "another group",
        [*card_with_groups(["a", "b"], ["c"]), USED],
        [
            "in use by claim ns/held (pod train)",
            "compatibility groups of card are c, must include a or b; used by claim ns/held (pod train)",
        ],
    ),
    (
        "no group",
        [*card_with_groups(["a"], []), USED],
        [
            "in use by claim ns/held (pod train)",
            "compatibility groups of card are none, must include a; used by claim ns/held (pod train)",
        ],
    ),
    (
        "devices in use have none",
        [*card_with_groups([], ["a", "b"]), USED],
        [
            "in use by claim ns/held (pod train)",
            "compatibility groups of card are a and b, must be none; used by claim ns/held (pod train)",
        ],
    ),
    (
        "devices in use contradict each other",
        [*card_with_groups(["a"], ["b"], ["a"]), allocated_claim({"device": "d0"}, {"device": "d1"})],
        [
            "in use by claim ns/held",
            "the devices of card in use have no compatibility group in common; used by claim ns/held",
        ],
    ),
    ("skipped operations", SKIPPING, [f"skipNodeOperations needs {NEEDS}"]),
)
def test_problems(objects: list[DeviceObject], problems: list[str]) -> None:
    """Each device has the expected problems."""
    found = RejectedPod([claim(exactly("r"))], *objects, features=ON).problems()
    assert [texts for _, texts in found] == [[each] for each in problems]


def test_nearest_node() -> None:
    """The details of the nearest node name the feature that the node does not declare."""
    found = RejectedPod([claim(exactly("r"))], *SKIPPING, features=ON)
    assert found.details() == [("n0", (f"request r: device n0/d0: skipNodeOperations needs {NEEDS}",))]
    assert [each.what for each in found.events()] == ["a device for request r published on node n0", "a node added"]


@table(
    "objects, reason",
    ("groups", card_with_groups(["a"]), "a resource pool of the node is incomplete"),
    ("skipped operations", SKIPPING, "the node has no devices"),
)
def test_gates_off(objects: list[DeviceObject], reason: str) -> None:
    """Without the feature gates, slices with these fields count as missing."""
    assert [text for _, text, _ in RejectedPod([claim(exactly("r"))], *objects).obstacles()] == [reason]
