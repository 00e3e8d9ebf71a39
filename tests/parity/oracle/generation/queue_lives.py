"""Generates random lives of a scheduling queue: its plugins, and the calls it receives, step by step.

The choice is biased to what goes wrong in queues: events during attempts, gates that open from outside, updates in
every state, errors between rejections, times just before, at and after whole seconds. The queue decides which pod it
pops, so attempts are named by their number among those in flight. Life ``i`` depends on (seed, i) alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.parity.oracle.generation.world import Json

PLUGINS = ("P0", "P1", "P2", "P3")
_GATES = ("SpecGate", "LabelGate", "OuterGate", "FaultGate")
_COLOURS = ("red", "blue", "")
_NODES = ("n0", "n1", "n2")
_HINTS = ("queue", "queue", "queue", "skip", "colour", "colour", "own", "freed", "error")
_FEWEST_STEPS, _MOST_STEPS = 20, 80

_HAPPENINGS = (
    ("Node", "Add"),
    ("Node", "UpdateNodeLabel"),
    ("Node", "UpdateNodeTaint"),
    ("Node", "Delete"),
    ("AssignedPod", "Add"),
    ("AssignedPod", "UpdatePodLabel"),
    ("AssignedPod", "Delete"),
    ("PersistentVolumeClaim", "Add"),
    ("PersistentVolumeClaim", "Update"),
    ("storage.k8s.io/StorageClass", "Add"),
)
_REGISTERED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Node", ("Add",)),
    ("Node", ("Add", "UpdateNodeLabel", "UpdateNodeTaint")),
    ("Node", ("Add", "Delete", "UpdateNodeTaint")),
    ("Node", ("All",)),
    ("Pod", ("Delete",)),
    ("Pod", ("Add", "UpdatePodLabel")),
    ("Pod", ("UpdatePodLabel", "UpdatePodScaleDown", "UpdatePodToleration")),
    ("Pod", ("Update",)),
    ("Pod", ("All",)),
    ("PersistentVolumeClaim", ("Add", "Update")),
    ("storage.k8s.io/StorageClass", ("Add",)),
    ("*", ("Add",)),
    ("*", ("All",)),
)
_OF_GATES: dict[str, tuple[str, tuple[str, ...]]] = {
    "SpecGate": ("Pod", ("UpdatePodSchedulingGatesEliminated",)),
    "LabelGate": ("Pod", ("UpdatePodLabel",)),
    "OuterGate": ("AssignedPod", ("Delete",)),
    "FaultGate": ("Node", ("Add",)),
}


def queue_life(seed: int, index: int) -> Json:
    """Generate one life.

    Args:
        seed: Any number.
        index: Number of the life.
    """
    return _Life(random.Random(f"{seed}/queue/{index}"), f"queue-{seed}-{index:04d}").made()


class _Life:
    def __init__(self, dice: random.Random, name: str) -> None:
        self._dice = dice
        self._name = name
        self._profiles = {profile: self._profile() for profile in ("one", "two")[: dice.choice((1, 1, 2))]}
        self._pods = [f"p{number}" for number in range(dice.randint(2, 8))]
        self._unit_ms = dice.choice((1000, 500, 125, 100, 100))
        self._has_nominations = dice.random() < 0.6

    def made(self) -> Json:
        dice = self._dice
        # So that sums of tenths end on whole seconds.
        initial = dice.choice((1000, 500, 2000, 1500) if self._unit_ms != 100 else (900, 900, 100, 1000))
        steps = [self._add(self._pods[0])]
        wanted = dice.randint(_FEWEST_STEPS, _MOST_STEPS)
        while len(steps) < wanted:
            steps += self._scene() if dice.random() < 0.25 else [self._step()]
        return {
            "name": self._name,
            "initialBackoffMs": initial,
            "maxBackoffMs": dice.choice((10_000, 10_000, max(initial, 3000), initial, 0)),
            "maxUnschedulableMs": dice.choice((300_000, 60_000, 30_000, 29_500)),
            "profiles": self._profiles,
            "steps": steps,
        }

    def _profile(self) -> Json:
        dice = self._dice
        gates = [gate for gate in _GATES if dice.random() < 0.5]
        if "OuterGate" in gates and "FaultGate" in gates:
            gates.remove(dice.choice(("OuterGate", "FaultGate")))
        plugins: Json = {plugin: [self._registration() for _ in range(dice.randint(0, 4))] for plugin in PLUGINS}
        for gate in gates:
            resource, actions = _OF_GATES[gate]
            if dice.random() < 0.8:
                resource = "Pod" if resource == "AssignedPod" else resource
                hint = dice.choice(("own", "queue")) if gate in ("SpecGate", "LabelGate") else "queue"
                plugins[gate] = [{"resource": resource, "actions": list(actions), "hint": hint}]
            elif dice.random() < 0.5:
                plugins[gate] = [self._registration()]
        return {"gates": gates, "plugins": plugins}

    def _registration(self) -> Json:
        dice = self._dice
        resource, actions = dice.choice(_REGISTERED)
        return {"resource": resource, "actions": list(actions), "hint": dice.choice(_HINTS)}

    # -- scenes -------------------------------------------------------------------------------------------------

    def _scene(self) -> list[Json]:
        return self._dice.choice((self._flight, self._flight, self._waking, self._rivals))()

    def _flight(self) -> list[Json]:
        """Return an attempt with events during it, which fails."""
        meanwhile = [self._meanwhile() for _ in range(self._dice.randint(1, 4))]
        return [self._pop(), *meanwhile, self._fail()]

    def _waking(self) -> list[Json]:
        """Return a rejected pod, and events that may requeue it, some of them as its backoff ends."""
        return [self._pop(), self._fail(), *(self._meanwhile() for _ in range(self._dice.randint(2, 5))), self._pop()]

    def _rivals(self) -> list[Json]:
        """Return several concurrent attempts that end in any order."""
        number = self._dice.randint(2, 3)
        return [*(step for _ in range(number) for step in (self._pop(), self._meanwhile())), *(self._fail(),) * number]

    def _meanwhile(self) -> Json:
        makers = (self._event, self._event, self._event, self._update, self._activate, self._moment, self._gate)
        return self._dice.choice(makers)()

    def _moment(self) -> Json:
        return {"op": "advance", "ms": self._dice.choice((1, 999, 1000, 1001, self._unit_ms, 2 * self._unit_ms))}

    # -- steps --------------------------------------------------------------------------------------------------

    def _step(self) -> Json:
        makers: dict[Callable[[], Json], int] = {
            self._come: 8,
            self._pop: 18,
            self._fail: 18,
            self._update: 12,
            self._event: 16,
            self._advance: 16,
            self._gate: 4,
            self._activate: 5,
            self._land: 3,
            self._go: 3,
            self._nominate: 4 if self._has_nominations else 0,
        }
        return self._dice.choices(list(makers), list(makers.values()))[0]()

    def _any_pod(self) -> str:
        return self._dice.choice(self._pods)

    def _labels(self) -> dict[str, str]:
        dice = self._dice
        labels = {"colour": dice.choice(_COLOURS)}
        if dice.random() < 0.15:
            labels["held"] = "yes"
        return labels

    def _add(self, name: str, op: str = "add") -> Json:
        dice = self._dice
        return {
            "op": op,
            "pod": {
                "name": name,
                "profile": dice.choice(list(self._profiles)),
                "priority": dice.choice((0, 0, 0, 5, 10)),
                "labels": self._labels(),
                "gated": dice.random() < 0.15,
                "nominated": dice.choice(_NODES) if self._has_nominations and dice.random() < 0.2 else "",
                "tolerations": 0,
                "cpu": 100,
                "note": "",
            },
        }

    def _come(self) -> Json:
        return self._add(self._any_pod(), self._dice.choice(("add",) * 9 + ("appear",)))

    def _pop(self) -> Json:
        return {"op": "pop"}

    def _fail(self) -> Json:
        dice = self._dice
        step: Json = {"op": "fail", "nth": dice.randrange(8)}
        if dice.random() < 0.75:
            by = dice.sample(PLUGINS, dice.choice((1, 1, 2, 3)))
            pending = [plugin for plugin in by if dice.random() < 0.15]
            step["pending"] = pending
            step["rejected"] = [plugin for plugin in by if plugin not in pending]
        if self._has_nominations and dice.random() < 0.4:
            step["node"] = dice.choice((*_NODES, ""))
        return step

    def _land(self) -> Json:
        return {"op": self._dice.choice(("permitted", "permitted", "bound")), "nth": self._dice.randrange(8)}

    def _update(self) -> Json:
        dice = self._dice
        changes: dict[str, Callable[[], object]] = {
            "labels": self._labels,
            "gated": lambda: dice.random() < 0.3,
            "priority": lambda: dice.choice((0, 5, 10)),
            "nominated": lambda: dice.choice((*_NODES, "")) if self._has_nominations else "",
            "tolerations": lambda: dice.randrange(3),
            "cpu": lambda: dice.choice((50, 100, 200)),
            "note": lambda: dice.choice("abc"),
        }
        chosen = dice.sample(sorted(changes), dice.choice((1, 1, 1, 2, 3)))
        return {"op": "update", "name": self._any_pod(), "set": {key: changes[key]() for key in chosen}}

    def _event(self) -> Json:
        dice = self._dice
        resource, action = dice.choice(_HAPPENINGS)
        event: Json = {"resource": resource, "action": action}
        if action != "Add":
            event["old"] = {"colour": dice.choice(_COLOURS)}
        if action != "Delete":
            event["new"] = {"colour": dice.choice(_COLOURS)}
        step: Json = {"op": "event", "event": event}
        if dice.random() < 0.15:
            step["maxPriority"] = dice.choice((0, 5))
        elif dice.random() < 0.1:
            step["but"] = self._any_pod()
        return step

    def _advance(self) -> Json:
        dice, unit = self._dice, self._unit_ms
        if dice.random() < 0.8:
            ms = dice.choice((unit, unit, 2 * unit, 1000, 1000, 3000, 5 * unit))
        else:
            ms = dice.choice((11_000, 11_000, 30_000, 31_000, 61_000, 300_000))
        return {"op": "advance", "ms": ms}

    def _gate(self) -> Json:
        return {"op": "gate", "name": self._any_pod(), "closed": self._dice.random() < 0.5}

    def _activate(self) -> Json:
        chosen = self._dice.sample(self._pods, self._dice.randint(1, min(3, len(self._pods))))
        return {"op": "activate", "names": chosen}

    def _go(self) -> Json:
        return {"op": self._dice.choice(("delete", "delete", "recreate")), "name": self._any_pod()}

    def _nominate(self) -> Json:
        dice = self._dice
        if dice.random() < 0.3:
            return {"op": "unnominate", "name": self._any_pod()}
        return {"op": "nominate", "name": self._any_pod(), "node": dice.choice(_NODES)}
