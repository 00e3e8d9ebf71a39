"""Documents of a cluster of known content, as the operator serves them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

Document = dict[str, Any]

HOSTILE = (
    "x<img src=http://127.0.0.1:9/i onerror=document.title=1><script>document.title=2</script>\"'&amp;\u202eevil\x1b[2J"
)
SHOWN = HOSTILE.replace("\u202e", "\\u202e").replace("\x1b", "\\x1b")
ZONES, RACKS = 4, 16
_KNOWN = Path(__file__).with_name("known")
_ROOM = "room?requests=cpu%3D4%2Cmemory%3D8Gi"
_TIME = 1_795_438_000
_ZONE_LABEL, _RACK_LABEL = "topology.kubernetes.io/zone", "example.com/rack"


def documents(nodes: int = 5_000, pending: int = 10_000, groups: int = 40) -> dict[str, Document]:
    """Return the documents of all panels, of a pod and a gang, and of room for a shape.

    Args:
        groups: Number of groups of pending pods.
    """
    shown, waiting, profiles = node_map(nodes), pending_work(pending, groups), known("profiles")
    places = places_of(waiting)
    profiles["profiles"][0]["state"] |= {name: places[name] for name in ("active", "backoff", "unschedulable", "gated")}
    return {
        "overview": overview(shown, places),
        "pending": waiting,
        "gangs": known("gangs"),
        "reservations": known("reservations"),
        "nodes": shown,
        "profiles": profiles,
        "plans": {"plans": [], "isServed": False, "command": "kubectl get rebalanceplans"},
        "rates": rates(pending=pending),
        "watches": watches(shown, places),
        "work?namespace=batch&pod=render-0": known("pod"),
        "work?namespace=ml&podgroup=train": known("gang"),
        "work?namespace=ml&podgroup=train&api=bayplan.dev": known("gang"),
        _ROOM: room(nodes),
        **{f"node?name=worker-{node:04}": node_card(shown, node) for node in range(nodes)},
        "room?pod=batch%2Frender-0": {
            **room(nodes),
            "pod": "batch/render-0",
            "command": "bayplan explain -n batch render-0",
        },
        "room?": {**room(nodes), "pod": "shop/web"},
        f"{_ROOM}&count=64&key={_ZONE_LABEL.replace('/', '%2F')}": room(nodes, least=64),
        f"{_ROOM}&count=8&key={_ZONE_LABEL.replace('/', '%2F')}": room(nodes, least=8),
    }


def known(name: str) -> Document:
    """Return a document of ``tests/page/known``: gangs, reservations, profiles, explanations of a pod and a gang."""
    found: Document = json.loads((_KNOWN / f"{name}.json").read_text(encoding="utf-8"))
    return found


_CAPACITY = {"cpu": 32_000, "memory": 128 << 30, "example.com/gpu": 8}
"""Allocatable amounts of a node that offers the resource."""


def amounts(nodes: Document, resource: str) -> list[tuple[int, int]]:
    """Return used and allocatable amount of each node that offers a resource, by the shares of the map."""
    whole = _CAPACITY[resource]
    return [(whole * level // 1000, whole) for level in nodes["used"][resource] if level >= 0]


def shown(resource: str, amount: int) -> str:
    """Return an amount as the operator shows it."""
    if resource == "cpu":
        return f"{amount / 1000:.3f}".rstrip("0").rstrip(".")
    return f"{amount / (1 << 30):.1f}".removesuffix(".0") + "Gi" if resource == "memory" else str(amount)


def utilisation(nodes: Document) -> list[Document]:
    """Return the sums of the map by resource."""
    found = [("pods", sum(nodes["pods"]), 110 * len(nodes["names"]), "{} / {}")]
    for resource in _CAPACITY:
        used, whole = (sum(each) for each in zip(*amounts(nodes, resource), strict=True)) if nodes["names"] else (0, 0)
        unit = " cores" if resource == "cpu" else ""
        found.append((resource, used, whole, f"{shown(resource, used)} / {shown(resource, whole)}{unit}"))
    return [
        {"resource": name, "used": used, "allocatable": whole, "text": text.format(used, whole)}
        for name, used, whole, text in found
    ]


def fragmentation(nodes: Document) -> list[Document]:
    """Return the free amounts of the map, with known unusable shares."""
    found = []
    for resource, unusable in (("cpu", 0.2137), ("memory", None), ("example.com/gpu", 0.45)):
        free = [max(0, whole - used) for used, whole in amounts(nodes, resource)]
        figures = {"free": sum(free), "largestFree": max(free, default=0), "unusableShare": unusable}
        found.append({"resource": resource, **figures})
    return found


def places_of(waiting: Document) -> dict[str, int]:
    """Return the number of pods by place in the queue."""
    places = dict.fromkeys(("active", "backoff", "unschedulable", "gated", "parked", "inFlight"), 0)
    for group in waiting["groups"]:
        places[group["place"]] += group["count"]
    return places


def overview(nodes: Document, places: dict[str, int]) -> Document:
    """Return the overview of the nodes of a map, and of the pods in a queue."""
    return {
        "version": "0.1.0",
        "role": "",
        "uptimeSeconds": 93_784.0,
        "time": "2026-11-23T13:02:12Z",
        "nodes": len(nodes["names"]),
        "pods": sum(nodes["pods"]),
        "pending": sum(places.values()),
        "gangsWaiting": 3,
        "places": places,
        "cluster": {"version": "v1.37.1", "missing": []},
        "utilisation": utilisation(nodes),
        "devices": [{"driver": "gpu.example.com", "inUse": 61, "devices": 64}],
        "missing": [],
        "objectives": rates()["objectives"],
        "problems": problems(),
        "command": "bayplan status",
    }


def watches(nodes: Document, places: dict[str, int]) -> Document:
    """Return the watches, with the numbers of nodes and pods of the overview."""
    found = known("watches")
    objects = {"nodes": len(nodes["names"]), "pods": sum(nodes["pods"]) + sum(places.values())}
    for watch in found["watches"]:
        watch["objects"] = objects.get(watch["resource"], watch["objects"])
    return found


def problems() -> list[Document]:
    """Return a problem of each kind."""
    return [
        {
            "kind": "profile",
            "title": "profile latency: spec rejected",
            "text": 'spec.plugins.score.enabled[0].name: there is no plugin "NodeNme" (did you mean "NodeName"?); '
            "correct the name or install its package",
            "link": "#/profiles/latency",
        },
        {
            "kind": "plugin",
            "title": "profile latency: 3 attempts ended in an error",
            "text": "NodeResourcesFit: division by zero",
            "link": "#/profiles/latency",
        },
        {
            "kind": "bind",
            "title": "profile batch: 2 binds lost to another client",
            "text": "another client bound pod batch/render-7 to node worker-0003 while it was being bound to "
            "worker-0004; use the schedulerName in one scheduler only",
            "link": "#/profiles/batch",
        },
        {
            "kind": "node",
            "title": "node worker-0003 is overcommitted",
            "text": "cpu: 33.984 requested of 32; another client binds pods to it, or its allocatable amounts were "
            "reduced",
            "link": "#/nodes?node=worker-0003",
        },
        {
            "kind": "watch",
            "title": "watch of resourceslices is stale",
            "text": "the API server has sent nothing for more than 300 s (maxWatchSilence)",
            "link": "#/watches",
        },
        {
            "kind": "object",
            "title": "1 object of pods cannot be decoded",
            "text": "what depends on them fails closed: batch/odd: spec.containers: expected an array",
            "link": "#/watches",
        },
    ]


_CAUSES = (
    (
        "Insufficient cpu",
        "NodeResourcesFit",
        "unschedulable",
        "worker-0412 lacks 1.5 cores of cpu",
        "a pod on worker-0412 with 1.5 cores or more ends: then it fits on worker-0412",
    ),
    (
        "Insufficient example.com/gpu",
        "NodeResourcesFit",
        "unschedulable",
        "gpu-0007 lacks 2 of 8 example.com/gpu",
        "a node is added",
    ),
    (
        "untolerated taint(s)",
        "TaintToleration",
        "unschedulable",
        "worker-0001 has the taint dedicated=db:NoSchedule",
        "a node loses a taint",
    ),
    ("scheduling gates: [example.com/quota]", "SchedulingGates", "gated", "", "the gate example.com/quota is removed"),
    ("first attempt not made yet", "", "active", "", ""),
)


def pending_work(pending: int, groups: int) -> Document:
    """Return pending pods in groups; the first groups have the known causes, the largest group first."""
    weights = [1 / (at + 1) for at in range(groups)]
    counts = [int(pending * weight / sum(weights)) for weight in weights]
    if counts:
        counts[0] += pending - sum(counts)
    return {
        "total": pending,
        "groups": [_group(at, number) for at, number in enumerate(counts)],
        "omitted": 0,
        "command": "bayplan status --all",
    }


def _group(at: int, number: int) -> Document:
    cause, plugin, place, miss, helps = _CAUSES[at % len(_CAUSES)]
    names = [f"batch/render-{at or ''}{pod}" for pod in range(5)]
    return {
        "id": f"group-{at}",
        "cause": cause if at < len(_CAUSES) else f"{cause} (class {at})",
        "plugins": [plugin] if plugin else [],
        "place": place,
        "count": number,
        "oldestSeconds": 11_000.0 - at * 137,
        "nearestMiss": miss,
        "helps": helps,
        "profiles": ["batch"],
        "examples": names,
        "command": f"bayplan explain -n batch render-{at or ''}0",
    }


def node_map(nodes: int) -> Document:
    """Return nodes in zones and racks; every tenth has GPUs, two are unschedulable, one is not ready."""
    random_ = random.Random(7)
    racks: dict[tuple[int, int], list[int]] = {}
    for node in range(nodes):
        racks.setdefault((node % ZONES, node // ZONES % RACKS), []).append(node)
    zones: list[Document] = [{"name": f"zone-{zone}", "racks": []} for zone in range(min(ZONES, nodes))]
    for (zone, rack), inside in sorted(racks.items()):
        zones[zone]["racks"].append({"name": f"rack-{rack:02d}", "nodes": inside})
    loads = [min(1000, max(0, round(random_.gauss(780, 210)))) for _ in range(nodes)]
    # The node that is overcommitted in the list of problems.
    loads[3:4] = [1062][: len(loads[3:4])]
    found: Document = {
        "version": 1,
        "resources": [
            {"name": "cpu", "unit": "cores"},
            {"name": "memory", "unit": "GiB"},
            {"name": "example.com/gpu", "unit": ""},
        ],
        "zones": zones,
        "names": [f"worker-{node:04d}" for node in range(nodes)],
        "used": {
            "cpu": loads,
            "memory": [min(1000, load // 2 + random_.randrange(300)) for load in loads],
            "example.com/gpu": [
                -1 if node % 10 else random_.choice((0, 250, 500, 1000, 1000, 1000)) for node in range(nodes)
            ],
        },
        "pods": [load // 40 for load in loads],
        "unschedulable": [3, 4][: max(0, nodes - 4)],
        "notReady": [5][: max(0, nodes - 5)],
        "rackLabel": _RACK_LABEL,
        "zoneLabel": _ZONE_LABEL,
        "command": "kubectl describe nodes",
    }
    return {**found, "fragmentation": fragmentation(found)}


def room(nodes: int, least: int = 0) -> Document:
    """Return room for a shape: two pods on every seventh node; with *least*, zones with room for that many pods."""
    places = [[node, 2] for node in range(0, nodes, 7)]
    fits = {f"zone-{zone}": 2 * sum(1 for node, _ in places if node % ZONES == zone) for zone in range(ZONES)}
    found = [
        {"key": _ZONE_LABEL, "name": name, "fits": number, "dryRun": None}
        for name, number in fits.items()
        if number >= least
    ]
    return {
        "pod": "cpu=4,memory=8Gi",
        "profile": "batch",
        "profiles": ["batch", "latency"],
        "requests": {"cpu": "4", "memory": "8Gi"},
        "fits": 2 * len(places),
        "nodes": len(places),
        "perNode": places,
        "domains": found if least else [],
        "copies": copies(least) if least else None,
        "rejected": [["Insufficient cpu", nodes - len(places) - 12], ["node(s) had untolerated taint(s)", 12]],
        "message": "",
        "note": "Nodes are those where one such pod is feasible in a dry run.",
        "command": "kubectl describe nodes",
    }


def copies(wanted: int) -> Document:
    """Return the dry run of a number of pods, of which two fit on each of at most eight nodes of the first zone."""
    fits = min(wanted, 16)
    message = "" if fits == wanted else "0/5000 nodes are available: 5000 Insufficient cpu."
    # Each of these nodes is in the first zone and has room.
    nodes = [[f"worker-{node:04}", 2] for node in range(0, 7 * ZONES * fits // 2, 7 * ZONES)]
    return {"wanted": wanted, "fits": fits, "domain": f"{_ZONE_LABEL}=zone-0", "nodes": nodes, "message": message}


def node_card(nodes: Document, node: int) -> Document:
    """Return a node of the map, with its two pods of the highest priority."""
    name, pods = nodes["names"][node], nodes["pods"][node]
    found = [("pods", str(pods), "110", str(110 - pods), pods / 110)]
    for resource, whole in _CAPACITY.items():
        level = nodes["used"][resource][node]
        if level >= 0:
            used = whole * level // 1000
            found.append(
                (resource, *(shown(resource, each) for each in (used, whole, max(0, whole - used))), level / 1000)
            )
    fields = ("resource", "used", "allocatable", "free", "share")
    return {
        "name": name,
        "unschedulable": node in nodes["unschedulable"],
        "held": "",
        "amounts": [dict(zip(fields, each, strict=True)) for each in found],
        "taints": ["dedicated=db:NoSchedule"],
        "labels": {"kubernetes.io/hostname": name, _ZONE_LABEL: f"zone-{node % ZONES}"},
        "pods": [
            {"pod": "web/cache-1", "priority": 100, "requests": "2 cpu, 4Gi memory"},
            {"pod": "batch/render-3", "priority": 0, "requests": "1 cpu, 2Gi memory"},
        ],
        "omitted": max(0, pods - 2),
        "nominated": ["batch/render-0"],
        "reservation": "gang ml/train",
        "command": f"kubectl describe node {name}",
    }


def rates(points: int = 360, pending: int = 10_000) -> Document:
    """Return half an hour of rates, with a burst in the middle."""
    random_ = random.Random(3)
    found = []
    for at in range(points):
        burst = 380 if points // 2 <= at < points // 2 + 40 else 40
        binds = burst + random_.randrange(30)
        found.append(
            [
                _TIME + 5 * at,
                binds,
                binds + random_.randrange(60),
                pending + 4 * (points - 1 - at),
                0.004 + burst / 40_000,
                0.4 + burst / 120,
            ]
        )
    bound = "99 % of the pods are bound within 5 s of their entry in the queue"
    decisions = "99 % of the attempts end within 1 s"
    return {
        "intervalSeconds": 5,
        "points": found,
        "objectives": [
            {"name": "Pods are bound", "objective": bound, "value": "99 % within 3.57 s", "met": True},
            {"name": "Decisions", "objective": decisions, "value": "99 % within 0.0135 s", "met": True},
        ],
        "lostBinds": 2,
        "conflicts": 4,
        "commands": ["bayplan status"],
    }


def with_hostile_text(found: Any) -> Any:
    """Return documents in which every text is hostile, except what links, times and enumerations need."""
    unchanged = {"verdict", "time", "since", "kind", "status", "id", "event", "place", "api", "unit"}
    if isinstance(found, dict):
        return {key: value if key in unchanged else with_hostile_text(value) for key, value in found.items()}
    if isinstance(found, list):
        return [with_hostile_text(each) for each in found]
    return f"{found} {HOSTILE}" if isinstance(found, str) and found else found
