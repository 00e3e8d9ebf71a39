"""Whole scenarios, drawn: nodes, then pods and events in turn.

Owns the course of a scenario. It must not play it. A drawn scenario is a document in the format of
:mod:`hack.scenarios.scenario`, so that one worth keeping is a file of ``tests/cluster/scenarios`` at once.
"""

from __future__ import annotations

from hack.scenarios.drawing.events import budget, event
from hack.scenarios.drawing.nodes import node, volume_limit
from hack.scenarios.drawing.pods import pod
from hack.scenarios.drawing.scene import PRIORITIES, Json, Scene
from hack.scenarios.drawing.storage import storage_classes

_MOST_PODS = 14
_NODES = (1, 1, 2, 2, 2, 3, 3, 4, 5)


def draw(seed: int, index: int) -> tuple[str, Json]:
    """Draw a scenario.

    Args:
        seed: Of all that are drawn together.
        index: Which of them.

    Returns:
        Its name, which some of its objects mention, and its document.
    """
    scene = Scene(seed, index)
    steps = [{"objects": _beginning(scene)}]
    count = 0
    for _ in range(scene.r.randint(5, 10)):
        if count < _MOST_PODS and scene.p(0.7 if count < 4 else 0.5):
            fresh = [f"p{count + one}" for one in range(scene.r.randint(1, 3))]
            count += len(fresh)
            steps.append({"objects": [one for name in fresh for one in pod(scene, name)]})
        else:
            steps += event(scene)
    return scene.name, {"says": f"Drawn: {', '.join(scene.themes)}.", "steps": steps}


def _beginning(scene: Scene) -> list[Json]:
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
