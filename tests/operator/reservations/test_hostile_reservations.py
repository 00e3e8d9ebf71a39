"""NodeReservations with unusual contents: the status names the field, or the room is held."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.node_reservations import other_pod, two_nodes
from tests.support.tables import table

CONTAINERS = [{"name": "main", "image": "main", "resources": {"requests": {"cpu": "1"}}}]


def template(metadata: Any = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": metadata, "spec": {"containers": CONTAINERS, **spec}}


@table(
    "written, field",
    ("metadata is a text", template("x"), "spec.template.metadata: must be a mapping"),
    ("labels are a list", template({"labels": ["a"]}), "spec.template.metadata.labels: must be a mapping"),
    (
        "annotations are a list",
        template({"annotations": ["a"]}),
        "spec.template.metadata.annotations: must be a mapping",
    ),
    ("a label is a number", template({"labels": {"a": 1}}), "spec.template.metadata.labels[a]: must be text"),
    ("spec is a list", {"spec": []}, "spec.template.spec: is required"),
    ("containers are a text", template(containers="x"), "spec.template.spec.containers: must be a list"),
    ("no containers", {"spec": {}}, "spec.template.spec.containers: Required value"),
    ("a node", template(nodeName="a"), "spec.template.spec.nodeName: room is searched on all nodes; remove it"),
    ("an unknown field", template(bogus=1), "spec.template.spec.bogus: unknown field"),
    ("claims are a text", template(resourceClaims="x"), "spec.template.spec.resourceClaims: must be a list"),
)
async def test_a_template_that_is_not_valid(
    written: Mapping[str, Any], field: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The API server accepts any content of the template; the condition names the field, and nothing is held."""
    world = two_nodes()
    await world.apply("room", count=2, template=written)
    assert field in world.condition()[2]
    assert not len(world.rig.scheduler.reservations.held)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@table(
    "written",
    ("gates", template(schedulingGates=[{"name": "example.com/quota"}])),
    ("a PodGroup of bayplan.dev", template({"labels": {"bayplan.dev/pod-group": "absent"}})),
    ("a PodGroup of scheduling.x-k8s.io", template({"labels": {"scheduling.x-k8s.io/pod-group": "absent"}})),
    ("a PodGroup of scheduling.k8s.io", template(schedulingGroup={"podGroupName": "absent"})),
    ("labels are null", template({"labels": None})),
    ("it terminates", template({"deletionTimestamp": "2020-01-01T00:00:00Z"})),
)
async def test_a_template_whose_pods_wait_for_more_than_room(written: Mapping[str, Any]) -> None:
    """Their gates and groups decide later when the pods are scheduled; the room is held now."""
    world = two_nodes()
    await world.apply("room", count=4, template=written)
    assert (world.phase(), world.status()["reserved"]) == ("Reserved", 4)
    assert await world.bound(other_pod("other")) == {"other": ""}


@table(
    "name",
    ("the longest name", "n" * 253),
    ("a separator at the end of a label", "n" * 62 + ".x"),
    ("a separator at the end of a pod name", "n" * 246 + "-.xyz"),
)
async def test_long_names(name: str) -> None:
    """Pods and the group of the search have names that are valid for every name of a reservation."""
    world = two_nodes()
    await world.apply(name, count=2, topology={"key": "zone"})
    assert world.phase(name) == "Reserved"
    await world.apply(name, count=20, topology={"key": "zone"})
    assert "nnnn" not in world.condition(name=name)[2]
