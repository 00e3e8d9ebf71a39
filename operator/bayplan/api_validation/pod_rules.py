"""Rules for pods and pod templates.

Follows Kubernetes v1.37.1, pkg/apis/core/validation/validation.go (ValidatePodCreate, ValidatePodTemplateSpec), without
admission plugins. What only an update may set is accepted for a pod that an API server has stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bayplan.api_validation.container_rules import PodParts, container_problems, pod_security_problems
from bayplan.api_validation.field_errors import (
    FieldErrors,
    dns_label,
    dns_subdomain,
    dns_subdomain_with_underscore,
    entries,
    ip_address,
    mapping,
    qualified_name,
    text,
    texts,
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

Value = Mapping[str, Any]

_MAX_INT32 = 2**31 - 1
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_MIRROR = "kubernetes.io/config.mirror"


def pod_problems(found: FieldErrors, pod: Value) -> None:
    """Validate a pod, except its metadata."""
    metadata, spec = mapping(pod, "metadata"), mapping(pod, "spec")
    _spec_problems(found, spec, "spec", mapping(metadata, "labels"), text(metadata, "name"), is_template=False)
    if entries(spec, "resourceClaims") and _MIRROR in mapping(metadata, "annotations"):
        found.forbidden("spec.resourceClaims", "static pods do not support resource claims")
    if not is_stored(pod):
        if spec.get("ephemeralContainers"):
            found.forbidden("spec.ephemeralContainers", "cannot be set on create")
        if text(spec, "nodeName") and spec.get("schedulingGates"):
            found.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")


def template_problems(found: FieldErrors, template: Value, path: str) -> None:
    metadata, spec = mapping(template, "metadata"), mapping(template, "spec")
    label_problems(found, metadata.get("labels"), f"{path}.metadata.labels")
    annotation_problems(found, metadata.get("annotations"), f"{path}.metadata.annotations")
    _spec_problems(found, spec, f"{path}.spec", {}, "", is_template=True)
    if spec.get("ephemeralContainers"):
        found.forbidden(f"{path}.spec.ephemeralContainers", "ephemeral containers not allowed in pod template")
    if (text(spec, "restartPolicy") or "Always") != "Always":
        found.unsupported(f"{path}.spec.restartPolicy", spec["restartPolicy"], ("Always",))
    if spec.get("activeDeadlineSeconds") is not None:
        found.forbidden(f"{path}.spec.activeDeadlineSeconds", "activeDeadlineSeconds is not supported here")


def is_stored(value: Value) -> bool:
    """Return whether an object was read from an API server rather than written by hand."""
    metadata = mapping(value, "metadata")
    return bool(metadata.get("uid") or metadata.get("resourceVersion"))


def _spec_problems(
    found: FieldErrors, spec: Value, path: str, labels: Value, pod_name: str, *, is_template: bool
) -> None:
    volumes = volume_problems(found, entries(spec, "volumes"), f"{path}.volumes", pod_name)
    _claim_problems(found, spec, path)
    container_problems(found, spec, path, PodParts.of(spec, volumes, is_template=is_template))
    pod_resource_problems(found, spec, f"{path}.resources")
    found.choice(f"{path}.restartPolicy", text(spec, "restartPolicy"), _RESTART_POLICIES)
    label_problems(found, spec.get("nodeSelector"), f"{path}.nodeSelector")
    pod_security_problems(found, spec, path)
    affinity_problems(found, mapping(spec, "affinity"), f"{path}.affinity", labels)
    spread_problems(found, entries(spec, "topologySpreadConstraints"), f"{path}.topologySpreadConstraints", labels)
    toleration_problems(found, entries(spec, "tolerations"), f"{path}.tolerations")
    _host_problems(found, spec, path)
    _dns_problems(found, spec, path)
    _gate_problems(found, spec, path)
    _name_problems(found, spec, path)
    policy = spec.get("preemptionPolicy")
    if policy is not None:
        found.choice(f"{path}.preemptionPolicy", policy, ("Never", "PreemptLowerPriority"), is_required=True)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None:
        found.between(f"{path}.activeDeadlineSeconds", deadline, 1, _MAX_INT32)
    overhead = spec.get("overhead")
    if overhead:
        requirement_problems(found, {"limits": overhead}, f"{path}.overhead", None)


def _claim_problems(found: FieldErrors, spec: Value, path: str) -> None:
    names = set[str]()
    for index, claim in entries(spec, "resourceClaims"):
        where, name = f"{path}.resourceClaims[{index}]", text(claim, "name")
        if not name:
            found.required(f"{where}.name")
        elif name in names:
            found.duplicate(f"{where}.name", name)
        else:
            found.check(f"{where}.name", name, dns_label)
        names.add(name)
        given = [claim.get(field) for field in ("resourceClaimName", "resourceClaimTemplateName")]
        if given.count(None) == 0:
            found.invalid(
                where, name, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            )
        elif given.count(None) == 2:
            found.invalid(where, name, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
        for field, value in zip(("resourceClaimName", "resourceClaimTemplateName"), given, strict=True):
            found.optional(f"{where}.{field}", value, dns_subdomain)


def _host_problems(found: FieldErrors, spec: Value, path: str) -> None:
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        found.invalid(f"{path}.shareProcessNamespace", True, "ShareProcessNamespace and HostPID cannot both be enabled")
    if spec.get("hostUsers") is False:
        for field in ("hostNetwork", "hostPID", "hostIPC"):
            if spec.get(field):
                found.forbidden(f"{path}.{field}", "when `hostUsers` is false")
        for field in ("initContainers", "containers"):
            for index, container in entries(spec, field):
                if container.get("volumeDevices"):
                    found.forbidden(f"{path}.{field}[{index}].volumeDevices", "when `hostUsers` is false")
    override = spec.get("hostnameOverride")
    if override is not None:
        for field in ("setHostnameAsFQDN", "hostNetwork"):
            if spec.get(field):
                found.forbidden(f"{path}.hostnameOverride", f"may not be specified when {field} is true")
        if len(override.encode()) > 64:
            found.too_long(f"{path}.hostnameOverride", 64)
        found.check(f"{path}.hostnameOverride", override, dns_subdomain)
    for index, alias in entries(spec, "hostAliases"):
        where = f"{path}.hostAliases[{index}]"
        found.check(f"{where}.ip", text(alias, "ip"), ip_address)
        for number, name in enumerate(texts(alias, "hostnames")):
            found.check(f"{where}.hostnames[{number}]", name, dns_subdomain)


def _dns_problems(found: FieldErrors, spec: Value, path: str) -> None:
    policy, config = text(spec, "dnsPolicy"), spec.get("dnsConfig")
    found.choice(f"{path}.dnsPolicy", policy, _DNS_POLICIES)
    servers = texts(config or {}, "nameservers")
    if policy == "None" and not servers:
        found.required(
            f"{path}.dnsConfig.nameservers", "must provide at least one DNS nameserver when `dnsPolicy` is None"
        )
    if config is None:
        return
    searches = texts(config, "searches")
    if len(servers) > 3:
        found.invalid(f"{path}.dnsConfig.nameservers", servers, "must not have more than 3 nameservers")
    if len(searches) > 32 or len(" ".join(searches)) > 2048:
        found.invalid(
            f"{path}.dnsConfig.searches", searches, "must not have more than 32 search paths, 2048 characters"
        )
    for index, server in enumerate(servers):
        found.check(f"{path}.dnsConfig.nameservers[{index}]", server, ip_address)
    for index, search in enumerate(searches):
        if search != ".":
            messages = dns_subdomain_with_underscore(search.removesuffix("."))
            found.invalid(f"{path}.dnsConfig.searches[{index}]", search, *messages)
    for index, option in entries(config, "options"):
        if not text(option, "name"):
            found.required(f"{path}.dnsConfig.options[{index}]", "must not be empty")


def _gate_problems(found: FieldErrors, spec: Value, path: str) -> None:
    for index, gate in entries(spec, "readinessGates"):
        found.check(f"{path}.readinessGates[{index}].conditionType", text(gate, "conditionType"), qualified_name)
    names = set[str]()
    for index, gate in entries(spec, "schedulingGates"):
        where, name = f"{path}.schedulingGates[{index}].name", text(gate, "name")
        found.check(where, name, qualified_name)
        found.unique(where, name, names)
    group = spec.get("schedulingGroup")
    if group is not None:
        name = group.get("podGroupName")
        if name is None:
            found.invalid(f"{path}.schedulingGroup.podGroupName", "", "must specify one of: `podGroupName`")
        else:
            found.check(f"{path}.schedulingGroup.podGroupName", name, dns_subdomain)


def _name_problems(found: FieldErrors, spec: Value, path: str) -> None:
    for field, check in (
        ("serviceAccountName", dns_subdomain),
        ("nodeName", dns_subdomain),
        ("priorityClassName", dns_subdomain),
        ("hostname", dns_label),
        ("subdomain", dns_label),
    ):
        # serviceAccount is the earlier name of serviceAccountName.
        value = text(spec, field) or (text(spec, "serviceAccount") if field == "serviceAccountName" else "")
        found.name(f"{path}.{field}", value, check, is_required=False)
    found.optional(f"{path}.runtimeClassName", spec.get("runtimeClassName"), dns_subdomain)
