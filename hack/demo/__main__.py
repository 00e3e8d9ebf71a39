"""`make demo`: Bayplan at work on a real control plane, as its users see it.

Owns the story. Everything is done with kubectl and the installed command; whatever does not come out as told ends the
demo with a non-zero status.
"""

import argparse
import json
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hack.controlplane.binaries import MissingBinary
from hack.controlplane.commands import how_to_use
from hack.controlplane.launcher import ControlPlane, ControlPlaneError
from hack.controlplane.probes import LOOPBACK, free_port
from hack.demo import manifests
from hack.demo.screen import Screen

ROOT = Path(__file__).resolve().parents[2]
PROFILES = ROOT / "examples" / "profiles"
NODES = 100
PODS_PER_PROFILE = 100
_WAIT_SECONDS = 60.0
_POLL_SECONDS = 0.1

_BROKEN_EDIT: dict[str, Any] = {
    "spec": {
        "plugins": {"score": {"enabled": [{"name": "NodeAfinity", "weight": 5}]}},
        "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "Random"}}}],
    }
}


class DemoFailed(Exception):  # noqa: N818 - it says what happened
    """The demo did not come out as told."""


class Demo:
    """One run of the demo on a control plane."""

    def __init__(self, plane: ControlPlane, screen: Screen) -> None:
        self._plane = plane
        self._screen = screen

    def run(self) -> None:
        """Tell the whole story."""
        self._start_operator()
        self._fill_cluster()
        self._edit_live()
        self._break()
        self._summarise()

    # -- the story ----------------------------------------------------------------------------------------------------

    def _start_operator(self) -> None:
        screen = self._screen
        screen.step("Install the custom resources and start the operator")
        self._show("apply", "-f", str(ROOT / "crds"), told="crds/")
        port = free_port()
        command = [str(Path(sys.executable).parent / "bayplan"), "run"]
        flags = ["--kubeconfig", str(self._plane.kubeconfig), "--serve-address", f"{LOOPBACK}:{port}"]
        screen.command("bayplan", "run")
        self._plane.start_program("bayplan", [*command, *flags], lambda: _answers(port))
        screen.say("ready: watching profiles, nodes and pods")

    def _fill_cluster(self) -> None:
        screen = self._screen
        screen.step(f"{NODES} nodes in {len(manifests.ZONES)} zones, and two profiles: one spreads, one packs")
        self._create(manifests.nodes(NODES))
        screen.say(f"{NODES} nodes created, 8 CPUs and 32 GiB each")
        for name in ("spread", "pack"):
            self._show("apply", "-f", str(PROFILES / f"{name}.yaml"), told=f"examples/profiles/{name}.yaml")
        self._until("both profiles are live", lambda: all(self._is_ready(name) for name in ("spread", "pack")))
        screen.step(f"{2 * PODS_PER_PROFILE} pods, half of them for each profile")
        for name in ("spread", "pack"):
            self._create(manifests.pods(name, name, PODS_PER_PROFILE))
        self._until("all pods are bound", lambda: self._bound() == 2 * PODS_PER_PROFILE)
        self._until("the status counts them", lambda: self._scheduled_total() == 2 * PODS_PER_PROFILE)
        self._show("get", "schedulerprofiles")
        for name in ("spread", "pack"):
            per_node = self._pods_per_node(f"demo={name}")
            histogram = Counter(per_node.values())
            ordered = sorted(histogram.items(), reverse=True)
            parts = [f"{nodes} node{'s' * (nodes > 1)} with {pods}" for pods, nodes in ordered]
            screen.say(f"pods of profile {name} per node: {', '.join(parts)}")
        self._show("get", "events", "--field-selector", "reason=Scheduled", limit=4)

    def _edit_live(self) -> None:
        screen = self._screen
        screen.step("Edit a profile live: from now on, spread packs too")
        before = self._revision("spread")
        patch = {"spec": {"pluginConfig": None, "pluginConfigRefs": [{"name": "fill-nodes"}], "plugins": _NO_BALANCE}}
        self._patch("spread", patch, "use PluginConfig fill-nodes")
        self._until("the new revision is live", lambda: self._revision("spread") not in ("", before))
        after = self._revision("spread")
        screen.say(f"revision {before} -> {after}, and nothing was restarted")
        self._create(manifests.pods("after-edit", "spread", 20))
        self._until("20 more pods are bound", lambda: self._bound() == 2 * PODS_PER_PROFILE + 20)
        used = self._pods_per_node("demo=spread", "after-edit")
        screen.say(f"20 new pods of the same profile went to {len(used)} node(s): {', '.join(sorted(used))}")
        if len(used) > 2:
            raise DemoFailed(f"the edited profile should pack 20 small pods on one or two nodes, not {len(used)}")

    def _break(self) -> None:
        screen = self._screen
        screen.step("Break it: an unknown plugin and a scoring strategy that does not exist")
        good = self._revision("spread")
        self._patch("spread", _BROKEN_EDIT, "enable NodeAfinity, scoringStrategy.type=Random")
        self._until("the edit is refused", lambda: self._condition("spread", "Accepted").get("status") == "False")
        self._show("get", "schedulerprofile", "spread")
        screen.say(f"Accepted=False: {self._condition('spread', 'Accepted')['message']}")
        if self._revision("spread") != good or not self._is_ready("spread"):
            raise DemoFailed("the last good revision should have stayed live")
        self._create(manifests.pods("after-break", "spread", 20))
        self._until("20 more pods are bound", lambda: self._bound() == 2 * PODS_PER_PROFILE + 40)
        screen.say(f"revision {good} is still live and has bound 20 more pods")

    def _summarise(self) -> None:
        bound, total = self._bound(), len(self._pods())
        spread, pack = (self._pods_per_node(f"demo={name}") for name in ("spread", "pack"))
        self._screen.summary(
            f"{bound} of {total} pods bound: spread used {len(spread)} nodes, pack {len(pack)}; "
            "one live edit took effect, one broken edit did not."
        )
        if bound != total:
            raise DemoFailed("not every pod was bound")

    # -- asking the cluster -------------------------------------------------------------------------------------------

    def _show(self, *arguments: str, told: str = "", limit: int = 0) -> None:
        shown = [*arguments[:-1], told] if told else list(arguments)
        self._screen.command("kubectl", *shown)
        self._screen.output(self._plane.kubectl(*arguments), limit)

    def _create(self, documents: str) -> None:
        self._plane.kubectl("create", "-f", "-", input=documents)

    def _patch(self, profile: str, patch: dict[str, Any], told: str) -> None:
        self._screen.command("kubectl", "edit", "schedulerprofile", profile, f"   # {told}")
        self._plane.kubectl("patch", "schedulerprofile", profile, "--type=merge", "-p", json.dumps(patch))

    def _get(self, *arguments: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self._plane.kubectl("get", *arguments, "-o", "json"))
        return document

    def _profile_status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self._get("schedulerprofile", name).get("status", {})
        return status

    def _condition(self, name: str, kind: str) -> dict[str, str]:
        conditions: list[dict[str, str]] = self._profile_status(name).get("conditions", [])
        return next((entry for entry in conditions if entry["type"] == kind), {})

    def _is_ready(self, name: str) -> bool:
        return self._condition(name, "Ready").get("status") == "True"

    def _revision(self, name: str) -> str:
        return str(self._profile_status(name).get("activeRevision", ""))

    def _scheduled_total(self) -> int:
        return sum(int(self._profile_status(name).get("scheduledTotal", 0)) for name in ("spread", "pack"))

    def _pods(self, selector: str = "demo") -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self._get("pods", "-l", selector)["items"]
        return items

    def _bound(self) -> int:
        return sum(1 for pod in self._pods() if pod["spec"].get("nodeName"))

    def _pods_per_node(self, selector: str, prefix: str = "") -> Counter[str]:
        pods = [pod for pod in self._pods(selector) if pod["metadata"]["name"].startswith(prefix)]
        return Counter(pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName"))

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _WAIT_SECONDS
        while not holds():
            if time.monotonic() > deadline:
                raise DemoFailed(f"after {_WAIT_SECONDS:.0f} s it is still not so that {what}")
            time.sleep(_POLL_SECONDS)


_TO_TRY = """  kubectl get schedulerprofiles,pluginconfigs
  kubectl edit schedulerprofile spread      # mend what the demo broke, and watch ACCEPTED and REVISION
  kubectl describe schedulerprofile spread  # every problem with its field path
  kubectl run mine --image=registry.k8s.io/pause:3.10 --overrides='{"spec":{"schedulerName":"pack"}}'"""

_NO_BALANCE = {"score": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}]}}


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/readyz", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def main() -> int:
    """Run the demo.

    Returns:
        Exit status.
    """
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave everything running and say how to use it")
    keep = parser.parse_args().keep
    screen = Screen()
    screen.say("Starting etcd and kube-apiserver (the first time they are built from source: about five minutes)")
    try:
        with ControlPlane(detach=keep) as plane:
            try:
                plane.start_kwok()
            except MissingBinary as missing:
                screen.say(f"without kwok pods are bound but do not run: {missing}")
            Demo(plane, screen).run()
            if keep:
                screen.output("\n" + how_to_use(plane))
                screen.output("What to try:\n" + _TO_TRY)
    except (ControlPlaneError, MissingBinary, DemoFailed) as problem:
        sys.stderr.write(f"demo: {problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
