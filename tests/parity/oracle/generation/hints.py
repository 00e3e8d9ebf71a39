"""Generation of changes of objects around a waiting pod, to compare queueing hints.

Most changes affect the pod, for example by labels that its selectors match. The objects are those of an admitted case.
A change depends only on seed, name of the case, and number.
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
    hint_pods.other_waiting_pod: 4,
    hint_pods.bound: 1,
    hint_pods.update_waiting_pod: 8,
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
    """Generate a change of an object of a case.

    Args:
        case: Admitted case, which is not modified.
    """
    rng = random.Random(f"{seed}/hints/{case['name']}/{number}")
    while True:
        scene = Scene(copy.deepcopy(case), rng)
        hint_pods.add_features(scene)
        maker = rng.choices(list(_MAKERS), list(_MAKERS.values()))[0]
        change = maker(scene)
        if change is not None:
            break
    made = scene.case
    made["name"] = f"{case['name']}-hint-{number}"
    made["change"] = change
    return made


def hint_cases(admitted: Iterator[Json], seed: int, each: int) -> Iterator[Json]:
    """Yield this number of changes of every case."""
    for case in admitted:
        for number in range(each):
            yield hint_case(case, seed, number)


def kind_of(change: Json) -> str:
    """Return the kind of a change for a table: kind of the object and action."""
    action = "add" if not change.get("old") else "delete" if not change.get("new") else "update"
    return f"{change['kind']}/{action}"
