"""Generates changes of objects around a waiting pod, to compare queueing hints.

A change is chosen so that it matters to the pod: labels that its selectors match, ports and disks that it needs, nodes
that are just large enough, claims that it names. It starts from an admitted case of a family, so the objects are as an
API server serves them. Change ``k`` of a case depends on (seed, the case's name, k) alone.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator

from tests.parity.oracle.generation import hint_devices, hint_nodes, hint_pods, hint_storage
from tests.parity.oracle.generation.hint_scene import Scene
from tests.parity.oracle.generation.world import Json

Maker = Callable[[Scene], Json | None]

_MAKERS: dict[Maker, int] = {
    hint_nodes.added: 5,
    hint_nodes.updated: 12,
    hint_nodes.deleted: 1,
    hint_pods.added: 4,
    hint_pods.updated: 6,
    hint_pods.deleted: 5,
    hint_pods.unplaced: 4,
    hint_pods.bound: 1,
    hint_pods.own: 8,
    hint_storage.volume: 4,
    hint_storage.claim: 5,
    hint_storage.storage_class: 3,
    hint_storage.csi_node: 4,
    hint_storage.csi_driver: 2,
    hint_storage.capacity: 3,
    hint_storage.attachment: 2,
    hint_pods.surrounding: 1,
    hint_devices.claim: 12,
    hint_devices.device_class: 4,
    hint_devices.resource_slice: 3,
    hint_devices.claim_status: 5,
}


def hint_case(case: Json, seed: int, number: int) -> Json:
    """Generate a change of something in a case.

    Args:
        case: An admitted case; it is not modified.
        seed: Any number.
        number: Number of the change of this case.
    """
    dice = random.Random(f"{seed}/hints/{case['name']}/{number}")
    while True:
        scene = Scene(copy.deepcopy(case), dice)
        hint_pods.dress(scene)
        maker = dice.choices(list(_MAKERS), list(_MAKERS.values()))[0]
        change = maker(scene)
        if change is not None:
            break
    made = scene.case
    made["name"] = f"{case['name']}-hint-{number}"
    made["change"] = change
    return made


def hint_cases(admitted: Iterator[Json], seed: int, each: int) -> Iterator[Json]:
    """Make ``each`` changes of every case."""
    for case in admitted:
        for number in range(each):
            yield hint_case(case, seed, number)


def kind_of(change: Json) -> str:
    """Name a change for a table: its kind and what happened."""
    happened = "add" if not change.get("old") else "delete" if not change.get("new") else "update"
    return f"{change['kind']}/{happened}"
