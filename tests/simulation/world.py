"""Everything except the scheduler: users, administrators, a rival scheduler, and faults.

A step that finds no object to act upon does nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.storage import ClaimPointer
from scheduler_core.model.taints import Toleration
from tests.simulation import inhabitants
from tests.simulation.api_server import (
    BUDGETS,
    CLAIMS,
    CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    VOLUMES,
    ApiServer,
)
from tests.simulation.controllers import Controllers
from tests.simulation.fault_counts import FaultCounts
from tests.simulation.gang_world import GangWorld
from tests.simulation.inhabitants import APPS, HOST, TAINT, ZONE, ZONES, happens, has_claims, one_of
from tests.simulation.network import Network
from tests.simulation.operator_supervisor import OperatorSupervisor
from tests.simulation.plain_fit import misfit, requests_of
from tests.simulation.plugins import DOOR
from tests.simulation.pod_groups import PodGroups
from tests.simulation.profiles import PROFILES
from tests.simulation.steps import Step

_LOOKS = 2000
_LOOK_SECONDS = 0.01
_WATCHED = (PODS, PODS, PODS, NODES, NODES, CLAIMS, VOLUMES)
_BIND_FAULTS = (
    "refused",
    "failed",
    "lost before",
    "lost after",
    "lost after",
    "unanswered",
    "unanswered",
    "conflict",
    "slow",
    "throttled",
)


@dataclass(frozen=True, slots=True)
class Scene:
    """The parts of a simulation that steps act on."""

    seed: int
    server: ApiServer
    network: Network
    controllers: Controllers
    supervisor: OperatorSupervisor
    counts: FaultCounts


class World:
    """Performs the steps.

    Attributes:
        gangs: Performs the steps for gangs.
    """

    def __init__(self, scene: Scene, groups: PodGroups) -> None:
        self._scene = scene
        self._server = scene.server
        self._network = scene.network
        self._supervisor = scene.supervisor
        self._counts = scene.counts
        self._acts: dict[str, Callable[[random.Random, int], None]] = {
            "create pods": self._create_pods,
            "create with a claim": self._create_with_claim,
            "delete a pod": self._delete_any,
            "delete a pod in flight": self._delete_in_flight,
            "recreate a pod": self._recreate,
            "finish pods": self._finish,
            "change a pod": self._change_pod,
            "lift a gate": self._lift_gate,
            "open a door": self._open_door,
            "shrink a running pod": self._shrink_pod,
            "add a node": self._add_node,
            "delete a node": lambda rng, _: self._delete_node(rng, self._server.objects(NODES)),
            "delete a node in use": self._delete_node_in_use,
            "shrink a node": lambda rng, _: self._resize_node(rng, shrink=True),
            "grow a node": lambda rng, _: self._resize_node(rng, shrink=False),
            "cordon or taint": self._close_node,
            "lift cordons and taints": self._open_nodes,
            "relabel a node": self._relabel,
            "change a budget": self._change_budget,
            "rival binds": lambda rng, number: self._rival(rng, number, fits=True),
            "rival overcommits": lambda rng, number: self._rival(rng, number, fits=False),
            "rival is faster": lambda *_: self._network.arm("bind", "rival", 1),
            "kill the operator": lambda *_: self._supervisor.kill(),
            "stop the operator": lambda *_: self._supervisor.stop(),
            "swap a profile": lambda rng, _: self._supervisor.swap_profile(rng),
            "refuse a profile": lambda rng, _: self._supervisor.offer_bad_profile(rng),
            "withdraw a profile": self._withdraw_profile,
            "withdraw a profile under a cycle": lambda rng, _: self._withdraw_under_cycle(rng, _LOOKS),
            "stall a watch": self._stall_watch,
            "drop a watch": lambda rng, _: self._network.drop(one_of(rng, _WATCHED), in_order=False),
            "end a watch": lambda rng, _: self._network.drop(one_of(rng, _WATCHED), in_order=True),
            "expire a watch": lambda rng, _: self._network.expire(one_of(rng, _WATCHED)),
            "server away": lambda rng, _: self._network.go_away(0.5 + 8.0 * rng.random() ** 2),
            "throttle": lambda rng, _: self._network.arm(one_of(rng, ("bind", "patch", "delete")), "throttled", 2),
            "disturb binds": self._disturb_binds,
            "answer binds only": lambda rng, _: self._network.arm("bind", "in name only", rng.randrange(1, 4)),
            "disturb reads": lambda rng, _: self._network.arm("read", one_of(rng, ("refused", "lost before")), 2),
            "disturb patches": lambda rng, _: self._network.arm("patch", one_of(rng, ("refused", "lost after")), 2),
            "disturb deletions": lambda rng, _: self._network.arm("delete", one_of(rng, ("refused", "lost after")), 1),
            "disturb volumes": self._disturb_volumes,
            "disturb extenders": lambda rng, _: self._network.arm("extender", one_of(rng, ("slow", "refused")), 2),
        }
        self.gangs = GangWorld(scene, groups)
        self._acts |= self.gangs.acts

    def begin(self) -> None:
        """Create the cluster's objects before the operator starts."""
        rng = self._rng("begin")
        self._server.put(NAMESPACES, inhabitants.namespace())
        for each in inhabitants.classes():
            self._server.put(CLASSES, each)
        for number in range(rng.randrange(3, 6)):
            name = f"n{number}"
            self._server.put(NODES, inhabitants.node(rng, name, self._server.new_uid(name)))
        for number in range(4):
            name = f"v{number}"
            volume = inhabitants.volume(name, self._server.new_uid(name), ZONES[number % len(ZONES)])
            self._server.put(VOLUMES, volume)
        self._server.put(BUDGETS, inhabitants.budget(APPS[0], 1))
        self._network.rival = self._be_faster

    def add_acts(self, acts: Mapping[str, Callable[[random.Random, int], None]]) -> None:
        """Add kinds of steps."""
        self._acts |= acts

    def act(self, step: Step) -> None:
        """Perform a step."""
        self._network.say(f"step {step.number}: {step.kind}")
        self._acts[step.kind](self._rng(str(step.number)), step.number)

    def _rng(self, what: str) -> random.Random:
        return random.Random(f"{self._scene.seed}/{what}")

    # -- pods ---------------------------------------------------------------------------------------------------

    def _pending(self) -> list[Pod]:
        return [pod for pod in self._server.pods() if not pod.spec.node_name and not pod.is_terminal]

    def _running(self) -> list[Pod]:
        return [
            pod
            for pod in self._server.pods()
            if pod.spec.node_name and not pod.is_terminal and pod.metadata.deletion_timestamp is None
        ]

    def _create_pods(self, rng: random.Random, number: int) -> None:
        for index in range(rng.randrange(1, 4)):
            name = f"p{number}-{index}"
            pod = inhabitants.pod(rng, name, self._server.new_uid(name))
            if pod.spec.volumes:
                self._create_claim(rng, name)
            self._server.put(PODS, pod)

    def _create_with_claim(self, rng: random.Random, number: int) -> None:
        """Create the pod first and its claim later."""
        name = f"p{number}"
        pod = inhabitants.pod(rng, name, self._server.new_uid(name))
        self._server.put(PODS, pod)
        if pod.spec.volumes:
            self._network.loop.call_later(3.0 * rng.random(), self._create_claim, rng, name)

    def _create_claim(self, rng: random.Random, name: str) -> None:
        self._server.put(CLAIMS, inhabitants.claim(rng, name, self._server.new_uid(name)))

    def _delete(self, rng: random.Random, which: Callable[[Pod], bool]) -> Pod | None:
        pods = [pod for pod in self._server.pods() if which(pod)]
        if not pods:
            return None
        pod = one_of(rng, pods)
        self._network.say(f"delete {pod.metadata.uid}")
        self._server.end_pod(pod.metadata.name)
        return pod

    def _delete_any(self, rng: random.Random, number: int) -> None:
        del number
        self._delete(rng, lambda pod: pod.metadata.deletion_timestamp is None)

    def _delete_in_flight(self, rng: random.Random, number: int) -> None:
        del number
        flying = self._supervisor.held()
        if self._delete(rng, lambda pod: pod.metadata.uid in flying and not pod.spec.node_name) is not None:
            self._counts.add("pod deleted half-way")

    def _recreate(self, rng: random.Random, number: int) -> None:
        del number
        old = self._delete(rng, lambda pod: not pod.spec.node_name)
        if old is not None:
            name = old.metadata.name
            self._counts.add("pod recreated")
            self._server.put(PODS, inhabitants.pod(rng, name, self._server.new_uid(name)))

    def _finish(self, rng: random.Random, number: int) -> None:
        del number
        for pod in self._running():
            if happens(rng, 0.3):
                self._server.put(PODS, replace(pod, status=replace(pod.status, phase="Succeeded")))

    def _change_pod(self, rng: random.Random, number: int) -> None:
        pods = self._pending()
        if not pods:
            return
        pod = one_of(rng, pods)
        # A pod with a small request is not made smaller: it must not grow between a decision and its bind.
        how = rng.randrange(3 if requests_of(pod)[0] >= 300 else 2)
        if how == 0:
            labels = {**pod.metadata.labels, "touched": str(number)}
            pod = replace(pod, metadata=replace(pod.metadata, labels=labels))
        elif how == 1:
            tolerations = (*pod.spec.tolerations, Toleration(TAINT.key, "Exists"))
            pod = replace(pod, spec=replace(pod.spec, tolerations=tolerations))
        else:
            pod = inhabitants.with_requests(pod, requests_of(pod)[0] // 3)
        self._counts.add("pod changed")
        self._server.put(PODS, pod)

    def _lift_gate(self, rng: random.Random, number: int) -> None:
        del number
        gated = [pod for pod in self._pending() if pod.spec.scheduling_gates]
        if gated:
            pod = one_of(rng, gated)
            self._counts.add("gate lifted")
            self._server.put(PODS, replace(pod, spec=replace(pod.spec, scheduling_gates=())))

    def _open_door(self, rng: random.Random, number: int) -> None:
        del number
        closed = [pod for pod in self._pending() if pod.metadata.labels.get(DOOR) == "closed"]
        if closed:
            pod = one_of(rng, closed)
            labels = {**pod.metadata.labels, DOOR: "open"}
            self._server.put(PODS, replace(pod, metadata=replace(pod.metadata, labels=labels)))

    def _shrink_pod(self, rng: random.Random, number: int) -> None:
        del number
        pods = [pod for pod in self._running() if requests_of(pod)[0] >= 300]
        if pods:
            pod = one_of(rng, pods)
            self._server.put(PODS, inhabitants.with_requests(pod, requests_of(pod)[0] // 2))

    # -- nodes --------------------------------------------------------------------------------------------------

    def _add_node(self, rng: random.Random, number: int) -> None:
        """Add a new node, or one of a name that existed before."""
        names = [f"n{index}" for index in range(6)] if happens(rng, 0.5) else [f"m{number}"]
        absent = [name for name in names if name not in self._server.collection(NODES).objects]
        if absent:
            name = one_of(rng, absent)
            self._counts.add("node came")
            self._server.put(NODES, inhabitants.node(rng, name, self._server.new_uid(name)))

    def _delete_node(self, rng: random.Random, nodes: list[Node]) -> None:
        if len(self._server.objects(NODES)) < 2 or not nodes:
            return
        node = one_of(rng, nodes)
        self._counts.add("node went")
        self._network.say(f"delete node {node.metadata.name}")
        self._server.remove(NODES, node.metadata.name)
        self._scene.controllers.collect(node.metadata.name, node.metadata.uid)

    def _delete_node_in_use(self, rng: random.Random, number: int) -> None:
        del number
        used = set(self._supervisor.held().values())
        nodes = [node for node in self._server.objects(NODES) if node.metadata.name in used]
        if nodes and len(self._server.objects(NODES)) > 1:
            self._counts.add("node deleted under a pod")
            self._delete_node(rng, nodes)

    def _resize_node(self, rng: random.Random, *, shrink: bool) -> None:
        node = one_of(rng, self._server.objects(NODES))
        cpu = int(str(node.status.allocatable["cpu"]).rstrip("m"))
        cpu = max(1000, cpu // 2) if shrink else min(6000, cpu * 2)
        amounts = {**node.status.allocatable, "cpu": f"{cpu}m"}
        if shrink:
            self._counts.add("node shrank")
        self._put_node(replace(node, status=replace(node.status, allocatable=amounts)))

    def _close_node(self, rng: random.Random, number: int) -> None:
        del number
        node = one_of(rng, self._server.objects(NODES))
        self._counts.add("node cordoned or tainted")
        if happens(rng, 0.5):
            self._put_node(replace(node, spec=replace(node.spec, unschedulable=True)))
        elif TAINT not in node.spec.taints:
            self._put_node(replace(node, spec=replace(node.spec, taints=(*node.spec.taints, TAINT))))

    def _open_nodes(self, rng: random.Random, number: int) -> None:
        del number
        for node in self._server.objects(NODES):
            if (node.spec.unschedulable or node.spec.taints) and happens(rng, 0.7):
                self._put_node(replace(node, spec=replace(node.spec, unschedulable=False, taints=())))

    def _relabel(self, rng: random.Random, number: int) -> None:
        del number
        node = one_of(rng, self._server.objects(NODES))
        labels = {HOST: node.metadata.name}
        if happens(rng, 0.9):
            labels[ZONE] = one_of(rng, ZONES)
        if labels != node.metadata.labels:
            self._counts.add("node relabelled")
            self._put_node(replace(node, metadata=replace(node.metadata, labels=labels)))

    def _put_node(self, node: Node) -> None:
        self._network.say(f"node {node.metadata.name} changes")
        self._server.put(NODES, node)

    # -- rivals and faults ----------------------------------------------------------------------------------------

    def _change_budget(self, rng: random.Random, number: int) -> None:
        del number
        self._server.put(BUDGETS, inhabitants.budget(one_of(rng, APPS), rng.randrange(3)))

    def _rival(self, rng: random.Random, number: int, *, fits: bool) -> None:
        del number
        pods = [pod for pod in self._pending() if not pod.spec.scheduling_gates and not has_claims(pod)]
        if pods:
            self._bind_as_rival(rng, one_of(rng, pods), fits=fits)

    def _be_faster(self, name: str) -> None:
        """Bind a pod just before our own bind of it arrives."""
        pod = self._server.pod(name)
        if pod is not None and not pod.spec.node_name and not pod.spec.resource_claims:
            self._counts.add("bind conflict with a rival")
            self._bind_as_rival(self._rng(f"rival {pod.metadata.uid}"), pod, fits=True)

    def _bind_as_rival(self, rng: random.Random, pod: Pod, *, fits: bool) -> None:
        nodes = [node for node in self._server.objects(NODES) if (not self._misfit(pod, node)) is fits]
        if nodes:
            node = one_of(rng, nodes)
            self._counts.add("rival bound" if fits else "rival overcommitted")
            self._network.say(f"rival binds {pod.metadata.uid} to {node.metadata.name}")
            self._server.bind(pod.metadata.name, pod.metadata.uid, node.metadata.name, "rival")

    def _misfit(self, pod: Pod, node: Node) -> str:
        there: Iterable[Pod] = (
            other
            for other in self._server.pods()
            if other.spec.node_name == node.metadata.name and not other.is_terminal
        )
        return misfit(pod, node, there)

    def _withdraw_profile(self, rng: random.Random, number: int) -> None:
        del number
        name = one_of(rng, PROFILES)
        if self._supervisor.withdraw_profile(name):
            self._network.loop.call_later(0.5 + 5.0 * rng.random(), self._supervisor.return_profile, name)

    def _withdraw_under_cycle(self, rng: random.Random, looks: int) -> None:
        """Wait for a gang's cycle that waits for an extender, and take away the profile of a pod that is nominated."""
        name = self._supervisor.nominated_profile()
        if name and self._supervisor.withdraw_profile(name):
            self._network.loop.call_later(0.5 + 5.0 * rng.random(), self._supervisor.return_profile, name)
        elif looks:
            self._network.loop.call_later(_LOOK_SECONDS, self._withdraw_under_cycle, rng, looks - 1)

    def _stall_watch(self, rng: random.Random, number: int) -> None:
        """Stall a watch, mostly for a moment, at times for longer than a bound pod may stay unconfirmed."""
        del number
        seconds = 25.0 + 25.0 * rng.random() if happens(rng, 0.15) else 15.0 * rng.random() ** 2
        self._network.stall(one_of(rng, _WATCHED), seconds)

    def _disturb_binds(self, rng: random.Random, number: int) -> None:
        del number
        self._network.arm("bind", one_of(rng, _BIND_FAULTS), rng.randrange(1, 3))

    def _disturb_volumes(self, rng: random.Random, number: int) -> None:
        """Let writes or a provisioner fail, or take a volume away."""
        how = rng.randrange(3)
        if how == 0:
            self._network.arm("volume", one_of(rng, ("refused", "lost after")), 1)
        elif how == 1:
            self._scene.controllers.failing += 1
        else:
            free = [each for each in self._server.objects(VOLUMES) if each.spec.claim_ref is None]
            if free:
                taken = one_of(rng, free)
                pointer = ClaimPointer("elsewhere", f"c{number}", f"c{number}")
                self._counts.add("volume changed under a pod")
                self._server.put(VOLUMES, replace(taken, spec=replace(taken.spec, claim_ref=pointer)))
