"""The operator on a real API server with exactly the chart's rights: none is missing and none is unused.

The chart's own service account is used, so that its bindings are tested too. The API server streams no lists, so each
kind is listed and watched, as on older servers. A proxy leaves a bind unanswered and fails lists of nodes, because some
rights are needed only after such failures.
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
from bayplan.kube.credentials import from_kubeconfig
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.timing import SystemClock
from bayplan.serving.authorization import AccessReviews

from hack.controlplane.api_client import ApiClient, status_of
from hack.controlplane.installed_operator import Account
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.native_groups import native_groups
from hack.controlplane.probes import free_port
from hack.controlplane.schedulers import install_crds
from hack.controlplane.volume_controller import PROVISIONER, VolumeController
from tests.charts.conftest import Helm
from tests.charts.rights import granted, refused, used
from tests.support.extender_server import ExtenderServer, passes_only
from tests.support.faulty_proxy import FaultyProxy
from tests.support.live_devices import LiveDevices
from tests.support.live_gangs import LABEL, VERSION, LiveGangs
from tests.support.operator_process import OperatorProcess
from tests.support.tables import table

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300), pytest.mark.in_order]

# The pattern is longer than "forbidden", because a server without streamed lists uses that word about a field.
_REFUSED = re.compile(r"HTTP 403|is forbidden: User|not enough permissions")
_EDITS = 11  # one more than the stored revisions, so that the oldest one is deleted
_GROUPS = native_groups()
_NATIVE, _COMPATIBLE = _GROUPS.api_version, "scheduling.x-k8s.io/v1alpha1"
_COMPATIBLE_DEFINITION = Path(__file__).resolve().parents[1] / "support" / "scheduler-plugins-podgroups.yaml"
_RELEASE = "rights"
_OF_NEWER_SERVERS = {f"{verb} devicetaintrules.resource.k8s.io" for verb in ("list", "watch")}
_SUPERFLUOUS = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}


class UnhelpfulProxy(FaultyProxy):
    """Proxy that drops the response to the first bind, fails the first allocation with a conflict, and can fail lists.

    Attributes:
        refuses_lists: Whether lists of nodes fail.
        unanswered: Number of binds without a response.
    """

    refuses_lists = False
    unanswered = 0
    conflicts = 0

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/binding") and not self.unanswered:
            self.unanswered += 1
            await self._forward(request, await request.read())
            return web.Response(status=504)
        if request.method == "PATCH" and request.path.endswith("/resourceclaims/named/status") and not self.conflicts:
            self.conflicts += 1
            return web.Response(status=409)
        if self.refuses_lists and request.path == "/api/v1/nodes" and "watch" not in request.query:
            return web.Response(status=500)
        return await super()._handle(request)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Start a control plane that serves all three APIs of PodGroups and streams no lists."""
    gates = {**_GROUPS.feature_gates, "WatchList": False}
    with ControlPlane(replace(_GROUPS.options, audit=True, feature_gates=gates)) as plane:
        plane.kubectl("apply", "--server-side", f"--filename={_COMPATIBLE_DEFINITION}")
        install_crds(plane)
        plane.kubectl("create", "namespace", _RELEASE)
        yield plane


@pytest.fixture(scope="module")
def proxy(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UnhelpfulProxy]:
    """Start the proxy between the operator and the API server."""
    with UnhelpfulProxy(plane, tmp_path_factory.mktemp("proxy")) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def manifests(helm: Helm, plane: ControlPlane) -> str:
    """Apply the chart's objects and return them."""
    values = {
        "fullnameOverride": _RELEASE,
        "settings": {"logFormat": "json"},
        "webhook": {"enabled": True, "port": free_port()},
        "rbac": {"extraRules": [_SUPERFLUOUS], "gangOwners": [{"apiGroup": "batch", "resources": ["jobs"]}]},
    }
    # Of a first installation, whose operator creates the default profile.
    manifests = helm.template(values, _RELEASE, flags=())
    plane.kubectl("apply", "--filename=-", input=manifests)
    return manifests


@pytest.fixture(scope="module")
def account(plane: ControlPlane, manifests: str) -> Account:
    """Return the chart's service account after the API server applies its bindings."""
    account = Account(plane, _RELEASE, _RELEASE)
    account.wait_until_granted()
    return account


@pytest.fixture
def operator(account: Account, manifests: str, proxy: UnhelpfulProxy, tmp_path: Path) -> Iterator[OperatorProcess]:
    """Create, without starting it, `bayplan run` with the chart's settings and service account, through the proxy."""
    objects = [one for one in yaml.safe_load_all(manifests) if one]
    (files,) = (one["data"] for one in objects if one["kind"] == "ConfigMap")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    flags = [f"--settings={tmp_path / 'settings.yaml'}", f"--initial-profiles={tmp_path / 'initial-profiles.yaml'}"]
    kubeconfig = account.write_kubeconfig(tmp_path / "kubeconfig", proxy.kubeconfig)
    with OperatorProcess(kubeconfig, tmp_path / "operator.log", flags, secure=True) as process:
        yield process


def test_the_rights_are_exactly_those_used(
    plane: ControlPlane, account: Account, manifests: str, proxy: UnhelpfulProxy, operator: OperatorProcess
) -> None:
    """No request of the operator is forbidden, and every granted right is used except one that the test adds."""
    rights = granted((one for one in yaml.safe_load_all(manifests) if one), _RELEASE, _RELEASE)
    with closing(ApiClient(plane)) as api, VolumeController(plane), ExtenderServer() as extender:
        world = LiveDevices(api, operator, "default")
        operator.start()
        _use_every_right(plane, world, proxy, extender)
        asyncio.run(_review_a_token(account.kubeconfig, account.token))
        code, _ = operator.terminate()
        assert code == 0
        served = {each["name"] for each in api.get("/apis/resource.k8s.io/v1")["resources"]}
        events = plane.audit_events()
        unused = [right for right in rights if not any(map(right.covers, used(events, account.user)))]
        world.clean_up()
    assert [line for line in operator.log.splitlines() if _REFUSED.search(line)] == []
    assert refused(events, account.user) == set()
    # The added right is found as unused, which proves that others would be found too.
    useless = {"list secrets."} | (set() if "devicetaintrules" in served else _OF_NEWER_SERVERS)
    assert {str(right) for right in unused} == useless
    assert len(rights) > 60


@table(
    "path, allowed",
    ("status", "/debug/status", True),
    ("explain", "/debug/explain", True),
    ("cache check", "/debug/cache", True),
    ("tasks", "/debug/tasks", False),
    ("profile", "/debug/profile", False),
    ("metrics", "/metrics", False),
)
def test_paths_that_the_account_may_get_from_a_leader(
    plane: ControlPlane, account: Account, path: str, *, allowed: bool
) -> None:
    """A command in a standby's pod may get the data that it prints from the leader, and no other path."""
    with ApiClient(plane) as api:
        assert api.is_allowed(account.user, nonResourceAttributes={"verb": "get", "path": path}) == allowed


def test_a_missing_right_is_detected(
    plane: ControlPlane, account: Account, manifests: str, operator: OperatorProcess
) -> None:
    """A forbidden request is found in the log and in the audit log, so the test above would fail on it."""
    before = refused(plane.audit_events(), account.user)
    plane.kubectl("delete", "clusterrolebinding", f"{_RELEASE}:{_RELEASE}")
    operator.start(wait=False)
    operator.until(lambda: _REFUSED.search(operator.log) is not None, "the log shows a refusal")
    # The audit log is written after the response.
    operator.until(lambda: refused(plane.audit_events(), account.user) > before, "the refusal is logged")
    plane.kubectl("apply", "--filename=-", input=manifests)


# -- work for the operator ---------------------------------------------------------------------------------------------


def _use_every_right(plane: ControlPlane, world: LiveDevices, proxy: UnhelpfulProxy, extender: ExtenderServer) -> None:
    """Cause each kind of request that the operator can send."""
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
    _follow_a_job(plane, world)
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
    provisioned = world.cluster_object(
        "StorageClass", "provisioned", "storage.k8s.io/v1", provisioner=PROVISIONER, **late
    )
    term = {"matchExpressions": [{"key": "for", "operator": "In", "values": [world.token]}]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": static,
        "local": {"path": "/mnt"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    world.cluster_object("PersistentVolume", "disk", spec=spec)
    for name, class_name in (("static", static), ("provisioned", provisioned)):
        world.claim(name, class_name)
        world.pod(name, spec={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]})
    assert world.until_scheduled("static") == world.until_scheduled("provisioned")


def _gather_groups(world: LiveGangs) -> None:
    """Create groups of all three APIs, each with one of two members, or with two infeasible ones for the native group.

    The status of a native group is written only after an attempt.
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
    """Allocate a claim whose first write conflicts, and an extended resource whose device fails before the bind."""
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
    world.template("one-each")
    code, answer = world.operator.post("/v1/fit", {"objects": [world.unborn("x", "one-each")]})
    assert (code, json.loads(answer)["notices"]) == (200, [])


def _extended_claim(world: LiveDevices, pod: str) -> str:
    return str(status_of(world.read(pod)).get("extendedResourceClaimStatus", {}).get("resourceClaimName", ""))


def _edit_profile(plane: ControlPlane, name: str) -> None:
    what = f"schedulerprofile/{name}"
    oldest = plane.kubectl("get", "controllerrevisions", f"--namespace={_RELEASE}", "--output=name").split()
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
    # The revision of the default profile is not deleted.
    for revision in oldest:
        if name in revision:
            plane.kubectl("wait", revision, "--for=delete", f"--namespace={_RELEASE}", "--timeout=60s")


def _extend(plane: ControlPlane, world: LiveGangs, proxy: UnhelpfulProxy, extender: ExtenderServer, node: str) -> None:
    """Add an extender that receives whole nodes, while nodes cannot be listed."""
    proxy.refuses_lists = True
    extender.rules["filter"] = passes_only(node)
    spec = {"urlPrefix": extender.url, "filterVerb": "filter", "nodeCacheCapable": False, "httpTimeout": "20s"}
    patch = json.dumps({"spec": {"extenders": [spec]}})
    plane.kubectl("patch", f"schedulerprofile/{world.token}", "--type=merge", f"--patch={patch}")
    world.until(lambda: "read one by one" in world.operator.log, "the list of nodes is refused")
    world.pod("shown")
    assert world.until_scheduled("shown") == node
    assert extender.bodies("filter")


def _follow_a_job(plane: ControlPlane, world: LiveGangs) -> None:
    """Let the operator create the PodGroup of a Job, change its size, and delete it when it has lost its owner."""
    patch = json.dumps({"spec": {"gangs": {"fromOwners": [{"kind": "Job"}]}}})
    plane.kubectl("patch", f"schedulerprofile/{world.token}", "--type=merge", f"--patch={patch}")
    container = {"name": "main", "image": "example.com/main"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    world.namespaced_object("Job", "owner", "batch/v1", spec={"parallelism": 2, "template": template})
    pod = world.member("owned", "owner", group="")
    (reference,) = pod["metadata"]["ownerReferences"]
    reference["uid"] = plane.kubectl("get", "job", "owner", "--output=jsonpath={.metadata.uid}")
    world.api.create(pod)
    path = f"/apis/{VERSION}/namespaces/{world.namespace}/podgroups"

    def groups() -> list[dict[str, Any]]:
        return [each for each in world.api.items(path) if each["metadata"]["name"].startswith("owner-")]

    world.until(groups, "the PodGroup is created")
    plane.kubectl("patch", "job", "owner", "--type=merge", "--patch", json.dumps({"spec": {"parallelism": 3}}))
    world.until(lambda: groups()[0]["spec"]["minMember"] == 3, "the PodGroup has the new size")
    lost = json.dumps({"metadata": {"ownerReferences": None}})
    plane.kubectl("patch", "bpg", groups()[0]["metadata"]["name"], "--type=merge", f"--patch={lost}")
    world.delete("owned")
    world.until(lambda: not groups(), "the PodGroup is deleted")


async def _review_a_token(kubeconfig: Path, token: str) -> None:
    """Send the reviews for a scrape from another host; a scrape of a test is local and not reviewed."""
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
