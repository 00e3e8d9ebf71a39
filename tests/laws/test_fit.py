"""Laws of "would it fit?" in random clusters.

- The answer equals what the scheduler decides if exactly these pods are created: nodes, victims, and whether they fit.
- The number of new nodes is the least one: with these nodes the scheduler places all pods, with fewer it does not.
- An answer changes nothing.

A part of the cases has claims that are created with the pods: of volumes that are chosen with the pod or before, or
of devices, which new nodes have, too.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec
import pytest
from bayplan.simulation.admission import AdmittedCluster
from bayplan.simulation.memory_cluster import MemoryCluster, SimulatedClock
from bayplan.simulation.simulation import SimulationOptions, SimulationResult, populate, simulate

from scheduler_core.dry_run_assembly import fit_search
from scheduler_core.fit.fit_search import FitAnswer, FitVerdict
from scheduler_core.fit.requests import FitRequest, NodeTemplate
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.model.devices import ResourceClaim, ResourceSlice
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import CompositePodGroup, GroupTopology, PodGroup
from scheduler_core.model.storage import PersistentVolumeClaim
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.indexes.device_index import DeviceObject
from tests.support.builders import pod
from tests.support.devices import DRIVER as DEVICES
from tests.support.devices import allocated_claim, device, device_class, exactly, slice_of, using
from tests.support.gang_devices import owned
from tests.support.gang_preemption import running_pod, small_node
from tests.support.gangs import composite_group, group, leaf_group, member
from tests.support.scheduler_state import scheduler_state
from tests.support.storage import claim, mounts, storage_class, volume

Groups = tuple[PodGroup | CompositePodGroup, ...]
ZONE = GroupTopology("zone")
CHUNKS, SEEDS = 3, 40


@dataclass(frozen=True)
class Case:
    """A cluster and a request."""

    cluster: AdmittedCluster
    request: FitRequest

    def answer(self) -> FitAnswer:
        """Answer the request twice, and assert that the second answer is equal and changes nothing."""
        return asyncio.run(self._answer())

    async def _answer(self) -> FitAnswer:
        world = MemoryCluster()
        options = SimulationOptions().of_scheduler()
        scheduler = Scheduler(SimulatedClock(datetime.now(UTC)), world, options, in_tree_registry())
        populate(scheduler, world, self.cluster)
        search = fit_search(scheduler.context, scheduler.reservations)
        found = search.answer(self.request)
        before = scheduler_state(scheduler)
        again = search.answer(self.request)
        assert scheduler_state(scheduler) == before
        assert (again.verdict, again.chosen) == (found.verdict, found.chosen)
        return found

    def replay(self, new_nodes: int = 0) -> SimulationResult:
        """Create the pods and groups of the request after some nodes of the template, and schedule."""
        template, nodes, slices = self.request.template, list(self.cluster.nodes), list[ResourceSlice]()
        if template is not None and new_nodes:
            scheduler = Scheduler(SimulatedClock(datetime.now(UTC)), MemoryCluster())
            copies = template.copies(scheduler.context.cache.columns)
            nodes += [next(copies)[0] for _ in range(new_nodes)]
            slices += [each for node in nodes[-new_nodes:] for each in template.slices_of(node.metadata.name)]
        created = replace(
            self.cluster,
            nodes=tuple(nodes),
            pods=(*self.cluster.pods, *self.request.pods),
            groups=(*self.cluster.groups, *self.request.groups),
            storage=(*self.cluster.storage, *self.request.storage),
            devices=(*self.cluster.devices, *slices, *self.request.classes, *self.request.claims),
        )
        return simulate(created, SimulationOptions(), in_tree_registry())


def _nodes_of(result: SimulationResult, request: FitRequest) -> dict[str, str]:
    names = {each.key for each in request.pods}
    placed = {f"{each.namespace}/{each.name}": each.node for each in result.pods}
    return {name: node for name, node in placed.items() if node and name in names}


def _answered(found: FitAnswer) -> dict[str, str]:
    assert found.chosen is not None
    names = {info.uid: info.key for info in found.infos}
    return {names[uid]: node for uid, node in found.chosen.nodes.items() if uid in names}


def _cluster(rng: random.Random) -> AdmittedCluster:
    nodes, running = list[Node](), list[Pod]()
    for number in range(rng.randint(1, 6)):
        cpus = rng.randint(1, 4)
        nodes.append(small_node(f"n{number}", cpus, zone=f"z{rng.randint(0, 2)}"))
        for each in range(rng.randint(cpus // 2, cpus)):
            running.append(running_pod(f"v{number}-{each}", f"n{number}", priority=rng.choice((0, 0, 3))))
    return AdmittedCluster(nodes=tuple(nodes), pods=tuple(running))


def _pod(rng: random.Random, name: str, priority: int) -> Pod:
    selector = {"zone": f"z{rng.randint(0, 2)}"} if rng.random() < 0.2 else {}
    return pod(name, requests={"cpu": str(rng.choice((1, 1, 2)))}, priority=priority, node_selector=selector)


def _gang(rng: random.Random, name: str, priority: int) -> tuple[list[Pod], Groups]:
    count, cpu = rng.randint(1, 6), str(rng.choice((1, 1, 2)))
    sizes = [cpu if rng.random() < 0.8 else "1" for _ in range(count)]
    topology = rng.choice((None, None, ZONE, GroupTopology("zone", is_required=False)))
    of = group(name, rng.randint(1, count), topology=topology, priority=priority)
    pods = [
        member(f"{name}-{number}", name, requests={"cpu": size}, priority=priority) for number, size in enumerate(sizes)
    ]
    return pods, (of,)


def _tree(rng: random.Random) -> tuple[list[Pod], Groups]:
    pods, groups = list[Pod](), [composite_group("root", rng.randint(1, 2))]
    leaves = list[PodGroup]()
    for name in ("left", "right"):
        count = rng.randint(1, 3)
        topology = GroupTopology("zone", prefers_allocated=True) if rng.random() < 0.5 else None
        leaves.append(leaf_group(name, "root", rng.randint(1, count), topology=topology))
        pods += [pod(f"{name}-{each}", group=name, requests={"cpu": "1"}) for each in range(count)]
    return pods, (*groups, *leaves)


def _case(seed: int) -> Case:
    rng = random.Random(seed)
    cluster = _cluster(rng)
    kind = rng.choice(("pod", "pods", "gang", "gang", "gangs", "tree"))
    priority = rng.choice((0, 5))
    pods, groups = list[Pod](), Groups(())
    match kind:
        case "pod":
            pods.append(_pod(rng, "p", priority))
        case "pods":
            pods += [_pod(rng, f"p{number}", priority) for number in range(rng.randint(2, 5))]
        case "gang":
            pods, groups = _gang(rng, "train", priority)
        case "gangs":
            for name in ("first", "second"):
                # Whose victims end first decides between two gangs that evict.
                more, of = _gang(rng, name, 0)
                pods, groups = [*pods, *more], (*groups, *of)
            pods.append(_pod(rng, "p", 0))
        case "tree":
            pods, groups = _tree(rng)
    template = None
    if rng.random() < 0.6:
        template = NodeTemplate(small_node("tpl", rng.randint(1, 4), zone=f"z{rng.randint(0, 3)}"))
    return Case(cluster, FitRequest(pods=tuple(pods), groups=groups, template=template, max_new=4))


CLASSES = ("late", "late", "late-in-z0", "late-static", "now", "now", "now-static", "missing")
DRIVER = "csi.example.com"


def _case_with_claims(seed: int) -> Case:
    """Return a case whose pods have claims of their own, or share one; some name a claim that does not exist."""
    rng = random.Random(f"claims/{seed}")
    cluster = _cluster(rng)
    classes = (
        storage_class("late", DRIVER),
        storage_class("late-in-z0", DRIVER, on={"zone": ("z0",)}),
        storage_class("late-static"),
        storage_class("now", DRIVER, waits=False, on={"zone": ("z1", "z2")} if rng.random() < 0.7 else None),
        storage_class("now-static", waits=False),
    )
    volumes = [
        volume(
            f"pv{number}",
            size=rng.choice(("4Gi", "5Gi", "6Gi", "9Gi")),
            storage_class=rng.choice(("late-static", "now-static")),
            on={"zone": (f"z{rng.randint(0, 2)}",)},
        )
        for number in range(rng.randint(0, 8))
    ]
    gang, count = rng.random() < 0.5, rng.randint(1, 5)
    request, claims = {"cpu": str(rng.choice((1, 1, 2)))}, list[PersistentVolumeClaim]()
    pods, of_case = list[Pod](), rng.sample(CLASSES, k=2)
    for number in range(count):
        of_class, name = rng.choice(of_case), f"data-{number}"
        if rng.random() < 0.2 and claims and claims[0].class_name.startswith("now"):
            # The binds of pods that share a claim which waits for them conflict, and one of them is tried again.
            name = claims[0].metadata.name
        if rng.random() < 0.95 and name not in {each.metadata.name for each in claims}:
            claims.append(claim(name, storage_class=of_class, phase=""))
        made = member if gang else pod
        pods.append(made(f"train-{number}", requests=request, volumes=mounts(name)))
    groups: Groups = (group("train", rng.randint(1, count)),) if gang else ()
    template = None
    if rng.random() < 0.5:
        template = NodeTemplate(small_node("tpl", rng.randint(1, 4), zone=f"z{rng.randint(0, 3)}"))
    found = FitRequest(pods=tuple(pods), groups=groups, storage=tuple(claims), template=template, max_new=3)
    return Case(replace(cluster, storage=(*classes, *volumes)), found)


def _slice(rng: random.Random, node: str, count: int) -> ResourceSlice:
    return slice_of([device(f"{node}-{number}", rng.choice("xy")) for number in range(count)], node=node)


def _case_with_devices(seed: int) -> Case:
    """Return a case whose pods have claims of devices, or request them as an extended resource."""
    rng = random.Random(f"devices/{seed}")
    cluster = _cluster(rng)
    served = device_class()
    served = msgspec.structs.replace(
        served, spec=msgspec.structs.replace(served.spec, extended_resource_name="example.com/gpu")
    )
    slices = [_slice(rng, each.metadata.name, rng.randint(1, 3)) for each in cluster.nodes if rng.random() < 0.7]
    in_use = [
        allocated_claim({"device": each.spec.devices[0].name, "pool": each.spec.pool.name}, name=f"of-{number}")
        for number, each in enumerate(slices)
        if rng.random() < 0.3
    ]
    gang, count, claims, pods = rng.random() < 0.6, rng.randint(1, 5), list[ResourceClaim](), list[Pod]()
    for number in range(count):
        make: Callable[..., Pod] = member if gang else pod
        if rng.random() < 0.3:
            requests = {"cpu": "1", "example.com/gpu": str(rng.choice((1, 1, 2)))}
            pods.append(make(f"train-{number}", requests=requests, namespace="ns"))
            continue
        user = make(f"train-{number}", requests={"cpu": "1"}, namespace="ns")
        models = rng.choice(([], [], [f'device.attributes["{DEVICES}"].model == "x"']))
        claims.append(owned(user, exactly("r", *models, count=rng.choice((1, 1, 2)))))
        pods.append(using(user, templates={"gpu": claims[-1].metadata.name}))
    topology = rng.choice((None, None, ZONE, GroupTopology("zone", is_required=False)))
    groups: Groups = (group("train", rng.randint(1, count), topology=topology, namespace="ns"),) if gang else ()
    template = None
    if rng.random() < 0.7:
        of_new = small_node("tpl", rng.randint(1, 4), zone=f"z{rng.randint(0, 3)}")
        template = NodeTemplate(of_new, slices=(_slice(rng, "tpl", rng.randint(1, 3)),) if rng.random() < 0.8 else ())
    is_new = rng.random() < 0.2
    known: list[DeviceObject] = [*slices, *in_use]
    if not is_new:
        known.append(served)
    found = FitRequest(
        pods=tuple(pods),
        groups=groups,
        claims=tuple(claims),
        classes=(served,) if is_new else (),
        template=template,
        max_new=4,
    )
    return Case(replace(cluster, devices=tuple(known)), found)


def _check(case: Case, found: FitAnswer) -> None:
    request, everything = case.request, {each.key for each in case.request.pods}
    match found.verdict:
        case FitVerdict.FITS_NOW:
            result = case.replay()
            assert _nodes_of(result, request) == _answered(found)
            assert not result.preempted
        case FitVerdict.FITS_AFTER_EVICTIONS:
            result = case.replay()
            assert found.after_evictions is not None
            assert _nodes_of(result, request) == _answered(found)
            assert sorted(result.preempted) == sorted(info.key for info in found.after_evictions.victims)
        case FitVerdict.FITS_WITH_NEW_NODES:
            _check_new_nodes(case, found)
        case _:
            assert _nodes_of(case.replay(), request).keys() != everything
    if found.verdict is not FitVerdict.FITS_WITH_NEW_NODES and found.with_new_nodes is not None:
        assert found.least_new_nodes <= len(found.with_new_nodes.new_nodes)
    is_evicting = any(each.spec.priority for each in request.pods)
    if found.verdict in (FitVerdict.DOES_NOT_FIT, FitVerdict.IMPOSSIBLE) and request.template and not is_evicting:
        assert _nodes_of(case.replay(request.max_new), request).keys() != everything
    if found.verdict is FitVerdict.IMPOSSIBLE:
        emptied = Case(replace(case.cluster, pods=()), request)
        assert _nodes_of(emptied.replay(), request).keys() != everything


def _check_new_nodes(case: Case, found: FitAnswer) -> None:
    request, everything = case.request, {each.key for each in case.request.pods}
    assert found.with_new_nodes is not None
    count = len(found.with_new_nodes.new_nodes)
    assert found.least_new_nodes <= count
    assert _nodes_of(case.replay(count), request) == _answered(found)
    if any(each.spec.priority for each in request.pods):
        # The number is that without evictions, and with fewer nodes these pods would evict others.
        return
    for fewer in range(count):
        assert _nodes_of(case.replay(fewer), request).keys() != everything


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_answers_equal_decisions(chunk: int) -> None:
    """Whatever the request, the scheduler decides as the answer predicts."""
    verdicts = _checked(_case, range(chunk * SEEDS, (chunk + 1) * SEEDS))
    assert {*FitVerdict} - {FitVerdict.GAVE_UP} <= verdicts.keys()


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_answers_with_claims_equal_decisions(chunk: int) -> None:
    """Whatever volumes the claims of the pods get, the scheduler decides as the answer predicts."""
    verdicts = _checked(_case_with_claims, range(chunk * SEEDS, (chunk + 1) * SEEDS))
    assert {FitVerdict.FITS_NOW, FitVerdict.FITS_WITH_NEW_NODES, FitVerdict.DOES_NOT_FIT} <= verdicts.keys()


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_answers_with_devices_equal_decisions(chunk: int) -> None:
    """Whatever devices the pods need, the scheduler decides as the answer predicts, with the devices of new nodes."""
    verdicts = _checked(_case_with_devices, range(chunk * SEEDS, (chunk + 1) * SEEDS))
    assert {FitVerdict.FITS_NOW, FitVerdict.FITS_WITH_NEW_NODES, FitVerdict.DOES_NOT_FIT} <= verdicts.keys()


def _checked(make: Callable[[int], Case], seeds: Iterable[int]) -> Counter[FitVerdict]:
    """Check the answers of some cases, and return how often each verdict is given."""
    verdicts: Counter[FitVerdict] = Counter()
    for seed in seeds:
        case = make(seed)
        found = case.answer()
        verdicts[found.verdict] += 1
        try:
            _check(case, found)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {found.verdict}") from error
    return verdicts
