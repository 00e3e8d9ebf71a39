"""Some hundred hostile objects through the real API server: the operator goes on, and its log shows no fault."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from hack.controlplane.api_client import ApiClient, ApiRefusalError
from hack.controlplane.launcher import ControlPlane
from scheduler_core.model.pod_constraint_limit import MAX_DEMANDS
from tests.security.hostility import Document, Hostility
from tests.support.live_world import LiveWorld, live_world
from tests.support.operator_process import OperatorProcess

pytestmark = pytest.mark.cluster

OWN_GROUP = "/apis/bayplan.dev/v1alpha1"
DEEPEST = 9_000
"""The API server takes 10,000 levels."""
LONGEST = 1 << 15
"""Of a manifest; over larger pods the API server itself thinks for many seconds."""


@pytest.fixture
def world(control_plane: ControlPlane, operator: OperatorProcess, namespace: str) -> Iterator[LiveWorld]:
    """A control profile with a node."""
    with live_world(control_plane, operator, namespace) as made:
        made.profile({})
        made.node("a")
        yield made


def nested(key: str, levels: int) -> str:
    return f'{{"{key}":' * levels + "{}" + "}" * levels


def without_faults(log: str) -> bool:
    return not any(sign in log for sign in ("Traceback", "failed unexpectedly", "fault of its own", "\x1b"))


def managed(version: str) -> str:
    """Managed fields, which anybody may write into an object of his own, of thousands of levels."""
    entry = '{"manager":"m","operation":"Update","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1",'
    return f'[{entry}"apiVersion":"{version}","fieldsV1":{nested("f:a", DEEPEST)}}}]'


def test_objects_of_thousands_of_levels(world: LiveWorld, control_plane: ControlPlane) -> None:
    """They are read by all who watch and list: a pod is bound, args are refused, and a restart goes on."""
    spec = {"schedulerName": world.token, "nodeSelector": {"for": world.token}}
    spec_json = json.dumps({**spec, "containers": [{"name": "c", "image": "i"}]})
    pod = f'{{"metadata":{{"name":"{world.token}","managedFields":{managed("v1")}}},"spec":{spec_json}}}'
    kind = f'"apiVersion":"bayplan.dev/v1alpha1","metadata":{{"name":"{world.token}-deep"'
    args = f'{{"kind":"PluginConfig",{kind}}},"spec":{{"plugin":"NodeAffinity","args":{nested("a", DEEPEST)}}}}}'
    group = f'{{"kind":"PodGroup",{kind},"managedFields":{managed("bayplan.dev/v1alpha1")}}},"spec":{{"minMember":1}}}}'
    made = {
        "/api/v1/namespaces/default/pods": pod,
        f"{OWN_GROUP}/namespaces/default/podgroups": group,
        f"{OWN_GROUP}/pluginconfigs": args,
    }
    try:
        for path, body in made.items():
            control_plane.kubectl("create", "--raw", path, "-f", "-", input=body)
        valid = "jsonpath={.status.conditions[?(@.type=='Valid')].status}=False"
        control_plane.kubectl("wait", f"plc/{world.token}-deep", f"--for={valid}", "--timeout=60s")
        message = "jsonpath={.status.conditions[0].message}"
        assert "is nested deeper than 32 levels" in control_plane.kubectl(
            "get", "plc", f"{world.token}-deep", "-o", message
        )
        bound = "condition=PodScheduled"
        control_plane.kubectl("wait", f"pod/{world.token}", f"--for={bound}", "--timeout=60s", "--namespace=default")
        world.operator.terminate()
        world.operator.start()
        world.pod("after-the-restart")
        world.placed("after-the-restart")
    finally:
        for path in made:
            name = world.token if path.endswith("/pods") else f"{world.token}-deep"
            control_plane.kubectl("delete", "--raw", f"{path}/{name}?gracePeriodSeconds=0")
    assert without_faults(world.operator.log)


def test_the_owner_of_a_pod_that_demands_too_much_is_notified(world: LiveWorld, control_plane: ControlPlane) -> None:
    """Describing the pod shows why it waits and what to do; nothing is said twice when its labels change."""
    greedy = {"for": world.token} | {f"k{number}": "v" for number in range(MAX_DEMANDS)}
    world.pod("greedy", spec={"nodeSelector": greedy})
    message = world.refused("greedy")
    assert message.startswith("the pod cannot be scheduled: it makes 503 demands")  # two for CPU and memory
    assert message.endswith("Correct its manifest and create the pod again")
    assert world.condition("greedy")["reason"] == "SchedulerError"
    world.change("greedy", {"metadata": {"labels": {"a": "b"}}})
    world.until(lambda: world.notes("greedy", "FailedScheduling"), "the event is there")
    world.pod("after")
    world.placed("after")
    assert world.notes("greedy", "FailedScheduling") == [message]
    described = control_plane.kubectl("describe", "pod", "greedy", f"--namespace={world.namespace}")
    events = described.partition("Events:")[2].split()
    assert ("Warning" in events, "FailedScheduling" in events) == (True, True), described
    assert message in " ".join(events), described


def hostile_objects(hostility: Hostility, world: LiveWorld) -> Iterator[Document]:
    """What a person with every right but no good will would apply."""
    for number in range(320):
        name = f"{world.token}-hostile-{number}"
        metadata: Document = {"name": name, "labels": {"hostile": world.token}}
        own = {"apiVersion": "bayplan.dev/v1alpha1", "metadata": metadata}
        match number % 8:
            case 0 | 1 | 2:
                yield own | {"kind": "SchedulerProfile", "spec": hostility.profile_spec()}
            case 3 | 4:
                yield own | {"kind": "PluginConfig", "spec": hostility.plugin_config_spec()}
            case 5:
                namespaced = metadata | {"namespace": world.namespace}
                yield own | {"kind": "PodGroup", "metadata": namespaced, "spec": hostility.pod_group_spec()}
            case 6:
                pod = hostility.pod(name, world.token)
                pod["metadata"] = metadata | {"namespace": world.namespace}
                if isinstance(pod["spec"], dict):
                    pod["spec"].pop("nodeName")
                    pod["spec"].pop("overhead", None)  # only a RuntimeClass may set it
                yield {"apiVersion": "v1", "kind": "Pod", "metadata": pod["metadata"], "spec": pod["spec"]}
            case _:
                node = hostility.node(name)
                yield {"apiVersion": "v1", "kind": "Node", **node, "metadata": metadata}


def create(api: ApiClient, manifest: Document) -> str:
    """Create an object where it goes; what became of it."""
    path = f"{OWN_GROUP}/pluginconfigs" if manifest["kind"] == "PluginConfig" else ""
    try:
        if path:
            api.request("POST", path, manifest)
        else:
            api.create(manifest)
    except ApiRefusalError:
        return "refused"
    return "stored"


def condition(body: dict[str, Any], kind: str) -> dict[str, Any]:
    found = body.get("status", {}).get("conditions", ())
    return next((one for one in found if one["type"] == kind), {})


def are_judged(api: ApiClient, plural: str, kind: str, selector: dict[str, str]) -> bool:
    return all(condition(body, kind) for body in api.items(f"{OWN_GROUP}/{plural}", **selector))


def test_some_hundred_hostile_objects(world: LiveWorld) -> None:
    """Each that is stored is judged, with a path where it is refused, and the control profile binds as before."""
    api, outcomes = world.api, Counter[str]()
    selector = {"labelSelector": f"hostile={world.token}"}
    try:
        for number, manifest in enumerate(hostile_objects(Hostility(7), world)):
            if len(json.dumps(manifest)) < LONGEST:
                outcomes[f"{manifest['kind']} {create(api, manifest)}"] += 1
            if number % 80 == 0:
                world.pod(f"control-{number}")
        for number in range(0, 320, 80):
            world.placed(f"control-{number}")
        for plural, kind in (("schedulerprofiles", "Accepted"), ("pluginconfigs", "Valid")):
            world.until(partial(are_judged, api, plural, kind, selector), f"all {plural} are judged")
            for body in api.items(f"{OWN_GROUP}/{plural}", **selector):
                accepted = condition(body, kind)
                assert accepted["status"] == "True" or "spec" in accepted["message"], body
                outcomes[f"{plural} {accepted['status']}"] += 1
    finally:
        groups = f"{OWN_GROUP}/namespaces/{world.namespace}/podgroups"
        for path in (f"{OWN_GROUP}/schedulerprofiles", f"{OWN_GROUP}/pluginconfigs", groups, "/api/v1/nodes"):
            api.request("DELETE", f"{path}?labelSelector=hostile%3D{world.token}")
    assert outcomes["schedulerprofiles True"] > 10, outcomes
    assert outcomes["schedulerprofiles False"] > 10, outcomes
    assert outcomes["Pod stored"] > 10, outcomes
    world.pod("at-the-end")
    world.placed("at-the-end")
    assert without_faults(world.operator.log)
