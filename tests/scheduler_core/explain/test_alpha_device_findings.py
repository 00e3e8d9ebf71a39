"""Device findings with alpha feature gates: compatibility groups, and node operations that devices skip."""

from __future__ import annotations

from scheduler_core.devices.records import DeviceFeatures
from scheduler_core.model.devices import ResourceClaim
from tests.support.devices import allocated_claim, claim, device, exactly, slice_of, with_reserved
from tests.support.rejected_claims import DeviceObject, RejectedPod
from tests.support.tables import table

ON = DeviceFeatures(compatibility_groups=True, optional_node_operations=True)
COUNTERS = slice_of(name="counters", sharedCounters=[{"name": "card", "counters": {"slots": {"value": "7"}}}], count=2)
USED = with_reserved(allocated_claim({"device": "d0"}), "train")
NEEDS = "feature DRAOptionalNodeOperations, which the node does not declare"
SKIPPING = [slice_of([device("d0")], skipNodeOperations=["*"])]


def card_with_groups(*groups: list[str]) -> list[DeviceObject]:
    """Return slices of a card with one device for each list of compatibility groups."""
    consumed = [
        {"counterSet": "card", "counters": {"slots": {"value": "1"}}, "compatibilityGroups": each} for each in groups
    ]
    rows = [device(f"d{number}", consumesCounters=[each]) for number, each in enumerate(consumed)]
    return [slice_of(rows, count=2), COUNTERS]


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
