"""Rules for pods and pod templates.

Follows Kubernetes v1.37.1, pkg/apis/core/validation/validation.go (ValidatePodCreate, ValidatePodTemplateSpec), without
admission plugins. What only an update may set is accepted for a pod that an API server has stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayplan.api_validation.container_rules import PodParts, container_problems, pod_security_problems
from bayplan.api_validation.field_errors import (
    Fields,
    dns_label,
    dns_subdomain,
    dns_subdomain_with_underscore,
    ip_address,
    qualified_name,
)
from bayplan.api_validation.resource_rules import pod_resource_problems, requirement_problems
from bayplan.api_validation.selection_rules import (
    affinity_problems,
    annotation_problems,
    label_problems,
    spread_problems,
    toleration_problems,
)
from bayplan.api_validation.volume_rules import volume_problems

_MAX_INT32 = 2**31 - 1
_MIRROR = "kubernetes.io/config.mirror"


def pod_problems(pod: Fields) -> None:
    """Validate a pod, except its metadata."""
    metadata, spec = pod.part("metadata"), pod.part("spec")
    _spec_problems(spec, metadata.mapping("labels"), metadata.text("name"), is_template=False)
    if spec.get("resourceClaims") and _MIRROR in metadata.mapping("annotations"):
        spec.forbidden("resourceClaims", "static pods do not support resource claims")
    is_stored = metadata.get("uid") or metadata.get("resourceVersion")
    if not is_stored:
        if spec.get("ephemeralContainers"):
            spec.forbidden("ephemeralContainers", "cannot be set on create")
        if spec.text("nodeName") and spec.get("schedulingGates"):
            spec.forbidden("nodeName", "cannot be set until all schedulingGates have been cleared")


def template_problems(template: Fields) -> None:
    metadata, spec = template.part("metadata"), template.part("spec")
    label_problems(metadata, "labels")
    annotation_problems(metadata)
    _spec_problems(spec, {}, "", is_template=True)
    if spec.get("ephemeralContainers"):
        spec.forbidden("ephemeralContainers", "ephemeral containers not allowed in pod template")
    spec.choice("restartPolicy", ("Always",))
    if spec.get("activeDeadlineSeconds") is not None:
        spec.forbidden("activeDeadlineSeconds", "activeDeadlineSeconds is not supported here")


def _spec_problems(spec: Fields, labels: Mapping[str, Any], pod_name: str, *, is_template: bool) -> None:
    volumes = volume_problems(spec.parts("volumes"), pod_name)
    _claim_problems(spec)
    container_problems(spec, PodParts.of(spec, volumes, is_template=is_template))
    pod_resource_problems(spec)
    spec.choice("restartPolicy", ("Always", "OnFailure", "Never"))
    label_problems(spec, "nodeSelector")
    pod_security_problems(spec)
    affinity_problems(spec.part("affinity"), labels)
    spread_problems(spec.parts("topologySpreadConstraints"), labels)
    toleration_problems(spec.parts("tolerations"))
    _host_problems(spec)
    _dns_problems(spec)
    _gate_problems(spec)
    _name_problems(spec)
    if spec.get("preemptionPolicy") is not None:
        spec.choice("preemptionPolicy", ("Never", "PreemptLowerPriority"), is_required=True)
    spec.between("activeDeadlineSeconds", 1, _MAX_INT32)
    if spec.get("overhead"):
        overhead = spec.part("overhead")
        requirement_problems(Fields({"limits": overhead.value}, overhead.path, spec.problems), None)


def _claim_problems(spec: Fields) -> None:
    fields = ("resourceClaimName", "resourceClaimTemplateName")
    names = set[str]()
    for claim in spec.parts("resourceClaims"):
        name, given = claim.text("name"), claim.given(*fields)
        if name in names and name:
            claim.duplicate("name", name)
        else:
            claim.name("name", dns_label)
        names.add(name)
        if len(given) == 2:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            claim.invalid("", name, detail)
        elif not given:
            claim.invalid("", name, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
        for field in given:
            claim.check(field, dns_subdomain)


def _host_problems(spec: Fields) -> None:
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        spec.invalid("shareProcessNamespace", True, "ShareProcessNamespace and HostPID cannot both be enabled")
    if spec.get("hostUsers") is False:
        for field in ("hostNetwork", "hostPID", "hostIPC"):
            if spec.get(field):
                spec.forbidden(field, "when `hostUsers` is false")
        for container in (*spec.parts("initContainers"), *spec.parts("containers")):
            if container.get("volumeDevices"):
                container.forbidden("volumeDevices", "when `hostUsers` is false")
    override = spec.get("hostnameOverride")
    if override is not None:
        for field in ("setHostnameAsFQDN", "hostNetwork"):
            if spec.get(field):
                spec.forbidden("hostnameOverride", f"may not be specified when {field} is true")
        if len(override.encode()) > 64:
            spec.too_long("hostnameOverride", 64)
        spec.check("hostnameOverride", dns_subdomain)
    for alias in spec.parts("hostAliases"):
        alias.check("ip", ip_address)
        alias.check_each("hostnames", dns_subdomain)


def _dns_problems(spec: Fields) -> None:
    config = spec.part("dnsConfig")
    servers, searches = config.texts("nameservers"), config.texts("searches")
    spec.choice("dnsPolicy", ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"))
    if spec.text("dnsPolicy") == "None":
        config.require("nameservers", detail="must provide at least one DNS nameserver when `dnsPolicy` is None")
    if len(servers) > 3:
        config.invalid("nameservers", servers, "must not have more than 3 nameservers")
    if len(searches) > 32 or len(" ".join(searches)) > 2048:
        config.invalid("searches", searches, "must not have more than 32 search paths, 2048 characters")
    config.check_each("nameservers", ip_address)
    for index, search in enumerate(searches):
        if search != ".":
            config.invalid(f"searches[{index}]", search, *dns_subdomain_with_underscore(search.removesuffix(".")))
    for option in config.parts("options"):
        if not option.text("name"):
            option.required("", "must not be empty")


def _gate_problems(spec: Fields) -> None:
    for gate in spec.parts("readinessGates"):
        gate.check("conditionType", qualified_name)
    names = set[str]()
    for gate in spec.parts("schedulingGates"):
        gate.check("name", qualified_name)
        gate.unique("name", gate.text("name"), names)
    group = spec.part("schedulingGroup")
    if spec.get("schedulingGroup") is not None and group.get("podGroupName") is None:
        group.invalid("podGroupName", "", "must specify one of: `podGroupName`")
    group.optional("podGroupName", dns_subdomain)


def _name_problems(spec: Fields) -> None:
    # serviceAccount is the earlier name of serviceAccountName.
    account = spec.text("serviceAccountName") or spec.text("serviceAccount")
    if account:
        spec.invalid("serviceAccountName", account, *dns_subdomain(account))
    for field in ("nodeName", "priorityClassName"):
        spec.name(field, dns_subdomain, is_required=False)
    for field in ("hostname", "subdomain"):
        spec.name(field, dns_label, is_required=False)
    spec.optional("runtimeClassName", dns_subdomain)
