"""Hostile manifests: valid ones, mutated by a seeded random source.

Every manifest could come from the API server as JSON: there is no NaN, no number of thousands of digits and no text
that is not Unicode.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

Document = dict[str, Any]
_Place = tuple[Any, Any]

_POINTS = (
    *("preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score", "reserve", "permit"),
    *("preBind", "bind", "postBind", "multiPoint"),
)
_PLUGINS = (
    *("SchedulingGates", "PrioritySort", "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity"),
    *("NodePorts", "NodeResourcesFit", "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone"),
    *("PodTopologySpread", "InterPodAffinity", "DynamicResources", "DefaultPreemption", "Coscheduling"),
    *("NodeResourcesBalancedAllocation", "ImageLocality", "DefaultBinder", "EBSLimits", "*", "NoSuchPlugin"),
)
_SELECTOR: Document = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
_ARGS: dict[str, Document] = {
    "NodeResourcesFit": {
        "ignoredResources": ["example.com/foo"],
        "ignoredResourceGroups": ["example.org"],
        "scoringStrategy": {
            "type": "RequestedToCapacityRatio",
            "resources": [{"name": "cpu", "weight": 3}, {"name": "memory", "weight": 1}],
            "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]},
        },
    },
    "NodeResourcesBalancedAllocation": {"resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]},
    "PodTopologySpread": {
        "defaultingType": "List",
        "defaultConstraints": [
            {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
    },
    "InterPodAffinity": {"hardPodAffinityWeight": 5, "ignorePreferredTermsOfExistingPods": True},
    "NodeAffinity": {
        "addedAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_SELECTOR]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": _SELECTOR}],
        }
    },
    "DefaultPreemption": {"minCandidateNodesPercentage": 10, "minCandidateNodesAbsolute": 100},
    "VolumeBinding": {"bindTimeoutSeconds": 600},
    "DynamicResources": {"filterTimeout": "10s", "bindingTimeout": "600s"},
    "Coscheduling": {"permitWaitingTimeSeconds": 60, "podGroupRejectPercentage": 10},
}
_EXTENDER: Document = {
    "urlPrefix": "http://127.0.0.1:9/scheduler",
    "filterVerb": "filter",
    "prioritizeVerb": "prioritize",
    "weight": 2,
    "httpTimeout": "5s",
    "nodeCacheCapable": True,
    "managedResources": [{"name": "example.com/gpu", "ignoredByScheduler": True}],
    "ignorable": True,
}
_TEXTS = (
    *("", " ", "*", "true", "-1", "0x10", "1e999999999", "9" * 300, "-" * 70, "a" * 254, "x" * 70_000),
    *("\x1b[2J\x1b]0;owned\x07", "line\nERROR forged", "nul\x00", "\u202egnp.exe", "\u9b5a" * 100, "\U0001f600" * 50),
    *("../../etc/passwd", "/dev/zero", "${jndi:x}", "{{7*7}}", "[/bold]", "%s%n", "'; --", "a/b/c", "A_B.c-", "=cmd"),
    *("http://user:secret@127.0.0.1:9/", "http://[::1", "gopher://x", "5s", "1h" * 64, "99999999h", "٣", "0x1p-2"),
)
_NUMBERS = (-1, 0, 1, 2, 100, 101, 2**31 - 1, 2**31, 2**63 - 1, -(2**63), 2**64, 1e30, 1e308, 5e-324, -0.0, 0.5)


class HostileManifests:
    """Generator of hostile manifests.

    Args:
        seed: Seed; equal seeds generate equal manifests in the same order.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def profile_spec(self) -> Document:
        """Return a spec of a SchedulerProfile."""
        chance = self._random
        spec: Document = {"percentageOfNodesToScore": chance.choice([0, 50, 100])}
        if chance.random() < 0.5:
            spec |= {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 10}
        spec["plugins"] = {
            chance.choice(_POINTS): {
                "enabled": [{"name": chance.choice(_PLUGINS), "weight": chance.randint(0, 100)}],
                "disabled": [{"name": chance.choice(_PLUGINS)}],
            }
            for _ in range(chance.randint(0, 2))
        }
        named = chance.sample(sorted(_ARGS), chance.randint(0, 3))
        spec["pluginConfig"] = [{"name": name, "args": copy.deepcopy(_ARGS[name])} for name in named]
        if chance.random() < 0.3:
            spec["extenders"] = [copy.deepcopy(_EXTENDER)]
        return self._mutated(spec)

    def plugin_config_spec(self) -> Document:
        """Return a spec of a PluginConfig."""
        name = self._random.choice(sorted(_ARGS))
        return self._mutated({"plugin": name, "args": copy.deepcopy(_ARGS[name])})

    def pod_group_spec(self) -> Document:
        """Return a spec of a PodGroup."""
        return self._mutated(
            {
                "minMember": 2,
                "minResources": {"cpu": "4", "memory": "1Gi", "example.com/gpu": 2},
                "scheduleTimeoutSeconds": 60,
                "priorityClassName": "high",
                "topology": {"key": "topology.kubernetes.io/zone", "levels": ["rack"], "mode": "Required"},
                "disruption": "Group",
                "queueing": "Strict",
            }
        )

    def pod(self, name: str, scheduler_name: str) -> Document:
        """Return a pending pod; its name, namespace, scheduler name and phase are not mutated."""
        amounts = {"cpu": "100m", "memory": "64Mi"}
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
        mutated = self._mutated(
            {
                "labels": {"app": "web"},
                "spec": {
                    "priority": 0,
                    "nodeSelector": {"zone": "a"} if self._random.random() < 0.3 else {},
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": amounts}}],
                    "overhead": {"cpu": "10m"},
                    "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
                    "affinity": {
                        "nodeAffinity": {
                            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": _SELECTOR}]
                        },
                        "podAntiAffinity": {
                            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]
                        },
                    },
                    "topologySpreadConstraints": [
                        {**term, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "matchLabelKeys": ["version"]}
                    ],
                },
            }
        )
        spec = mutated.get("spec")
        spec = spec | {"schedulerName": scheduler_name, "nodeName": ""} if isinstance(spec, dict) else spec
        metadata = {"name": name, "namespace": "hostile", "uid": f"uid-{name}", "resourceVersion": "1"}
        return {"metadata": metadata | {"labels": mutated.get("labels")}, "spec": spec, "status": {"phase": "Pending"}}

    def node(self, name: str) -> Document:
        """Return a node that is too small to be preferred; its name is not mutated."""
        amounts = {"cpu": "1", "memory": "1Gi", "pods": "5", "example.com/gpu": "1"}
        mutated = self._mutated(
            {
                "labels": {"zone": "a", "kubernetes.io/hostname": name},
                "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}], "unschedulable": False},
                "status": {
                    "allocatable": amounts,
                    "capacity": amounts,
                    "images": [{"names": ["i"], "sizeBytes": 100}],
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
        )
        metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "labels": mutated.pop("labels", None)}
        return {"metadata": metadata, **mutated}

    # -- mutations ----------------------------------------------------------------------------------------------

    def _mutated(self, document: Document) -> Document:
        mutations: tuple[Callable[[_Place], None], ...] = (
            *(self._replace,) * 4,
            *(self._remove, self._repeat, self._add_field, self._nest, self._swap, self._multiply),
        )
        self._root = {"": copy.deepcopy(document)}
        self._is_large = False
        for _ in range(self._random.choice([0, 1, 1, 1, 2, 3, 6])):
            places = list(_places(self._root[""]))
            if places:
                self._random.choice(mutations)(self._random.choice(places))
        read: Document = json.loads(json.dumps(self._root[""]))  # as from a server: no value is shared
        return read

    def _value(self) -> Any:
        chance = self._random
        match chance.randrange(6):
            case 0 | 1:
                return chance.choice(_TEXTS)
            case 2 | 3:
                return chance.choice(_NUMBERS)
            case 4:
                return chance.choice([None, True, False, [], {}, [[]], [None], {"": None}, [{}], {"a": {"b": []}}])
            case _:
                return self._nested(1, chance.choice([3, 30, 31, 33, 90]))

    def _nested(self, value: Any, levels: int) -> Any:
        for _ in range(levels):
            value = {"a": value} if self._random.random() < 0.5 else [value]
        return value

    def _replace(self, place: _Place) -> None:
        place[0][place[1]] = self._value()

    def _remove(self, place: _Place) -> None:
        del place[0][place[1]]

    def _repeat(self, place: _Place) -> None:
        value = place[0][place[1]]
        if isinstance(value, list) and value:
            value.append(copy.deepcopy(self._random.choice(value)))

    def _multiply(self, place: _Place) -> None:
        if self._is_large:
            return  # the API server accepts only a few megabytes
        self._is_large = True
        value = place[0][place[1]]
        count = self._random.choice([65, 300, 12_000])
        if isinstance(value, list) and value:
            one = self._random.choice(value)
            if len(json.dumps(one)) * count < 1 << 20:
                value.extend([one] * count)
        elif isinstance(value, dict):
            value.update((f"extra-{number}", number) for number in range(count))

    def _add_field(self, place: _Place) -> None:
        value = place[0][place[1]]
        if isinstance(value, dict):
            value[self._random.choice(_TEXTS)[:400]] = self._value()

    def _nest(self, place: _Place) -> None:
        place[0][place[1]] = self._nested(place[0][place[1]], self._random.choice([1, 2, 40]))

    def _swap(self, place: _Place) -> None:
        other = self._random.choice(list(_places(self._root[""])))
        place[0][place[1]], other[0][other[1]] = copy.deepcopy(other[0][other[1]]), copy.deepcopy(place[0][place[1]])


def _places(document: Any) -> Any:
    """Yield every place of a document that can be mutated: its container, and its key or index."""
    pending = [document]
    while pending:
        holder = pending.pop()
        keys = list(holder)[:20] if isinstance(holder, dict) else range(min(len(holder), 20))
        for key in keys:
            yield holder, key
            if isinstance(holder[key], dict | list):
                pending.append(holder[key])
