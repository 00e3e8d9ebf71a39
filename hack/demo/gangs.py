"""`make demo-gang`: gangs on a real control plane, with kubectl and the installed command only.

Two gangs that do not both fit, a large one behind small pods, and a preemption; `kubectl get podgroups -w` runs beside
them and its output is shown. The demo ends the workers when the state that it shows is reached, so it shows the same on
a machine of any speed.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from hack.controlplane.api_client import status_of
from hack.controlplane.processes import Process
from hack.demo import manifests
from hack.demo.manifests import Job
from hack.demo.stage import POD_GROUPS, Demo, DemoFailed, Stage, perform

NODES = 4
GPUS = NODES * manifests.GPUS_PER_NODE
PATIENCE_SECONDS = 3

ALPHA = Job("train-alpha", 5, 4, group={})
BETA = Job("train-beta", 5, 4, group={})
SMALL = Job("small", 2 * GPUS, 1)
LARGE = Job("train-large", 4, 8, group={"queueing": "Strict", "scheduleTimeoutSeconds": 600})
DEVELOPERS = Job("dev", 4, 4)
NIGHTLY = Job("nightly", 2, 8, group={"disruption": "Group"}, saves=True)
URGENT = Job("urgent", 2, 8, priority="urgent", group={})


class GangDemo(Demo):
    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._watch: Process | None = None
        self._shown = 0

    def run(self) -> None:
        self._prepare()
        self._two_that_do_not_both_fit()
        self._one_that_waits_its_turn()
        self._a_preemption()
        assert self._watch is not None
        self._watch.stop()
        self._screen.summary(
            "Two gangs ran one after the other, a large one was scheduled before the small pods that would have "
            "starved it, and an urgent one was bound only when there was room for all of it."
        )

    # -- steps --------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        stage, screen = self._stage, self._screen
        screen.step("Install the custom resources and start the operator")
        stage.start_operator(f"--gang-reservation-delay={PATIENCE_SECONDS}")
        stage.create(manifests.gpu_nodes(NODES))
        screen.show(f"{NODES} nodes created, {manifests.GPUS_PER_NODE} GPUs each")
        self._apply("profiles/pack")
        screen.command("kubectl", "get", POD_GROUPS, "-w", "&")
        kubectl = str(stage.plane.binary("kubectl"))
        command = [kubectl, f"--kubeconfig={stage.plane.kubeconfig}", "get", POD_GROUPS, "--watch"]
        self._watch = stage.plane.start_program("kubectl-watch", command, lambda: True)

    def _two_that_do_not_both_fit(self) -> None:
        screen, waits = self._screen, BETA.name
        screen.step("Two training jobs of 5 workers with 4 GPUs each: 40 GPUs where there are 32")
        self._submit(ALPHA)
        self._until_phase(ALPHA, "Running")
        self._submit(BETA)
        self._until_reason(BETA, "Unschedulable")
        self._show_watch(BETA, "Unschedulable")
        if self._running(BETA):
            raise DemoFailed("a gang that does not fit should hold nothing")
        screen.show(f"{ALPHA.name} has all of its nodes, {waits} has none: not even the 3 that are free. Why?")
        self._stage.explain(f"podgroup/{waits}")
        screen.show(f"{ALPHA.name} ends, and {waits} is scheduled as soon as there is room for all of it:")
        self._end(ALPHA)
        self._until_phase(ALPHA, "Finished")
        self._until_phase(BETA, "Running")
        self._show_watch(BETA, "Running")
        self._end(BETA)
        self._until_phase(BETA, "Finished")
        self._show_watch(BETA, "Finished")
        self._remove(ALPHA, BETA)

    def _one_that_waits_its_turn(self) -> None:
        screen = self._screen
        screen.step("A large job of 4 workers with 8 GPUs each, the whole cluster, behind a stream of small pods")
        self._stage.create(SMALL.pods)
        self._stage.until(f"{GPUS} small pods run", lambda: len(self._running(SMALL)) == GPUS)
        screen.show(f"{SMALL.workers} pods of one GPU: {GPUS} run and fill all nodes, the others wait")
        self._end(SMALL, self._running(SMALL)[:4])
        self._stage.until("small pods take the room again", lambda: len(self._running(SMALL)) == GPUS)
        screen.show("4 of them end, and 4 of those that wait take their GPUs: a job of 32 GPUs would never find room")
        self._submit(LARGE)
        self._until_reason(LARGE, "Unschedulable")
        self._stage.explain(f"podgroup/{LARGE.name}", limit=9)
        self._stage.until(
            "nodes are reserved", lambda: bool(self._status(POD_GROUPS, LARGE.name).get("nominatedDomain"))
        )
        self._show_watch(LARGE, "Unschedulable")
        reserved = self._status(POD_GROUPS, LARGE.name)["nominatedDomain"]
        screen.show(f"after {PATIENCE_SECONDS} s without success nodes are reserved for it: {reserved}")
        running, count = self._running(SMALL), len(self._waiting(SMALL))
        self._end(SMALL, running[:4])
        screen.show("again 4 small pods end; a small pod that would delay the gang does not take their room:")
        self._stage.until(
            "a small pod's condition names the gang", lambda: LARGE.name in self._message_of_a_small_pod()
        )
        screen.show(f'  PodScheduled=False: "{self._message_of_a_small_pod()}"')
        self._end(SMALL, running[4:])
        self._until_phase(LARGE, "Running")
        self._show_watch(LARGE, "Running")
        if len(self._waiting(SMALL)) != count:
            raise DemoFailed("no small pod should have been scheduled before the large job")
        screen.show(f"scheduled whole when its nodes were free, while {count} small pods still wait")
        self._end(LARGE)
        self._until_phase(LARGE, "Finished")
        self._show_watch(LARGE, "Finished")
        self._remove(SMALL, LARGE)

    def _a_preemption(self) -> None:
        stage, screen = self._stage, self._screen
        screen.step("An urgent job of 2 workers with 8 GPUs each, on a full cluster")
        stage.create(manifests.priority_class("urgent", 1000))
        stage.create(manifests.budget(DEVELOPERS.name, DEVELOPERS.workers))
        stage.create(DEVELOPERS.pods)
        stage.until("the developers' pods run", lambda: len(self._running(DEVELOPERS)) == DEVELOPERS.workers)
        screen.show("4 pods of developers hold two nodes; a PodDisruptionBudget allows no disruption of them")
        self._submit(NIGHTLY)
        self._until_phase(NIGHTLY, "Running")
        self._submit(URGENT)
        self._until_reason(URGENT, "Preempting")
        self._show_watch(URGENT, "Preempting")
        screen.show("the victims, and why they were selected:")
        stage.explain(f"podgroup/{URGENT.name}")
        victims = [f"{each['namespace']}/{each['name']}" for each in self._status(POD_GROUPS, URGENT.name)["victims"]]
        screen.show(f"status.victims: {', '.join(victims)}: the whole gang, and no pod of the budget")
        screen.show(
            "both are being deleted and save a checkpoint (a finalizer); no worker is bound before both are gone"
        )
        for name in (f"{NIGHTLY.name}-{number}" for number in range(NIGHTLY.workers)):
            stage.until(f"{name} is being deleted", partial(self._is_being_deleted, name))
            if self._running(URGENT):
                raise DemoFailed("no worker should have been bound before all victims were gone")
            stage.plane.kubectl("patch", "pod", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        self._until_phase(URGENT, "Running")
        preempted = ("events", "--field-selector", "reason=Preempted")
        stage.until("both evictions have an event", lambda: len(stage.get(*preempted)["items"]) >= NIGHTLY.workers)
        stage.show("get", *preempted, limit=4)
        screen.show(f"the Job of {NIGHTLY.name} makes new workers, which wait together")
        stage.create(replace(NIGHTLY, first=NIGHTLY.workers, saves=False).pods)
        self._until_reason(NIGHTLY, "Unschedulable")
        self._end(URGENT)
        self._until_phase(URGENT, "Finished")
        self._until_phase(NIGHTLY, "Running")
        self._show_watch(NIGHTLY, "Running")
        stage.show("get", POD_GROUPS)

    # -- actions and reads --------------------------------------------------------------------------------------------

    def _submit(self, job: Job) -> None:
        self._screen.command("kubectl", "apply", "-f", f"{job.name}.yaml", f"  # spec: {job.spec}")
        self._stage.plane.kubectl("apply", "-f", "-", input=job.pod_group)
        self._stage.create(job.pods)

    def _remove(self, *jobs: Job) -> None:
        for job in jobs:
            self._stage.plane.kubectl("delete", "pods", "--selector", f"job={job.name}", "--wait=false")
            if job.group is not None:
                self._stage.plane.kubectl("delete", POD_GROUPS, job.name)
            self._stage.until(f"the pods of {job.name} are gone", lambda: not self._items(f"job={job.name}"))  # noqa: B023 - called at once

    def _end(self, job: Job, names: Sequence[str] = ()) -> None:
        """Let workers succeed, as a kubelet reports it; all running ones unless names are given."""
        ended = '{"status":{"phase":"Succeeded"}}'
        chosen = names or self._running(job)
        self._stage.plane.kubectl("patch", "pods", *chosen, "--subresource=status", "--type=merge", "-p", ended)

    def _show_watch(self, job: Job, word: str) -> None:
        """Print the watch's output since the last call, up to a line of a job with a phase or reason."""

        def printed() -> str:
            assert self._watch is not None
            text = Path(self._watch.log).read_text()
            return text[self._shown : text.rfind("\n") + 1]

        def is_there() -> bool:
            return any(line.split()[:1] == [job.name] and word in line.split() for line in printed().splitlines())

        self._stage.until(f"kubectl's watch prints {job.name} as {word}", is_there)
        shown = printed()
        self._screen.output(shown)
        self._shown += len(shown)

    def _until_phase(self, job: Job, phase: str) -> None:
        self._stage.until(f"{job.name} is {phase}", lambda: self._status(POD_GROUPS, job.name).get("phase") == phase)

    def _until_reason(self, job: Job, reason: str) -> None:
        self._until_condition(POD_GROUPS, job.name, "Scheduled", reason)

    def _is_being_deleted(self, name: str) -> bool:
        return "deletionTimestamp" in self._stage.get("pod", name)["metadata"]

    def _running(self, job: Job) -> list[str]:
        """Return the names of the workers that are bound and have not ended."""
        pods = [pod for pod in self._items(f"job={job.name}") if pod["spec"].get("nodeName")]
        return [pod["metadata"]["name"] for pod in pods if status_of(pod).get("phase") != "Succeeded"]

    def _waiting(self, job: Job) -> list[str]:
        return [pod["metadata"]["name"] for pod in self._items(f"job={job.name}") if not pod["spec"].get("nodeName")]

    def _message_of_a_small_pod(self) -> str:
        """Return the message of a waiting small pod, preferably of one that the reservation rejects."""
        waiting = [pod for pod in self._items(f"job={SMALL.name}") if not pod["spec"].get("nodeName")]
        conditions = [each for pod in waiting for each in status_of(pod).get("conditions", [])]
        messages = sorted(
            {str(each.get("message", "")) for each in conditions}, key=lambda text: LARGE.name not in text
        )
        return messages[0] if messages else ""


_TO_TRY = f"""  kubectl get {POD_GROUPS} -o wide    # with the reason in words
  kubectl describe bpg nightly              # conditions, counts and events
  kubectl explain bpg.spec"""

if __name__ == "__main__":
    sys.exit(perform("make demo-gang", __doc__, GangDemo, _TO_TRY))
