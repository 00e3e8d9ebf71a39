"""Law: ``bayplan validate`` accepts and rejects KubeSchedulerConfigurations as kube-scheduler does when it starts."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from bayplan.cli import bayplan
from click.testing import CliRunner

from hack.controlplane import binaries

pytestmark = [pytest.mark.cluster, pytest.mark.kube_scheduler]
Json = dict[str, Any]
BASE: Json = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "leaderElection": {"leaderElect": False},
}
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "contexts": [{"name": "c", "context": {"cluster": "c"}}],
    "current-context": "c",
}
FIT = "NodeResourcesFit"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SPREAD = {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "ScheduleAnyway"}
EXTENDER = {"urlPrefix": "http://127.0.0.1:1/x", "filterVerb": "f"}


def profile(**fields: Any) -> Json:
    return {"profiles": [fields]}


def enabled(point: str, *plugins: Json | str) -> Json:
    entries = [{"name": each} if isinstance(each, str) else each for each in plugins]
    return profile(plugins={point: {"enabled": entries}})


def args(plugin: str, **given: Any) -> Json:
    return profile(pluginConfig=[{"name": plugin, "args": given}])


def strategy(kind: str, **given: Any) -> Json:
    return args(FIT, scoringStrategy={"type": kind, **given})


def shape(*points: tuple[int, int]) -> Json:
    return {"requestedToCapacityRatio": {"shape": [{"utilization": at, "score": score} for at, score in points]}}


def constraints(kind: str, *given: Json) -> Json:
    return args("PodTopologySpread", defaultingType=kind, defaultConstraints=list(given))


def extender(**fields: Any) -> Json:
    return {"extenders": [{**EXTENDER, **fields}]}


PROFILE_LISTS: list[Any] = [None, [], {}, "x", [{}], [{}, {}]]
ROWS: list[Json] = [
    {},
    *({"parallelism": value} for value in (0, -1, 1, "16", 1.5, None, 2**31)),
    *({"percentageOfNodesToScore": value} for value in (-1, 0, 100, 101, "5")),
    *({"podInitialBackoffSeconds": value} for value in (0, -1, 20, "1")),
    *({"podMaxBackoffSeconds": value} for value in (0, -1, 1)),
    *({"leaderElection": {"leaderElect": True, **given}} for given in (
        {}, {"leaseDuration": "5s"}, {"renewDeadline": "15s"}, {"renewDeadline": "1s"}, {"retryPeriod": "0s"},
        {"resourceLock": "endpoints"}, {"resourceName": ""}, {"leaseDuration": "x"}, {"foo": 1},
    )),
    {"foo": 1},
    {"Parallelism": 1},
    {"enableProfiling": "yes"},
    {"featureGates": {}},
    {"metadata": {"name": "x"}},
    {"kind": "KubeScheduler"},
    *({"apiVersion": f"kubescheduler.config.k8s.io/{version}"} for version in ("v1beta3", "v1alpha1", "v2")),
    *({"profiles": given} for given in PROFILE_LISTS),
    {"profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]},
    {"profiles": [{"schedulerName": "a"}, {"schedulerName": "b"}]},
    *(profile(schedulerName=name) for name in ("", "a b", "a" * 300)),
    *(profile(percentageOfNodesToScore=value) for value in (-1, 0, 101)),
    *(enabled(point, FIT) for point in ("preEnqueue", "queueSort", "filter", "reserve", "bind", "multiPoint")),
    enabled("Filter", FIT),
    *(enabled("multiPoint", name) for name in ("Nope", "EBSLimits", "SelectorSpread", "noderesourcesfit")),
    *(profile(plugins={point: {"disabled": [{"name": "*"}]}}) for point in ("queueSort", "bind", "filter")),
    enabled("score", FIT, FIT),
    enabled("multiPoint", FIT, FIT),
    *(enabled("score", {"name": "ImageLocality", "weight": weight}) for weight in (2**31, "5", 1.5)),
    profile(pluginConfig=[{"name": FIT}, {"name": FIT}]),
    *(strategy(kind) for kind in ("MostAllocated", "Random", "RequestedToCapacityRatio")),
    *(strategy("LeastAllocated", resources=[{"name": "cpu", "weight": weight}]) for weight in (1, 0, 101, -1)),
    *(strategy("RequestedToCapacityRatio", **shape(*points)) for points in (
        [], [(0, 0), (100, 10)], [(100, 0), (0, 10)], [(0, 11)], [(101, 0)],
    )),
    *(args(FIT, ignoredResources=[name]) for name in ("cpu", "a b")),
    *(args(FIT, ignoredResourceGroups=[name]) for name in ("example.com", "a/b")),
    args(FIT, foo=1),
    *(args(FIT, kind=kind, apiVersion=BASE["apiVersion"]) for kind in ("NodeResourcesFitArgs", "InterPodAffinityArgs")),
    *(args("InterPodAffinity", hardPodAffinityWeight=weight) for weight in (-1, 0, 101)),
    *(args("DefaultPreemption", minCandidateNodesPercentage=value) for value in (-1, 0, 101)),
    args("DefaultPreemption", minCandidateNodesPercentage=0, minCandidateNodesAbsolute=0),
    *(constraints(kind, SPREAD) for kind in ("List", "System", "Other")),
    *(constraints("List", {**SPREAD, field: value}) for field, value in (
        ("maxSkew", 0), ("topologyKey", ""), ("topologyKey", "a b"), ("whenUnsatisfiable", ""),
        ("labelSelector", {"matchLabels": {"a": "b"}}),
    )),
    constraints("List", SPREAD, SPREAD),
    *(args("VolumeBinding", bindTimeoutSeconds=value) for value in (-1, 0, 600)),
    *(args("NodeAffinity", addedAffinity={REQUIRED: {"nodeSelectorTerms": terms}}) for terms in (
        [], [{"matchExpressions": [{"key": "a", "operator": "In"}]}],
        [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}],
    )),
    *(args("NodeResourcesBalancedAllocation", resources=[{"name": "cpu", "weight": weight}]) for weight in (1, 2)),
    *(args("DynamicResources", **{field: value}) for field in ("filterTimeout", "bindingTimeout")
      for value in ("10s", "0s", "-1s", "500ms")),
    *(extender(**fields) for fields in (
        {}, {"prioritizeVerb": "p"}, {"prioritizeVerb": "p", "weight": 1}, {"prioritizeVerb": "p", "weight": -1},
        {"httpTimeout": "x"}, {"enableHTTPS": True}, {"tlsConfig": {"insecure": True, "caData": "eA=="}},
        {"tlsConfig": {"foo": 1}}, {"managedResources": [{"name": "example.com/a"}]}, {"foo": 1},
        {"managedResources": [{"name": "example.com/a"}] * 2}, {"managedResources": [{"name": "cpu"}]},
        {"managedResources": [{"name": "a b"}]},
    )),
    {"extenders": [{**EXTENDER, "bindVerb": "b"}] * 2},
]  # fmt: skip


@pytest.mark.parametrize("fields", [pytest.param(each, id=f"{n}") for n, each in enumerate(ROWS)])
def test_kube_scheduler_agrees(tmp_path: Path, fields: Json) -> None:
    """Both accept or both reject a file.

    Bayplan is stricter on purpose for what kube-scheduler ignores in silence: args of plugins that do not exist, and
    URLs of extenders that cannot be called.
    """
    kubeconfig, file = tmp_path / "kubeconfig", tmp_path / "configuration.yaml"
    kubeconfig.write_text(yaml.safe_dump(KUBECONFIG))
    file.write_text(yaml.safe_dump({**BASE, "clientConnection": {"kubeconfig": str(kubeconfig)}, **fields}))
    reference = binaries.resolve(["kube-scheduler"], binaries.NEWEST)["kube-scheduler"]
    command = [str(reference), f"--config={file}", "--secure-port=0", f"--write-config-to={tmp_path / 'written'}"]
    theirs = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    ours = CliRunner().invoke(bayplan, ["validate", "--allow-default-scheduler", str(file)])
    assert (ours.exit_code == 0) is (theirs.returncode == 0), (fields, theirs.stderr, ours.output)
