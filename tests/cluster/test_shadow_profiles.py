"""A shadow profile on a real API server with the real operator: status, kubectl output and promotion."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from bayplan.cli import bayplan
from click.testing import CliRunner, Result

from hack.controlplane.api_client import ApiClient, status_of
from hack.controlplane.launcher import ControlPlane, ControlPlaneError
from tests.scenarios.scenario import node_manifest, pod_manifest
from tests.support.dashboard import assert_has_series
from tests.support.live_servers import operator_in_new_namespace
from tests.support.manifests import Manifest
from tests.support.operator_process import OperatorProcess
from tests.support.tables import table

pytestmark = pytest.mark.cluster
SECONDS = "--timeout=60s"
PODS = 12


@pytest.fixture(scope="module")
def operator(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """Start an operator."""
    log = tmp_path_factory.mktemp("operator") / "log"
    with operator_in_new_namespace(control_plane, log, "shadows") as (process, _):
        yield process


@pytest.fixture
def live(control_plane: ControlPlane, operator: OperatorProcess) -> Iterator[str]:
    """Create a live profile that spreads, with two nodes for its pods."""
    name = f"live-{uuid.uuid4().hex[:6]}"
    apply(control_plane, name, {})
    with ApiClient(control_plane) as api:
        for node in ("a", "b"):
            api.create(node_manifest(f"{name}-{node}", {"labels": {"for": name}}))
    control_plane.kubectl("wait", f"sp/{name}", "--for=condition=Ready", SECONDS)
    yield name
    control_plane.kubectl("delete", "pods", f"--selector=for={name}", "--grace-period=0", "--force")
    control_plane.kubectl("delete", "nodes", f"--selector=for={name}")
    for each in (name, f"{name}-next"):
        with suppress(ControlPlaneError):
            control_plane.kubectl("delete", "sp", each)


def apply(plane: ControlPlane, name: str, spec: Manifest) -> None:
    body = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "SchedulerProfile", "metadata": {"name": name}, "spec": spec}
    plane.kubectl("apply", "-f", "-", input=json.dumps(body))


def packing(live: str, **fields: Any) -> Manifest:
    """Return the spec of a shadow that prefers full nodes."""
    strategy = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
    return {
        "shadowOf": live,
        "plugins": {"score": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}]}},
        "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}],
        **fields,
    }


def run_pods(plane: ControlPlane, live: str) -> None:
    """Create pods one after the other, so that each affects the decision on the next, and wait until they are bound."""
    with ApiClient(plane) as api:
        for number in range(PODS):
            name = f"{live}-{number}"
            spec = {"schedulerName": live, "nodeSelector": {"for": live}}
            api.create(pod_manifest(name, "default", {"cpu": "100m", "labels": {"for": live}, "spec": spec}))
            plane.kubectl("wait", f"pod/{name}", "--for=condition=PodScheduled", SECONDS)


def command(plane: ControlPlane, *args: str, code: int = 0) -> Result:
    result = CliRunner().invoke(bayplan, [*args, f"--kubeconfig={plane.kubeconfig}"])
    assert result.exit_code == code, result.output
    return result


def profile(plane: ControlPlane, name: str) -> Manifest:
    found: Manifest = json.loads(plane.kubectl("get", "sp", name, "--output=json"))
    return found


def test_from_shadow_to_promotion_and_back(control_plane: ControlPlane, operator: OperatorProcess, live: str) -> None:
    """The shadow reports its differing decisions; a promotion makes its spec live, and a rollback reverts it."""
    shadow = f"{live}-next"
    apply(control_plane, shadow, packing(live, shadowBudgetPercent=100))
    control_plane.kubectl("wait", f"sp/{shadow}", "--for=condition=Comparing", SECONDS)
    run_pods(control_plane, live)
    control_plane.kubectl("wait", f"sp/{shadow}", f"--for=jsonpath={{.status.shadow.decided}}={PODS}", SECONDS)
    found = status_of(profile(control_plane, shadow))["shadow"]
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

    before = profile(control_plane, live)
    dry = command(control_plane, "promote", shadow, "--dry-run").stdout
    assert "+      type: MostAllocated" in dry or "+        type: MostAllocated" in dry
    assert f"{found['differed']} differ" in dry
    assert profile(control_plane, live)["spec"] == before["spec"]
    promoted = command(control_plane, "promote", shadow).stdout
    assert "Ready: Revision" in promoted
    after = profile(control_plane, live)
    assert after["spec"] == {name: value for name, value in packing(live).items() if name != "shadowOf"}
    assert after["metadata"]["annotations"]["kubernetes.io/change-cause"] == f"promote {shadow}"
    again = command(control_plane, "promote", shadow, code=1).output
    assert "already; nothing was changed" in again
    history = json.loads(command(control_plane, "history", live, "--output=json").stdout)["revisions"]
    assert [(each["revision"], each["live"]) for each in history] == [(2, True), (1, False)]
    assert history[0]["manager"] == "bayplan-promote"
    command(control_plane, "rollback", live)
    assert profile(control_plane, live)["spec"] == before["spec"]


def test_a_shadow_with_the_same_spec_agrees(control_plane: ControlPlane, operator: OperatorProcess, live: str) -> None:
    """A shadow with an equal spec never differs; only the time budget and state changes prevent a comparison."""
    shadow = f"{live}-next"
    apply(control_plane, shadow, {"shadowOf": live, "shadowBudgetPercent": 100})
    control_plane.kubectl("wait", f"sp/{shadow}", "--for=condition=Comparing", SECONDS)
    run_pods(control_plane, live)
    control_plane.kubectl("wait", f"sp/{shadow}", f"--for=jsonpath={{.status.shadow.decided}}={PODS}", SECONDS)
    found = status_of(profile(control_plane, shadow))["shadow"]
    assert found["differed"] == 0
    assert found["agreed"] == found["compared"] >= PODS - 2
    assert {each["reason"] for each in found.get("notCompared", ())} <= {"Budget", "StateChanged"}


@table(
    "spec, message",
    ("a name of its own", {"shadowOf": "x", "schedulerName": "y"}, "spec.schedulerName: Invalid value"),
    ("not a shadow", {"samplePercent": 10}, "only a shadow has it; set shadowOf, or remove it"),
    ("more than all", {"shadowOf": "x", "samplePercent": 101}, "less than or equal to 100"),
)
def test_rules_of_the_api_server(
    control_plane: ControlPlane, operator: OperatorProcess, spec: Manifest, message: str
) -> None:
    """The rules of the CRD name the field and the remedy."""
    with pytest.raises(ControlPlaneError, match=re.escape(message)):
        apply(control_plane, f"bad-{uuid.uuid4().hex[:6]}", spec)


def test_a_live_profile_cannot_become_a_shadow(
    control_plane: ControlPlane, operator: OperatorProcess, live: str
) -> None:
    """A live profile cannot get spec.shadowOf, and only a shadow can be promoted."""
    with pytest.raises(ControlPlaneError, match="cannot be added or removed"):
        apply(control_plane, live, {"shadowOf": "other"})
    refused = command(control_plane, "promote", live, code=1).output
    assert "is no shadow: it has no spec.shadowOf; nothing was changed" in refused
