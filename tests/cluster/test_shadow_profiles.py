"""A shadow profile on a real API server with the real operator: status, kubectl output and promotion."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from bayplan.cli import bayplan
from click.testing import CliRunner, Result

from hack.controlplane.api_client import MERGE_PATCH, ApiClient, ApiRefusalError, condition_of, status_of
from hack.controlplane.launcher import ControlPlane
from tests.support.dashboard import assert_has_series
from tests.support.live_servers import operator_in_new_namespace
from tests.support.live_world import LiveWorld
from tests.support.manifests import Manifest
from tests.support.operator_process import OperatorProcess
from tests.support.tables import table

pytestmark = pytest.mark.cluster
PROFILES = "/apis/bayplan.dev/v1alpha1/schedulerprofiles"
PODS = 12
_MEASURE_SECONDS = 1.5


@pytest.fixture(scope="module")
def operator(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """Start an operator."""
    log = tmp_path_factory.mktemp("operator") / "log"
    with operator_in_new_namespace(control_plane, log, "shadows") as (process, _):
        yield process


class Profiles(LiveWorld):
    """A live profile that spreads, with two nodes for its pods, and a shadow."""

    @property
    def shadow(self) -> str:
        return f"{self.token}-next"

    def compare(self, spec: Manifest) -> Manifest:
        """Create the shadow, and pods one after the other, so that each affects the decision on the next.

        Returns:
            The status of the shadow when it has decided all pods.
        """
        self.cluster_object("SchedulerProfile", "next", "bayplan.dev/v1alpha1", spec=spec)
        self.until(
            lambda: condition_of(self.stored(self.shadow), "Comparing").get("status") == "True", "it is comparing"
        )
        begun = time.monotonic()
        for number in range(PODS):
            if number == PODS - 1:
                # What is carried forward is measured once a second, with a decision.
                self.until(lambda: time.monotonic() > begun + _MEASURE_SECONDS, "the next measurement is due")
            self.pod(f"p-{number}")
            self.until_scheduled(f"p-{number}")
        found: Manifest = {}

        def is_decided() -> bool:
            nonlocal found
            found = status_of(self.stored(self.shadow)).get("shadow", {})
            return bool(found.get("decided") == PODS)

        self.until(is_decided, "the shadow has decided all pods")
        return found

    def stored(self, name: str) -> Manifest:
        return self.api.get(f"{PROFILES}/{name}")


@pytest.fixture
def world(control_plane: ControlPlane, operator: OperatorProcess, namespace: str) -> Iterator[Profiles]:
    """Create the live profile and the nodes."""
    with Profiles.opened(control_plane, operator, namespace) as world:
        world.profile({})
        for node in ("a", "b"):
            world.node(node)
        yield world


def packing(live: str, **fields: Any) -> Manifest:
    """Return the spec of a shadow that prefers full nodes."""
    strategy = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
    return {
        "shadowOf": live,
        "plugins": {"score": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}]}},
        "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}],
        **fields,
    }


def command(plane: ControlPlane, *args: str, code: int = 0) -> Result:
    result = CliRunner().invoke(bayplan, [*args, f"--kubeconfig={plane.kubeconfig}"])
    assert result.exit_code == code, result.output
    return result


def test_from_shadow_to_promotion_and_back(control_plane: ControlPlane, world: Profiles) -> None:
    """The shadow reports its differing decisions; a promotion makes its spec live, and a rollback reverts it."""
    live, shadow, operator = world.token, world.shadow, world.operator
    found = world.compare(packing(live, shadowBudgetPercent=100))
    assert found["compared"] + sum(each["count"] for each in found.get("notCompared", ())) == PODS
    assert found["differed"] == found["otherNode"] > 0
    assert found["agreed"] + found["differed"] == found["compared"]
    assert f"{shadow} prefers" in found["differences"][0]["reason"]
    assert float(found["scoreDifference"]["shadow"]) > 0
    carried = found["carriedForward"]
    assert carried["moved"] > 0
    assert carried["shadow"]["placed"] == carried["pods"]

    row = control_plane.kubectl("get", "sp", shadow, "--output=wide").splitlines()
    titles, cells = row[0].split(), row[1].split()
    assert titles[titles.index("SHADOWS") : titles.index("SHADOWS") + 3] == ["SHADOWS", "AGREE", "DIFFER"]
    assert [live, str(found["agreed"]), str(found["differed"])] == cells[cells.index(live) : cells.index(live) + 3]
    assert found["differences"][0]["reason"][:60] in control_plane.kubectl("describe", "sp", shadow)

    report = CliRunner().invoke(bayplan, ["status", f"--shadow={shadow}", f"--server={operator.url}", "--output=json"])
    assert report.exit_code == 0, report.output
    shown = json.loads(report.stdout)
    assert (shown["shadowOf"], shown["shadow"]["compared"]) == (live, found["compared"])
    table = CliRunner().invoke(bayplan, ["status", f"--shadow={shadow}", f"--server={operator.url}"]).stdout
    assert "If its choices had been taken" in table
    assert "OtherNode" in table
    counted = operator.metric("bayplan_shadow_decisions_total", profile=shadow, shadow_of=live, result="other_node")
    assert counted == found["otherNode"]
    assert_has_series(operator.get("/metrics")[1], "bayplan_shadow_")

    before = world.stored(live)
    dry = command(control_plane, "promote", shadow, "--dry-run").stdout
    assert "+      type: MostAllocated" in dry or "+        type: MostAllocated" in dry
    assert f"{found['differed']} differ" in dry
    assert world.stored(live)["spec"] == before["spec"]
    promoted = command(control_plane, "promote", shadow).stdout
    assert "Ready: Revision" in promoted
    after = world.stored(live)
    assert after["spec"] == {name: value for name, value in packing(live).items() if name != "shadowOf"}
    assert after["metadata"]["annotations"]["kubernetes.io/change-cause"] == f"promote {shadow}"
    again = command(control_plane, "promote", shadow, code=1).output
    assert "already; nothing was changed" in again
    history = json.loads(command(control_plane, "history", live, "--output=json").stdout)["revisions"]
    assert [(each["revision"], each["live"]) for each in history] == [(2, True), (1, False)]
    assert history[0]["manager"] == "bayplan-promote"
    command(control_plane, "rollback", live)
    assert world.stored(live)["spec"] == before["spec"]


def test_a_shadow_with_the_same_spec_agrees(world: Profiles) -> None:
    """A shadow with an equal spec never differs; only the time budget and state changes prevent a comparison."""
    found = world.compare({"shadowOf": world.token, "shadowBudgetPercent": 100})
    assert found["differed"] == 0
    assert found["agreed"] == found["compared"] >= PODS - 2
    assert {each["reason"] for each in found.get("notCompared", ())} <= {"Budget", "StateChanged"}


@pytest.mark.usefixtures("operator")
@table(
    "spec, message",
    ("a name of its own", {"shadowOf": "x", "schedulerName": "y"}, "spec.schedulerName: Invalid value"),
    ("not a shadow", {"samplePercent": 10}, "only a shadow has it; set shadowOf, or remove it"),
    ("more than all", {"shadowOf": "x", "samplePercent": 101}, "less than or equal to 100"),
)
def test_rules_of_the_api_server(control_plane: ControlPlane, spec: Manifest, message: str) -> None:
    """The rules of the CRD name the field and the remedy."""
    body = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "SchedulerProfile", "metadata": {"name": "bad"}}
    with ApiClient(control_plane) as api:
        status, text = api.would_create(body | {"spec": spec})
    assert (status, message in text) == (422, True), text


def test_a_live_profile_cannot_become_a_shadow(control_plane: ControlPlane, world: Profiles) -> None:
    """A live profile cannot get spec.shadowOf, and only a shadow can be promoted."""
    with pytest.raises(ApiRefusalError, match="cannot be added or removed"):
        world.api.request("PATCH", f"{PROFILES}/{world.token}", {"spec": {"shadowOf": "other"}}, MERGE_PATCH)
    refused = command(control_plane, "promote", world.token, code=1).output
    assert "is no shadow: it has no spec.shadowOf; nothing was changed" in refused
