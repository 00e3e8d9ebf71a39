"""Tests GpuShares in a simulated cluster, its guarantees, and how it follows pods through assume, bind and failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bayplan.simulation.admission import admit
from bayplan.simulation.cluster_files import read_cluster_files
from bayplan.simulation.memory_cluster import MemoryCluster, SimulatedClock
from bayplan.simulation.simulation import simulate
from bayplan_example_plugins.gpu_shares import GpuShares
from bayplan_example_plugins.gpu_shares.args import Policy
from bayplan_example_plugins.gpu_shares.gpu_columns import parse_devices, reservations

from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.errors import ClusterWriteError, ConfigError
from scheduler_core.framework.object_reads import annotations_of
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.registry import Registry
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Binding
from scheduler_core.scheduler import Scheduler

pytest_plugins = ["bayplan.testing"]

MANIFESTS = Path(__file__).resolve().parents[1] / "gpu-shares"
MILLI, MODEL, DEVICES = "gpu.example.com/milli", "gpu.example.com/model", "gpu.example.com/devices"
WORKLOAD = [
    {"cpuMilli": 2000, "gpuMilli": 300, "weight": 5},
    {"cpuMilli": 4000, "gpuMilli": 1000, "models": ["A"], "weight": 3},
    {"cpuMilli": 8000, "gpuMilli": 2000, "weight": 2},
    {"cpuMilli": 500, "weight": 2},
]


def node(name: str, gpus: int, *, cpu: int = 32, model: str = "A") -> dict[str, Any]:
    amounts = {"cpu": str(cpu), "memory": "64Gi", "pods": "110", MILLI: str(gpus * 1000)}
    return {"metadata": {"name": name, "uid": name, "labels": {MODEL: model}}, "status": {"allocatable": amounts}}


def pod(name: str, milli: int, *, on: str = "", devices: str | None = None, cpu: str = "1") -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu, MILLI: str(milli)}, "limits": {MILLI: str(milli)}}
    annotations = {} if devices is None else {DEVICES: devices}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "annotations": annotations},
        "spec": {
            "schedulerName": "gpus",
            "nodeName": on,
            "containers": [{"name": "main", "image": "main", "resources": resources}],
        },
    }


class RefusingCluster(MemoryCluster):
    """A cluster that rejects the first binds."""

    refusals = 0

    async def bind(self, binding: Binding) -> None:
        if self.refusals:
            self.refusals -= 1
            raise ClusterWriteError("rejected")
        await super().bind(binding)


class World:
    """A scheduler with the plugin, its score alone, and a cluster in memory."""

    def __init__(
        self,
        *nodes: Mapping[str, Any],
        policy: str = "BestFit",
        profiles: tuple[str, ...] = ("gpus",),
        without: str = "NodeName",
    ) -> None:
        registry = in_tree_registry()
        registry.register(GpuShares)
        self.types = registry.decoded_types()
        self.cluster = RefusingCluster()
        self.scheduler = Scheduler(SimulatedClock(), self.cluster, registry=registry)
        self.scheduler.activate([self.scheduler.build(profile(policy, name, without)) for name in profiles])
        self.cluster.watch(self.scheduler.feed)
        for each in nodes:
            self.scheduler.feed.node_added(msgspec.convert(each, self.types.node))

    def add(self, document: Mapping[str, Any]) -> Pod:
        made = msgspec.convert(document, self.types.pod)
        self.cluster.add_pod(made)
        return made

    def decide(self) -> Any:
        """Run the scheduling cycle of the next pod; None if it was rejected."""
        queued = self.scheduler.context.queue.pop()
        assert isinstance(queued, QueuedPod)
        return self.scheduler.cycles.pods.schedule(queued)

    def schedule(self, *documents: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
        """Schedule and bind pods one after the other; return the node and the GPUs of each."""

        async def run() -> None:
            for document in documents:
                self.add(document)
                attempt = self.decide()
                if attempt is not None:
                    await self.scheduler.cycles.binding.bind(attempt)
                await asyncio.sleep(0)

        asyncio.run(run())
        return {each["metadata"]["name"]: self.placed(each["metadata"]["name"]) for each in documents}

    def placed(self, name: str) -> tuple[str, str]:
        found = self.cluster.pod("default", name)
        assert found is not None
        return found.spec.node_name, annotations_of(found).get(DEVICES, "")

    def reason(self, name: str) -> str:
        found = self.cluster.pod("default", name)
        assert found is not None
        return found.status.conditions[0].message


def profile(policy: str, name: str, without: str) -> ProfileConfig:
    args: dict[str, Any] = {"policy": policy}
    if policy == "Fragmentation":
        args["workload"] = WORKLOAD
    return ProfileConfig.model_validate(
        {
            "schedulerName": name,
            "plugins": {
                "multiPoint": {"enabled": [{"name": "GpuShares"}]},
                "filter": {"disabled": [{"name": without}]},
                "score": {"enabled": [{"name": "GpuShares"}], "disabled": [{"name": "*"}]},
            },
            "pluginConfig": [{"name": "GpuShares", "args": args}],
        }
    )


@pytest.fixture
def registry() -> Registry:
    plugins = in_tree_registry()
    plugins.register(GpuShares)
    return plugins


def test_the_manifests_are_placed_as_they_say(registry: Registry) -> None:
    """The notebooks share a GPU and leave the V100s to the pod that needs them; the last pod gets a reason."""
    files = [str(file) for file in sorted(MANIFESTS.glob("*.yaml"))]
    placed = {
        each.name: each
        for each in simulate(admit(read_cluster_files(files, registry.decoded_types())), registry=registry).pods
    }
    assert {name: each.node for name, each in placed.items()} == {
        "notebook-1": "gpu-b",
        "notebook-2": "gpu-b",
        "notebook-3": "gpu-b",
        "training": "gpu-a",
        "waits": None,
    }
    assert "1 node(s) had no GPU with enough free for the share" in str(placed["waits"].reason)


@pytest.mark.parametrize("policy", [each.value for each in Policy])
def test_the_plugin_keeps_its_guarantees(check_plugin: Callable[..., None], policy: str) -> None:
    """Results can be reused, and computed for some nodes only, under every policy."""
    nodes = [node("a", 4, cpu=16), node("b", 2, cpu=16, model="B"), node("c", 8, cpu=64)]
    pods = [
        pod("p1", 300, devices="0"),
        pod("p2", 500, devices="1"),
        pod("p3", 1000, devices="1", cpu="2"),
        pod("p4", 2000, devices="0,1"),
        pod("p5", 1500),
        pod("p6", 400, devices="x"),
        pod("p7", 200),
    ]
    args = {"policy": policy, "workload": WORKLOAD}
    check_plugin(GpuShares, args=args, nodes=nodes, pods=pods, rounds=15)


@pytest.mark.parametrize("policy", [each.value for each in Policy])
def test_no_gpu_is_overcommitted(policy: str) -> None:
    """Under every policy each share is on one GPU, each whole GPU belongs to one pod, and nothing that fits waits."""
    world = World(node("a", 2), node("b", 2), policy=policy)
    amounts = [300, 1000, 600, 400, 1000, 700, 300, 300]
    placed = world.schedule(*(pod(f"p{number}", milli) for number, milli in enumerate(amounts)))
    used: dict[tuple[str, str], int] = {}
    for (name, devices), milli in zip(placed.values(), amounts, strict=True):
        if name:
            assert len(devices.split(",")) == 1
            used[name, devices] = used.get((name, devices), 0) + milli
    assert max(used.values()) <= 1000
    waiting = [milli for (name, _), milli in zip(placed.values(), amounts, strict=True) if not name]
    free = [1000 - used.get((name, device), 0) for name in "ab" for device in "01"]
    assert all(milli > max(free) for milli in waiting)


def test_whole_gpus_are_idle_ones() -> None:
    """Two whole GPUs are never a GPU with a share, although the sum of the node would be enough."""
    world = World(node("a", 3))
    world.schedule(pod("share", 100), pod("two", 2000), pod("one", 1000))
    assert world.placed("share") == ("a", "0")
    assert world.placed("two") == ("a", "1,2")
    assert world.placed("one") == ("", "")


@pytest.mark.parametrize(
    ("running", "milli", "reason"),
    [
        pytest.param(
            [(600, "0"), (600, "1"), (600, "2")], 500, "node(s) had no GPU with enough free for the share", id="share"
        ),
        pytest.param([(100, "0"), (100, "1")], 2000, "node(s) had too few idle GPUs", id="whole"),
        pytest.param([], 4000, "node(s) had too few GPUs", id="too many"),
        pytest.param([], 1500, "neither a share of one GPU nor whole GPUs", id="neither"),
        pytest.param([(100, None)], 100, "node(s) had a pod whose GPUs are unknown", id="no annotation"),
        pytest.param([(100, "7")], 100, "node(s) had a pod whose GPUs are unknown", id="no such GPU"),
        pytest.param([(1000, "0,1")], 100, "node(s) had a pod whose GPUs are unknown", id="not what it requests"),
        pytest.param([(100, "first")], 100, "node(s) had a pod whose GPUs are unknown", id="no number"),
    ],
)
def test_reasons(running: list[tuple[int, str | None]], milli: int, reason: str) -> None:
    """A pod that does not fit gets the reason, and a node whose GPUs are not known gets no pod."""
    world = World(node("a", 3), without="NodeResourcesFit")
    for number, (amount, devices) in enumerate(running):
        world.add(pod(f"running-{number}", amount, on="a", devices=devices))
    world.schedule(pod("p", milli))
    assert world.placed("p") == ("", "")
    assert reason in world.reason("p")


def test_an_assumed_pod_has_its_gpus_before_it_is_bound() -> None:
    """Pods that are decided before the first is bound, by another profile too, get other GPUs."""
    world = World(node("a", 2), profiles=("gpus", "others"))
    first, second = pod("first", 1000), pod("second", 1000)
    second["spec"]["schedulerName"] = "others"
    world.add(first)
    world.add(second)
    attempts = [world.decide(), world.decide()]
    assert sorted(reservations[attempt.info] for attempt in attempts) == [(0,), (1,)]


def test_a_failed_bind_gives_the_gpus_back() -> None:
    """After a rejected bind the GPU is free for the next pod."""
    world = World(node("a", 1))
    world.cluster.refusals = 1
    placed = world.schedule(pod("rejected", 1000), pod("next", 1000))
    assert placed == {"rejected": ("", ""), "next": ("a", "0")}
    assert "default/rejected" not in [info.key for info in reservations]


def test_a_deleted_pod_gives_its_gpus_back() -> None:
    """The GPUs of a pod that ends are free, and those of the others stay theirs."""
    world = World(node("a", 2))
    world.schedule(pod("first", 1000), pod("second", 1000))
    gone = world.cluster.pod("default", "first")
    assert gone is not None
    world.cluster.remove_pod(gone)
    assert world.schedule(pod("third", 1000)) == {"third": ("a", "0")}


def test_gpus_are_read_from_annotations_after_a_restart() -> None:
    """A new scheduler reads the GPUs of the running pods."""
    world = World(node("a", 2))
    world.add(pod("running", 1000, on="a", devices="0"))
    assert world.schedule(pod("p", 1000)) == {"p": ("a", "1")}


def test_a_pod_without_gpus_is_bound_without_annotation() -> None:
    """DefaultBinder binds it."""
    world = World(node("a", 1))
    plain = pod("plain", 0)
    plain["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    assert world.schedule(plain) == {"plain": ("a", "")}


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        pytest.param({"policy": "Fragmentation"}, r"args\.workload.*list at least one", id="no workload"),
        pytest.param(
            {"policy": "Fragmentation", "workload": [{"gpuMilli": 1500}]},
            r"args\.workload\[0\]\.gpuMilli.*neither a share",
            id="neither share nor whole",
        ),
        pytest.param({"policy": "WorstFit"}, r"args\.policy", id="unknown policy"),
    ],
)
def test_bad_args_are_reported_with_their_path(args: dict[str, Any], problem: str) -> None:
    """Args that make no sense are rejected, with the field and the remedy."""
    config = {
        "schedulerName": "gpus",
        "plugins": {"multiPoint": {"enabled": [{"name": "GpuShares"}]}},
        "pluginConfig": [{"name": "GpuShares", "args": args}],
    }
    with pytest.raises(ConfigError, match=problem):
        World().scheduler.build(ProfileConfig.model_validate(config))


@pytest.mark.parametrize(
    ("text", "devices"),
    [("0", (0,)), ("0,3", (0, 3)), ("", None), ("1,1", None), ("-1", None), ("1;2", None), ("٣", None), ("9999", None)],
)
def test_parse_devices(text: str, devices: tuple[int, ...] | None) -> None:
    """Only a list of distinct small numbers is a list of GPUs."""
    assert parse_devices(text) == devices
