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
        nodes: Number of nodes.
        pending: Number of pending pods.
        groups: Number of groups of pending pods.
    """
    return {
        "overview": overview(nodes, pending),
        "pending": pending_work(pending, groups),
        "gangs": known("gangs"),
        "nodes": node_map(nodes),
        "profiles": known("profiles"),
        "rates": rates(),
        "watches": known("watches"),
        "work?namespace=batch&pod=render-0": known("pod"),
        "work?namespace=ml&podgroup=train": known("gang"),
        "work?namespace=ml&podgroup=train&api=bayplan.dev": known("gang"),
        _ROOM: room(nodes),
        **{f"node?name=worker-{node:04}": node_card(f"worker-{node:04}") for node in range(nodes)},
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
    """Return a document of ``tests/page/known``: gangs, profiles, and the explanations of a pod and of a gang."""
    found: Document = json.loads((_KNOWN / f"{name}.json").read_text(encoding="utf-8"))
    return found


def overview(nodes: int, pending: int) -> Document:
    """Return the overview."""
    return {
        "version": "0.1.0",
        "role": "",
        "uptimeSeconds": 93_784.0,
        "time": "2026-11-23T13:02:12Z",
        "nodes": nodes,
        "pods": 48_213,
        "pending": pending,
        "gangsWaiting": 3,
        "places": {
            "active": 120,
            "backoff": 380,
            "unschedulable": pending - 700,
            "gated": 200,
            "parked": 0,
            "inFlight": 0,
        },
        "cluster": {"version": "v1.37.1", "missing": []},
        "utilisation": [
            {"resource": "pods", "used": 48_213, "allocatable": 110 * nodes, "text": f"48213 / {110 * nodes}"},
            {"resource": "cpu", "used": 131_400_000, "allocatable": 160_000_000, "text": "131400 / 160000 cores"},
            {"resource": "memory", "used": 470, "allocatable": 625, "text": "470 / 625 TiB"},
            {"resource": "example.com/gpu", "used": 3_920, "allocatable": 4_000, "text": "3920 / 4000"},
        ],
        "devices": [{"driver": "gpu.example.com", "inUse": 61, "devices": 64}],
        "missing": [],
        "objectives": rates()["objectives"],
        "problems": problems(),
        "command": "bayplan status",
    }


def problems() -> list[Document]:
    """Return a problem of each kind."""
    return [
        {
            "kind": "profile",
            "title": "profile latency: spec rejected",
            "text": 'spec.plugins.score.enabled[0].name: unknown plugin "NodeNme": did you mean NodeName?',
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
            "text": "cpu: 34 requested of 32; another client binds pods to it, or its allocatable amounts were reduced",
            "link": "#/nodes?node=worker-0003",
        },
        {
            "kind": "watch",
            "title": "watch of resourceslices is stale",
            "text": "the API server has sent nothing for more than 120 s",
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
    return {
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
        "fragmentation": [
            {"resource": "cpu", "free": 28_600_000, "largestFree": 31_000, "unusableShare": 0.214},
            {"resource": "memory", "free": 170 << 40, "largestFree": 120 << 30, "unusableShare": None},
            {"resource": "example.com/gpu", "free": 80, "largestFree": 6, "unusableShare": 0.45},
        ],
        "rackLabel": _RACK_LABEL,
        "zoneLabel": _ZONE_LABEL,
        "command": "kubectl describe nodes",
    }


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
    """Return the dry run of a number of pods, of which at most 16 fit on four nodes."""
    fits = min(wanted, 16)
    message = "" if fits == wanted else "0/5000 nodes are available: 5000 Insufficient cpu."
    nodes = [[f"worker-{node:04}", fits // 4] for node in range(0, 16, 4)]
    return {"wanted": wanted, "fits": fits, "domain": f"{_ZONE_LABEL}=zone-0", "nodes": nodes, "message": message}


def node_card(name: str) -> Document:
    """Return a node with two pods."""
    amounts = [
        ("pods", "2", "110", "108", 0.0182),
        ("cpu", "30", "32", "2", 0.9375),
        ("memory", "96Gi", "128Gi", "32Gi", 0.75),
    ]
    return {
        "name": name,
        "unschedulable": False,
        "held": "",
        "amounts": [
            dict(zip(("resource", "used", "allocatable", "free", "share"), each, strict=True)) for each in amounts
        ],
        "taints": ["dedicated=db:NoSchedule"],
        "labels": {"kubernetes.io/hostname": name, _ZONE_LABEL: "zone-0"},
        "pods": [
            {"pod": "web/cache-1", "priority": 100, "requests": "2 cpu, 32Gi memory"},
            {"pod": "batch/render-3", "priority": 0, "requests": "28 cpu, 64Gi memory"},
        ],
        "omitted": 0,
        "nominated": ["batch/render-0"],
        "reservation": "gang ml/train",
        "command": f"kubectl describe node {name}",
    }


def rates(points: int = 360) -> Document:
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
                10_000 - at * 4,
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
        "lostBinds": 0,
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
