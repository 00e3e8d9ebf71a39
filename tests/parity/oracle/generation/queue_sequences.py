"""Generation of random sequences of calls of a scheduling queue, with its plugins.

Steps that are likely to reveal errors are frequent, such as events during attempts and times around whole seconds. An
attempt is identified by its number among those in flight, because the queue chooses the pod. A sequence depends only on
seed and index.
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

_EVENTS = (
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
_GATE_EVENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "SpecGate": ("Pod", ("UpdatePodSchedulingGatesEliminated",)),
    "LabelGate": ("Pod", ("UpdatePodLabel",)),
    "OuterGate": ("AssignedPod", ("Delete",)),
    "FaultGate": ("Node", ("Add",)),
}


def queue_sequence(seed: int, index: int) -> Json:
    """Generate one sequence."""
    return _Generator(random.Random(f"{seed}/queue/{index}"), f"queue-{seed}-{index:04d}").sequence()


class _Generator:
    def __init__(self, rng: random.Random, name: str) -> None:
        self._rng = rng
        self._name = name
        self._profiles = {profile: self._profile() for profile in ("one", "two")[: rng.choice((1, 1, 2))]}
        self._pods = [f"p{number}" for number in range(rng.randint(2, 8))]
        self._unit_ms = rng.choice((1000, 500, 125, 100, 100))
        self._has_nominations = rng.random() < 0.6

    def sequence(self) -> Json:
        """Return the sequence."""
        rng = self._rng
        # With these values, sums of tenths of seconds end on whole seconds.
        initial = rng.choice((1000, 500, 2000, 1500) if self._unit_ms != 100 else (900, 900, 100, 1000))
        steps = [self._add(self._pods[0])]
        wanted = rng.randint(_FEWEST_STEPS, _MOST_STEPS)
        while len(steps) < wanted:
            steps += self._steps_of_an_attempt() if rng.random() < 0.25 else [self._step()]
        return {
            "name": self._name,
            "initialBackoffMs": initial,
            "maxBackoffMs": rng.choice((10_000, 10_000, max(initial, 3000), initial, 0)),
            "maxUnschedulableMs": rng.choice((300_000, 60_000, 30_000, 29_500)),
            "profiles": self._profiles,
            "steps": steps,
        }

    def _profile(self) -> Json:
        rng = self._rng
        gates = [gate for gate in _GATES if rng.random() < 0.5]
        if "OuterGate" in gates and "FaultGate" in gates:
            gates.remove(rng.choice(("OuterGate", "FaultGate")))
        plugins: Json = {plugin: [self._registration() for _ in range(rng.randint(0, 4))] for plugin in PLUGINS}
        for gate in gates:
            resource, actions = _GATE_EVENTS[gate]
            if rng.random() < 0.8:
                resource = "Pod" if resource == "AssignedPod" else resource
                hint = rng.choice(("own", "queue")) if gate in ("SpecGate", "LabelGate") else "queue"
                plugins[gate] = [{"resource": resource, "actions": list(actions), "hint": hint}]
            elif rng.random() < 0.5:
                plugins[gate] = [self._registration()]
        return {"gates": gates, "plugins": plugins}

    def _registration(self) -> Json:
        rng = self._rng
        resource, actions = rng.choice(_REGISTERED)
        return {"resource": resource, "actions": list(actions), "hint": rng.choice(_HINTS)}

    def _steps_of_an_attempt(self) -> list[Json]:
        return self._rng.choice(
            (self._failed_attempt, self._failed_attempt, self._requeued_pod, self._parallel_attempts)
        )()

    def _failed_attempt(self) -> list[Json]:
        """Return an attempt that fails, with events during it."""
        concurrent = [self._concurrent_step() for _ in range(self._rng.randint(1, 4))]
        return [self._pop(), *concurrent, self._fail()]

    def _requeued_pod(self) -> list[Json]:
        """Return a rejected pod with events that may requeue it, some of them when its backoff ends."""
        return [
            self._pop(),
            self._fail(),
            *(self._concurrent_step() for _ in range(self._rng.randint(2, 5))),
            self._pop(),
        ]

    def _parallel_attempts(self) -> list[Json]:
        """Return several concurrent attempts that end in any order."""
        number = self._rng.randint(2, 3)
        return [
            *(step for _ in range(number) for step in (self._pop(), self._concurrent_step())),
            *(self._fail(),) * number,
        ]

    def _concurrent_step(self) -> Json:
        makers = (self._event, self._event, self._event, self._update, self._activate, self._short_advance, self._gate)
        return self._rng.choice(makers)()

    def _short_advance(self) -> Json:
        return {"op": "advance", "ms": self._rng.choice((1, 999, 1000, 1001, self._unit_ms, 2 * self._unit_ms))}

    def _step(self) -> Json:
        makers: dict[Callable[[], Json], int] = {
            self._create: 8,
            self._pop: 18,
            self._fail: 18,
            self._update: 12,
            self._event: 16,
            self._advance: 16,
            self._gate: 4,
            self._activate: 5,
            self._end_attempt: 3,
            self._delete: 3,
            self._nominate: 4 if self._has_nominations else 0,
        }
        return self._rng.choices(list(makers), list(makers.values()))[0]()

    def _any_pod(self) -> str:
        return self._rng.choice(self._pods)

    def _labels(self) -> dict[str, str]:
        rng = self._rng
        labels = {"colour": rng.choice(_COLOURS)}
        if rng.random() < 0.15:
            labels["held"] = "yes"
        return labels

    def _add(self, name: str, op: str = "add") -> Json:
        rng = self._rng
        return {
            "op": op,
            "pod": {
                "name": name,
                "profile": rng.choice(list(self._profiles)),
                "priority": rng.choice((0, 0, 0, 5, 10)),
                "labels": self._labels(),
                "gated": rng.random() < 0.15,
                "nominated": rng.choice(_NODES) if self._has_nominations and rng.random() < 0.2 else "",
                "tolerations": 0,
                "cpu": 100,
                "note": "",
            },
        }

    def _create(self) -> Json:
        return self._add(self._any_pod(), self._rng.choice(("add",) * 9 + ("appear",)))

    def _pop(self) -> Json:
        return {"op": "pop"}

    def _fail(self) -> Json:
        rng = self._rng
        step: Json = {"op": "fail", "nth": rng.randrange(8)}
        if rng.random() < 0.75:
            by = rng.sample(PLUGINS, rng.choice((1, 1, 2, 3)))
            pending = [plugin for plugin in by if rng.random() < 0.15]
            step["pending"] = pending
            step["rejected"] = [plugin for plugin in by if plugin not in pending]
        if self._has_nominations and rng.random() < 0.4:
            step["node"] = rng.choice((*_NODES, ""))
        return step

    def _end_attempt(self) -> Json:
        return {"op": self._rng.choice(("permitted", "permitted", "bound")), "nth": self._rng.randrange(8)}

    def _update(self) -> Json:
        rng = self._rng
        changes: dict[str, Callable[[], object]] = {
            "labels": self._labels,
            "gated": lambda: rng.random() < 0.3,
            "priority": lambda: rng.choice((0, 5, 10)),
            "nominated": lambda: rng.choice((*_NODES, "")) if self._has_nominations else "",
            "tolerations": lambda: rng.randrange(3),
            "cpu": lambda: rng.choice((50, 100, 200)),
            "note": lambda: rng.choice("abc"),
        }
        chosen = rng.sample(sorted(changes), rng.choice((1, 1, 1, 2, 3)))
        return {"op": "update", "name": self._any_pod(), "set": {key: changes[key]() for key in chosen}}

    def _event(self) -> Json:
        rng = self._rng
        resource, action = rng.choice(_EVENTS)
        event: Json = {"resource": resource, "action": action}
        if action != "Add":
            event["old"] = {"colour": rng.choice(_COLOURS)}
        if action != "Delete":
            event["new"] = {"colour": rng.choice(_COLOURS)}
        step: Json = {"op": "event", "event": event}
        if rng.random() < 0.15:
            step["maxPriority"] = rng.choice((0, 5))
        elif rng.random() < 0.1:
            step["but"] = self._any_pod()
        return step

    def _advance(self) -> Json:
        rng, unit = self._rng, self._unit_ms
        if rng.random() < 0.8:
            ms = rng.choice((unit, unit, 2 * unit, 1000, 1000, 3000, 5 * unit))
        else:
            ms = rng.choice((11_000, 11_000, 30_000, 31_000, 61_000, 300_000))
        return {"op": "advance", "ms": ms}

    def _gate(self) -> Json:
        return {"op": "gate", "name": self._any_pod(), "closed": self._rng.random() < 0.5}

    def _activate(self) -> Json:
        chosen = self._rng.sample(self._pods, self._rng.randint(1, min(3, len(self._pods))))
        return {"op": "activate", "names": chosen}

    def _delete(self) -> Json:
        return {"op": self._rng.choice(("delete", "delete", "recreate")), "name": self._any_pod()}

    def _nominate(self) -> Json:
        rng = self._rng
        if rng.random() < 0.3:
            return {"op": "unnominate", "name": self._any_pod()}
        return {"op": "nominate", "name": self._any_pod(), "node": rng.choice(_NODES)}
