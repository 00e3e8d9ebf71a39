"""Generates scenarios: nodes first, then pods and events in turn.

A generated scenario has the format of :mod:`tests.scenarios.scenario`, so it can be saved unchanged as a file in
``tests/cluster/scenarios``.
"""

from __future__ import annotations

from tests.scenarios.generation.events import budget, event
from tests.scenarios.generation.nodes import node, volume_limit
from tests.scenarios.generation.pods import pod
from tests.scenarios.generation.scene import PRIORITIES, Json, Scene
from tests.scenarios.generation.storage import storage_classes

_MOST_PODS = 14
_NODES = (1, 1, 2, 2, 2, 3, 3, 4, 5)


def generate_scenario(seed: int, index: int) -> tuple[str, Json]:
    """Generate a scenario.

    Args:
        seed: Seed of the series of scenarios.
        index: Index of the scenario in the series.

    Returns:
        The scenario's name, which some of its object names contain, and its document.
    """
    scene = Scene(seed, index)
    steps = [{"objects": _initial_objects(scene)}]
    count = 0
    for _ in range(scene.r.randint(5, 10)):
        if count < _MOST_PODS and scene.p(0.7 if count < 4 else 0.5):
            names = [f"p{count + one}" for one in range(scene.r.randint(1, 3))]
            count += len(names)
            steps.append({"objects": [one for name in names for one in pod(scene, name)]})
        else:
            steps += event(scene)
    return scene.name, {"description": f"Generated: {', '.join(scene.themes)}.", "steps": steps}


def _initial_objects(scene: Scene) -> list[Json]:
    found: list[Json] = []
    for name, value in PRIORITIES.items():
        policy = {"preemptionPolicy": "Never"} if name == "never" else {}
        found.append({"kind": "PriorityClass", "metadata": {"name": name}, "value": value, **policy})
    found += [node(scene, f"n{rank}") for rank in range(scene.pick(_NODES))]
    if "volumes" in scene.themes:
        found += storage_classes(scene)
        found += [volume_limit(scene, name) for name in scene.nodes if scene.p(0.35)]
    if "preemption" in scene.themes and scene.p(0.3):
        found.append(budget(scene))
    return found
