"""Law: an object that cannot be decoded fails closed, whatever its field and its kind, and recovers.

The objects come through the informers of a scheduler, as lines of a watch. Any field may have a wrong type. No pod is
scheduled by the version before, none because the object is missing, and when a version can be decoded again, all is as
if nothing had been wrong.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from bayplan.kube.served_apis import OPTIONAL, REQUIRED
from bayplan.kube.watches.cluster_informers import ClusterInformers, FeedSink
from bayplan.kube.watches.informer import Informer, InformerOptions
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.in_tree import default_plugins
from scheduler_core.model.taints import Toleration
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from scheduler_core.snapshot.node_columns import HeldNodes
from tests.support.builders import node, pod
from tests.support.devices import using
from tests.support.scheduling import Rig, profile, rig
from tests.support.tables import table

Json = dict[str, Any]
EVERYTHING = Toleration(operator="Exists")


class World:
    """A scheduler with its informers and no connection."""

    def __init__(self, *, is_bare: bool = False) -> None:
        """Make a scheduler with the default plugins, or with none that filters."""
        self.cluster: Rig = rig(serve=False, defaults=None if is_bare else default_plugins(deferred_resizes=False))
        self.cluster.serve(profile())
        connection: Any = None
        options = InformerOptions(seed=1)
        self.informers = ClusterInformers(connection, self.cluster.scheduler, self.cluster.clock, options=options)
        feed = self.cluster.scheduler.device_feed
        for resource, kind in {**REQUIRED, **OPTIONAL}.items():
            sink: FeedSink[Any] = FeedSink(feed.added, feed.updated, feed.deleted, on_unreadable=feed.unreadable)
            self.informers.begin(resource, f"/{resource}", kind, sink)
        self.versions = 0

    def informer(self, resource: str) -> Informer[Any]:
        return self.informers.by_resource[resource]

    def show(self, resource: str, obj: Json, event: str = "MODIFIED") -> None:
        """Deliver a version of an object as the API server does."""
        self.versions += 1
        obj = copy.deepcopy(obj)
        obj["metadata"] = {"uid": f"uid-{obj['metadata']['name']}", **obj["metadata"]}
        obj["metadata"]["resourceVersion"] = str(self.versions)
        informer = self.informer(resource)
        line = b'{"type":"' + event.encode() + b'","object":' + msgspec.json.encode(obj) + b"}"
        informer._apply(informer._decoder.line(line))

    async def bound_node(self, name: str = "probe", **fields: Any) -> str:
        """Create a pod that tolerates everything, try it once, and return its node; "" for none."""
        waiting = pod(name, tolerations=[EVERYTHING], **fields)
        self.cluster.add(waiting)
        found = await self.cluster.attempt()
        self.cluster.scheduler.feed.pod_deleted(waiting)
        return found

    @property
    def held(self) -> HeldNodes:
        return self.cluster.context.cache.columns.held


def as_json(obj: Any) -> Json:
    found: Json = msgspec.json.decode(msgspec.json.encode(obj))
    return found


def node_json(name: str = "a") -> Json:
    found = as_json(node(name, labels={"zone": "1"}, taints=["dedicated=x:NoSchedule"], images={"app": 100}))
    found["spec"]["unschedulable"] = False
    return found


IDENTITY = {("metadata",), *(("metadata", name) for name in ("name", "namespace", "uid", "resourceVersion"))}


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths of all fields below ``metadata``, ``spec`` and ``status``, but for the identity."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in items:
        here = (*path, step)
        if here not in IDENTITY:
            yield here
        yield from leaves(inner, here)


def broken(obj: Json, path: tuple[str | int, ...]) -> Json:
    """Return an object with a value of a wrong type at a path."""
    found = copy.deepcopy(obj)
    parent: Any = found
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = 7 if isinstance(parent[path[-1]], str | dict | list | type(None)) else {"wrong": "type"}
    return found


def broken_versions(obj: Json, resource: str) -> list[tuple[str, Json]]:
    """Return every version with one field of a wrong type that does not decode."""
    found = []
    decoder = World().informer(resource)._decoder
    for path in leaves(obj):
        version = broken(obj, path)
        if not hasattr(decoder.listed(msgspec.Raw(msgspec.json.encode(version))), "object"):
            found.append((".".join(map(str, path)), version))
    return found


NODE = node_json()
BOUND: Json = {
    "metadata": {"name": "old", "namespace": "default", "labels": {"app": "x"}},
    "spec": {
        "nodeName": "a",
        "schedulerName": "default-scheduler",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}],
    },
    "status": {"phase": "Running"},
}
WAITING: Json = {**BOUND, "spec": {**BOUND["spec"], "nodeName": "", "containers": [{"name": "c"}], "priority": 1}}
BROKEN_NODES = broken_versions(NODE, "nodes")
BROKEN_BOUND = broken_versions(BOUND, "pods")
BROKEN_WAITING = broken_versions(WAITING, "pods")


def named(value: object) -> str:
    """Return the ID of a parameter: only fields have one."""
    return value if isinstance(value, str) else ""


@pytest.mark.parametrize(("field", "version"), BROKEN_NODES, ids=named)
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "after a restart"])
async def test_a_node(field: str, version: Json, is_known: bool) -> None:
    """A node accepts no pods, with the reason, whatever they tolerate, until it can be decoded."""
    world = World()
    if is_known:
        world.show("nodes", NODE)
    world.show("nodes", version)
    assert await world.bound_node() == ""
    condition = world.cluster.condition
    assert condition.message.startswith("0/1 nodes are available: 1 node(s) could not be decoded: "), field
    assert "/a" in world.informer("nodes").unreadable
    world.show("nodes", NODE)
    assert await world.bound_node("again") == "a"
    assert world.held.is_empty
    assert not world.informer("nodes").unreadable


@pytest.mark.parametrize("is_bare", [False, True], ids=["default plugins", "no filters"])
async def test_cached_results_of_a_node(is_bare: bool) -> None:
    """Results that were cached while the node was read do not let the next pods of the class pass."""
    world = World(is_bare=is_bare)
    for name in ("a", "b"):
        world.show("nodes", node_json(name))

    async def nodes_of(prefix: str, count: int) -> set[str]:
        found = set()
        for index in range(count):
            world.cluster.add(pod(f"{prefix}{index}", tolerations=[EVERYTHING], requests={"cpu": "1m"}))
            found.add(await world.cluster.attempt())
        return found

    assert await nodes_of("before", 40) == {"a", "b"}
    instance = world.cluster.context.profiles.get("default-scheduler")
    classes = None if instance is None else instance.pod_classes
    assert classes is not None
    assert classes._classes
    for number, (_, version) in enumerate(BROKEN_NODES[:3]):
        world.show("nodes", version)
        assert await nodes_of(f"broken{number}", 5) == {"b"}
        world.show("nodes", NODE)
        assert await nodes_of(f"after{number}", 20) >= {"a"}


async def test_a_pod_that_waits_is_requeued() -> None:
    """The end of the reason requeues the pods that the node rejected."""
    world = World()
    world.show("nodes", BROKEN_NODES[0][1])
    waiting = pod("waits", tolerations=[EVERYTHING])
    world.cluster.add(waiting)
    assert await world.cluster.attempt() == ""
    assert world.cluster.place_of(waiting) == "unschedulable"
    world.show("nodes", NODE)
    assert world.cluster.place_of(waiting) in {"active", "backoff"}


async def test_another_unreadable_version_of_a_pod_requeues_nothing() -> None:
    """A pod on a node that still cannot be decoded does not look like a node that accepts pods again."""
    world = World()
    world.show("nodes", NODE)
    world.show("pods", broken(BOUND, ("spec", "containers")))
    waiting = pod("waits", tolerations=[EVERYTHING])
    world.cluster.add(waiting)
    assert await world.cluster.attempt() == ""
    world.show("pods", broken(BOUND, ("spec", "containers")))
    assert world.cluster.place_of(waiting) == "unschedulable"
    world.show("pods", BOUND)
    assert world.cluster.place_of(waiting) in {"active", "backoff"}


@given(st.lists(st.one_of(st.none(), st.sampled_from(BROKEN_NODES)), max_size=8))
@settings(max_examples=40, deadline=None)
def test_any_sequence_of_versions(versions: list[tuple[str, Json] | None]) -> None:
    """The last version decides: a node is held exactly while it cannot be decoded, and gone when it is deleted."""
    world = World()
    for version in versions:
        world.show("nodes", NODE if version is None else version[1])
        assert world.held.is_empty is (version is None)
        assert world.cluster.context.cache.columns.row_of("a") >= 0
    if versions:
        world.show("nodes", NODE if versions[-1] is None else versions[-1][1], "DELETED")
    assert world.cluster.context.cache.columns.row_of("a") < 0
    assert world.held.is_empty


@pytest.mark.parametrize(("field", "version"), BROKEN_BOUND, ids=named)
async def test_a_known_pod_on_a_node_keeps_its_room(field: str, version: Json) -> None:
    """A version that cannot be decoded frees no room, even if it looks ended."""
    world = World()
    world.show("nodes", NODE)
    world.show("pods", BOUND)
    ended = {**version, "status": {"phase": "Succeeded"}}
    world.show("pods", version if field.startswith("status") else ended)
    assert await world.bound_node("big", requests={"cpu": "2"}) == ""
    world.show("pods", version, "DELETED")
    assert await world.bound_node("again", requests={"cpu": "2"}) == "a"


@pytest.mark.parametrize(("field", "version"), BROKEN_BOUND, ids=named)
async def test_an_unknown_pod_on_a_node(field: str, version: Json) -> None:
    """The room of a pod that was never decoded is unknown: its node accepts no pods, if the node can be read."""
    world = World()
    world.show("nodes", NODE)
    world.show("pods", version)
    has_node = isinstance(version["spec"], dict) and version["spec"].get("nodeName") == "a"
    assert (await world.bound_node() == "") is has_node, field
    if has_node:
        assert "had a pod that could not be decoded" in world.cluster.condition.message
        assert "old" not in world.cluster.condition.message
    world.show("pods", BOUND)
    assert await world.bound_node("again", requests={"cpu": "500m"}) == "a"
    assert await world.bound_node("big", requests={"cpu": "2"}) == ""


@pytest.mark.parametrize(("field", "version"), BROKEN_WAITING, ids=named)
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "new"])
async def test_a_waiting_pod(field: str, version: Json, is_known: bool) -> None:
    """A waiting pod that cannot be decoded is not scheduled; its last version is not either."""
    world = World()
    untainted = {**NODE, "spec": {}}
    world.show("nodes", untainted)
    if is_known:
        world.show("pods", WAITING)
    world.show("pods", version)
    assert world.cluster.queue.pop() is None
    world.show("pods", WAITING)
    assert await world.cluster.attempt() == "a"


# -- other kinds -------------------------------------------------------------------------------------------------------

CLAIM: Json = {
    "metadata": {"name": "data", "namespace": "default", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
    "spec": {"volumeName": "pv", "storageClassName": "fast", "accessModes": ["ReadWriteOnce"]},
    "status": {"phase": "Bound"},
}
VOLUME: Json = {
    "metadata": {"name": "pv"},
    "spec": {
        "capacity": {"storage": "1Gi"},
        "storageClassName": "fast",
        "claimRef": {"namespace": "default", "name": "data", "uid": "uid-data"},
        "csi": {"driver": "d", "volumeHandle": "v"},
    },
    "status": {"phase": "Bound"},
}
CSI_NODE: Json = {"metadata": {"name": "a"}, "spec": {"drivers": [{"name": "d", "allocatable": {"count": 9}}]}}
ATTACHMENT: Json = {
    "metadata": {"name": "va"},
    "spec": {"attacher": "d", "nodeName": "a", "source": {"persistentVolumeName": "pv"}},
}

STORAGE_ROWS = [
    pytest.param("persistentvolumeclaims", CLAIM, ("status",), "could not be decoded", id="claim"),
    pytest.param("persistentvolumes", VOLUME, ("spec", "csi"), "could not be decoded", id="volume"),
    pytest.param("csinodes", CSI_NODE, ("spec", "drivers"), "had a CSINode", id="CSINode"),
    pytest.param("volumeattachments", ATTACHMENT, ("spec", "source"), "had a VolumeAttachment", id="VolumeAttachment"),
]


@pytest.mark.parametrize(("resource", "obj", "path", "reason"), STORAGE_ROWS)
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "new"])
async def test_storage(resource: str, obj: Json, path: tuple[str, ...], reason: str, is_known: bool) -> None:
    """A pod with a claim is not scheduled by a storage object that cannot be decoded."""
    from scheduler_core.model.pod import ClaimVolumeSource, Volume  # noqa: PLC0415 - used here alone

    world = World()
    world.show("nodes", NODE)
    objects = {
        "persistentvolumeclaims": CLAIM, "persistentvolumes": VOLUME, "csinodes": CSI_NODE,
        "volumeattachments": ATTACHMENT,
    }  # fmt: skip
    for each, found in objects.items():
        if each != resource or is_known:
            world.show(each, found)
    volumes = [Volume("v", claim=ClaimVolumeSource("data"))]
    world.show(resource, broken(obj, path))
    assert await world.bound_node(volumes=volumes) == ""
    assert reason in world.cluster.condition.message
    world.show(resource, obj)
    assert await world.bound_node("again", volumes=volumes) == "a"


def test_a_disruption_budget_protects() -> None:
    """A budget allows no disruption: of the pods that it selects, or of all if its selector cannot be read."""
    budget: Json = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}},
        "status": {"disruptionsAllowed": 5, "disruptedPods": {"gone": None}},
    }
    world = World()
    budgets = world.cluster.context.cache.columns.disruption_budgets

    def allowed(labels: dict[str, str]) -> list[int]:
        found = budgets.by_namespace().get("default", {}).values()
        return [each.disruptions_allowed for each in found if each.selector.matches(labels)]

    world.show("poddisruptionbudgets", budget)
    assert (allowed({"app": "x"}), allowed({})) == ([5], [])
    world.show("poddisruptionbudgets", broken(budget, ("status", "disruptionsAllowed")))
    assert (allowed({"app": "x"}), allowed({})) == ([0], [])
    world.show("poddisruptionbudgets", broken(budget, ("spec", "selector")))
    assert (allowed({"app": "x"}), allowed({})) == ([0], [0])
    world.show("poddisruptionbudgets", budget)
    assert (allowed({"app": "x"}), allowed({})) == ([5], [])
    world.show("poddisruptionbudgets", broken(budget, ("spec",)))
    world.show("poddisruptionbudgets", budget, "DELETED")
    assert allowed({"app": "x"}) == []


# -- devices -----------------------------------------------------------------------------------------------------------

ALL_DEVICES = {"a/x/0", "a/x/1", "b/x/0", "b/y/0"}
"""Node, driver and name of every device; each node has a pool of each of its drivers, with the name of the node."""


def result(device: str) -> Json:
    """Return the entry of an allocation for a device."""
    pool, driver, number = device.split("/")
    return {"request": "r", "driver": driver, "pool": pool, "device": number, "consumedCapacity": {"m": "1"}}


def device_claim(name: str, *allocated: str) -> Json:
    status: Json = {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}], "devices": []}
    if allocated:
        status["allocation"] = {"devices": {"results": [result(each) for each in allocated], "config": []}}
    return {
        "metadata": {"name": name, "namespace": "default", "annotations": {"a": "b"}},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "any", "count": 1}}]}},
        "status": status,
    }


class DeviceWorld(World):
    """Two nodes with four devices of two drivers, and a class for all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.show("deviceclasses", {"metadata": {"name": "any"}, "spec": {}})
        for name in "ab":
            self.show("nodes", node_json(name))
        for pool in sorted({each[:3] for each in ALL_DEVICES}):
            self.show("resourceslices", slice_json(pool))

    def chosen_devices(self, prefix: str) -> set[str]:
        """Create a pod for each device, whose claim it may get; return the devices of those that are scheduled."""
        found = set[str]()
        pods = []
        for number in range(len(ALL_DEVICES)):
            name = f"{prefix}{number}"
            self.show("resourceclaims", device_claim(name))
            user = using(pod(name, tolerations=[EVERYTHING]), name)
            pods.append(user)
            self.cluster.add(user)
            self.cluster.decide()
            for held in self.devices.in_flight_of(user.metadata.uid):
                found |= {f"{each.pool}/{each.driver}/{each.device}" for each in held.allocation.devices.results}
        for number, user in enumerate(pods):
            for held in self.devices.in_flight_of(user.metadata.uid):
                self.devices.end_allocation(held.claim.metadata.uid, user.metadata.uid)
            self.cluster.scheduler.feed.pod_deleted(user)
            self.show("resourceclaims", device_claim(f"{prefix}{number}"), "DELETED")
        return found

    @property
    def devices(self) -> DeviceIndex:
        return self.cluster.context.cache.columns.devices


def slice_json(pool: str, generation: int = 1) -> Json:
    """Return the slice of ``node/driver``."""
    name, driver = pool.split("/")
    devices = [{"name": each[4:]} for each in sorted(ALL_DEVICES) if each.startswith(pool)]
    spec = {"driver": driver, "nodeName": name, "devices": devices}
    pool_fields = {"name": name, "generation": generation, "resourceSliceCount": 1}
    return {"metadata": {"name": f"{name}-{driver}"}, "spec": {**spec, "pool": pool_fields}}


ALLOCATED = device_claim("gpu", "a/x/0")
RESULT = "status.allocation.devices.results.0"


def may_be_in_use(field: str, *, is_known: bool) -> set[str]:
    """Return the devices that a claim may have, which has a wrong type in a field."""
    if field in {f"{RESULT}.driver", f"{RESULT}.device"}:
        return {"a/x/0", "a/x/1"}  # The pool is known: of any driver, or of its own.
    if field == f"{RESULT}.pool":
        return {each for each in ALL_DEVICES if "/x/" in each}
    if RESULT.startswith(field):
        return {"a/x/0"} if is_known else ALL_DEVICES
    return {"a/x/0"}


@pytest.mark.parametrize(("field", "version"), broken_versions(ALLOCATED, "resourceclaims"), ids=named)
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "new"])
def test_a_claim(field: str, version: Json, is_known: bool) -> None:
    """Only the devices that the claim may have are not allocated to others, and the pods that use it wait."""
    world = DeviceWorld()
    if is_known:
        world.show("resourceclaims", ALLOCATED)
    world.show("resourceclaims", version)
    assert world.chosen_devices("first") == ALL_DEVICES - may_be_in_use(field, is_known=is_known)
    assert world.devices.withheld == ""
    user = using(pod("user", tolerations=[EVERYTHING]), "gpu")
    world.cluster.add(user)
    assert world.cluster.place_of(user) == "gated"
    world.show("resourceclaims", ALLOCATED)
    assert world.cluster.place_of(user) == "active"
    world.cluster.scheduler.feed.pod_deleted(user)
    assert world.chosen_devices("next") == ALL_DEVICES - {"a/x/0"}
    world.show("resourceclaims", version)
    world.show("resourceclaims", version, "DELETED")
    assert world.chosen_devices("last") == ALL_DEVICES


@pytest.mark.parametrize(("field", "version"), broken_versions(device_claim("gpu"), "resourceclaims"), ids=named)
def test_a_claim_without_devices(field: str, version: Json) -> None:
    """A claim that has no devices, whatever else of it cannot be decoded, keeps no device from others."""
    world = DeviceWorld()
    world.show("resourceclaims", version)
    assert world.chosen_devices("other") == (set() if field == "status" else ALL_DEVICES)


def test_a_claim_that_the_index_rejects() -> None:
    """An amount that is no quantity has the same effect: the device is in use as a whole, until the claim is valid."""
    world = DeviceWorld()
    wrong = copy.deepcopy(ALLOCATED)
    wrong["status"]["allocation"]["devices"]["results"][0] |= {"shareID": "s", "consumedCapacity": {"m": "lots"}}
    world.show("resourceclaims", wrong)
    assert world.chosen_devices("first") == ALL_DEVICES - {"a/x/0"}
    world.show("resourceclaims", device_claim("gpu"))
    assert world.chosen_devices("last") == ALL_DEVICES


RULE: Json = {
    "metadata": {"name": "r", "generation": 1},
    "spec": {"taint": {"key": "k", "effect": "NoSchedule"}, "deviceSelector": {"driver": "x", "pool": "a"}},
}


@table(
    "path, tainted",
    ("taint", ("spec", "taint"), {"a/x/0", "a/x/1"}),
    ("pool", ("spec", "deviceSelector", "pool"), {"a/x/0", "a/x/1", "b/x/0"}),
    ("selector", ("spec", "deviceSelector"), ALL_DEVICES),
    ("spec", ("spec",), ALL_DEVICES),
)
@pytest.mark.parametrize("end", ["MODIFIED", "DELETED"])
def test_a_taint_rule(path: tuple[str, ...], tainted: set[str], end: str) -> None:
    """The devices that a rule may taint are not allocated, and only those."""
    world = DeviceWorld()
    world.show("devicetaintrules", broken(RULE, path))
    assert world.chosen_devices("first") == ALL_DEVICES - tainted
    world.show("devicetaintrules", {**RULE, "spec": {"taint": RULE["spec"]["taint"]}}, end)
    assert world.chosen_devices("last") == ALL_DEVICES


@pytest.mark.parametrize("path", [("spec", "devices"), ("spec", "pool"), ("spec", "driver"), ("spec",)])
def test_a_slice(path: tuple[str, ...]) -> None:
    """The pool of a slice has no devices, those of its last generation neither; other pools are used."""
    world = DeviceWorld()
    old = slice_json("a/x")
    old["metadata"]["name"] = "old"
    world.show("resourceslices", old)
    world.show("resourceslices", slice_json("a/x", 2))
    world.show("resourceslices", broken(slice_json("a/x", 2), path))
    # Without its pool, the slice may be one of any pool of its driver.
    unknown = {"a/x/0", "a/x/1"} | ({"b/x/0"} if path == ("spec", "pool") else set())
    assert world.chosen_devices("first") == ALL_DEVICES - unknown
    world.show("resourceslices", slice_json("a/x", 2))
    assert world.chosen_devices("last") == ALL_DEVICES


def test_a_class() -> None:
    """Claims of the class wait; others do not."""
    world = DeviceWorld()
    world.show("deviceclasses", {"metadata": {"name": "other"}, "spec": 7})
    assert world.chosen_devices("first") == ALL_DEVICES
    world.show("deviceclasses", {"metadata": {"name": "any"}, "spec": 7})
    assert world.chosen_devices("last") == set()


def test_warnings_name_the_objects() -> None:
    """The warnings of status and page name every object; those for callers without a token only the nodes."""
    world = World()
    world.show("nodes", broken(NODE, ("spec", "taints")))
    world.show("pods", broken(BOUND, ("spec", "containers")))
    effect = "1 cannot be decoded, and what depends on them fails closed"
    node_text = f"nodes: {effect} (a: Expected `array`, got `int` - at `$.spec.taints`)"
    pod_text = "Expected `array`, got `int` - at `$.spec.containers`"
    assert world.informers.warnings(names_all=True) == [node_text, f"pods: {effect} (default/old: {pod_text})"]
    assert world.informers.warnings(names_all=False) == [node_text, f"pods: {effect}"]
    world.show("nodes", NODE)
    world.show("pods", BOUND)
    assert world.informers.warnings(names_all=True) == []


def test_an_object_without_a_readable_name_is_counted() -> None:
    """Nothing can be done about an object without a name; the others are delivered."""
    world = World()
    informer = world.informer("nodes")
    informer._apply(informer._decoder.line(b'{"type":"ADDED","object":{"metadata":{"name":3},"spec":{}}}'))
    world.show("nodes", NODE)
    assert (informer.decode_errors, list(informer.known), informer.unreadable) == (1, ["/a"], {})


def test_reasons_are_released_one_by_one() -> None:
    """A node with two reasons accepts pods when both have ended."""
    world = World()
    world.show("nodes", NODE)
    world.show("csinodes", broken(CSI_NODE, ("spec",)))
    world.show("pods", broken(BOUND, ("spec", "containers")))
    assert len(world.held) == 1
    world.show("csinodes", CSI_NODE)
    assert world.held.reason("a") == "node(s) had a pod that could not be decoded"
    world.show("pods", BOUND)
    assert world.held.is_empty
