"""Hundreds of hostile objects on a real API server: the operator keeps scheduling, and its log shows no fault."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from hack.controlplane.api_client import ApiClient, ApiRefusalError, condition_of
from hack.controlplane.launcher import ControlPlane
from scheduler_core.snapshot.pod_info import MAX_DEMANDS
from tests.security.hostile_manifests import Document, HostileManifests
from tests.support.live_world import LiveWorld, live_world
from tests.support.operator_process import OperatorProcess

pytestmark = pytest.mark.cluster
OWN_GROUP = "/apis/bayplan.dev/v1alpha1"
DEEPEST = 9_000
"""The API server accepts 10,000 levels."""
LONGEST = 1 << 15
"""Length of a manifest; the API server itself needs many seconds to validate larger pods."""


@pytest.fixture
def world(control_plane: ControlPlane, operator: OperatorProcess, namespace: str) -> Iterator[LiveWorld]:
    """Create a control profile with a node."""
    with live_world(control_plane, operator, namespace) as world:
        world.profile({})
        world.node("a")
        yield world


def nested(key: str, levels: int) -> str:
    return f'{{"{key}":' * levels + "{}" + "}" * levels


def without_faults(log: str) -> bool:
    return not any(sign in log for sign in ("Traceback", "failed unexpectedly", "fault of its own", "\x1b"))


def managed(version: str) -> str:
    """Return managed fields of thousands of levels, which every client may write into its own objects."""
    entry = '{"manager":"m","operation":"Update","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1",'
    return f'[{entry}"apiVersion":"{version}","fieldsV1":{nested("f:a", DEEPEST)}}}]'


def test_deeply_nested_objects(world: LiveWorld, control_plane: ControlPlane) -> None:
    """All watches and lists read deeply nested objects: a pod is bound, args are rejected, and a restart succeeds."""
    spec = {"schedulerName": world.token, "nodeSelector": {"for": world.token}}
    spec_json = json.dumps({**spec, "containers": [{"name": "c", "image": "i"}]})
    pod = f'{{"metadata":{{"name":"{world.token}","managedFields":{managed("v1")}}},"spec":{spec_json}}}'
    kind = f'"apiVersion":"bayplan.dev/v1alpha1","metadata":{{"name":"{world.token}-deep"'
    args = f'{{"kind":"PluginConfig",{kind}}},"spec":{{"plugin":"NodeAffinity","args":{nested("a", DEEPEST)}}}}}'
    group = f'{{"kind":"PodGroup",{kind},"managedFields":{managed("bayplan.dev/v1alpha1")}}},"spec":{{"minMember":1}}}}'
    created = {
        "/api/v1/namespaces/default/pods": pod,
        f"{OWN_GROUP}/namespaces/default/podgroups": group,
        f"{OWN_GROUP}/pluginconfigs": args,
    }
    try:
        for path, body in created.items():
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
        world.until_scheduled("after-the-restart")
    finally:
        for path in created:
            name = world.token if path.endswith("/pods") else f"{world.token}-deep"
            control_plane.kubectl("delete", "--raw", f"{path}/{name}?gracePeriodSeconds=0")
    assert without_faults(world.operator.log)


def test_a_pod_with_too_many_demands_is_reported(world: LiveWorld, control_plane: ControlPlane) -> None:
    """``kubectl describe`` shows why the pod waits and the remedy; a change of its labels records no second event."""
    greedy = {"for": world.token} | {f"k{number}": "v" for number in range(MAX_DEMANDS)}
    world.pod("greedy", spec={"nodeSelector": greedy})
    message = world.until_rejected("greedy")
    assert message.startswith("the pod cannot be scheduled: it makes 503 demands")  # two for CPU and memory
    assert message.endswith("Correct its manifest and create the pod again")
    assert world.condition("greedy")["reason"] == "SchedulerError"
    world.change("greedy", {"metadata": {"labels": {"a": "b"}}})
    world.until(lambda: world.event_notes("greedy", "FailedScheduling"), "an event is recorded")
    world.pod("after")
    world.until_scheduled("after")
    assert world.event_notes("greedy", "FailedScheduling") == [message]
    described = control_plane.kubectl("describe", "pod", "greedy", f"--namespace={world.namespace}")
    events = described.partition("Events:")[2].split()
    assert ("Warning" in events, "FailedScheduling" in events) == (True, True), described
    assert message in " ".join(events), described


def hostile_objects(hostile: HostileManifests, world: LiveWorld) -> Iterator[Document]:
    """Generate the objects that a malicious user with every right would apply."""
    for number in range(320):
        name = f"{world.token}-hostile-{number}"
        metadata: Document = {"name": name, "labels": {"hostile": world.token}}
        own = {"apiVersion": "bayplan.dev/v1alpha1", "metadata": metadata}
        match number % 8:
            case 0 | 1 | 2:
                yield own | {"kind": "SchedulerProfile", "spec": hostile.profile_spec()}
            case 3 | 4:
                yield own | {"kind": "PluginConfig", "spec": hostile.plugin_config_spec()}
            case 5:
                namespaced = metadata | {"namespace": world.namespace}
                yield own | {"kind": "PodGroup", "metadata": namespaced, "spec": hostile.pod_group_spec()}
            case 6:
                pod = hostile.pod(name, world.token)
                pod["metadata"] = metadata | {"namespace": world.namespace}
                if isinstance(pod["spec"], dict):
                    pod["spec"].pop("nodeName")
                    pod["spec"].pop("overhead", None)  # only a RuntimeClass may set it
                yield {"apiVersion": "v1", "kind": "Pod", "metadata": pod["metadata"], "spec": pod["spec"]}
            case _:
                node = hostile.node(name)
                yield {"apiVersion": "v1", "kind": "Node", **node, "metadata": metadata}


def create(api: ApiClient, manifest: Document) -> str:
    """Create an object and return the outcome, ``stored`` or ``refused``."""
    path = f"{OWN_GROUP}/pluginconfigs" if manifest["kind"] == "PluginConfig" else ""
    try:
        if path:
            api.request("POST", path, manifest)
        else:
            api.create(manifest)
    except ApiRefusalError:
        return "refused"
    return "stored"


def have_condition(api: ApiClient, plural: str, kind: str, selector: dict[str, str]) -> bool:
    return all(condition_of(body, kind) for body in api.items(f"{OWN_GROUP}/{plural}", **selector))


def test_hundreds_of_hostile_objects(world: LiveWorld) -> None:
    """Each stored object gets a condition, with a field path if it is rejected, and the control profile still binds."""
    api, outcomes = world.api, Counter[str]()
    selector = {"labelSelector": f"hostile={world.token}"}
    try:
        for number, manifest in enumerate(hostile_objects(HostileManifests(7), world)):
            if len(json.dumps(manifest)) < LONGEST:
                outcomes[f"{manifest['kind']} {create(api, manifest)}"] += 1
            if number % 80 == 0:
                world.pod(f"control-{number}")
        for number in range(0, 320, 80):
            world.until_scheduled(f"control-{number}")
        for plural, kind in (("schedulerprofiles", "Accepted"), ("pluginconfigs", "Valid")):
            world.until(partial(have_condition, api, plural, kind, selector), f"all {plural} have the condition")
            for body in api.items(f"{OWN_GROUP}/{plural}", **selector):
                accepted = condition_of(body, kind)
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
    world.until_scheduled("at-the-end")
    assert without_faults(world.operator.log)
