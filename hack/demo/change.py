"""`make demo-change`: a change of a profile from a shadow to its rollback, and an incident that is replayed afterwards.

It runs on a real control plane with kubectl.
"""

import re
import sys
from typing import Any

from hack.demo import manifests
from hack.demo.stage import Demo, DemoFailed, Stage, perform

NODES = 60
_PROFILE = "schedulerprofile"
PODS = 300
LATER_PODS = 20

LIVE, SHADOW = "spread", "spread-next"
_COLUMNS = (
    "custom-columns=NAME:.metadata.name,SHADOWS:.spec.shadowOf,REVISION:.status.activeRevision,"
    "DECIDED:.status.shadow.decided,AGREE:.status.shadow.agreed,DIFFER:.status.shadow.differed"
)
_LARGE = "default/large-000"
_DIFFERS = (0, 1)
"""Exit codes of ``bayplan diff`` that are no errors."""


class ChangeDemo(Demo):
    needs_kubelets = False

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._record = str(stage.plane.state_dir / "record")

    def run(self) -> None:
        self._prepare()
        differed = self._shadow()
        self._diff()
        packed = self._promote()
        spread = self._roll_back()
        replayed = self._replay()
        self._screen.summary(
            f"the shadow would have chosen other nodes for {differed} pods; promoted, the profile packed {LATER_PODS} "
            f"pods on {packed} node{'s' * (packed > 1)}; rolled back, it spread {LATER_PODS} pods over {spread} nodes; "
            f"a replay of the record computed all {replayed} decisions again and shows why {_LARGE} was rejected."
        )

    # -- steps --------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._screen.step(f"{NODES} nodes, a profile that spreads, and a shadow of it that would pack")
        self._stage.start_operator("--record", self._record)
        self._stage.create(manifests.nodes(NODES))
        self._apply(f"profiles/{LIVE}", f"profiles/{SHADOW}")
        self._stage.until("the profile is live", lambda: self._is_true(_PROFILE, LIVE, "Ready"))
        self._stage.until("the shadow compares", lambda: self._is_true(_PROFILE, SHADOW, "Comparing"))

    def _shadow(self) -> int:
        screen = self._screen
        screen.step(f"{PODS} pods: the live profile places them, and the shadow decides them again and binds none")
        self._stage.create(manifests.pods("web", LIVE, PODS))
        self._stage.until("all pods are bound", lambda: len(self._used("web")) == PODS)
        self._stage.until("the status counts them", lambda: self._found().get("decided") == PODS)
        self._stage.show("get", "schedulerprofiles", "-o", _COLUMNS)
        self._stage.shadow(SHADOW, limit=32)
        self._stage.show("describe", "schedulerprofile", SHADOW, limit=24)
        found = self._found()
        screen.show(f"the {PODS} pods run on {len(set(self._used('web')))} nodes, where the live profile put them")
        if not found["differed"] or found["differed"] != found["otherNode"]:
            raise DemoFailed(f"a shadow that packs should choose other nodes, and reject nothing: {found}")
        differed: int = found["differed"]
        return differed

    def _diff(self) -> None:
        self._screen.step("What moves if all of them are decided again: bayplan diff, from an empty state")
        self._stage.bayplan("diff", LIVE, SHADOW, "--reschedule", "empty", limit=24, codes=_DIFFERS)

    def _promote(self) -> int:
        self._screen.step("Promote the shadow: one edit of the live profile")
        self._stage.bayplan("promote", SHADOW, "--dry-run")
        before = self._revision()
        self._stage.bayplan("promote", SHADOW)
        if self._revision() == before:
            raise DemoFailed("the promoted spec should be live")
        used = self._place("promoted")
        if used > 2:
            raise DemoFailed(
                f"the promoted profile should pack {LATER_PODS} small pods on one or two nodes, not {used}"
            )
        return used

    def _roll_back(self) -> int:
        self._screen.step("Take it back")
        self._stage.bayplan("history", LIVE)
        self._stage.bayplan("rollback", LIVE)
        used = self._place("restored")
        if used < LATER_PODS // 2:
            raise DemoFailed(
                f"the profile that was rolled back should spread {LATER_PODS} pods, and not use {used} nodes"
            )
        return used

    def _replay(self) -> str:
        self._screen.step("An incident: no node fits a pod; the record shows why")
        self._stage.create(manifests.pods("large", LIVE, 1, cpu="1000"))
        self._stage.until(
            "the decision is in the record", lambda: _LARGE in self._stage.read("record", "show", self._record)
        )
        equal = re.search(r"(\d+) decisions, all equal", self._stage.bayplan("replay", self._record))
        if equal is None:
            raise DemoFailed("the replay should compute all recorded decisions again")
        why = self._stage.bayplan("replay", self._record, "--until", _LARGE, limit=24)
        if "Insufficient cpu" not in why:
            raise DemoFailed("the replay should show why the pod was rejected")
        return equal[1]

    # -- reading the cluster ------------------------------------------------------------------------------------------

    def _place(self, prefix: str) -> int:
        """Create more pods; return how many nodes they use."""
        self._stage.create(manifests.pods(prefix, LIVE, LATER_PODS))
        self._stage.until("the new pods are bound", lambda: len(self._used(prefix)) == LATER_PODS)
        used = set(self._used(prefix))
        nodes = f"{len(used)} node{'s' * (len(used) > 1)}"
        self._screen.show(f"{LATER_PODS} new pods of the same profile went to {nodes}")
        return len(used)

    def _used(self, prefix: str) -> list[str]:
        """Return the node of each bound pod."""
        return list(filter(None, self._nodes(f"demo={LIVE}", f"{prefix}-").values()))

    def _found(self) -> dict[str, Any]:
        found: dict[str, Any] = self._status(_PROFILE, SHADOW).get("shadow", {})
        return found

    def _revision(self) -> str:
        return str(self._status(_PROFILE, LIVE).get("activeRevision", ""))


_TO_TRY = f"""  kubectl get schedulerprofiles -o wide
  kubectl describe schedulerprofile {SHADOW}     # the last 100 differences, with reasons
  kubectl edit schedulerprofile {SHADOW}         # the comparison starts again
  bayplan promote {SHADOW} --dry-run"""

if __name__ == "__main__":
    sys.exit(perform("make demo-change", __doc__, ChangeDemo, _TO_TRY))
