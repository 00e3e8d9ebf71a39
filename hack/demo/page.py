"""`make demo PAGE=1`: the page, on a cluster with pods that wait, a gang that waits, and a shadow profile.

From a terminal the page stays until Enter is pressed, and the browser is opened on a desktop; otherwise the demo ends
when the page shows all of it.
"""

import json
import sys
import webbrowser
from typing import Any

from hack.demo import manifests
from hack.demo.manifests import Job
from hack.demo.stage import Demo, perform

NODES = 60
GPU_NODES = 4
PODS = 200
LARGE_PODS = 30
UNSERVED_PODS = 3

RUNNING = Job("render", workers=2, gpus=8, group={})
WAITING = Job("train", workers=4, gpus=8, group={})
LIVE, SHADOW, MISSPELT = "spread", "spread-next", "spraed"


class PageDemo(Demo):
    needs_kubelets = False

    def run(self) -> None:
        self._prepare()
        self._fill()
        self._leave_waiting()
        self._look()

    # -- steps --------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._screen.step(f"{NODES + GPU_NODES} nodes, a profile with its shadow, and a profile for gangs")
        self._stage.start_operator("--serve-page")
        self._stage.create(manifests.nodes(NODES))
        self._stage.create(manifests.gpu_nodes(GPU_NODES))
        self._apply(*(f"profiles/{name}" for name in (LIVE, SHADOW, manifests.PACKING)))
        self._stage.until("the profiles run", lambda: len(self._read("profiles")["profiles"]) == 3)

    def _fill(self) -> None:
        self._screen.step(f"{PODS} pods, which the shadow decides again, and a gang that runs")
        self._stage.create(manifests.pods("web", LIVE, PODS))
        self._create(RUNNING)
        self._stage.until("they are bound", lambda: self._read("overview")["pods"] >= PODS + RUNNING.workers)

    def _leave_waiting(self) -> None:
        self._screen.step(
            "Pods that are larger than every node, pods with a misspelt profile, and a gang that does not fit"
        )
        self._stage.create(manifests.pods("large", LIVE, LARGE_PODS, cpu="100"))
        self._stage.create(manifests.pods("unserved", MISSPELT, UNSERVED_PODS))
        self._create(WAITING)
        waiting = LARGE_PODS + UNSERVED_PODS + WAITING.workers
        self._stage.until("the page shows them", lambda: self._read("pending")["total"] >= waiting)
        self._stage.until("the page shows the gang", lambda: WAITING.name in str(self._read("gangs")["gangs"]))
        self._stage.until("the page shows the shadow", lambda: any(map(_compares, self._read("profiles")["profiles"])))

    def _look(self) -> None:
        self._screen.step("The page")
        for group in self._read("pending")["groups"]:
            self._screen.show(f"{group['count']:3} pods wait: {group['cause']}")
        address = f"{self._stage.server}/page/"
        unsigned = " (its certificate is self-signed)" if address.startswith("https") else ""
        self._screen.summary(f"The page is at {address}{unsigned}")
        if sys.stdin.isatty() and sys.stdout.isatty():
            webbrowser.open(address)
            if "--keep" not in sys.argv:
                input("   Press Enter to end the demo. ")

    # -- the cluster --------------------------------------------------------------------------------------------------

    def _create(self, job: Job) -> None:
        self._stage.create(job.pod_group)
        self._stage.create(job.pods)

    def _read(self, panel: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self._stage.fetch(f"/page/data/{panel}"))
        return document


def _compares(profile: dict[str, Any]) -> bool:
    return bool((profile.get("shadow") or {}).get("compared"))


_TO_TRY = f"""  kubectl get pods,bpg
  kubectl get schedulerprofiles -o wide
  kubectl delete pods -l job={RUNNING.name}      # the gang that waits has room; the page shows it within seconds"""

if __name__ == "__main__":
    sys.exit(perform("make demo PAGE=1", __doc__, PageDemo, _TO_TRY))
