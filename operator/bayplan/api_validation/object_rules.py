"""Rules for nodes, storage objects, services, workloads, PodDisruptionBudgets, PriorityClasses and PodGroups.

Follows Kubernetes v1.37.1, the packages pkg/apis/{core,storage,apps,policy,scheduling}/validation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bayplan.api_validation.container_rules import port_or_name_problems
from bayplan.api_validation.field_errors import (
    Fields,
    cidr,
    dns_label,
    dns_subdomain,
    endpoint_address,
    ip_address,
    qualified_name,
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

_SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_HIGHEST_PRIORITY = 1_000_000_000
_FEATURE = re.compile(r"[A-Z][a-zA-Z0-9]*(/[a-zA-Z0-9]+)*")
_MAX_PARAMETERS = 512


# -- nodes ------------------------------------------------------------------------------------------------------------


def node_problems(node: Fields) -> None:
    spec, status = node.part("spec"), node.part("status")
    taint_problems(spec.parts("taints"))
    for field in ("capacity", "allocatable"):
        for name, value in status.mapping(field).items():
            quantity_problems(status, f"{field}[{name}]", name, value)
    swap = status.part("nodeInfo").part("swap")
    capacity = swap.get("capacity")
    if capacity is not None and capacity <= 0:
        swap.invalid("capacity", capacity, "must be greater than zero")
    features = status.texts("declaredFeatures")
    for index, feature in enumerate(features):
        if len(feature) > 253 or not _FEATURE.fullmatch(feature):
            status.invalid(f"declaredFeatures[{index}]", feature, "invalid feature name")
        if index and feature <= features[index - 1]:
            detail = "list must be sorted alphabetically, without duplicates"
            status.invalid(f"declaredFeatures[{index}]", feature, detail)
    # The API server replaces podCIDRs whose first entry is not podCIDR.
    cidrs, first = spec.texts("podCIDRs"), spec.text("podCIDR")
    if first and cidrs[:1] != [first]:
        cidrs = [first]
    for index, each in enumerate(cidrs):
        spec.invalid(f"podCIDRs[{index}]", each, *cidr(each))
    if len(cidrs) > 1 and (len(cidrs) > 2 or len({":" in each for each in cidrs}) < 2):
        spec.invalid("podCIDRs", cidrs, "may specify no more than one CIDR for each IP family")


def namespace_problems(namespace: Fields) -> None:
    finalizer_problems(namespace.part("spec"), ("kubernetes",))


# -- storage ----------------------------------------------------------------------------------------------------------


def storage_class_problems(given: Fields) -> None:
    provisioner = given.text("provisioner")
    if not provisioner:
        given.required("provisioner")
    else:
        given.invalid("provisioner", provisioner, *qualified_name(provisioner.lower()))
    given.fits("parameters", _MAX_PARAMETERS)
    if "" in given.mapping("parameters"):
        given.invalid("parameters", "", "field can not be empty.")
    given.choice("reclaimPolicy", ("Delete", "Retain"))
    given.one_of("volumeBindingMode", ("Immediate", "WaitForFirstConsumer"))
    terms = []
    for term in given.parts("allowedTopologies"):
        keys: dict[str, frozenset[str]] = {}
        for each in term.parts("matchLabelExpressions"):
            key, values = each.text("key"), each.texts("values")
            each.require("values")
            each.no_repeats("values", values)
            each.check("key", qualified_name)
            if key in keys:
                each.duplicate("key", key)
            keys[key] = frozenset(values)
        # The API server compares an empty term with itself.
        if keys in terms or not keys:
            term.duplicate("matchLabelExpressions", "")
        terms.append(keys)


def csi_node_problems(node: Fields) -> None:
    names = set[str]()
    for driver in node.part("spec").parts("drivers"):
        csi_driver_name_problems(driver, "name")
        driver.unique("name", driver.text("name"), names)
        driver.require("nodeID")
        if len(driver.text("nodeID")) > 256:
            driver.invalid("nodeID", driver.text("nodeID"), "must be 256 characters or less")
        driver.part("allocatable").not_negative("count")
        keys = driver.texts("topologyKeys")
        for index, key in enumerate(keys):
            driver.invalid(f"topologyKeys[{index}]", key, *qualified_name(key))
            if key in keys[:index]:
                driver.duplicate(f"topologyKeys[{index}]", key)


def csi_driver_problems(driver: Fields) -> None:
    spec = driver.part("spec")
    spec.one_of("fsGroupPolicy", ("ReadWriteOnceWithFSType", "File", "None"))
    audiences = set[str]()
    for request in spec.parts("tokenRequests"):
        audience, seconds = request.text("audience"), request.get("expirationSeconds")
        if audience not in audiences and seconds is not None and not 600 <= seconds <= 1 << 32:
            request.invalid("expirationSeconds", seconds, "must be between 10 minutes and 2^32 seconds")
        request.unique("audience", audience, audiences)
    for index, mode in enumerate(spec.texts("volumeLifecycleModes")):
        if mode not in ("Persistent", "Ephemeral"):
            spec.unsupported(f"volumeLifecycleModes[{index}]", mode, ("Persistent", "Ephemeral"))
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < 10:
        spec.invalid("nodeAllocatableUpdatePeriodSeconds", period, "must be greater than or equal to 10 seconds")
    if spec.get("serviceAccountTokenInSecrets") is not None and not audiences:
        detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        spec.invalid("serviceAccountTokenInSecrets", "", detail)


def csi_capacity_problems(given: Fields) -> None:
    selector_problems(given.part("nodeTopology"))
    given.check("storageClassName", dns_subdomain)
    if amount(given.get("capacity")) < 0:
        given.invalid("capacity", given.get("capacity"), "must be greater than or equal to 0")


def volume_attachment_problems(attachment: Fields) -> None:
    spec = attachment.part("spec")
    csi_driver_name_problems(spec, "attacher")
    source = spec.part("source")
    given = source.given("persistentVolumeName", "inlineVolumeSpec")
    if len(given) != 1:
        spec.required("source", "must specify exactly one of inlineVolumeSpec and persistentVolumeName")
    elif "inlineVolumeSpec" in given:
        persistent_volume_problems(source.part("inlineVolumeSpec"), inline=True)
    source.optional("persistentVolumeName", dns_subdomain)
    spec.check("nodeName", dns_subdomain)


# -- services and workloads -------------------------------------------------------------------------------------------


def service_problems(service: Fields) -> None:
    """Validate a Service, without the allocation of addresses and ports."""
    spec = service.part("spec")
    kind = spec.text("type") or "ClusterIP"
    addresses = [spec.text("clusterIP"), *spec.texts("clusterIPs")]
    is_headless = "None" in addresses[:1] or addresses[1:] == ["None"]
    spec.choice("type", ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort"))
    if not is_headless and kind != "ExternalName":
        spec.require("ports")
    if is_headless and kind in ("LoadBalancer", "NodePort"):
        spec.invalid("clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    if kind == "ExternalName":
        name = spec.text("externalName").removesuffix(".")
        if name:
            spec.invalid("externalName", name, *dns_subdomain(name))
        else:
            spec.required("externalName")
    _service_port_problems(spec.parts("ports"), kind)
    label_problems(spec, "selector")
    spec.choice("sessionAffinity", ("ClientIP", "None"))
    client = spec.part("sessionAffinityConfig").part("clientIP")
    seconds = client.get("timeoutSeconds")
    if spec.text("sessionAffinity") == "ClientIP" and seconds is not None and not 0 < seconds <= 86400:
        client.invalid("timeoutSeconds", seconds, "must be greater than 0 and less than 86400")
    spec.check_each("externalIPs", lambda each: ip_address(each) or endpoint_address(each))
    if kind != "ExternalName":
        _address_problems(spec)
    _traffic_problems(spec, kind)


def _address_problems(spec: Fields) -> None:
    first = spec.text("clusterIP")
    addresses, families = spec.texts("clusterIPs") or [first] * bool(first), spec.texts("ipFamilies")
    if addresses and not first:
        spec.invalid("clusterIPs", addresses, "must be empty when `clusterIP` is not specified")
    elif addresses and addresses[0] != first:
        spec.invalid("clusterIPs", addresses, "first value must match `clusterIP`")
    if len(addresses) > 2:
        spec.invalid("clusterIPs", addresses, "may only hold up to 2 values")
    before = len(spec.problems)
    for index, address in enumerate(addresses):
        if index or address != "None":
            spec.invalid(f"clusterIPs[{index}]", address, *ip_address(address))
        elif len(addresses) > 1:
            spec.invalid("clusterIPs", addresses, "'None' must be the first and only value")
    if len(spec.problems) > before or addresses == ["None"]:
        return
    if len(addresses) == 2 and (":" in addresses[0]) == (":" in addresses[1]):
        spec.invalid("clusterIPs", addresses, "may specify no more than one IP for each IP family")
    for index, (address, family) in enumerate(zip(addresses, families, strict=False)):
        if family != ("IPv6" if ":" in address else "IPv4"):
            spec.invalid(f"clusterIPs[{index}]", address, f"expected an {family} value by `ipFamilies[{index}]`")


def _service_port_problems(ports: list[Fields], kind: str) -> None:
    names, numbers, node_ports = set[str](), set[tuple[str, int]](), set[tuple[str, int]]()
    for port in ports:
        if port.text("name"):
            port.check("name", dns_label)
            port.unique("name", port.text("name"), names)
        elif len(ports) > 1:
            port.required("name")
        number, protocol = port.number("port"), port.text("protocol") or "TCP"
        port.port("port")
        port.choice("protocol", ("TCP", "UDP", "SCTP"))
        if port.get("targetPort"):
            port_or_name_problems(port, "targetPort")
        port.optional("appProtocol", qualified_name)
        node_port = port.number("nodePort")
        if node_port and kind == "ClusterIP":
            port.forbidden("nodePort", "may not be used when `type` is 'ClusterIP'")
        if node_port:
            port.unique("nodePort", (protocol, node_port), node_ports, node_port)
        port.unique("", (protocol, number), numbers, f"{protocol}/{number}")


def _traffic_problems(spec: Fields, kind: str) -> None:
    is_balanced = kind == "LoadBalancer"
    for field in spec.given("allocateLoadBalancerNodePorts", "loadBalancerClass", "loadBalancerSourceRanges"):
        if spec.get(field) != [] and not is_balanced:
            spec.forbidden(field, "may only be used when `type` is 'LoadBalancer'")
    if is_balanced:
        spec.optional("loadBalancerClass", qualified_name)
    spec.check_each("loadBalancerSourceRanges", lambda each: cidr(each.strip()))
    external = spec.text("externalTrafficPolicy")
    is_external = kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))
    if external and not is_external:
        spec.invalid("externalTrafficPolicy", external, "may only be set for externally-accessible services")
    else:
        spec.choice("externalTrafficPolicy", ("Cluster", "Local"))
    if spec.get("healthCheckNodePort") and not (is_balanced and external == "Local"):
        detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        spec.invalid("healthCheckNodePort", spec.get("healthCheckNodePort"), detail)
    spec.one_of("internalTrafficPolicy", ("Cluster", "Local"))
    spec.one_of("trafficDistribution", ("PreferClose", "PreferSameZone", "PreferSameNode"))
    spec.one_of("ipFamilyPolicy", ("PreferDualStack", "RequireDualStack", "SingleStack"))
    families = spec.texts("ipFamilies")
    if spec.text("ipFamilyPolicy") == "SingleStack" and max(len(families), len(spec.texts("clusterIPs"))) > 1:
        detail = "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"
        spec.invalid("ipFamilyPolicy", "SingleStack", detail)
    for index, family in enumerate(families):
        if family not in ("IPv4", "IPv6"):
            spec.unsupported(f"ipFamilies[{index}]", family or "unset", ("IPv4", "IPv6"))
        if family in families[:index]:
            spec.duplicate(f"ipFamilies[{index}]", family)


def replication_controller_problems(controller: Fields) -> None:
    spec = controller.part("spec")
    spec.not_negative("replicas", "minReadySeconds")
    labels = spec.part("template").part("metadata").mapping("labels")
    selector = spec.get("selector") or labels
    if not selector:
        spec.required("selector")
    if spec.get("template") is None:
        spec.required("template")
        return
    if any(labels.get(key) != value for key, value in selector.items()):
        spec.invalid("template.metadata.labels", labels, "`selector` does not match template `labels`")
    template_problems(spec.part("template"))


def replica_set_problems(replica_set: Fields) -> None:
    spec = replica_set.part("spec")
    spec.not_negative("replicas", "minReadySeconds")
    _selected_template_problems(spec, spec.mapping("template"))


def stateful_set_problems(stateful_set: Fields) -> None:
    spec = stateful_set.part("spec")
    spec.not_negative("replicas", "minReadySeconds")
    spec.choice("podManagementPolicy", ("OrderedReady", "Parallel"))
    strategy = spec.part("updateStrategy")
    rolling = strategy.part("rollingUpdate")
    strategy.choice("type", ("OnDelete", "RollingUpdate"))
    if strategy.text("type") == "OnDelete":
        if strategy.get("rollingUpdate") is not None:
            strategy.invalid("rollingUpdate", "", "only allowed for updateStrategy 'RollingUpdate'")
    else:
        rolling.not_negative("partition")
        _share_problems(rolling, "maxUnavailable")
        share = rolling.get("maxUnavailable")
        if share in (0, "0%"):
            rolling.invalid("maxUnavailable", share, "cannot be 0")
    retention = spec.part("persistentVolumeClaimRetentionPolicy")
    for field in ("whenDeleted", "whenScaled"):
        retention.choice(field, ("Delete", "Retain"))
    spec.part("ordinals").not_negative("start")
    spec.name("serviceName", dns_label, is_required=False)
    claims = spec.parts("volumeClaimTemplates")
    for claim in claims:
        claim_problems(claim.part("spec"), drops_source=False)
    template = spec.part("template")
    pod = {**template.mapping("spec"), "hostname": None, "subdomain": None} if claims or template.value else {}
    if claims:
        names = dict.fromkeys(claim.part("metadata").text("name") for claim in claims)
        others = [each.value for each in template.part("spec").parts("volumes") if each.text("name") not in names]
        pod["volumes"] = others + [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in names]
    _selected_template_problems(spec, {**template.value, "spec": pod})


def _selected_template_problems(spec: Fields, template: Mapping[str, Any]) -> None:
    completed = Fields(template, f"{spec.path}.template", spec.problems)
    selector = spec.part("selector")
    if spec.get("selector") is None:
        spec.required("selector")
    else:
        before = len(spec.problems)
        selector_problems(selector)
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            spec.invalid("selector", "", "empty selector is invalid")
        elif len(spec.problems) == before and not selects(selector, completed.part("metadata").mapping("labels")):
            spec.invalid("template.metadata.labels", "", "`selector` does not match template `labels`")
    template_problems(completed)


def disruption_budget_problems(budget: Fields) -> None:
    spec = budget.part("spec")
    fields = ("minAvailable", "maxUnavailable")
    if len(spec.given(*fields)) > 1:
        spec.invalid("", "", "minAvailable and maxUnavailable cannot be both set")
    for field in fields:
        _share_problems(spec, field)
    selector_problems(spec.part("selector"))
    spec.one_of("unhealthyPodEvictionPolicy", ("AlwaysAllow", "IfHealthyBudget"))


def _share_problems(owner: Fields, field: str) -> None:
    """Validate a number or a percentage, if it is set."""
    share = owner.get(field)
    if isinstance(share, int | float):
        owner.not_negative(field)
    elif share is not None and not re.fullmatch(r"[0-9]+%", share, re.ASCII):
        detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%')"
        owner.invalid(field, share, detail)
    elif share is not None and int(share[:-1]) > 100:
        owner.invalid(field, share, "must not be greater than 100%")


# -- scheduling -------------------------------------------------------------------------------------------------------


def priority_class_problems(given: Fields) -> None:
    name, value = given.part("metadata").text("name"), given.number("value")
    if name.startswith("system-"):
        if _SYSTEM_CLASSES.get(name) != value or given.get("globalDefault"):
            detail = "priority class names with 'system-' prefix are reserved for system use only"
            given.part("metadata").forbidden("name", detail)
    elif value > _HIGHEST_PRIORITY:
        given.forbidden("value", f"maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}")
    if given.get("preemptionPolicy") is not None:
        given.choice("preemptionPolicy", ("Never", "PreemptLowerPriority"), is_required=True)


def native_group_problems(group: Fields) -> None:
    """Validate a PodGroup of Kubernetes, with the gates of groups and trees."""
    spec = group.part("spec")
    _common_group_problems(spec, "minCount")
    if spec.get("parentCompositePodGroupName") is not None and spec.get("workloadRef") is None:
        spec.required("workloadRef", "must be set when parentCompositePodGroupName is set")
    spec.fits("resourceClaims", 4)
    names = set[str]()
    for claim in spec.parts("resourceClaims"):
        name = claim.text("name")
        claim.name("name", dns_label)
        claim.unique("", name, names)
        given = claim.given("resourceClaimName", "resourceClaimTemplateName")
        if len(given) != 1:
            detail = "must specify exactly one of: `resourceClaimName`, `resourceClaimTemplateName`"
            claim.invalid("", name, detail)
        for field in given:
            claim.check(field, dns_subdomain)


def composite_group_problems(group: Fields) -> None:
    spec = group.part("spec")
    if spec.get("workloadRef") is None:
        spec.required("workloadRef")
    _common_group_problems(spec, "minGroupCount")


def _common_group_problems(spec: Fields, count_field: str) -> None:
    policy = spec.part("schedulingPolicy")
    if len(policy.given("basic", "gang")) != 1:
        spec.invalid("schedulingPolicy", "", "must specify exactly one of: `basic`, `gang`")
    if policy.get("gang") is not None:
        gang = policy.part("gang")
        gang.require(count_field)
        if gang.number(count_field) < 0:
            gang.invalid(count_field, gang.number(count_field), "must be greater than or equal to 1")
    if spec.get("disruptionMode") is not None and len(spec.part("disruptionMode").given("single", "all")) != 1:
        spec.invalid("disruptionMode", "", "must specify exactly one of: `all`, `single`")
    spec.optional("parentCompositePodGroupName", dns_subdomain)
    if spec.get("workloadRef") is not None:
        spec.part("workloadRef").name("workloadName", dns_subdomain)
        spec.part("workloadRef").name("templateName", dns_label)
    constraints = spec.part("schedulingConstraints")
    constraints.fits("topology", 1)
    for each in constraints.parts("topology"):
        each.name("key", qualified_name)
    spec.name("priorityClassName", dns_subdomain, is_required=False)
    if spec.number("priority") > _HIGHEST_PRIORITY:
        spec.invalid("priority", spec.get("priority"), f"must be less than or equal to {_HIGHEST_PRIORITY}")
    spec.one_of("preemptionPolicy", ("Never", "PreemptLowerPriority"))
