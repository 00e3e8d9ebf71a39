"""Errors of ``kubectl apply`` and conditions for the mistakes of first users."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.controlplane.api_client import status_of
from hack.controlplane.launcher import ControlPlane, ControlPlaneError
from tests.support.common_mistakes import MISTAKES, Mistake, mistakes
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
KINDS = ("schedulerprofiles.bayplan.dev", "pluginconfigs.bayplan.dev", "podgroups.bayplan.dev")
WAIT_SECONDS = 60.0
POLL_SECONDS = 0.2

Conditions = dict[str, dict[str, str]]
"""Message of each condition, as "Type=Status Reason", by kind and name of the object."""


@pytest.fixture(scope="module")
def refusals(plane: ControlPlane, operator: OperatorProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Apply all manifests, and return the errors; what was accepted is deleted after the tests."""
    assert operator.is_alive()
    directory: Path = tmp_path_factory.mktemp("mistakes")
    for number, mistake in enumerate(MISTAKES):
        (directory / f"{number:02}.yaml").write_text(mistake.manifest)
    plane.kubectl("create", "namespace", "mistakes")
    with pytest.raises(ControlPlaneError) as caught:
        plane.kubectl("apply", "--namespace=mistakes", f"--filename={directory}")
    yield str(caught.value)
    # The next modules use the same control plane: a profile with another QueueSort plugin would refuse theirs.
    plane.kubectl("delete", "schedulerprofiles.bayplan.dev", "--all")
    for kind in KINDS[1:]:
        plane.kubectl("delete", kind, "--all", "--all-namespaces")


@pytest.fixture(scope="module")
def conditions(plane: ControlPlane, refusals: str) -> Conditions:
    """Wait until each accepted object has its conditions, or until the time is over."""
    assert refusals
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        found = _conditions(plane)
        expected = [each for each in MISTAKES if each.conditions]
        missing = [each for each in expected if not set(each.conditions) <= set(found.get(each.object, ()))]
        if not missing or time.monotonic() > deadline:
            return found
        time.sleep(POLL_SECONDS)


def _conditions(plane: ControlPlane) -> Conditions:
    listed = json.loads(plane.kubectl("get", ",".join(KINDS), "--all-namespaces", "--output=json"))["items"]
    return {
        f"{each['kind']} {each['metadata']['name']}": {
            f"{one['type']}={one['status']} {one['reason']}": one["message"]
            for one in status_of(each).get("conditions", ())
        }
        for each in listed
    }


@mistakes(accepted=False)
def test_apply(mistake: Mistake, refusals: str) -> None:
    """The API server rejects an object whose schema or rules its spec violates."""
    assert mistake.apply in refusals


@mistakes(accepted=True)
def test_conditions(mistake: Mistake, conditions: Conditions) -> None:
    """The conditions of an accepted object have the findings of ``bayplan validate``, in the same words."""
    found = conditions[mistake.object]
    assert set(mistake.conditions) <= set(found)
    text = "\n".join(found.values())
    assert [message for message in mistake.messages if message not in text] == []
