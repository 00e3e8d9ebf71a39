"""`make demo-dra`: Dynamic Resource Allocation on a real control plane, with kubectl and the installed command only.

kube-controller-manager creates the claims of templates. A driver without hardware publishes the devices; it runs in the
process of the demo, and its ResourceSlices stay if the cluster stays.
"""

import sys

from hack.controlplane.api_client import status_of
from hack.demo import manifests
from hack.demo.manifests import Document, Model, Workload
from hack.demo.stage import POD_GROUPS, Demo, DemoFailed, perform

LARGE, SMALL = Model("a100", "80Gi"), Model("l4", "24Gi")
MACHINES = {"gpu-0": LARGE.devices(2), "gpu-1": SMALL.devices(4), "gpu-2": SMALL.devices(4)}
LATE_MACHINE, LATE_DEVICES = "gpu-3", SMALL.devices(4)

TRAIN = Workload("train", manifests.exactly(LARGE.selector, manifests.memory_at_least("40Gi")), 1, shares=True)
SHARED = Workload("shared", manifests.exactly(SMALL.selector), 2, shares=True)
EITHER = Workload("either", manifests.first_available(LARGE, SMALL), 2)
GANG = Workload("gang", manifests.exactly(SMALL.selector), 8, is_gang=True)
IMPOSSIBLE = Workload(
    "impossible", manifests.exactly(LARGE.selector, manifests.memory_at_least("141Gi")), 1, shares=True
)

_RESULT = ".status.allocation.devices.results[*]"
_CLAIM_COLUMNS = (
    f"custom-columns=CLAIM:.metadata.name,REQUEST:{_RESULT}.request,POOL:{_RESULT}.pool,DEVICE:{_RESULT}.device,"
    "PODS:.status.reservedFor[*].name"
)


class DeviceDemo(Demo):
    def run(self) -> None:
        self._prepare()
        self._by_attribute()
        self._shared()
        self._alternatives()
        self._gang()
        self._impossible()
        self._screen.summary(
            "One claim chose a device by its attributes, two pods shared one, a prioritized list used its second "
            "alternative, a gang got all its devices at once, and the explanation of the impossible claim names the "
            "devices that come closest, what they lack and which pods use them."
        )

    # -- steps --------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        stage, screen = self._stage, self._screen
        screen.step("Start the operator, kube-controller-manager and a driver with GPUs")
        stage.start_operator()
        stage.plane.start_kube_controller_manager()
        screen.show("kube-controller-manager is ready: it creates a claim for each pod with a template")
        names = [*MACHINES, LATE_MACHINE]
        stage.create(manifests.as_list([*(manifests.node(name) for name in names), manifests.device_class()]))
        for name, devices in MACHINES.items():
            self._driver.publish(name, *devices)
        self._apply("profiles/pack")
        columns = "custom-columns=NODE:.spec.nodeName,DRIVER:.spec.driver,DEVICES:.spec.devices[*].name"
        stage.show("get", "resourceslices", "-o", columns)
        screen.show(f"{LATE_MACHINE} is a node whose driver has not published anything yet")

    def _by_attribute(self) -> None:
        screen = self._screen
        screen.step("A claim by attribute: an a100 with at least 40 GiB")
        self._submit_claimants(TRAIN)
        self._say_selectors(TRAIN)
        self._until_running(TRAIN)
        self._stage.show("get", "resourceclaims")
        self._show_allocations()
        self._show_pods(TRAIN.selector)

    def _shared(self) -> None:
        screen = self._screen
        screen.step("A claim that two pods share")
        self._submit_claimants(SHARED)
        self._until_running(SHARED)
        self._show_allocations()
        self._show_pods(SHARED.selector)
        if len(set(self._nodes(SHARED.selector).values())) != 1:
            raise DemoFailed("both pods should run where their device is")
        screen.show("one device, two pods: both run on the node of the device")

    def _alternatives(self) -> None:
        stage, screen = self._stage, self._screen
        screen.step(f"A prioritized list: {LARGE.name} if there is one, otherwise {SMALL.name}")
        self._submit_claimants(EITHER)
        self._until_running(EITHER)
        stage.show("get", "resourceclaims")
        self._show_allocations()
        self._show_pods(EITHER.selector)
        chosen = sorted(result["request"] for claim in self._claims(EITHER) for result in _results(claim))
        if chosen != [f"gpu/{LARGE.name}", f"gpu/{SMALL.name}"]:
            raise DemoFailed(f"one pod should get each alternative, not {chosen}")
        screen.show(f"the last {LARGE.name} went to one pod; for the other one the second alternative is used")

    def _gang(self) -> None:
        stage, screen = self._stage, self._screen
        free = len(MACHINES["gpu-1"]) + len(MACHINES["gpu-2"]) - 2
        screen.step(f"A gang of {GANG.pods} pods, each with an {SMALL.name} from a template, and {free} that are free")
        self._submit_claimants(GANG)
        self._until_condition(POD_GROUPS, GANG.name, "Scheduled", "Unschedulable")
        stage.show("get", POD_GROUPS)
        if any(self._nodes(GANG.selector).values()) or any(_results(claim) for claim in self._claims(GANG)):
            raise DemoFailed("a gang that does not fit should hold no device")
        stage.show("get", "resourceclaims")
        screen.show("no pod of the gang is bound and none of its claims is allocated. Why?")
        stage.explain(f"podgroup/{GANG.name}")
        self._driver.publish(LATE_MACHINE, *LATE_DEVICES)
        screen.show(f"the driver publishes {len(LATE_DEVICES)} devices on {LATE_MACHINE}, and all pods are bound:")
        self._until_running(GANG)
        self._show_allocations()
        self._show_pods(GANG.selector)

    def _impossible(self) -> None:
        stage, screen = self._stage, self._screen
        (pod,) = IMPOSSIBLE.pod_names
        screen.step("A claim that no device satisfies: an a100 with 141 GiB")
        self._submit_claimants(IMPOSSIBLE)
        self._say_selectors(IMPOSSIBLE)
        self._until_message(pod)
        condition = self._condition("pod", pod, "PodScheduled")
        screen.show(f'  PodScheduled={condition["status"]}, {condition["reason"]}: "{condition["message"]}"')
        stage.show("get", "resourceclaims", IMPOSSIBLE.name)
        screen.show("the condition does not name the nearest devices. Why?")
        explanation = stage.explain(pod)
        for part in ("memory is 80Gi, must be at least 141Gi", "in use by claim", "Events that would requeue it"):
            if part not in explanation:
                raise DemoFailed(f"the explanation should contain: {part}")
        if "claims: " not in stage.status():
            raise DemoFailed("the status should count the claims")
        if any(self._nodes(IMPOSSIBLE.selector).values()) or condition["status"] != "False":
            raise DemoFailed("the pod should wait")

    # -- actions and reads --------------------------------------------------------------------------------------------

    def _say_selectors(self, workload: Workload) -> None:
        for selector in workload.request["exactly"]["selectors"]:
            self._screen.show(f"  expression: {selector['cel']['expression']}")

    def _until_running(self, workload: Workload) -> None:
        def run() -> bool:
            return all(status_of(pod).get("phase") == "Running" for pod in self._items(workload.selector))

        self._stage.until(f"all pods of {workload.name} run", run)

    def _show_allocations(self) -> None:
        self._stage.show("get", "resourceclaims", "-o", _CLAIM_COLUMNS)

    def _claims(self, workload: Workload) -> list[Document]:
        owned = set(workload.pod_names)
        return [
            claim
            for claim in self._stage.get("resourceclaims")["items"]
            if any(owner["name"] in owned for owner in claim["metadata"].get("ownerReferences", []))
        ]


def _results(claim: Document) -> list[Document]:
    results: list[Document] = status_of(claim).get("allocation", {}).get("devices", {}).get("results", [])
    return results


_TO_TRY = f"""  kubectl get resourceclaims,resourceslices
  kubectl get resourceclaim {TRAIN.name} -o yaml    # the devices, and the nodes that reach them
  kubectl delete pod {TRAIN.pod_names[0]}               # its device becomes free
  kubectl explain resourceclaim.spec.devices.requests"""

if __name__ == "__main__":
    sys.exit(perform("make demo-dra", __doc__, DeviceDemo, _TO_TRY))
