"""The operator under exactly the rights that the chart gives it, on the real API server: none is missing, none unused.

Why the chart's own service account and not a user in its place: so the bindings are tested too. No pod runs here; the
account's token is asked for as a kubelet asks for it. Why an API server that streams no lists: each kind is then listed
and watched, as on older ones. In between is a proxy that leaves a bind unanswered and refuses lists of nodes, since
some rights are for what goes wrong.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from bayplan.kube.access_reviews import AccessReviews
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.kubeconfig_access import from_kubeconfig
from bayplan.kube.system_clock import SystemClock

from hack.controlplane.api_client import ApiClient
from hack.controlplane.installed_operator import Account
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.native_groups import native_groups
from hack.controlplane.schedulers import install_crds
from hack.controlplane.volume_controller import PROVISIONER, VolumeController
from tests.charts.conftest import Helm
from tests.charts.rights import granted, refused, used
from tests.support.extender_server import ExtenderServer, passes_only
from tests.support.faulty_proxy import FaultyProxy
from tests.support.live_devices import LiveDevices
from tests.support.live_gangs import LABEL, VERSION, LiveGangs
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

# Not every "forbidden" is one: an API server without streamed lists uses the word of a field.
_REFUSED = re.compile(r"HTTP 403|is forbidden: User|not enough permissions")
_EDITS = 11  # one more than revisions are kept, so that the eldest is deleted
_GROUPS = native_groups()
_NATIVE, _COMPATIBLE = _GROUPS.api_version, "scheduling.x-k8s.io/v1alpha1"
_COMPATIBLE_DEFINITION = Path(__file__).resolve().parents[1] / "support" / "scheduler-plugins-podgroups.yaml"
_RELEASE = "rights"
_OF_NEWER_SERVERS = {f"{verb} devicetaintrules.resource.k8s.io" for verb in ("list", "watch")}
_SUPERFLUOUS = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}


class UnhelpfulProxy(FaultyProxy):
    """Drops the response to the first bind, lets the first allocation conflict, and on request refuses lists of nodes.

    Attributes:
        refuses_lists: Set, no list of nodes is answered.
        unanswered: How many binds were not answered.
        conflicts: How many allocations were refused because of a conflict.
    """

    refuses_lists = False
    unanswered = 0
    conflicts = 0

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/binding") and not self.unanswered:
            self.unanswered += 1
            await self._pass_on(request, await request.read())
            return web.Response(status=504)
        if request.method == "PATCH" and request.path.endswith("/resourceclaims/named/status") and not self.conflicts:
            self.conflicts += 1
            return web.Response(status=409)
        if self.refuses_lists and request.path == "/api/v1/nodes" and "watch" not in request.query:
            return web.Response(status=500)
        return await super()._handle(request)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane with all three APIs of PodGroups, which streams no lists."""
    gates = {**_GROUPS.feature_gates, "WatchList": False}
    with ControlPlane(replace(_GROUPS.options, audit=True, feature_gates=gates)) as plane:
        plane.kubectl("apply", "--server-side", f"--filename={_COMPATIBLE_DEFINITION}")
        install_crds(plane)
        plane.kubectl("create", "namespace", _RELEASE)
        yield plane


@pytest.fixture(scope="module")
def proxy(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UnhelpfulProxy]:
    """What stands between the operator and the API server."""
    with UnhelpfulProxy(plane, tmp_path_factory.mktemp("proxy")) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def manifests(helm: Helm, plane: ControlPlane) -> str:
    """The chart's objects, applied."""
    values = {"fullnameOverride": _RELEASE, "settings": {"logFormat": "json"}, "rbac": {"extraRules": [_SUPERFLUOUS]}}
    manifests = helm.template(values, _RELEASE)
    plane.kubectl("apply", "--filename=-", input=manifests)
    return manifests


@pytest.fixture(scope="module")
def account(plane: ControlPlane, manifests: str) -> Account:
    """The service account of the chart, once the API server knows what it may do."""
    account = Account(plane, _RELEASE, _RELEASE)
    account.wait_until_granted()
    return account


@pytest.fixture
def operator(account: Account, manifests: str, proxy: UnhelpfulProxy, tmp_path: Path) -> Iterator[OperatorProcess]:
    """`bayplan run` with the chart's settings file and the chart's service account, through the proxy."""
    objects = [one for one in yaml.safe_load_all(manifests) if one]
    (text,) = (one["data"]["settings.yaml"] for one in objects if one["kind"] == "ConfigMap")
    settings = tmp_path / "settings.yaml"
    settings.write_text(text)
    kubeconfig = account.write_kubeconfig(tmp_path / "kubeconfig", proxy.kubeconfig)
    with OperatorProcess(kubeconfig, tmp_path / "operator.log", [f"--settings={settings}"], secure=True) as process:
        yield process


def test_the_rights_are_those_that_are_used(
    plane: ControlPlane, account: Account, manifests: str, proxy: UnhelpfulProxy, operator: OperatorProcess
) -> None:
    """No request of the operator is refused, and no right of its roles is left unused but one that has no use."""
    rights = granted((one for one in yaml.safe_load_all(manifests) if one), _RELEASE, _RELEASE)
    with closing(ApiClient(plane)) as api, VolumeController(plane), ExtenderServer() as extender:
        world = LiveDevices(api, operator, "default")
        operator.start()
        _live_through_everything(plane, world, proxy, extender)
        asyncio.run(_ask_who(account.kubeconfig, account.token))
        code, _ = operator.terminate()
        assert code == 0
        served = {each["name"] for each in api.get("/apis/resource.k8s.io/v1")["resources"]}
        events = plane.audit_events()
        unused = [right for right in rights if not any(map(right.covers, used(events, account.user)))]
        world.clean_up()
    assert [line for line in operator.log.splitlines() if _REFUSED.search(line)] == []
    assert refused(events, account.user) == set()
    # That this one is found is the proof that others would be.
    useless = {"list secrets."} | (set() if "devicetaintrules" in served else _OF_NEWER_SERVERS)
    assert {str(right) for right in unused} == useless
    assert len(rights) > 60


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        pytest.param("/debug/status", True, id="status"),
        pytest.param("/debug/explain", True, id="explain"),
        pytest.param("/debug/cache", True, id="cache check"),
        pytest.param("/debug/tasks", False, id="tasks"),
        pytest.param("/debug/profile", False, id="profile"),
        pytest.param("/metrics", False, id="metrics"),
    ],
)
def test_what_the_account_may_get_of_a_leader(
    plane: ControlPlane, account: Account, path: str, *, allowed: bool
) -> None:
    """A command in the pod of a standby gets what it prints, and nothing else that is served."""
    with ApiClient(plane) as api:
        assert api.is_allowed(account.user, nonResourceAttributes={"verb": "get", "path": path}) == allowed


def test_a_missing_right_is_seen(
    plane: ControlPlane, account: Account, manifests: str, operator: OperatorProcess
) -> None:
    """The measure of the test above does count a refusal."""
    before = refused(plane.audit_events(), account.user)
    plane.kubectl("delete", "clusterrolebinding", f"{_RELEASE}:{_RELEASE}")
    operator.start(wait=False)
    operator.until(lambda: _REFUSED.search(operator.log) is not None, "the log shows a refusal")
    # The audit log is written after the answer.
    operator.until(lambda: refused(plane.audit_events(), account.user) > before, "the refusal is logged")
    plane.kubectl("apply", "--filename=-", input=manifests)


# -- what the operator is given to do ----------------------------------------------------------------------------------


def _live_through_everything(
    plane: ControlPlane, world: LiveDevices, proxy: UnhelpfulProxy, extender: ExtenderServer
) -> None:
    """Whatever makes the operator ask for something."""
    plane.kubectl("apply", "--filename=-", input=json.dumps(_plugin_config(world.token)))
    world.profile({"pluginConfigRefs": [{"name": world.token}]})
    node = world.node("a")
    world.pod("small")
    assert world.until_scheduled("small") == node
    assert proxy.unanswered == 1
    world.pod("large", cpu="100")
    world.until_rejected("large")
    _preempt(world)
    _bind_volumes(world)
    _gather_groups(world)
    _allocate_devices(world, proxy, node)
    _edit_profile(plane, world.token)
    _extend(plane, world, proxy, extender, node)
    world.until(lambda: _series(world, "large"), "the event of a repeated failure is patched")


def _preempt(world: LiveGangs) -> None:
    world.cluster_object("PriorityClass", "high", "scheduling.k8s.io/v1", value=1000)
    # A grace of zero needs no kubelet.
    world.pod("victim", cpu="3", spec={"terminationGracePeriodSeconds": 0})
    world.until_scheduled("victim")
    world.pod("urgent", cpu="3", spec={"priorityClassName": f"{world.token}-high"})
    world.until_scheduled("urgent")
    assert not world.exists("victim")


def _bind_volumes(world: LiveGangs) -> None:
    late = {"volumeBindingMode": "WaitForFirstConsumer"}
    static = world.cluster_object(
        "StorageClass", "static", "storage.k8s.io/v1", provisioner="kubernetes.io/no-provisioner", **late
    )
    made = world.cluster_object("StorageClass", "made", "storage.k8s.io/v1", provisioner=PROVISIONER, **late)
    term = {"matchExpressions": [{"key": "for", "operator": "In", "values": [world.token]}]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": static,
        "local": {"path": "/mnt"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    world.cluster_object("PersistentVolume", "disk", spec=spec)
    for name, class_name in (("kept", static), ("provisioned", made)):
        world.claim(name, class_name)
        world.pod(name, spec={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]})
    assert world.until_scheduled("kept") == world.until_scheduled("provisioned")


def _gather_groups(world: LiveGangs) -> None:
    """Groups of all three APIs, each with one member where two are needed, or with two that fit nowhere.

    The status of a native group is written after an attempt.
    """
    joins: dict[str, dict[str, Any]] = {
        VERSION: {"labels": {LABEL: "ours"}},
        _COMPATIBLE: {"labels": {"scheduling.x-k8s.io/pod-group": "theirs"}},
        _NATIVE: {"spec": {"schedulingGroup": {"podGroupName": "native"}}},
    }
    for name, version in (("ours", VERSION), ("theirs", _COMPATIBLE), ("native", _NATIVE)):
        world.group(name, 2, version, **({"schedulingPolicy": {"gang": {"minCount": 2}}} if version == _NATIVE else {}))
        lacking = {"count": 2, "cpu": "1000"} if version == _NATIVE else {"count": 1}
        world.job(name, group="", **lacking, **joins[version])
    for name, version in (("ours", VERSION), ("theirs", _COMPATIBLE), ("native", _NATIVE)):
        world.until(partial(world.status, name, version), f"{version} is reported")


def _allocate_devices(world: LiveDevices, proxy: UnhelpfulProxy, node: str) -> None:
    """A claim whose first write has a conflict, and an extended resource whose device fails before the bind."""
    resource, failure = f"{world.token}.example.com/gpu", "example.com/broken"
    world.class_for(resource)
    world.driver.publish(node, {"name": "0"})
    world.devices_claim("named")
    world.user("with-claim", claim="named")
    assert (world.until_scheduled("with-claim"), proxy.conflicts) == (node, 1)
    fragile = {"name": "1", "bindingConditions": ["example.com/prepared"], "bindingFailureConditions": [failure]}
    world.driver.publish(node, fragile)
    amounts = {"cpu": "100m", resource: "1"}
    world.pod("extended", container={"resources": {"requests": amounts, "limits": amounts}})
    world.until(lambda: _extended_claim(world, "extended"), "the pod names its claim")
    failed = _extended_claim(world, "extended")
    world.driver.report(world.until_allocated(failed), **{failure: "True"})
    world.until(lambda: failed not in {each["metadata"]["name"] for each in world.claims()}, "the claim is deleted")
    world.driver.publish(node, {"name": "2"})
    world.until(lambda: world.event_notes("extended", "FailedScheduling"), "the failure is reported")


def _extended_claim(world: LiveDevices, pod: str) -> str:
    return str(world.read(pod)["status"].get("extendedResourceClaimStatus", {}).get("resourceClaimName", ""))


def _edit_profile(plane: ControlPlane, name: str) -> None:
    what = f"schedulerprofile/{name}"
    eldest = plane.kubectl("get", "controllerrevisions", f"--namespace={_RELEASE}", "--output=name").split()
    for seconds in range(20, 20 + _EDITS):
        patch = json.dumps({"spec": {"podMaxBackoffSeconds": seconds}})
        plane.kubectl("patch", what, "--type=merge", f"--patch={patch}")
        generation = plane.kubectl("get", what, "--output=jsonpath={.metadata.generation}")
        plane.kubectl("wait", what, f"--for=jsonpath={{.status.observedGeneration}}={generation}", "--timeout=60s")
    plane.kubectl("annotate", what, "kubernetes.io/change-cause=it was too short")
    selector = f"--selector=bayplan.dev/profile={name}"
    sort = ("--sort-by=.revision", "--output=name")
    newest = plane.kubectl("get", "controllerrevisions", f"--namespace={_RELEASE}", selector, *sort).split()[-1]
    cause = r"--for=jsonpath={.metadata.annotations.kubernetes\.io/change-cause}=it was too short"
    plane.kubectl("wait", newest, cause, f"--namespace={_RELEASE}", "--timeout=60s")
    # The default profile's stays.
    for revision in eldest:
        if name in revision:
            plane.kubectl("wait", revision, "--for=delete", f"--namespace={_RELEASE}", "--timeout=60s")


def _extend(plane: ControlPlane, world: LiveGangs, proxy: UnhelpfulProxy, extender: ExtenderServer, node: str) -> None:
    """An extender that is shown nodes whole, which cannot be listed."""
    proxy.refuses_lists = True
    extender.rules["filter"] = passes_only(node)
    spec = {"urlPrefix": extender.url, "filterVerb": "filter", "nodeCacheCapable": False, "httpTimeout": "20s"}
    patch = json.dumps({"spec": {"extenders": [spec]}})
    plane.kubectl("patch", f"schedulerprofile/{world.token}", "--type=merge", f"--patch={patch}")
    world.until(lambda: "read one by one" in world.operator.log, "the list of nodes is refused")
    world.pod("shown")
    assert world.until_scheduled("shown") == node
    assert extender.bodies("filter")


async def _ask_who(kubeconfig: Path, token: str) -> None:
    """What the operator asks for a scrape from another host; tests come from this one, and are let through unasked."""
    access = await from_kubeconfig(kubeconfig)
    async with ApiConnection(access, ConnectionOptions(), SystemClock()) as connection:
        reviews = AccessReviews(connection)
        user = await reviews.user_of(token)
        assert user is not None
        await reviews.access(user, "get", "/metrics")


def _series(world: LiveGangs, pod: str) -> bool:
    events = world.api.items(f"/apis/events.k8s.io/v1/namespaces/{world.namespace}/events")
    return any(one.get("series") for one in events if one["regarding"]["name"] == pod)


def _plugin_config(name: str) -> dict[str, Any]:
    spec = {"plugin": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
    return {"apiVersion": VERSION, "kind": "PluginConfig", "metadata": {"name": name}, "spec": spec}
