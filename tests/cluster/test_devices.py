"""Resource claims on a real API server, with the controllers and a DRA driver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bayplan.cli import bayplan
from click.testing import CliRunner

from hack.controlplane.api_client import Manifest, status_of
from hack.controlplane.device_driver import devices_of
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.servers import Options
from tests.support.dashboard import assert_has_series
from tests.support.live_devices import LiveDevices, live_devices
from tests.support.live_servers import CONTROLLERS, module_plane
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.kwok, pytest.mark.controllers, pytest.mark.timeout(300)]
NAMESPACE = "default"
NO_DEVICE = "cannot allocate all claims"
PREPARED, BROKEN = "example.com/prepared", "example.com/broken"

plane = module_plane(*CONTROLLERS, options=Options(kubernetes="1.37"))


@pytest.fixture
def world(plane: ControlPlane, operator: OperatorProcess) -> Iterator[LiveDevices]:
    """Create a profile, a driver and a device class; no nodes."""
    with live_devices(plane, operator, NAMESPACE) as world:
        world.profile({})
        yield world


def device(name: str, memory: str = "", **fields: Any) -> Manifest:
    return {"name": name, **({"capacity": {"memory": {"value": memory}}} if memory else {}), **fields}


def device_with_conditions(name: str) -> Manifest:
    """Return a device with binding conditions, which the driver reports before the pod is bound."""
    return device(name, bindingConditions=[PREPARED], bindingFailureConditions=[BROKEN])


def informed_rules(world: LiveDevices) -> float:
    """Return the number of DeviceTaintRules in the operator's informer."""
    return world.operator.metric("bayplan_informer_objects", resource="devicetaintrules")


def has_allocated_more_than(world: LiveDevices, count: int) -> bool:
    """Return whether more than *count* devices are allocated."""
    return len(world.allocated()) > count


def test_a_claim_by_capacity(world: LiveDevices, plane: ControlPlane) -> None:
    """The pod is bound to the node of the device that the CEL expression selects, and the claim is reserved."""
    world.machine("small", device("card", "16Gi"))
    large = world.machine("large", device("card", "80Gi"))
    memory = f'device.capacity["{world.driver.name}"].memory'
    at_least = f'{memory}.compareTo(quantity("40Gi")) >= 0'
    world.devices_claim("by-capacity", {"name": "gpu", "exactly": world.exactly(at_least)})
    world.user("trains", claim="by-capacity")
    assert world.until_scheduled("trains") == large
    claim = world.claim_named("by-capacity")
    assert devices_of(claim) == [(world.driver.name, large, "card")]
    assert [each["name"] for each in status_of(claim)["reservedFor"]] == ["trains"]
    shown = plane.kubectl("get", "resourceclaims", "by-capacity", f"--namespace={NAMESPACE}", "--no-headers").split()
    assert shown[:2] == ["by-capacity", "allocated,reserved"]
    assert_has_series(world.operator.get("/metrics")[1], "bayplan_device_")


def test_more_pods_than_devices(world: LiveDevices) -> None:
    """Pods with a claim template wait while all devices are allocated; one is bound when another pod is deleted."""
    world.machine("a", device("0"), device("1"))
    world.template("one-each")
    for name in ("p0", "p1", "p2"):
        world.user(name, template="one-each")
    world.until(lambda: len(world.bound()) == 2, "two pods are bound")
    (waits,) = {"p0", "p1", "p2"} - world.bound().keys()
    assert NO_DEVICE in world.until_rejected(waits, "nodes are available")
    world.delete(min(world.bound()))
    world.until_scheduled(waits)
    assert len(set(world.allocated())) == 2


def test_pods_that_would_fit(world: LiveDevices, plane: ControlPlane, tmp_path: Path) -> None:
    """Templates of the cluster count for pods that do not exist, by the operator and without it."""
    node = world.machine("a", device("0"), device("1"))
    world.template("one-each")
    world.user("first", template="one-each")
    world.until_scheduled("first")
    file = tmp_path / "pods.json"
    for number, verdict in ((1, "FitsNow"), (2, "DoesNotFit")):
        pods = [world.unborn(f"unborn-{each}", "one-each") for each in range(number)]
        code, answer = world.operator.post("/v1/fit", {"objects": pods, "evictions": False})
        assert (code, json.loads(answer)["verdict"]) == (200, verdict), answer
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
        for where in (f"--server={world.operator.url}", "--offline"):
            command = ["fit", "-f", str(file), "--no-evictions", where, "-o", "json"]
            kubeconfig = [f"--kubeconfig={plane.kubeconfig}"] if where == "--offline" else []
            found = json.loads(CliRunner().invoke(bayplan, [*command, *kubeconfig]).stdout)
            assert (found["verdict"], found["notices"]) == (verdict, [])
            assert {each["node"] for each in found["placed"]} <= {node}
    code, answer = world.operator.post("/v1/fit", {"objects": [world.unborn("x", "absent")]})
    absent = (
        "ResourceClaimTemplate default/absent is not in the manifests or the cluster; add it, or its pods do not fit"
    )
    assert (code, json.loads(answer)["notices"]) == (200, [absent])


def test_two_pods_share_a_claim(world: LiveDevices) -> None:
    """Both pods of a shared claim are reserved and bound to the node of the device."""
    only = world.machine("a", device("0"))
    world.machine("b")
    world.devices_claim("shared")
    for name in ("first", "second"):
        world.user(name, claim="shared")
    assert {world.until_scheduled("first"), world.until_scheduled("second")} == {only}
    reserved = {each["name"] for each in status_of(world.claim_named("shared"))["reservedFor"]}
    assert reserved == {"first", "second"}


def test_a_prioritized_list(world: LiveDevices) -> None:
    """The second alternative is allocated when no device is left for the first one."""
    world.machine("a", device("large", "80Gi"), device("small", "16Gi"))
    memory = f'device.capacity["{world.driver.name}"].memory'
    alternatives = [
        {"name": name, **world.exactly(f'{memory}.compareTo(quantity("{amount}")) == 0')}
        for name, amount in (("large", "80Gi"), ("small", "16Gi"))
    ]
    world.template("either", {"name": "gpu", "firstAvailable": alternatives})
    for name, alternative in (("first", "large"), ("second", "small")):
        world.user(name, template="either")
        world.until_scheduled(name)
        (result,) = status_of(world.claim_of(name))["allocation"]["devices"]["results"]
        assert (result["request"], result["device"]) == (f"gpu/{alternative}", alternative)


def test_an_extended_resource(world: LiveDevices) -> None:
    """A claim is created for a pod with an extended resource, and the pod's status names the claim and its request."""
    resource = f"{world.token}.example.com/gpu"
    only = world.machine("a", device("0"), device("1"))
    world.class_for(resource)
    amounts = {"cpu": "100m", resource: "2"}
    world.pod("old-style", container={"resources": {"requests": amounts, "limits": amounts}})
    assert world.until_scheduled("old-style") == only
    status = status_of(world.read("old-style"))["extendedResourceClaimStatus"]
    assert status["requestMappings"] == [
        {"containerName": "c", "requestName": "container-0-request-1", "resourceName": resource}
    ]
    claim = world.claim_named(status["resourceClaimName"])
    assert sorted(devices_of(claim)) == [(world.driver.name, only, "0"), (world.driver.name, only, "1")]
    world.pod("second", container={"resources": {"requests": amounts, "limits": amounts}})
    world.until_rejected("second", NO_DEVICE)
    world.delete("old-style")
    world.until_scheduled("second")


def test_a_device_that_is_prepared(world: LiveDevices) -> None:
    """The pod is bound only after the driver reports the binding condition; an event names the node it waits for."""
    only = world.machine("a", device_with_conditions("0"))
    world.devices_claim("prepared")
    world.user("waits", claim="prepared")
    claim = world.until_allocated("prepared")
    world.until(lambda: world.event_notes("waits", "BindingConditionsPending"), "an event is recorded")
    note = f"waiting for binding conditions for device on node {only}"
    assert world.event_notes("waits", "BindingConditionsPending") == [note]
    assert world.node_of("waits") == ""
    world.driver.report(claim, **{PREPARED: "True"})
    assert world.until_scheduled("waits") == only


def test_a_device_that_fails(world: LiveDevices) -> None:
    """The pod is not bound when the driver reports a failure; the claim is deallocated and gets another device."""
    only = world.machine("a", device_with_conditions("0"))
    world.devices_claim("fails")
    world.user("unlucky", claim="fails")
    claim = world.until_allocated("fails")
    taint = {"key": "broken", "effect": "NoSchedule"}
    world.driver.publish(only, device_with_conditions("0") | {"taints": [taint]}, device("1"), device("2"))
    # Slices and claims have separate watches: after another pod has one of the new devices, the taint has arrived too.
    world.devices_claim("other")
    world.user("lucky", claim="other")
    world.until_scheduled("lucky")
    ((*_, taken),) = devices_of(world.claim_named("other"))
    world.driver.report(claim, **{BROKEN: "True"})
    assert world.until_scheduled("unlucky") == only
    claim = world.claim_named("fails")
    assert [(world.driver.name, only, name) for name in {"1", "2"} - {taken}] == devices_of(claim)
    assert "devices" not in claim["status"]
    world.until(
        lambda: any("device binding failed" in note for note in world.event_notes("unlucky", "FailedScheduling")),
        "an event reports the failure",
    )


def test_a_missing_claim(world: LiveDevices) -> None:
    """The pod is gated until the claim exists, without a condition as in kube-scheduler; explain names the claim."""
    world.machine("a", device("0"))
    world.user("early", claim="late")
    explanation = f"/debug/explain?namespace={NAMESPACE}&pod=early"
    missing = f'could not find ResourceClaim "{NAMESPACE}/late"'
    world.until(lambda: missing in world.operator.get(explanation)[1].replace("\\", ""), "explain names the claim")
    assert world.condition("early") == {}
    world.devices_claim("late")
    world.until_scheduled("early")


def test_explain_names_the_holder_of_the_device(world: LiveDevices) -> None:
    """Explain names the pod that holds the device, and the pending pod is bound after that pod is deleted."""
    only = world.machine("a", device("0"))
    for name in ("first", "second"):
        world.devices_claim(f"claim-of-{name}")
    world.user("first", claim="claim-of-first")
    world.until_scheduled("first")
    world.user("second", claim="claim-of-second")
    world.until_rejected("second", NO_DEVICE)
    status, body = world.operator.get(f"/debug/explain?namespace={NAMESPACE}&pod=second")
    assert status == 200
    explanation = json.loads(body)
    (group,) = explanation["devices"]["rejected"]
    assert (group["devices"], [each["what"] for each in group["unmet"]]) == (1, ["in use"])
    assert group["heldBy"] == [f"{NAMESPACE}/claim-of-first (pod first)"]
    freed = f"claim {NAMESPACE}/claim-of-first deallocated after pod first ends"
    assert {each["what"]: each["fitsOn"] for each in explanation["unblocking"]}[freed] == only
    world.delete("first")
    assert world.until_scheduled("second") == only


def test_a_taint_rule(world: LiveDevices) -> None:
    """A DeviceTaintRule rejects pods for the devices that it selects until it is deleted."""
    world.machine("a", device("0"))
    selector = {"driver": world.driver.name, "device": "0"}
    spec = {"deviceSelector": selector, "taint": {"key": "maintenance", "effect": "NoSchedule"}}
    name = f"{world.token}-rule"
    rule = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": name}}
    before = informed_rules(world)
    world.api.create(rule | {"spec": spec})
    world.until(lambda: informed_rules(world) > before, "the informer has the rule")
    world.template("one-each")
    world.user("rejected", template="one-each")
    world.until_rejected("rejected", NO_DEVICE)
    world.api.delete(rule)
    world.until_scheduled("rejected")


def test_a_gang_with_a_device_each(world: LiveDevices) -> None:
    """All members of a gang get a device and are bound, or none is."""
    world.machine("a", device("0"), device("1"))
    world.template("one-each")
    world.group("train", 3)
    for number in range(3):
        world.user(f"train-{number}", template="one-each", group="train")
    world.until_reason("train", "Unschedulable")
    assert (world.bound(), world.allocated()) == ({}, [])
    world.machine("b", device("0"))
    world.until(lambda: len(world.bound()) == 3, "all members are bound")
    assert len(set(world.allocated())) == 3


def test_a_gang_with_one_claim(world: LiveDevices) -> None:
    """Members of a gang share a claim and are bound to the node of its device."""
    world.machine("a")
    only = world.machine("b", device("0"))
    world.devices_claim("of-all")
    world.group("share", 3)
    for number in range(3):
        world.user(f"share-{number}", claim="of-all", group="share")
    world.until(lambda: len(world.bound()) == 3, "all members are bound")
    assert set(world.bound().values()) == {only}
    assert len(status_of(world.claim_named("of-all"))["reservedFor"]) == 3


def test_the_operator_is_killed_before_the_bind(world: LiveDevices) -> None:
    """Claims that are allocated for unbound pods keep their devices after the operator is killed and restarted."""
    names = [f"p{number}" for number in range(4)]
    world.machine("a", device_with_conditions("0"), device_with_conditions("1"))
    world.machine("b", device_with_conditions("0"), device_with_conditions("1"))
    world.template("one-each")
    for name in names:
        world.user(name, template="one-each")
    world.until(lambda: len(world.allocated()) == 4, "all claims are allocated")
    before = world.allocated()
    world.operator.kill()
    assert world.bound() == {}
    world.operator.start()
    for claim in filter(devices_of, world.claims()):
        world.driver.report(claim, **{PREPARED: "True"})
    for name in names:
        world.until_scheduled(name)
    assert world.allocated() == before
    assert len(set(before)) == 4


def test_the_operator_is_killed_while_it_allocates(world: LiveDevices) -> None:
    """After each kill of the operator, no device is in two allocations and all pods are bound."""
    machines, per_machine, kills = 6, 8, 3
    for number in range(machines):
        world.machine(f"n{number}", *(device(str(each)) for each in range(per_machine)))
    world.template("one-each")
    names = [f"p{number}" for number in range(machines * per_machine)]
    created = 0
    for kill in range(kills):
        wave = names[kill::kills]
        for name in wave:
            world.user(name, template="one-each")
        world.until(partial(has_allocated_more_than, world, created), "claims are being allocated")
        world.operator.kill()
        created += len(wave)
        world.operator.start()
    world.until(lambda: len(world.bound()) == len(names), "all pods are bound")
    devices = world.allocated()
    assert len(devices) == len(set(devices)) == len(names)
