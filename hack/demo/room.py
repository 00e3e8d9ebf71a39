"""`make demo-room`: room for a gang in a fragmented GPU cluster, with kubectl and the installed command only.

A Deployment that was scaled down leaves free GPUs on every node, and no node is free for a worker of a gang. The plan
of `bayplan rebalance` names the moves that make room, and a RebalancePlan makes them. A worker is killed and replaced
on its node, an urgent pod preempts one holder of a resource claim, and room is reserved for pods that do not exist yet.
The page shows the plan and the reservation. kube-controller-manager replaces pods, and kwok plays the kubelets.
"""

import sys
from collections import Counter

from hack.controlplane.api_client import condition_of, status_of
from hack.demo import manifests
from hack.demo.manifests import Model, Workload
from hack.demo.stage import POD_COLUMNS, POD_GROUPS, ROOT, Demo, DemoFailed, perform

FILES = ROOT / "examples" / "room"
PICTURE = ROOT / "build" / "demo-room.png"
NODES = 4
FULL, LEFT = 16, 8
"""Replicas of the Deployment before and after it is scaled down."""
WAITING = 4
"""Replicas that wait while a worker is replaced."""

MODEL, MACHINE = Model("a100", "80Gi"), "dra-0"
HOLDERS = Workload("notebook", manifests.exactly(MODEL.selector), 2)
URGENT = Workload("urgent", manifests.exactly(MODEL.selector), 1, priority="urgent")

_FREES_DEVICES = '{"spec":{"preemption":{"devices":true}}}'
_GPU_COLUMNS = rf"{POD_COLUMNS},GPUS:.spec.containers[*].resources.limits.nvidia\.com/gpu"
_PLANS, PLAN = "rebalanceplans.bayplan.dev", "room-for-train"
_RESERVATIONS, RESERVATION = "nodereservations.bayplan.dev", "evaluate"
_REQUEST = ("--cpu=16", "--count=2", "--owner=app=evaluate", "--ttl=1h", "--scheduler-name=pack")
_MOVES = r'jsonpath={range .status.moves[*]}{.pod}: {.source} to {.target}{"\n"}{end}'
_RESULT = ".status.allocation.devices.results[*]"
_CLAIM_COLUMNS = f"custom-columns=CLAIM:.metadata.name,DEVICE:{_RESULT}.device,PODS:.status.reservedFor[*].name"
_EVENT_COLUMNS = "custom-columns=REASON:.reason,OBJECT:.involvedObject.name,MESSAGE:.message"


class RoomDemo(Demo):
    def run(self) -> None:
        self._prepare()
        self._fragment()
        self._a_gang_that_does_not_fit()
        moves = self._make_room()
        self._heal()
        self._preempt_a_holder()
        self._reserve()
        self._look()
        self._screen.summary(
            "The free GPUs were spread over all nodes, so that the gang did not fit. The plan gave it two whole nodes "
            f"by {moves} moves, and no other pod was evicted. A worker that was killed got its node back, "
            "although other pods waited. One holder of a claim was evicted for an urgent pod. Room is held for pods "
            "that do not exist yet."
        )

    # -- steps --------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        stage, screen = self._stage, self._screen
        screen.step("Start the operator and kube-controller-manager; create nodes with 8 GPUs each")
        stage.start_operator("--feature-gates=NodeReservation=true,RebalancePlan=true", "--serve-page")
        stage.plane.start_kube_controller_manager()
        screen.show("kube-controller-manager is ready: it replaces pods of Deployments and Jobs")
        stage.create(manifests.gpu_nodes(NODES))
        self._apply("profiles/pack")

    def _fragment(self) -> None:
        stage, screen = self._stage, self._screen
        screen.step("A Deployment fills all nodes by day, and is scaled down at night")
        self._apply("room/serve")
        stage.until("all replicas run", lambda: len(self._running("serve")) == FULL)
        screen.show(f"{FULL} replicas with 2 GPUs each use all {NODES * manifests.GPUS_PER_NODE} GPUs")
        screen.show("An autoscaler removes replicas one after the other:")
        screen.command("kubectl scale deployment serve --replicas=15", f"  # and so on, down to {LEFT}")
        for count in range(FULL - 1, LEFT - 1, -1):
            stage.plane.kubectl("scale", "deployment", "serve", f"--replicas={count}")
            stage.until("a replica is gone", lambda: len(self._items("app=serve")) == count)  # noqa: B023 - called at once
        stage.until("the budget counts them", lambda: self._status("pdb", "serve").get("disruptionsAllowed") == 1)
        self._show_app("serve")
        by_node = self._by_node("serve")
        if sorted(by_node.values()) != [LEFT // NODES] * NODES:
            raise DemoFailed(f"the replicas should be spread over all nodes: {by_node}")
        screen.show("The controller chose a replica on the node with the most each time: 4 GPUs are free on each node")

    def _a_gang_that_does_not_fit(self) -> None:
        stage, screen = self._stage, self._screen
        screen.step("A gang of 2 workers with 8 GPUs each: 16 GPUs are free, and it does not fit")
        self._apply("room/train")
        self._until_condition(POD_GROUPS, "train", "Scheduled", "Unschedulable")
        stage.show("get", POD_GROUPS)
        if self._running("train"):
            raise DemoFailed("no worker should be bound")
        screen.show("Why?")
        stage.explain("podgroup/train", limit=14)

    def _make_room(self) -> int:
        stage, screen = self._stage, self._screen
        screen.step("The plan: which pods to move, each to a node that all filters accept after the moves before it")
        stage.bayplan("rebalance", "--dry-run", "--make-room", "default/train")
        screen.show("The same as an object, also a dry run at first:")
        self._apply("room/plan")
        stage.until("the plan is made", lambda: self._phase() == "Planned")
        stage.show("get", _PLANS)
        screen.step("The moves: the room of each replacement is held before the pod is evicted, and the budget counts")
        before = set(self._running("serve"))
        stage.show("patch", _PLANS, PLAN, "--type=merge", "-p", '{"spec":{"dryRun":false}}')
        stage.until("the plan has ended", lambda: self._phase() in ("Completed", "Stopped"))
        stage.show("get", _PLANS)
        moves = self._status(_PLANS, PLAN).get("moves", [])
        stage.show("get", _PLANS, PLAN, "-o", _MOVES)
        stage.until("the gang runs", lambda: len(self._running("train")) == 2)
        stage.show("get", POD_GROUPS)
        self._show_app("serve")
        self._show_app("train")
        if len(before - set(self._running("serve"))) != len(moves) or self._phase() != "Completed":
            raise DemoFailed(f"the pods of {len(moves)} moves should be replaced, and no others")
        return len(moves)

    def _heal(self) -> None:
        stage, screen = self._stage, self._screen
        screen.step("A worker is killed while other pods wait: its room is held for its replacement")
        stage.show("scale", "deployment", "serve", f"--replicas={LEFT + WAITING}")
        stage.until("they wait", lambda: len(self._waiting("serve")) == WAITING)
        screen.show(f"{WAITING} replicas wait for 2 GPUs each, and all GPUs are in use")
        lost, node = self._worker()
        stage.show("delete", "pod", lost)
        stage.until(
            "its replacement runs", lambda: self._worker()[0] not in ("", lost) and len(self._running("train")) == 2
        )
        self._show_pods("app=train", columns=_GPU_COLUMNS)
        stage.show("get", "events", "--field-selector", "involvedObject.kind=PodGroup", "-o", _EVENT_COLUMNS)
        if self._worker()[1] != node or len(self._waiting("serve")) != WAITING:
            raise DemoFailed(f"the replacement of {lost} should run on {node}, and the replicas wait")
        screen.show(f"the replacement runs on {node} again, and the replicas still wait")
        stage.plane.kubectl("scale", "deployment", "serve", f"--replicas={LEFT}")

    def _preempt_a_holder(self) -> None:
        stage, screen = self._stage, self._screen
        screen.step("Resource claims: two pods hold both devices of a node, and an urgent pod needs one")
        stage.create(manifests.as_list([manifests.node(MACHINE), manifests.device_class()]))
        stage.create(manifests.priority_class("urgent", 1000))
        self._driver.publish(MACHINE, *MODEL.devices(HOLDERS.pods))
        self._submit_claimants(HOLDERS)
        stage.until("both pods run", lambda: len(self._running(HOLDERS.name, "workload")) == HOLDERS.pods)
        self._submit_claimants(URGENT)
        (urgent,) = URGENT.pod_names
        self._until_message(urgent)
        screen.show(f'  PodScheduled: "{self._condition("pod", urgent, "PodScheduled")["message"]}"')
        stage.show("get", "resourceclaims", "-o", _CLAIM_COLUMNS)
        screen.show("By default preemption frees no devices, as in kube-scheduler. The profile allows it:")
        stage.show("patch", "schedulerprofile", manifests.PACKING, "--type=merge", "-p", _FREES_DEVICES)
        stage.until("the urgent pod runs", lambda: bool(self._running(URGENT.name, "workload")))
        self._show_pods("workload", columns=f"{POD_COLUMNS},PRIORITY:.spec.priority")
        stage.show("get", "resourceclaims", "-o", _CLAIM_COLUMNS)
        stage.show("get", "events", "--field-selector", "reason=Preempted", "-o", _EVENT_COLUMNS)
        if len(self._running(HOLDERS.name, "workload")) != HOLDERS.pods - 1:
            raise DemoFailed("one holder should be evicted, and no other pod")
        screen.show("one holder was evicted, the other one still runs")

    def _reserve(self) -> None:
        stage, screen = self._stage, self._screen
        screen.step("Room for pods that do not exist yet: an evaluation that follows the training")
        stage.bayplan("reserve", RESERVATION, *_REQUEST)
        self._until_condition(_RESERVATIONS, RESERVATION, "Reserved", "RoomHeld")
        stage.show("get", _RESERVATIONS, "-o", "wide")

    def _look(self) -> None:
        self._screen.step("The page has a panel for plans and one for reservations")
        PICTURE.parent.mkdir(exist_ok=True)
        self._stage.picture(PICTURE, {"plans": PLAN, "reservations": RESERVATION, "nodes": "Fragmentation"})

    # -- actions and reads --------------------------------------------------------------------------------------------

    def _show_app(self, app: str) -> None:
        self._show_pods(f"app={app}", "--sort-by=.spec.nodeName", columns=_GPU_COLUMNS)

    def _running(self, name: str, label: str = "app") -> list[str]:
        return [
            each["metadata"]["name"]
            for each in self._items(f"{label}={name}")
            if status_of(each).get("phase") == "Running"
        ]

    def _waiting(self, app: str) -> list[str]:
        found = self._items(f"app={app}")
        return [
            each["metadata"]["name"] for each in found if condition_of(each, "PodScheduled").get("status") == "False"
        ]

    def _worker(self) -> tuple[str, str]:
        """Return the running worker of index 0 and its node; "" for none."""
        index = "batch.kubernetes.io/job-completion-index=0"
        for each in self._items(f"app=train,{index}"):
            if status_of(each).get("phase") == "Running" and "deletionTimestamp" not in each["metadata"]:
                return each["metadata"]["name"], each["spec"]["nodeName"]
        return "", ""

    def _phase(self) -> str:
        return str(self._status(_PLANS, PLAN).get("phase", ""))

    def _by_node(self, app: str) -> Counter[str]:
        """Return the number of bound pods on each node."""
        left = [each for each in self._items(f"app={app}") if "deletionTimestamp" not in each["metadata"]]
        return Counter(each["spec"]["nodeName"] for each in left if each["spec"].get("nodeName"))


_TO_TRY = f"""  kubectl get {POD_GROUPS} -o wide
  bayplan rebalance --dry-run --consolidate
  kubectl scale deployment serve --replicas=4; bayplan rebalance --dry-run --consolidate"""

if __name__ == "__main__":
    sys.exit(perform("make demo-room", __doc__, RoomDemo, _TO_TRY))
