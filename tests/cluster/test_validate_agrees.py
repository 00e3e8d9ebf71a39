"""``bayplan validate`` and a real API server agree about randomly generated manifests.

The seeds are fixed, and hypothesis is not used, because each manifest costs a request.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from bayplan.cli import bayplan
from click.testing import CliRunner

from hack.controlplane.launcher import ControlPlane, ControlPlaneError
from hack.controlplane.schedulers import install_crds

pytestmark = pytest.mark.cluster
GENERATED = 90
NAMES = ("NodeResourcesFit", "PrioritySort", "NodeName", "*", "")
FIELDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "SchedulerProfile": {
        "schedulerName": ("x", "", 5, "y" * 254),
        "percentageOfNodesToScore": (0, 100, 101, "5", 1.5, None),
        "podInitialBackoffSeconds": (1, 5, 0),
        "podMaxBackoffSeconds": (4, 2**31),
        "plugins": (
            {},
            {"score": {"enabled": [{"name": "NodeResourcesFit", "weight": 2}]}},
            {"score": {"enabled": [{"name": "NodeName"}, {"name": "NodeName"}]}},
            {"score": {"disabled": [{"name": "*"}, {"name": "*"}]}},
            {"scores": {}},
            {"filter": [{"name": "NodeName"}]},
        ),
        "pluginConfig": ([], [{"name": "NodeResourcesFit"}] * 2, [{"args": {}}], [{"name": "InterPodAffinity"}]),
        "extenders": (
            [],
            [{"urlPrefix": "http://x", "httpTimeout": "5s"}],
            [{"urlPrefix": "http://x", "httpTimeout": "5 s"}],
            [{"urlPrefix": "http://x", "managedResources": [{"name": "example.com/a"}]}],
            [{"urlPrefix": "http://x", "managedResources": [{"name": "cpu"}]}],
            [{"urlPrefix": "http://x", "managedResources": [{"name": "a_b/c"}]}],
            [{"urlPrefix": f"http://{number}"} for number in range(9)],
            [{"urlPrefix": "http://x", "tlsConfig": {"caData": "%%"}}],
        ),
        "extra": (1,),
    },
    "PluginConfig": {
        "plugin": ("NodeResourcesFit", "", None, "p" * 254),
        "args": ({}, {"scoringStrategy": {"type": "MostAllocated"}}, [], {"a": None}),
        "arg": ({},),
    },
    "PodGroup": {
        "minMember": (1, 2, 0, "2", None),
        "minResources": ({"cpu": "1"}, {"cpu": -1}, {"cpu": "one"}, {"cpu": 1.5}, {f"r{i}": 1 for i in range(65)}),
        "topology": (
            {"key": "zone"},
            {"key": "a..b/zone"},
            {"key": "zone", "levels": ["zone"]},
            {"key": "zone", "mode": "None"},
            {},
        ),
        "priorityClassName": ("high", "High", ""),
        "queueing": ("Strict", "Fifo"),
    },
}


def generated(seed: int) -> dict[str, Any]:
    """Return a manifest; about half of the seeds give a valid one."""
    source = random.Random(seed)
    kind = source.choice(sorted(FIELDS))
    needed: dict[str, dict[str, Any]] = {"PluginConfig": {"plugin": "NodeResourcesFit"}, "PodGroup": {"minMember": 2}}
    spec = needed.get(kind, {})
    for name in source.sample(sorted(FIELDS[kind]), source.randint(0, 2)):
        spec = {**spec, name: source.choice(FIELDS[kind][name])}
    metadata: dict[str, Any] = {"name": source.choice(["a", "a", "a", "a", "A", "a" * 64])}
    return {"apiVersion": "bayplan.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def test_agreement(control_plane: ControlPlane, namespace: str) -> None:
    """Both reject the same manifests, except for what only plugins validate."""
    install_crds(control_plane)
    accepted, refused, differ = 0, 0, []
    for seed in range(GENERATED):
        text = json.dumps(generated(seed))
        try:
            response = control_plane.kubectl(
                "create", "--dry-run=server", f"--namespace={namespace}", "--filename=-", input=text
            )
            server = True
        except ControlPlaneError as error:
            server, response = False, str(error)
        accepted, refused = accepted + server, refused + (not server)
        result = CliRunner().invoke(bayplan, ["validate", "-"], input=text)
        if (result.exit_code == 0) != server:
            differ.append((text, response[-300:], result.output))
    assert differ == []
    assert min(accepted, refused) > GENERATED // 5
