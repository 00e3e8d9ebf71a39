"""`make demo-kueue`: real Kueue with Bayplan's admission check, with kubectl and the installed command only.

Two teams share GPU nodes. A gang is admitted only when it fits, a team takes its quota back, a LeaderWorkerSet grows
replica by replica, and exactly the nodes are added that `bayplan fit` computes. kube-controller-manager, Kueue and the
controller of LeaderWorkerSets run; kwok plays the kubelets.
"""

import json
import sys
from typing import Any

from hack.controlplane.api_client import condition_of, status_of
from hack.controlplane.peers import start_kueue, start_leader_worker_set
from hack.demo import manifests
from hack.demo.stage import POD_COLUMNS, POD_GROUPS, ROOT, Demo, DemoFailed, perform

FILES = ROOT / "examples" / "kueue"
NODES = 4
NOTEBOOKS = [f"notebook-{number}" for number in range(NODES)]
NOTEBOOK_GPUS = 5
TEMPLATE = "gpu-0"
REPLICAS = 3
_FITS_WITH_NEW_NODES = 11

_WORKLOADS = "workloads.kueue.x-k8s.io"
_CHECK = ".status.admissionChecks[0]"
_CHECK_COLUMNS = (
    f"custom-columns=WORKLOAD:.metadata.name,CHECK:{_CHECK}.state,RETRIES:{_CHECK}.retryCount,MESSAGE:{_CHECK}.message"
)
_NODE_COLUMNS = r"custom-columns=NODE:.metadata.name,GPUS:.status.allocatable.nvidia\.com/gpu"
_EVENT_COLUMNS = "custom-columns=REASON:.reason,WORKLOAD:.involvedObject.name,MESSAGE:.message"
_OF_SET = "leaderworkerset.sigs.k8s.io/name=serve"


def _of_job(name: str) -> str:
    return f"batch.kubernetes.io/job-name={name}"


def notebook(name: str) -> manifests.Document:
    """Return a pod without a queue."""
    limits = {manifests.GPU: str(NOTEBOOK_GPUS)}
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": "batch", "containers": [container]},
    }


class KueueDemo(Demo):
    def run(self) -> None:
        self._prepare()
        self._without_the_check()
        self._with_the_check()
        self._preemption()
        needed = self._replicas()
        self._new_nodes(needed)
        self._screen.summary(
            "Kueue alone admitted a Job of which no pod fits; with the check it was admitted when all pods fitted, and "
            "they were bound together. A team took its quota back, and its gang got whole nodes. A LeaderWorkerSet "
            f"grew by whole replicas; the last one needed exactly the {needed} new nodes that bayplan fit had computed."
        )

    # -- steps --------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        stage, screen = self._stage, self._screen
        screen.step("Kueue, the controller of LeaderWorkerSets, and Bayplan with its admission check")
        stage.plane.start_kube_controller_manager()
        start_leader_worker_set(stage.plane)
        start_kueue(stage.plane)
        screen.show("kube-controller-manager, Kueue and the controller of LeaderWorkerSets are ready")
        stage.install("--set", "settings.featureGates.KueueAdmissionCheck=true")
        stage.create(manifests.gpu_nodes(NODES))
        stage.show("get", "nodes", "-o", _NODE_COLUMNS)
        self._apply("kueue/profile", "kueue/queues", "kueue/unchecked")
        stage.until("the profile is live", lambda: self._is_true("schedulerprofile", "batch", "Ready"))
        stage.until("the check is active", lambda: self._is_true("admissioncheck", "fit", "Active"))
        stage.show("get", "admissionchecks", "-o", "custom-columns=CHECK:.metadata.name,"
                   "CONTROLLER:.spec.controllerName,ACTIVE:.status.conditions[?(@.type=='Active')].status")  # fmt: skip
        stage.show("get", "clusterqueues")

    def _without_the_check(self) -> None:
        stage, screen = self._stage, self._screen
        screen.step("Notebooks without a queue hold 5 GPUs of each node; Kueue alone admits a Job of which no pod fits")
        stage.create(manifests.as_list(map(notebook, NOTEBOOKS)))
        screen.show(f"{NODES} pods created, {NOTEBOOK_GPUS} GPUs each")
        stage.until("the notebooks are bound", self._notebooks_are_bound)
        stage.show("get", "pods", "-o", POD_COLUMNS)
        screen.show(
            f"{NODES * 3} GPUs are free, {NODES} times 3. A user writes only this Job, of 3 workers with 4 GPUs:"
        )
        screen.command("cat", "examples/kueue/train.yaml")
        screen.output(self._manifest("train"))
        screen.show("first in the queue without the check:")
        screen.command("sed s/team-a/unchecked/ examples/kueue/train.yaml | kubectl apply -f -")
        in_other_queue = self._manifest("train").replace("team-a", "unchecked")
        screen.output(stage.plane.kubectl("apply", "-f", "-", input=in_other_queue))
        stage.until("Kueue has admitted the Job", lambda: self._admitted("train") == [True])
        stage.until("its pods wait", lambda: len(self._items(_of_job("train"))) == 3)
        stage.show("get", _WORKLOADS)
        stage.until("the gang was attempted", self._is_unschedulable)
        stage.show("get", POD_GROUPS)
        self._show_pods(_of_job("train"))
        if any(self._nodes(_of_job("train")).values()):
            raise DemoFailed("no worker should be bound")
        screen.show("admitted, with 12 GPUs of quota, and no pod has a node")
        self._delete("job", "train")

    def _with_the_check(self) -> None:
        stage, screen = self._stage, self._screen
        screen.step("With the check the Job is admitted when all 3 workers fit")
        self._apply("kueue/train")
        self._show_checks("0 of 3 pods fit now")
        if self._admitted("train") != [False]:
            raise DemoFailed("a Job that does not fit should not be admitted")
        screen.show("it is not admitted, and has no pods, while it waits. A notebook ends: 8 GPUs of a node are free")
        self._delete("pod", NOTEBOOKS[0])
        self._show_checks("2 of the 3 members")
        screen.show("a second notebook ends:")
        self._delete("pod", NOTEBOOKS[1])
        self._until_bound(_of_job("train"), 3)
        stage.show("get", _WORKLOADS)
        stage.show("get", POD_GROUPS)
        self._show_pods(_of_job("train"))

    def _preemption(self) -> None:
        stage, screen = self._stage, self._screen
        screen.step("Team A borrows the GPUs of team B, and team B takes them back")
        for name in NOTEBOOKS[2:]:
            self._delete("pod", name)
        self._apply("kueue/sweep")
        self._until_bound(_of_job("sweep"), 4)
        stage.show("get", _WORKLOADS)
        screen.show("28 of 32 GPUs run Jobs of team A, whose quota is 16. Team B submits 2 workers with 8 GPUs each:")
        self._apply("kueue/tune")
        self._until_bound(_of_job("tune"), 2)
        stage.until("the Job of team A is suspended", lambda: not self._items(_of_job("sweep")))
        stage.show("get", _WORKLOADS)
        self._show_pods(_of_job("tune"))
        if any(self._nodes(_of_job("sweep")).values()):
            raise DemoFailed("the preempted gang should have no pod")
        preempted = ("events", "--field-selector", "reason=Preempted")
        stage.until("Kueue has an event of it", lambda: bool(stage.get(*preempted)["items"]))
        stage.show("get", *preempted, "-o", _EVENT_COLUMNS)
        screen.show("sweep was preempted as a whole, and waits as a whole for quota")
        for name in ("sweep", "tune", "train"):
            self._delete("job", name)

    def _replicas(self) -> int:
        stage, screen = self._stage, self._screen
        screen.step("A LeaderWorkerSet of team B: each replica is a leader and a worker, with 5 GPUs each")
        screen.show(f"how many nodes do {REPLICAS} replicas need?")
        needed = self._needed()
        screen.show("the operator answers, and nothing was created. It starts with one replica:")
        self._apply("kueue/serve")
        self._until_bound(_OF_SET, 2)
        self._show_pods(_OF_SET)
        screen.show("it is scaled up, one replica after the other:")
        stage.show("scale", "leaderworkerset", "serve", "--replicas=2")
        self._until_bound(_OF_SET, 4)
        stage.show("scale", "leaderworkerset", "serve", f"--replicas={REPLICAS}")
        self._show_checks("0 of 2 pods fit now")
        self._show_pods(_OF_SET)
        if sorted(self._bound_by_replica()) != [0, 2, 2]:
            raise DemoFailed(f"each replica should be bound as a whole, or not at all: {self._bound_by_replica()}")
        screen.show(
            "two replicas are bound as a whole. 12 GPUs are free, 3 on each node, and the third replica holds none"
        )
        return needed

    def _needed(self) -> int:
        """Return the number of new nodes that `bayplan fit` computes for all replicas."""
        request = ("fit", "-f", "examples/kueue/serve.yaml", "--count", str(REPLICAS), "--node-template", TEMPLATE)
        of_server, codes = ("--server", self._stage.server), (_FITS_WITH_NEW_NODES,)
        self._stage.bayplan(*request, unshown=of_server, codes=codes)
        document = json.loads(self._stage.read(*request, *of_server, "--output", "json", codes=codes))
        return int(document["newNodes"]["count"])

    def _new_nodes(self, needed: int) -> None:
        stage, screen = self._stage, self._screen
        screen.step(f"An autoscaler adds the {needed} nodes")
        for number in range(NODES, NODES + needed):
            name = f"gpu-{number}"
            stage.create(
                manifests.as_list([manifests.node(name, amounts={manifests.GPU: str(manifests.GPUS_PER_NODE)})])
            )
            screen.show(f"{name} is added, a copy of {TEMPLATE}")
            if number < NODES + needed - 1:
                self._show_checks("1 of the 2 members")
                if sorted(self._bound_by_replica()) != [0, 2, 2]:
                    raise DemoFailed("one new node should not be enough")
        self._until_bound(_OF_SET, 2 * REPLICAS)
        stage.show("get", "nodes", "-o", _NODE_COLUMNS)
        stage.show("get", _WORKLOADS)
        stage.show("get", POD_GROUPS)
        self._show_pods(_OF_SET)

    # -- actions and reads --------------------------------------------------------------------------------------------

    def _manifest(self, name: str) -> str:
        return (FILES / f"{name}.yaml").read_text()

    def _delete(self, kind: str, name: str) -> None:
        self._stage.show("delete", kind, name)
        if kind == "job":
            self._stage.until(
                f"what {name} owned is gone", lambda: not self._items(_of_job(name)) and not self._workloads(name)
            )

    def _show_checks(self, text: str) -> None:
        """Print the states of the checks once they contain a text; the message of a Retry stays while it waits."""
        words, shown = ("get", _WORKLOADS, "-o", _CHECK_COLUMNS), ""

        def is_there() -> bool:
            nonlocal shown
            shown = self._stage.plane.kubectl(*words)
            return text in shown

        self._stage.until(f"a check has answered: {text}", is_there)
        self._screen.command("kubectl", *words)
        self._screen.output(shown)

    def _until_bound(self, selector: str, count: int) -> None:
        _, _, name = selector.partition("=")
        self._stage.until(
            f"{count} pods of {name} are bound", lambda: sum(map(bool, self._nodes(selector).values())) == count
        )

    def _notebooks_are_bound(self) -> bool:
        return all(self._stage.get("pod", name)["spec"].get("nodeName") for name in NOTEBOOKS)

    def _is_unschedulable(self) -> bool:
        groups = self._stage.get(POD_GROUPS)["items"]
        conditions = [one for each in groups for one in status_of(each).get("conditions", ())]
        return any(one.get("reason") == "Unschedulable" for one in conditions)

    def _bound_by_replica(self) -> list[int]:
        """Return the number of bound pods of each replica."""
        label = "leaderworkerset.sigs.k8s.io/group-index"
        pods = self._items(_OF_SET)
        replicas = sorted({pod["metadata"]["labels"][label] for pod in pods})
        bound = [pod["metadata"]["labels"][label] for pod in pods if pod["spec"].get("nodeName")]
        return [bound.count(each) for each in replicas]

    def _workloads(self, owner: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._stage.get(_WORKLOADS)["items"]
        return [each for each in found if owner in [one["name"] for one in each["metadata"].get("ownerReferences", ())]]

    def _admitted(self, owner: str) -> list[bool]:
        """Return of each Workload of an owner whether it is admitted."""
        return [condition_of(each, "Admitted").get("status") == "True" for each in self._workloads(owner)]


_TO_TRY = f"""  kubectl get {_WORKLOADS},{POD_GROUPS}
  kubectl apply -f examples/kueue/sweep.yaml
  bayplan fit -f examples/kueue/sweep.yaml --offline
  kubectl get {_WORKLOADS} -o yaml    # status.admissionChecks"""

if __name__ == "__main__":
    sys.exit(perform("make demo-kueue", __doc__, KueueDemo, _TO_TRY))
