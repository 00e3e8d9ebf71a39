"""Family ``dra``: pods with ResourceClaims, and with extended resources of device classes."""

from __future__ import annotations

from tests.parity.oracle.generation.clusters import cluster, fill, profile, target
from tests.parity.oracle.generation.device_inventory import (
    NIC,
    DeviceInventory,
    PublishedDevice,
    allocate,
)
from tests.parity.oracle.generation.device_requests import bodies, bound_search, claimed_devices, exactly, request_body
from tests.parity.oracle.generation.device_selectors import BROKEN_SELECTORS
from tests.parity.oracle.generation.device_slices import ACCELERATOR, add_classes, publish
from tests.parity.oracle.generation.node_rules import node_affinity, put_taints
from tests.parity.oracle.generation.world import ZONE, Json, World

_ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
_MAX_HELD = 24
_MAX_RESERVED = 256
_THEMES = (
    ["basic"] * 3
    + ["list"] * 3
    + ["constraints"] * 3
    + ["taints"] * 2
    + ["partition"] * 3
    + ["shared"] * 3
    + ["network"] * 2
    + ["admin"]
    + ["extended"] * 3
    + ["allocated"] * 3
    + ["pools"] * 2
    + ["binding"] * 2
    + ["everything"] * 2
    + ["errors", "broken"]
)


def fam_dra(w: World) -> None:
    """Generate a case of the family ``dra``."""
    device_case(w, w.pick(_THEMES))


def device_case(w: World, theme: str) -> None:
    """Generate a case with devices.

    Args:
        theme: Main feature of the case, one of ``_THEMES``.
    """
    cluster(w, 3, 8, namespaces=w.r.randint(1, 3))
    if theme == "admin" or w.p(0.2):
        for namespace in w.namespaces:
            if w.p(0.8):
                namespace["metadata"]["labels"][_ADMIN_ACCESS] = "true"
    inventory = DeviceInventory(w)
    fill(w, 3, 22, level=0.7)
    w.pods = [each for each in w.pods if each["status"].get("phase") == "Running"]
    publish(w, inventory, theme)
    add_classes(w, inventory, theme)
    _allocate_to_running_pods(w, inventory, theme)
    small = w.p(0.9)
    milli = w.pick([100, 100, 250, 500, 1000]) if w.p(0.95) else 5000
    pod = target(w, small=small, c=milli, prio=w.pick(["normal", "normal", "normal", "high", "top"]))
    if w.p(0.2):
        put_taints(w, 0.2)
    if w.p(0.15):
        node_affinity(w, pod, required=0.4, preferred=0.5, selector=0.0)
    has_claims = not (theme == "extended" and w.p(0.7))
    _add_claims(w, inventory, theme, w.pick([1, 1, 1, 1, 1, 2, 2, 3]) if has_claims else 0)
    bound_search(inventory, [each for each in w.resource_claims if not each.get("status")])
    if theme == "extended":
        _request_extended_resources(w, inventory, has_claims=has_claims)
    if w.p(0.12):
        profile(w, plugins={"score": {"enabled": [{"name": "DynamicResources", "weight": w.pick([1, 5, 20])}]}})
    w.r.shuffle(w.resource_slices)


def use(pod: Json, reference: str, claim: Json, *, template: bool = False) -> None:
    """Add a claim to a pod, by name or as created from a template."""
    name = claim["metadata"]["name"]
    source = {"resourceClaimTemplateName": f"{reference}-template"} if template else {"resourceClaimName": name}
    pod["spec"].setdefault("resourceClaims", []).append({"name": reference, **source})
    if template:
        statuses = pod["status"].setdefault("resourceClaimStatuses", [])
        statuses.append({"name": reference, "resourceClaimName": name})
    resources = pod["spec"]["containers"][0].setdefault("resources", {})
    resources.setdefault("claims", []).append({"name": reference})


def _owned_by(pod: Json) -> list[Json]:
    meta = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    return [{**owner, "controller": True, "blockOwnerDeletion": True}]


def _permits_admin_access(w: World, namespace: str) -> bool:
    return any(
        each["metadata"]["labels"].get(_ADMIN_ACCESS) == "true"
        for each in w.namespaces
        if each["metadata"]["name"] == namespace
    )


def _allocate_to_running_pods(w: World, inventory: DeviceInventory, theme: str) -> None:
    """Allocate devices to claims of running pods."""
    share = w.pick([0.0, 0.05, 0.15] if theme == "everything" else [0.0, 0.15, 0.3, 0.4, 0.7])
    held = 0
    for node in w.nodes:
        name = node["metadata"]["name"]
        devices = [each for each in inventory.published if each.node == name]
        pods = [each for each in w.pods if each["spec"].get("nodeName") == name]
        if not devices or not pods:
            continue
        for device in devices:
            if not w.p(share) or held >= _MAX_HELD:
                continue
            pod = w.pick(pods)
            if device.definition.get("consumesCounters") and w.p(0.7):
                continue
            held = _allocate_device(w, inventory, (device, pod), theme, held)


def _allocate_device(
    w: World, inventory: DeviceInventory, pair: tuple[PublishedDevice, Json], theme: str, held: int
) -> int:
    """Allocate a device to claims of a pod, and return the number of such claims."""
    device, pod = pair
    node, namespace = pod["spec"]["nodeName"], pod["metadata"]["namespace"]
    result = device.result("r")
    body: Json = {}
    is_admin = theme == "admin" and w.p(0.4) and _permits_admin_access(w, namespace)
    if is_admin:
        result["adminAccess"] = body["adminAccess"] = True
    if device.is_shared:
        memory = w.pick(["1Gi", "4Gi", "8Gi", "9Gi"])
        for number in range(held, held + w.r.randint(1, 2)):
            claim = inventory.add_claim(f"held-{number}", namespace, {"requests": [exactly(w, "r", "gpu")]})
            share_id = f"{w.r.getrandbits(32):08x}-0000-4000-8000-{w.r.getrandbits(48):012x}"
            consumed = {"memory": memory, "cores": w.pick(["1", "4"])}
            allocate(claim, [{**result, "shareID": share_id, "consumedCapacity": consumed}], node, [pod])
            use(pod, f"d{number}", claim)
            held += 1
        return held
    request = exactly(w, "r", "nic" if device.driver == NIC else "anything", **body)
    claim = inventory.add_claim(f"held-{held}", namespace, {"requests": [request]})
    allocate(claim, [result], node, [pod], stamp="2020-03-20T00:00:00Z" if w.p(0.8) else None)
    use(pod, f"d{held}", claim)
    device.free = is_admin
    return held + 1


def _add_claims(w: World, inventory: DeviceInventory, theme: str, count: int) -> None:
    """Add the claims of the pod."""
    pod = w.pod
    namespace = pod["metadata"]["namespace"]
    is_admin = _permits_admin_access(w, namespace)
    for number in range(count):
        devices = claimed_devices(w, inventory, theme, may_use_admin_access=is_admin, among_several=count > 1)
        requests = devices["requests"]
        if theme == "errors" and w.p(0.7):
            body = bodies(w.pick(requests))[0]
            body["selectors"] = [{"cel": {"expression": w.pick(BROKEN_SELECTORS)}}]
            body["deviceClassName"] = w.pick(["gpu", "gpu", "anything"])
        reference, name, meta = f"c{number}", f"claim-{number}", {}
        template = w.p(0.4)
        if template:
            name = f"{pod['metadata']['name']}-{reference}-{w.r.getrandbits(16):04x}"
            annotations = {"resource.kubernetes.io/pod-claim-name": reference}
            meta = {"ownerReferences": _owned_by(pod), "annotations": annotations}
        claim = inventory.add_claim(name, namespace, devices, **meta)
        use(pod, reference, claim, template=template)
        if theme == "broken":
            _break(w, claim, template=template)
        elif (theme == "allocated" and w.p(0.85)) or (theme == "binding" and w.p(0.25)):
            _allocate_earlier(w, inventory, claim, theme)


def _break(w: World, claim: Json, *, template: bool) -> None:
    """Make a claim unusable."""
    how = w.pick(["noclass", "noclass", "noclaim", "deleted", "foreign", "unnamed", "notmade"])
    if how == "noclass":
        request = w.pick(claim["spec"]["devices"]["requests"])
        (request.get("exactly") or w.pick(request["firstAvailable"]))["deviceClassName"] = "no-such-class"
    elif how == "noclaim":
        w.resource_claims.pop()
    elif how == "deleted":
        claim["metadata"] |= {"deletionTimestamp": "2026-03-25T00:00:00Z", "finalizers": ["example.com/keep"]}
    elif how == "foreign" and template:
        claim["metadata"]["ownerReferences"][0]["uid"] = "someone-else"
    elif how == "unnamed" and template:
        w.pod["status"]["resourceClaimStatuses"][-1].pop("resourceClaimName")
        w.resource_claims.pop()
    elif how == "notmade" and template:
        w.pod["status"]["resourceClaimStatuses"].pop()


def _allocate_earlier(w: World, inventory: DeviceInventory, claim: Json, theme: str) -> None:
    """Replace the requests of a claim with requests that an earlier attempt allocated."""
    requests = [exactly(w, f"r{i}", "anything") for i in range(w.r.randint(1, 2))]
    if w.p(0.25):
        alternatives = [{"name": f"alt{i}", **request_body(w, "anything")} for i in range(3)]
        requests[0] = {"name": "r0", "firstAvailable": alternatives}
    claim["spec"] = {"devices": {"requests": requests}}
    suitable = [
        each
        for each in inventory.published
        if each.free and each.node and not each.is_shared and not each.definition.get("consumesCounters")
    ]
    if not suitable:
        return
    node: str | None = w.pick(suitable).node
    devices = [each for each in suitable if each.node == node]
    results = []
    for number, request in enumerate(requests):
        device = devices[number % len(devices)]
        device.free = False
        name = request["name"] if "exactly" in request else f"{request['name']}/alt{w.r.randint(0, 2)}"
        result = device.result(name)
        if theme == "binding" and w.p(0.8):
            result["bindingConditions"] = ["example.com/Attached"]
            result["bindingFailureConditions"] = ["example.com/Failed"]
        results.append(result)
    users = _users(w, claim, node)
    selector = None
    if w.p(0.25) and not users:
        zone = {"key": ZONE, "operator": "In", "values": ["zone-a"]}
        selector = w.pick([{"nodeSelectorTerms": [{"matchExpressions": [zone]}]}, None])
        node = None
    if w.p(0.12) and not users:
        node = "gone"
    # The time is far from now, so that the effect of the binding timeout does not depend on the time of the run.
    stamp = w.pick(["2020-03-20T00:00:00Z", "2099-01-01T00:00:00Z"] * 3 + [None])
    allocate(claim, results, node, users, selector=selector, stamp=stamp)
    if w.p(0.12) and users and users != [w.pod]:
        reserved = claim["status"]["reservedFor"]
        missing = range(_MAX_RESERVED - len(reserved))
        reserved += [{"resource": "pods", "name": f"user-{i}", "uid": f"user-uid-{i}"} for i in missing]
    if theme == "binding":
        _report_conditions(w, claim, results)


def _users(w: World, claim: Json, node: str | None) -> list[Json]:
    """Return the pods for which an allocated claim is reserved."""
    users: list[Json] = []
    namespace = claim["metadata"]["namespace"]
    others = [
        each for each in w.pods if each["spec"].get("nodeName") == node and each["metadata"]["namespace"] == namespace
    ]
    if others and w.p(0.5) and not claim["metadata"].get("ownerReferences"):
        for each in w.some(others, 1, 2):
            users.append(each)
            use(each, f"shared-{claim['metadata']['name']}", claim)
    if w.p(0.25):
        users.append(w.pod)
    return users


def _report_conditions(w: World, claim: Json, results: list[Json]) -> None:
    """Add binding conditions that drivers report for allocated devices."""
    how = w.pick(["none", "ready", "failed", "waiting"])
    if how == "none":
        return
    condition = {
        "type": "example.com/Failed" if how == "failed" else "example.com/Attached",
        "status": "False" if how == "waiting" else "True",
        "reason": "Driver",
        "message": "",
        "lastTransitionTime": "2026-03-21T00:00:00Z",
    }
    devices = {(each["driver"], each["pool"], each["device"]): None for each in results}
    claim["status"]["devices"] = [
        {"driver": driver, "pool": pool, "device": device, "conditions": [condition]}
        for driver, pool, device in devices
    ]


def _request_extended_resources(w: World, inventory: DeviceInventory, *, has_claims: bool) -> None:
    """Let containers request extended resources of device classes."""
    pod = w.pod
    implicit = "deviceclass.resource.kubernetes.io/" + w.pick(["gpu", "nic", "picked"])
    for node in w.nodes:
        if w.p(0.3) and not has_claims:
            # This node has a device plugin for the resource.
            amount = str(w.pick([0, 1, 2, 4]))
            node["status"]["allocatable"][ACCELERATOR] = node["status"]["capacity"][ACCELERATOR] = amount
    names = [ACCELERATOR] if w.p(0.7) else [implicit] if w.p(0.5) else [ACCELERATOR, implicit]
    spec = pod["spec"]
    _request(w, spec["containers"][0], names, 3)
    if w.p(0.35):
        second = {"name": "second", "image": "app:v1", "resources": {"requests": {"cpu": "10m"}}}
        spec["containers"].append(second)
        _request(w, second, names, 2)
    if w.p(0.4):
        spec["initContainers"] = []
        for number in range(w.r.randint(1, 3)):
            container: Json = {"name": f"init{number}", "image": "app:v1"}
            if w.p(0.4):
                container["restartPolicy"] = "Always"
            _request(w, container, names, 4)
            spec["initContainers"].append(container)
    if w.p(0.12) and not has_claims:
        _add_extended_claim(w, inventory)
    if w.p(0.4):
        strategy = w.pick(["LeastAllocated", "MostAllocated"])
        scored = [{"name": "cpu", "weight": 1}, {"name": w.pick(names), "weight": w.pick([1, 3, 5])}]
        profile(w, args={"NodeResourcesFit": {"scoringStrategy": {"type": strategy, "resources": scored}}})


def _request(w: World, container: Json, names: list[str], most: int) -> None:
    resources = container.setdefault("resources", {})
    for name in names:
        if w.p(0.8):
            amount = str(w.r.randint(0 if w.p(0.1) else 1, most))
            resources.setdefault("requests", {})[name] = amount
            resources.setdefault("limits", {})[name] = amount


def _add_extended_claim(w: World, inventory: DeviceInventory) -> None:
    """Add the claim for extended resources that an earlier attempt created."""
    pod = w.pod
    claim = inventory.add_claim(
        f"{pod['metadata']['name']}-extended-resources-x1",
        pod["metadata"]["namespace"],
        {"requests": [exactly(w, "container-0-request-0", "gpu")]},
        ownerReferences=_owned_by(pod),
        annotations={"resource.kubernetes.io/extended-resource-claim": "true"},
    )
    free = [each for each in inventory.published if each.free and each.node]
    if free and w.p(0.6):
        device = w.pick(free)
        allocate(claim, [device.result("container-0-request-0")], device.node, [pod])
