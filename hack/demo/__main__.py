"""`make demo`: profiles on a real control plane, with kubectl and the installed command only."""

import json
import sys
from collections import Counter
from typing import Any

from hack.demo import manifests
from hack.demo.stage import Demo, DemoFailed, perform

NODES = 100
_PROFILE = "schedulerprofile"
PODS_PER_PROFILE = 100

_BROKEN_EDIT: dict[str, Any] = {
    "spec": {
        "plugins": {"score": {"enabled": [{"name": "NodeAfinity", "weight": 5}]}},
        "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "Random"}}}],
    }
}


class ProfileDemo(Demo):
    needs_kubelets = False

    def run(self) -> None:
        self._start_operator()
        self._fill_cluster()
        self._edit_live()
        self._break()
        self._roll_back()
        self._summarise()

    # -- steps --------------------------------------------------------------------------------------------------------

    def _start_operator(self) -> None:
        self._screen.step("Install the chart by Helm, and start the operator as its Deployment has it")
        self._stage.install()

    def _fill_cluster(self) -> None:
        screen = self._screen
        screen.step(f"{NODES} nodes in {len(manifests.ZONES)} zones, and two profiles: one spreads, one packs")
        self._stage.create(manifests.nodes(NODES))
        screen.show(f"{NODES} nodes created, 8 CPUs and 32 GiB each")
        self._apply("profiles/spread", "profiles/pack")
        self._stage.until("both profiles are live", lambda: all(self._is_ready(name) for name in ("spread", "pack")))
        screen.step(f"{2 * PODS_PER_PROFILE} pods, half of them for each profile")
        for name in ("spread", "pack"):
            self._stage.create(manifests.pods(name, name, PODS_PER_PROFILE))
        self._stage.until("all pods are bound", lambda: self._bound() == 2 * PODS_PER_PROFILE)
        self._stage.until("the status counts them", lambda: self._scheduled_total() == 2 * PODS_PER_PROFILE)
        self._stage.show("get", "schedulerprofiles")
        for name in ("spread", "pack"):
            per_node = self._pods_per_node(f"demo={name}")
            histogram = Counter(per_node.values())
            ordered = sorted(histogram.items(), reverse=True)
            parts = [f"{nodes} node{'s' * (nodes > 1)} with {pods}" for pods, nodes in ordered]
            screen.show(f"pods of profile {name} per node: {', '.join(parts)}")
        scheduled = ("events", "--field-selector", "reason=Scheduled")
        self._stage.until(
            "pods have events", lambda: len(self._stage.get(*scheduled)["items"]) >= len(self._items("demo"))
        )
        self._stage.show("get", *scheduled, limit=4)

    def _edit_live(self) -> None:
        screen = self._screen
        screen.step("Edit a profile live: from now on, spread packs too")
        before = self._revision("spread")
        patch = {"spec": {"pluginConfig": None, "pluginConfigRefs": [{"name": "fill-nodes"}], "plugins": _NO_BALANCE}}
        self._patch("spread", patch, "use PluginConfig fill-nodes")
        self._stage.until("the new revision is live", lambda: self._revision("spread") not in ("", before))
        after = self._revision("spread")
        screen.show(f"revision {before} -> {after}, and nothing was restarted")
        self._stage.create(manifests.pods("after-edit", "spread", 20))
        self._stage.until("20 more pods are bound", lambda: self._bound() == 2 * PODS_PER_PROFILE + 20)
        used = self._pods_per_node("demo=spread", "after-edit")
        screen.show(f"20 new pods of the same profile went to {len(used)} node(s): {', '.join(sorted(used))}")
        if len(used) > 2:
            raise DemoFailed(f"the edited profile should pack 20 small pods on one or two nodes, not {len(used)}")

    def _break(self) -> None:
        screen = self._screen
        screen.step("Break it: an unknown plugin and a scoring strategy that does not exist")
        good = self._revision("spread")
        self._patch("spread", _BROKEN_EDIT, "enable NodeAfinity, scoringStrategy.type=Random")
        self._stage.until(
            "the edit is rejected", lambda: self._condition(_PROFILE, "spread", "Accepted").get("status") == "False"
        )
        self._stage.show("get", "schedulerprofile", "spread")
        screen.show(f"Accepted=False: {self._condition(_PROFILE, 'spread', 'Accepted')['message']}")
        if self._revision("spread") != good or not self._is_ready("spread"):
            raise DemoFailed("the last good revision should have stayed live")
        self._stage.create(manifests.pods("after-break", "spread", 20))
        self._stage.until("20 more pods are bound", lambda: self._bound() == 2 * PODS_PER_PROFILE + 40)
        screen.show(f"revision {good} is still live and has bound 20 more pods")

    def _roll_back(self) -> None:
        screen = self._screen
        screen.step("Roll back: first to the live revision, then to the one before the edit")
        self._stage.bayplan("history", "spread")
        self._stage.bayplan("rollback", "spread", unshown=_PATIENT)
        self._stage.until(
            "the spec is valid again", lambda: self._condition(_PROFILE, "spread", "Accepted")["status"] == "True"
        )
        before = self._revision("spread")
        self._stage.bayplan("rollback", "spread", unshown=_PATIENT)
        if self._revision("spread") == before:
            raise DemoFailed("the revision before the live edit should be live again")
        self._stage.show("get", "schedulerprofile", "spread")
        self._stage.create(manifests.pods("after-rollback", "spread", 20))
        self._stage.until("20 more pods are bound", lambda: self._bound() == 2 * PODS_PER_PROFILE + 60)
        used = self._pods_per_node("demo=spread", "after-rollback")
        screen.show(f"20 new pods went to {len(used)} nodes: the profile spreads again")
        if len(used) < 10:
            raise DemoFailed(f"the profile that was rolled back should spread 20 pods, and not use {len(used)} nodes")

    def _summarise(self) -> None:
        bound, total = self._bound(), len(self._items("demo"))
        spread, pack = (self._pods_per_node(f"demo={name}") for name in ("spread", "pack"))
        self._screen.summary(
            f"{bound} of {total} pods bound: spread used {len(spread)} nodes, pack {len(pack)}; "
            "one live edit took effect, one broken edit did not, and both were rolled back."
        )
        if bound != total:
            raise DemoFailed("not every pod was bound")

    # -- reading the cluster ------------------------------------------------------------------------------------------

    def _patch(self, profile: str, patch: dict[str, Any], comment: str) -> None:
        self._screen.command("kubectl", "edit", "schedulerprofile", profile, f"   # {comment}")
        self._stage.plane.kubectl("patch", "schedulerprofile", profile, "--type=merge", "-p", json.dumps(patch))

    def _is_ready(self, name: str) -> bool:
        return self._is_true(_PROFILE, name, "Ready")

    def _revision(self, name: str) -> str:
        return str(self._status(_PROFILE, name).get("activeRevision", ""))

    def _scheduled_total(self) -> int:
        return sum(int(self._status(_PROFILE, name).get("scheduledTotal", 0)) for name in ("spread", "pack"))

    def _bound(self) -> int:
        return sum(map(bool, self._nodes("demo").values()))

    def _pods_per_node(self, selector: str, prefix: str = "") -> Counter[str]:
        return Counter(filter(None, self._nodes(selector, prefix).values()))


_TO_TRY = """  kubectl get schedulerprofiles,pluginconfigs
  kubectl edit schedulerprofile spread      # repair what the demo broke, and watch ACCEPTED and REVISION
  kubectl describe schedulerprofile spread  # every problem with its field path
  kubectl run mine --image=registry.k8s.io/pause:3.10 --overrides='{"spec":{"schedulerName":"pack"}}'"""

_PATIENT = ("--timeout=300",)
_NO_BALANCE = {"score": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}]}}


if __name__ == "__main__":
    sys.exit(perform("make demo", __doc__, ProfileDemo, _TO_TRY))
