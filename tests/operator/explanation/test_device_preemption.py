"""Explanations of pods and gangs that need devices of pods with a lower priority."""

from __future__ import annotations

import pytest
from bayplan.explanation.building import explain_gang, explain_pod

from tests.support.device_preemption import end_victims, held, holder, idle, pending, served, shared_by_two
from tests.support.devices import claim, device, exactly, slice_of
from tests.support.gang_devices import claimant, gang, report
from tests.support.gang_preemption import small_node
from tests.support.presence import present

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
    made, writer = served(devices=devices)
    gang(made, 2)
    for name in ("a", "b"):
        report(made, writer, small_node(name, 4), slice_of([device("d0")], node=name))
        report(made, writer, held(f"c-{name}", "d0", f"v-{name}", pool=name), holder(f"v-{name}", name, f"c-{name}"))
    for number in range(2):
        report(made, writer, *claimant(f"train-{number}", exactly("r"), priority=2, requests={"cpu": "100m"}))
    (found,) = made.queue.gangs
    preemption = present(explain_gang(made.scheduler, found).preemption)
    if devices:
        assert sorted(victim.name for victim in preemption.victims) == ["v-a", "v-b"]
    else:
        assert preemption.victims == ()
        assert f"; {REMEDY} ns/v-" in present(preemption.message)
