"""Rules for nodes, storage objects, services, workloads, PodDisruptionBudgets, PriorityClasses and PodGroups.

Follows Kubernetes v1.37.1, the packages pkg/apis/{core,storage,apps,policy,scheduling}/validation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bayplan.api_validation.container_rules import port_or_name_problems
from bayplan.api_validation.field_errors import (
    FieldErrors,
    cidr,
    dns_label,
    dns_subdomain,
    endpoint_address,
    entries,
    ip_address,
    mapping,
    port_number,
    qualified_name,
    text,
    texts,
)
from bayplan.api_validation.pod_rules import template_problems
from bayplan.api_validation.resource_rules import amount, quantity_problems
from bayplan.api_validation.selection_rules import (
    finalizer_problems,
    label_problems,
    selector_problems,
    selects,
    taint_problems,
)
from bayplan.api_validation.volume_rules import claim_problems, csi_driver_name_problems, persistent_volume_problems

Value = Mapping[str, Any]

_SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_HIGHEST_PRIORITY = 1_000_000_000
_FEATURE = re.compile(r"[A-Z][a-zA-Z0-9]*(/[a-zA-Z0-9]+)*")
_MAX_TEXT, _MAX_PARAMETERS = 1024, 512


# -- nodes ------------------------------------------------------------------------------------------------------------


def node_problems(found: FieldErrors, node: Value) -> None:
    spec, status = mapping(node, "spec"), mapping(node, "status")
    taint_problems(found, entries(spec, "taints"), "spec.taints")
    capacity = mapping(status, "capacity")
    allocatable = status.get("allocatable")
    for field, amounts in (("capacity", capacity), ("allocatable", allocatable or {})):
        for name, value in amounts.items():
            quantity_problems(found, f"status.{field}[{name}]", name, value)
    swap = mapping(mapping(status, "nodeInfo"), "swap").get("capacity")
    if swap is not None and swap <= 0:
        found.invalid("status.nodeInfo.swap.capacity", swap, "must be greater than zero")
    features = texts(status, "declaredFeatures")
    for index, feature in enumerate(features):
        if len(feature) > 253 or not _FEATURE.fullmatch(feature):
            found.invalid(f"status.declaredFeatures[{index}]", feature, "invalid feature name")
        if index and feature <= features[index - 1]:
            found.invalid(
                f"status.declaredFeatures[{index}]", feature, "list must be sorted alphabetically, without duplicates"
            )
    # The API server replaces podCIDRs whose first entry is not podCIDR.
    cidrs, first = texts(spec, "podCIDRs"), text(spec, "podCIDR")
    if first and cidrs[:1] != [first]:
        cidrs = [first]
    for index, each in enumerate(cidrs):
        found.check(f"spec.podCIDRs[{index}]", each, cidr)
    if len(cidrs) > 1 and (len(cidrs) > 2 or len({":" in each for each in cidrs}) < 2):
        found.invalid("spec.podCIDRs", cidrs, "may specify no more than one CIDR for each IP family")


def namespace_problems(found: FieldErrors, namespace: Value) -> None:
    for index, name in enumerate(texts(mapping(namespace, "spec"), "finalizers")):
        finalizer_problems(found, name, f"spec.finalizers[{index}]", ("kubernetes",))


# -- storage ----------------------------------------------------------------------------------------------------------


def persistent_volume_object_problems(found: FieldErrors, volume: Value) -> None:
    persistent_volume_problems(found, mapping(volume, "spec"), "spec")


def claim_object_problems(found: FieldErrors, claim: Value) -> None:
    claim_problems(found, mapping(claim, "spec"), "spec")


def storage_class_problems(found: FieldErrors, given: Value) -> None:
    provisioner = text(given, "provisioner")
    if not provisioner:
        found.required("provisioner")
    else:
        found.invalid("provisioner", provisioner, *qualified_name(provisioner.lower()))
    parameters = mapping(given, "parameters")
    if len(parameters) > _MAX_PARAMETERS:
        found.too_many("parameters", len(parameters), _MAX_PARAMETERS)
    if "" in parameters:
        found.invalid("parameters", "", "field can not be empty.")
    found.choice("reclaimPolicy", text(given, "reclaimPolicy"), ("Delete", "Retain"))
    found.one_of("volumeBindingMode", given.get("volumeBindingMode"), ("Immediate", "WaitForFirstConsumer"))
    terms = []
    for index, term in entries(given, "allowedTopologies"):
        keys: dict[str, frozenset[str]] = {}
        for number, each in entries(term, "matchLabelExpressions"):
            where = f"allowedTopologies[{index}].matchLabelExpressions[{number}]"
            key, values = text(each, "key"), texts(each, "values")
            if not values:
                found.required(f"{where}.values")
            for place, value in enumerate(values):
                if value in values[:place]:
                    found.duplicate(f"{where}.values[{place}]", value)
            found.check(f"{where}.key", key, qualified_name)
            if key in keys:
                found.duplicate(f"{where}.key", key)
            keys[key] = frozenset(values)
        # The API server compares an empty term with itself.
        if keys in terms or not keys:
            found.duplicate(f"allowedTopologies[{index}].matchLabelExpressions", "")
        terms.append(keys)


def csi_node_problems(found: FieldErrors, node: Value) -> None:
    names = set[str]()
    for index, driver in entries(mapping(node, "spec"), "drivers"):
        where, name = f"spec.drivers[{index}]", text(driver, "name")
        csi_driver_name_problems(found, f"{where}.name", name)
        found.unique(f"{where}.name", name, names)
        identity = text(driver, "nodeID")
        if not identity:
            found.required(f"{where}.nodeID")
        elif len(identity) > 256:
            found.invalid(f"{where}.nodeID", identity, "must be 256 characters or less")
        found.not_negative(f"{where}.allocatable.count", mapping(driver, "allocatable").get("count") or 0)
        keys = texts(driver, "topologyKeys")
        for number, key in enumerate(keys):
            found.check(f"{where}.topologyKeys[{number}]", key, qualified_name)
            if key in keys[:number]:
                found.duplicate(f"{where}.topologyKeys[{number}]", key)


def csi_driver_problems(found: FieldErrors, driver: Value) -> None:
    spec = mapping(driver, "spec")
    found.one_of("spec.fsGroupPolicy", spec.get("fsGroupPolicy"), ("ReadWriteOnceWithFSType", "File", "None"))
    requests = entries(spec, "tokenRequests")
    for index, request in requests:
        where, audience = f"spec.tokenRequests[{index}]", text(request, "audience")
        if audience in [text(each, "audience") for _, each in requests[:index]]:
            found.duplicate(f"{where}.audience", audience)
            continue
        seconds = request.get("expirationSeconds")
        if seconds is not None and not 600 <= seconds <= 1 << 32:
            found.invalid(f"{where}.expirationSeconds", seconds, "must be between 10 minutes and 2^32 seconds")
    for index, mode in enumerate(texts(spec, "volumeLifecycleModes")):
        found.one_of(f"spec.volumeLifecycleModes[{index}]", mode, ("Persistent", "Ephemeral"))
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < 10:
        found.invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, "must be greater than or equal to 10 seconds")
    if spec.get("serviceAccountTokenInSecrets") is not None and not requests:
        detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        found.invalid("spec.serviceAccountTokenInSecrets", "", detail)


def csi_capacity_problems(found: FieldErrors, given: Value) -> None:
    selector_problems(found, given.get("nodeTopology"), "nodeTopology")
    found.check("storageClassName", text(given, "storageClassName"), dns_subdomain)
    if amount(given.get("capacity")) < 0:
        found.invalid("capacity", given["capacity"], "must be greater than or equal to 0")


def volume_attachment_problems(found: FieldErrors, attachment: Value) -> None:
    spec = mapping(attachment, "spec")
    csi_driver_name_problems(found, "spec.attacher", text(spec, "attacher"))
    source = mapping(spec, "source")
    name, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    if (name is None) == (inline is None):
        found.required("spec.source", "must specify exactly one of inlineVolumeSpec and persistentVolumeName")
    elif inline is not None:
        persistent_volume_problems(found, inline, "spec.source.inlineVolumeSpec", inline=True)
    found.optional("spec.source.persistentVolumeName", name, dns_subdomain)
    found.check("spec.nodeName", text(spec, "nodeName"), dns_subdomain)


# -- services and workloads -------------------------------------------------------------------------------------------


def service_problems(found: FieldErrors, service: Value) -> None:
    """Validate a Service, without the allocation of addresses and ports."""
    spec = mapping(service, "spec")
    kind, ports = text(spec, "type") or "ClusterIP", entries(spec, "ports")
    addresses = [text(spec, "clusterIP"), *texts(spec, "clusterIPs")]
    is_headless = "None" in addresses[:1] or addresses[1:] == ["None"]
    found.choice("spec.type", kind, ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort"))
    if not ports and not is_headless and kind != "ExternalName":
        found.required("spec.ports")
    if is_headless and kind in ("LoadBalancer", "NodePort"):
        found.invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    if kind == "ExternalName":
        found.name("spec.externalName", text(spec, "externalName").removesuffix("."), dns_subdomain)
    _service_port_problems(found, ports, kind)
    label_problems(found, spec.get("selector"), "spec.selector")
    affinity = text(spec, "sessionAffinity")
    found.choice("spec.sessionAffinity", affinity, ("ClientIP", "None"))
    seconds = mapping(mapping(spec, "sessionAffinityConfig"), "clientIP").get("timeoutSeconds")
    if affinity == "ClientIP" and seconds is not None and not 0 < seconds <= 86400:
        found.invalid(
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds", seconds, "must be greater than 0 and less than 86400"
        )
    for index, each in enumerate(texts(spec, "externalIPs")):
        found.invalid(f"spec.externalIPs[{index}]", each, *(ip_address(each) or endpoint_address(each)))
    if kind != "ExternalName":
        _address_problems(found, spec)
    _traffic_problems(found, spec, kind)


def _address_problems(found: FieldErrors, spec: Value) -> None:
    first = text(spec, "clusterIP")
    addresses, families = texts(spec, "clusterIPs") or [first] * bool(first), texts(spec, "ipFamilies")
    if addresses and not first:
        found.invalid("spec.clusterIPs", addresses, "must be empty when `clusterIP` is not specified")
    elif addresses and addresses[0] != first:
        found.invalid("spec.clusterIPs", addresses, "first value must match `clusterIP`")
    if len(addresses) > 2:
        found.invalid("spec.clusterIPs", addresses, "may only hold up to 2 values")
    before = len(found.problems)
    for index, address in enumerate(addresses):
        if index or address != "None":
            found.check(f"spec.clusterIPs[{index}]", address, ip_address)
        elif len(addresses) > 1:
            found.invalid("spec.clusterIPs", addresses, "'None' must be the first and only value")
    if len(found.problems) > before or addresses == ["None"]:
        return
    if len(addresses) == 2 and (":" in addresses[0]) == (":" in addresses[1]):
        found.invalid("spec.clusterIPs", addresses, "may specify no more than one IP for each IP family")
    for index, (address, family) in enumerate(zip(addresses, families, strict=False)):
        if family != ("IPv6" if ":" in address else "IPv4"):
            found.invalid(f"spec.clusterIPs[{index}]", address, f"expected an {family} value by `ipFamilies[{index}]`")


def _service_port_problems(found: FieldErrors, ports: list[tuple[int, Value]], kind: str) -> None:
    names, numbers, node_ports = set[str](), set[tuple[str, int]](), set[tuple[str, int]]()
    for index, port in ports:
        where, name = f"spec.ports[{index}]", text(port, "name")
        if name:
            found.check(f"{where}.name", name, dns_label)
            found.unique(f"{where}.name", name, names)
        elif len(ports) > 1:
            found.required(f"{where}.name")
        number, protocol = port.get("port") or 0, text(port, "protocol") or "TCP"
        found.invalid(f"{where}.port", number, *port_number(number))
        found.choice(f"{where}.protocol", protocol, ("TCP", "UDP", "SCTP"))
        if port.get("targetPort"):
            port_or_name_problems(found, port["targetPort"], f"{where}.targetPort")
        found.optional(f"{where}.appProtocol", port.get("appProtocol"), qualified_name)
        node_port = port.get("nodePort") or 0
        if node_port and kind == "ClusterIP":
            found.forbidden(f"{where}.nodePort", "may not be used when `type` is 'ClusterIP'")
        if node_port and (protocol, node_port) in node_ports:
            found.duplicate(f"{where}.nodePort", node_port)
        if (protocol, number) in numbers:
            found.duplicate(where, f"{protocol}/{number}")
        node_ports.add((protocol, node_port))
        numbers.add((protocol, number))


def _traffic_problems(found: FieldErrors, spec: Value, kind: str) -> None:
    is_balanced = kind == "LoadBalancer"
    for field in ("allocateLoadBalancerNodePorts", "loadBalancerClass", "loadBalancerSourceRanges"):
        given = spec.get(field)
        if given is not None and given != [] and not is_balanced:
            found.forbidden(f"spec.{field}", "may only be used when `type` is 'LoadBalancer'")
    name = spec.get("loadBalancerClass")
    if name is not None and is_balanced:
        found.check("spec.loadBalancerClass", name, qualified_name)
    for index, each in enumerate(texts(spec, "loadBalancerSourceRanges")):
        found.invalid(f"spec.loadBalancerSourceRanges[{index}]", each, *cidr(each.strip()))
    external = text(spec, "externalTrafficPolicy")
    is_external = kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))
    if external and not is_external:
        found.invalid("spec.externalTrafficPolicy", external, "may only be set for externally-accessible services")
    else:
        found.choice("spec.externalTrafficPolicy", external, ("Cluster", "Local"))
    if spec.get("healthCheckNodePort") and not (is_balanced and external == "Local"):
        detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        found.invalid("spec.healthCheckNodePort", spec["healthCheckNodePort"], detail)
    for field, values in (
        ("internalTrafficPolicy", ("Cluster", "Local")),
        ("trafficDistribution", ("PreferClose", "PreferSameZone", "PreferSameNode")),
        ("ipFamilyPolicy", ("PreferDualStack", "RequireDualStack", "SingleStack")),
    ):
        found.one_of(f"spec.{field}", spec.get(field), values)
    families = texts(spec, "ipFamilies")
    if text(spec, "ipFamilyPolicy") == "SingleStack" and max(len(families), len(texts(spec, "clusterIPs"))) > 1:
        detail = "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"
        found.invalid("spec.ipFamilyPolicy", "SingleStack", detail)
    for index, family in enumerate(families):
        found.choice(f"spec.ipFamilies[{index}]", family or "unset", ("IPv4", "IPv6"))
        if family in families[:index]:
            found.duplicate(f"spec.ipFamilies[{index}]", family)


def replication_controller_problems(found: FieldErrors, controller: Value) -> None:
    spec = mapping(controller, "spec")
    _count_problems(found, spec)
    template = spec.get("template")
    labels = mapping(mapping(template or {}, "metadata"), "labels")
    selector = spec.get("selector") or labels
    if not selector:
        found.required("spec.selector")
    if template is None:
        found.required("spec.template")
        return
    if any(labels.get(key) != value for key, value in selector.items()):
        found.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    template_problems(found, template, "spec.template")


def replica_set_problems(found: FieldErrors, replica_set: Value) -> None:
    spec = mapping(replica_set, "spec")
    _count_problems(found, spec)
    _selected_template_problems(found, spec, mapping(spec, "template"))


def stateful_set_problems(found: FieldErrors, stateful_set: Value) -> None:
    spec = mapping(stateful_set, "spec")
    _count_problems(found, spec)
    found.choice("spec.podManagementPolicy", text(spec, "podManagementPolicy"), ("OrderedReady", "Parallel"))
    strategy = mapping(spec, "updateStrategy")
    kind, rolling = text(strategy, "type") or "RollingUpdate", strategy.get("rollingUpdate")
    found.choice("spec.updateStrategy.type", kind, ("OnDelete", "RollingUpdate"))
    if kind == "OnDelete" and rolling is not None:
        found.invalid("spec.updateStrategy.rollingUpdate", "", "only allowed for updateStrategy 'RollingUpdate'")
    elif rolling is not None:
        found.not_negative("spec.updateStrategy.rollingUpdate.partition", rolling.get("partition") or 0)
        share = rolling.get("maxUnavailable")
        if share is not None:
            _share_problems(found, share, "spec.updateStrategy.rollingUpdate.maxUnavailable")
            if share in (0, "0%"):
                found.invalid("spec.updateStrategy.rollingUpdate.maxUnavailable", share, "cannot be 0")
    retention = mapping(spec, "persistentVolumeClaimRetentionPolicy")
    for field in ("whenDeleted", "whenScaled"):
        found.choice(f"spec.persistentVolumeClaimRetentionPolicy.{field}", text(retention, field), ("Delete", "Retain"))
    found.not_negative("spec.ordinals.start", mapping(spec, "ordinals").get("start") or 0)
    found.name("spec.serviceName", text(spec, "serviceName"), dns_label, is_required=False)
    claims = entries(spec, "volumeClaimTemplates")
    for index, claim in claims:
        claim_problems(found, mapping(claim, "spec"), f"spec.volumeClaimTemplates[{index}].spec", drops_source=False)
    template = mapping(spec, "template")
    pod = {**mapping(template, "spec"), "hostname": None, "subdomain": None} if claims or template else {}
    if claims:
        names = {text(mapping(claim, "metadata"), "name"): claim for _, claim in claims}
        others = [each or {} for each in pod.get("volumes") or () if text(each or {}, "name") not in names]
        pod["volumes"] = others + [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in names]
    _selected_template_problems(found, spec, {**template, "spec": pod})


def _count_problems(found: FieldErrors, spec: Value) -> None:
    for field in ("replicas", "minReadySeconds"):
        found.not_negative(f"spec.{field}", spec.get(field) or 0)


def _selected_template_problems(found: FieldErrors, spec: Value, template: Value) -> None:
    selector = spec.get("selector")
    if selector is None:
        found.required("spec.selector")
    else:
        before = len(found.problems)
        selector_problems(found, selector, "spec.selector")
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            found.invalid("spec.selector", "", "empty selector is invalid")
        elif len(found.problems) == before and not selects(selector, mapping(mapping(template, "metadata"), "labels")):
            found.invalid("spec.template.metadata.labels", "", "`selector` does not match template `labels`")
    template_problems(found, template, "spec.template")


def disruption_budget_problems(found: FieldErrors, budget: Value) -> None:
    spec = mapping(budget, "spec")
    given = [field for field in ("minAvailable", "maxUnavailable") if spec.get(field) is not None]
    if len(given) > 1:
        found.invalid("spec", "", "minAvailable and maxUnavailable cannot be both set")
    for field in given:
        _share_problems(found, spec[field], f"spec.{field}")
    selector_problems(found, spec.get("selector"), "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy")
    found.one_of("spec.unhealthyPodEvictionPolicy", policy, ("AlwaysAllow", "IfHealthyBudget"))


def _share_problems(found: FieldErrors, share: object, path: str) -> None:
    if isinstance(share, str):
        if not re.fullmatch(r"[0-9]+%", share, re.ASCII):
            found.invalid(
                path, share, "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%')"
            )
        elif int(share[:-1]) > 100:
            found.invalid(path, share, "must not be greater than 100%")
    elif isinstance(share, int | float):
        found.not_negative(path, share)


# -- scheduling -------------------------------------------------------------------------------------------------------


def priority_class_problems(found: FieldErrors, given: Value) -> None:
    name, value = text(mapping(given, "metadata"), "name"), given.get("value") or 0
    if name.startswith("system-"):
        if _SYSTEM_CLASSES.get(name) != value or given.get("globalDefault"):
            found.forbidden(
                "metadata.name", "priority class names with 'system-' prefix are reserved for system use only"
            )
    elif value > _HIGHEST_PRIORITY:
        found.forbidden("value", f"maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}")
    policy = given.get("preemptionPolicy")
    if policy is not None:
        found.choice("preemptionPolicy", policy, ("Never", "PreemptLowerPriority"), is_required=True)


def native_group_problems(found: FieldErrors, group: Value) -> None:
    """Validate a PodGroup of Kubernetes, with the gates of groups and trees."""
    spec = mapping(group, "spec")
    _common_group_problems(found, spec, "minCount", "gang")
    if spec.get("parentCompositePodGroupName") is not None and spec.get("workloadRef") is None:
        found.required("spec.workloadRef", "must be set when parentCompositePodGroupName is set")
    claims = entries(spec, "resourceClaims")
    if len(claims) > 4:
        found.too_many("spec.resourceClaims", len(claims), 4)
    names = set[str]()
    for index, claim in claims:
        where, name = f"spec.resourceClaims[{index}]", text(claim, "name")
        found.name(f"{where}.name", name, dns_label)
        found.unique(where, name, names)
        given = [field for field in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(field) is not None]
        if len(given) != 1:
            found.invalid(where, name, "must specify exactly one of: `resourceClaimName`, `resourceClaimTemplateName`")
        for field in given:
            found.check(f"{where}.{field}", claim[field], dns_subdomain)


def composite_group_problems(found: FieldErrors, group: Value) -> None:
    spec = mapping(group, "spec")
    if spec.get("workloadRef") is None:
        found.required("spec.workloadRef")
    _common_group_problems(found, spec, "minGroupCount", "gang")


def _common_group_problems(found: FieldErrors, spec: Value, count_field: str, gang_field: str) -> None:
    policy = mapping(spec, "schedulingPolicy")
    if (policy.get("basic") is None) == (policy.get(gang_field) is None):
        found.invalid("spec.schedulingPolicy", "", "must specify exactly one of: `basic`, `gang`")
    gang = policy.get(gang_field)
    if gang is not None:
        count, where = gang.get(count_field) or 0, f"spec.schedulingPolicy.{gang_field}.{count_field}"
        if not count:
            found.required(where)
        elif count < 1:
            found.invalid(where, count, "must be greater than or equal to 1")
    disruption = spec.get("disruptionMode")
    if disruption is not None and (disruption.get("single") is None) == (disruption.get("all") is None):
        found.invalid("spec.disruptionMode", "", "must specify exactly one of: `all`, `single`")
    found.optional("spec.parentCompositePodGroupName", spec.get("parentCompositePodGroupName"), dns_subdomain)
    reference = spec.get("workloadRef")
    for field, check in (("workloadName", dns_subdomain), ("templateName", dns_label)) if reference is not None else ():
        found.name(f"spec.workloadRef.{field}", text(reference or {}, field), check)
    topology = entries(mapping(spec, "schedulingConstraints"), "topology")
    if len(topology) > 1:
        found.too_many("spec.schedulingConstraints.topology", len(topology), 1)
    for index, each in topology:
        where, key = f"spec.schedulingConstraints.topology[{index}].key", text(each, "key")
        found.name(where, key, qualified_name)
    found.name("spec.priorityClassName", text(spec, "priorityClassName"), dns_subdomain, is_required=False)
    if (spec.get("priority") or 0) > _HIGHEST_PRIORITY:
        found.invalid("spec.priority", spec["priority"], f"must be less than or equal to {_HIGHEST_PRIORITY}")
    found.one_of("spec.preemptionPolicy", spec.get("preemptionPolicy"), ("Never", "PreemptLowerPriority"))
