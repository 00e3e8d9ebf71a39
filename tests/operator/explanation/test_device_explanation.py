"""Tests of explanations of claims: devices that are left out, and pods that preemption would evict for devices."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from unittest import mock

import msgspec
import pytest
from bayplan.explanation import building
from bayplan.explanation.building import explain_gang, explain_pod
from bayplan.explanation.documents import Explanation
from bayplan.explanation.rendering import RENDERERS, read_explanation

from tests.support.builders import node, pod
from tests.support.device_preemption import end_victims, gang_without_devices, idle, pending, shared_by_two
from tests.support.devices import (
    DRIVER,
    allocated_claim,
    claim,
    device,
    device_class,
    exactly,
    slice_of,
    using,
    with_reserved,
)
from tests.support.gang_devices import report
from tests.support.presence import present
from tests.support.scheduling import default_rig

MODEL = f'device.attributes["{DRIVER}"].model == "h100"'


def explanation_of(
    *models: str, node_selector: Mapping[str, str] = MappingProxyType({}), devices: int = 6
) -> Explanation:
    """Return the explanation of a pod that needs an h100 on a node with devices of these models, the first in use."""
    made = default_rig(node("n0"), node("n1"))
    objects = made.columns.devices
    objects.assign(device_class("gpu", f'device.driver == "{DRIVER}"'))
    objects.assign(slice_of([device(f"d{number}", model) for number, model in enumerate(models)]))
    objects.assign(with_reserved(allocated_claim({"device": "d0"}), "train-0"))
    objects.assign(claim(exactly("gpu", MODEL)))
    waiting = using(pod("p", namespace="ns", node_selector=node_selector), "c0")
    with mock.patch.object(building, "_MOST_DEVICES", devices):
        return building.explain_pod(made.scheduler, waiting)


TEXT = f"""\
Resource claims
CLAIM  REQUEST  NODES   REASON
ns/c0  gpu      1 (n0)  needs 1 device, none can be used
ns/c0  -        1 (n1)  the node has no devices

Devices that do not serve request gpu of claim ns/c0, nearest first
DEVICES  NODES  EXAMPLE                UNMET CONDITION                             REQUIRED BY
1        1      {DRIVER}/n0/d0  in use by claim ns/held (pod train-0)      -
2        1      {DRIVER}/n0/d1  model is a100, must be h100                 request: {MODEL}

Nearest misses
NODE  PLUGIN            LACKS
n0    DynamicResources  request gpu: device n0/d0: in use by claim ns/held (pod train-0)
n1    DynamicResources  claim ns/c0: the node has no devices
"""


def test_the_text_has_a_section_for_claims_and_one_for_each_request() -> None:
    """The text has a section for claims and one for each request, and other sections are unchanged."""
    explanation = explanation_of("h100", "a100", "a100")
    lines = [line.rstrip() for line in RENDERERS["table"](explanation).splitlines()]
    start, end = lines.index("Resource claims"), lines.index("Nearest misses") + 4
    assert [line.split() for line in lines[start:end]] == [line.split() for line in TEXT.splitlines()]
    assert lines[4].split(maxsplit=2) == ["DynamicResources", "2", "cannot allocate all claims"]


def test_groups_beyond_the_limit_are_counted() -> None:
    """The groups that lack least are listed, and the others are counted."""
    explanation = explanation_of("h100", "a100", "a100", "l4", devices=1)
    assert explanation.devices is not None
    assert [group.devices for group in explanation.devices.rejected] == [1]
    assert explanation.devices.omitted == {"ns/c0, gpu": 3}
    assert "\nand 3 more\n" in RENDERERS["table"](explanation)


def test_nodes_that_other_plugins_reject_have_no_section() -> None:
    """If other plugins reject every node, there is no section, but the nearest misses name the devices."""
    explanation = explanation_of("a100", "a100", node_selector={"disk": "ssd"})
    assert explanation.devices is None
    assert [lack.plugin for lack in explanation.nearest[0].lacks] == ["NodeAffinity", "DynamicResources"]
    assert explanation.nearest[0].lacks[1].details == ("request gpu: device n0/d1: model is a100, must be h100",)


def test_a_pod_without_claims_has_no_section() -> None:
    """The explanation of a pod without claims has no devices."""
    made = default_rig(node("n0"))
    assert building.explain_pod(made.scheduler, pod(requests={"cpu": "64"})).devices is None


def test_the_document_has_the_documented_fields() -> None:
    """The document has the fields of ``docs/why-pending.md`` and decodes to the same explanation."""
    explanation = explanation_of("h100", "a100")
    document: dict[str, Any] = msgspec.to_builtins(explanation)["devices"]
    assert list(document) == ["claims", "rejected", "omitted"]
    assert list(document["claims"][0]) == ["claim", "request", "reason", "nodes", "example"]
    fields = ["claim", "request", "devices", "nodes", "example", "unmet", "heldBy", "moreHolders"]
    assert list(document["rejected"][0]) == fields
    assert document["rejected"][0]["unmet"] == ({"what": "in use", "requiredBy": None, "byHolders": True},)
    assert read_explanation(msgspec.json.encode(explanation)) == explanation


REMEDY = "with spec.preemption.devices of the profile it would evict"


def test_an_explanation_names_the_holders_that_would_be_evicted() -> None:
    made, _, _ = shared_by_two(devices=True)
    found = present(explain_pod(made.scheduler, pending("high", "own")).preemption)
    assert (found.node, found.message) == ("a", None)
    assert [victim.name for victim in found.victims] == ["v0", "v1"]


def test_an_explanation_names_the_holders_also_if_the_profile_does_not_preempt_for_devices() -> None:
    made, _, _ = shared_by_two(devices=False)
    found = present(explain_pod(made.scheduler, pending("high", "own")).preemption)
    assert found.node is None
    assert found.message == (
        "would not help: 0/1 nodes are available: 1 Preemption is not helpful for scheduling; "
        f"{REMEDY} ns/v0 (priority 0) on a, ns/v1 (priority 0) on a"
    )
    # The setting of the live profile is as before.
    assert not present(made.context.profiles.get("default-scheduler")).config.preemption.devices


def test_an_explanation_names_no_setting_that_would_not_help() -> None:
    made, _, _ = shared_by_two(devices=False)
    found = present(explain_pod(made.scheduler, pending("low", "own", priority=0)).preemption)
    assert REMEDY not in present(found.message)


async def test_an_explanation_names_the_pod_for_which_devices_are_held() -> None:
    made, writer, victims = shared_by_two(devices=True)
    async with made.running():
        await idle(made)
        end_victims(made, writer, victims)
        report(made, writer, claim(exactly("r"), name="late"))
        found = explain_pod(made.scheduler, pending("late", "late"))
    (node,) = found.nearest
    assert node.lacks[0].details == ("request r: device a/d0: held for nominated pod ns/high",)


@pytest.mark.parametrize("devices", [False, True])
def test_the_explanation_of_a_gang_names_the_holders(devices: bool) -> None:
    made, _ = gang_without_devices(devices=devices)
    (found,) = made.queue.gangs
    preemption = present(explain_gang(made.scheduler, found).preemption)
    if devices:
        assert sorted(victim.name for victim in preemption.victims) == ["v-a", "v-b"]
    else:
        assert preemption.victims == ()
        assert f"; {REMEDY} ns/v-" in present(preemption.message)
