"""Rules for the containers of pods, and for the security contexts of pods and containers.

Follows Kubernetes v1.37.1, pkg/apis/core/validation/validation.go, after the defaults of pkg/apis/core/v1/defaults.go
and with the feature gates that are on by default. Privileged containers are allowed, as by the flag
``--allow-privileged`` that kubeadm and most providers set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

from bayplan.api_validation.field_errors import (
    FieldErrors,
    Messages,
    config_key,
    descending_path,
    dns_label,
    dns_subdomain,
    entries,
    environment_name,
    header_name,
    mapping,
    no_backsteps,
    port_name,
    port_number,
    text,
)
from bayplan.api_validation.resource_rules import requirement_problems
from bayplan.api_validation.volume_rules import field_problems, resource_field_problems

Value = Mapping[str, Any]

_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_ENVIRONMENT_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_DEFAULT_GRACE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class PodParts:
    """What the rules of a container need of its pod.

    Attributes:
        host_network: Whether the pod uses the network of the host, so that host ports have defaults.
    """

    volumes: Mapping[str, Value]
    claims: Container[str]
    restart_policy: str
    grace_seconds: int
    has_host_users: bool
    is_template: bool
    host_network: bool

    @staticmethod
    def of(spec: Value, volumes: Mapping[str, Value], *, is_template: bool) -> PodParts:
        grace = spec.get("terminationGracePeriodSeconds")
        return PodParts(
            volumes,
            {text(claim, "name") for _, claim in entries(spec, "resourceClaims")} - {""},
            text(spec, "restartPolicy") or "Always",
            # A negative one of a pod, not of a template, is replaced by 1.
            _DEFAULT_GRACE_SECONDS if grace is None else 1 if grace < 0 and not is_template else grace,
            spec.get("hostUsers") is not False,
            is_template,
            bool(spec.get("hostNetwork")),
        )


def container_problems(found: FieldErrors, spec: Value, path: str, parts: PodParts) -> None:
    containers = entries(spec, "containers")
    if not containers:
        found.required(f"{path}.containers")
    names = set[str]()
    ports = set[tuple[str, str, int]]()
    for index, container in containers:
        where = f"{path}.containers[{index}]"
        _common_problems(found, container, where, parts)
        found.unique(f"{where}.name", text(container, "name"), names)
        _running_problems(found, container, where, parts)
        _restart_problems(found, container, where)
        _host_port_problems(found, container, where, ports, parts)
    for index, container in entries(spec, "initContainers"):
        where = f"{path}.initContainers[{index}]"
        _common_problems(found, container, where, parts)
        found.unique(f"{where}.name", text(container, "name"), names)
        _restart_problems(found, container, where)
        _host_port_problems(found, container, where, set(), parts)
        if container.get("restartPolicy") == "Always":
            _running_problems(found, container, where, parts)
            continue
        for field in ("lifecycle", *_PROBES):
            if container.get(field) is not None:
                found.forbidden(f"{where}.{field}", "may not be set for init containers without restartPolicy=Always")
        for number, policy in entries(container, "resizePolicy"):
            if text(policy, "restartPolicy") == "RestartContainer":
                detail = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                found.invalid(f"{where}.resizePolicy[{number}].restartPolicy", "RestartContainer", detail)


def _common_problems(found: FieldErrors, container: Value, path: str, parts: PodParts) -> None:
    name, image = text(container, "name"), text(container, "image")
    found.name(f"{path}.name", name, dns_label)
    if not image:
        found.required(f"{path}.image")
    elif image != image.strip() and not parts.is_template:
        found.invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
    found.choice(
        f"{path}.terminationMessagePolicy",
        text(container, "terminationMessagePolicy"),
        ("File", "FallbackToLogsOnError"),
    )
    found.choice(f"{path}.imagePullPolicy", text(container, "imagePullPolicy"), _PULL_POLICIES)
    _port_problems(found, container, path)
    _environment_problems(found, container, path, parts)
    _mount_problems(found, container, path, parts)
    _device_problems(found, container, path, parts)
    requirement_problems(found, mapping(container, "resources"), f"{path}.resources", parts.claims)
    _resize_problems(found, container, path, parts)
    security = container.get("securityContext")
    if security is not None:
        container_security_problems(found, security, f"{path}.securityContext", has_host_users=parts.has_host_users)


def _port_problems(found: FieldErrors, container: Value, path: str) -> None:
    names = set[str]()
    for index, port in entries(container, "ports"):
        where, name = f"{path}.ports[{index}]", text(port, "name")
        if name:
            found.check(f"{where}.name", name, port_name)
            found.unique(f"{where}.name", name, names)
        number, host = port.get("containerPort") or 0, port.get("hostPort") or 0
        if not number:
            found.required(f"{where}.containerPort")
        else:
            found.invalid(f"{where}.containerPort", number, *port_number(number))
        if host:
            found.invalid(f"{where}.hostPort", host, *port_number(host))
        found.choice(f"{where}.protocol", text(port, "protocol"), ("TCP", "UDP", "SCTP"))


def _host_port_problems(
    found: FieldErrors, container: Value, path: str, seen: set[tuple[str, str, int]], parts: PodParts
) -> None:
    for index, port in entries(container, "ports"):
        number, host = port.get("containerPort") or 0, port.get("hostPort") or 0
        if parts.host_network:
            if host and host != number and ".containers[" in path:
                detail = "must match `containerPort` when `hostNetwork` is true"
                found.invalid(f"{path}.ports[{index}].hostPort", host, detail)
            host = host or number
        if not host:
            continue
        key = (text(port, "protocol") or "TCP", text(port, "hostIP"), host)
        found.unique(f"{path}.ports[{index}].hostPort", key, seen, "/".join(map(str, key)))


# -- environment ------------------------------------------------------------------------------------------------------


def _environment_problems(found: FieldErrors, container: Value, path: str, parts: PodParts) -> None:
    for index, variable in entries(container, "env"):
        where, name = f"{path}.env[{index}]", text(variable, "name")
        found.name(f"{where}.name", name, environment_name)
        if variable.get("valueFrom") is not None:
            _value_source_problems(found, variable, f"{where}.valueFrom", parts)
    for index, source in entries(container, "envFrom"):
        where, prefix = f"{path}.envFrom[{index}]", text(source, "prefix")
        found.name(f"{where}.prefix", prefix, environment_name, is_required=False)
        given = [field for field in ("configMapRef", "secretRef") if source.get(field) is not None]
        for field in given:
            name = text(source[field], "name")
            if not name:
                found.required(f"{where}.{field}.name")
            else:
                # Here the API server accepts a trailing hyphen, as of a prefix.
                masked = f"{name[:-1]}a" if len(name) > 1 and name.endswith("-") else name
                found.invalid(f"{where}.{field}.name", name, *dns_subdomain(masked))
        if len(given) != 1:
            found.invalid(where, "", "must specify exactly one of: `configMapRef` or `secretRef`")


def _value_source_problems(found: FieldErrors, variable: Value, path: str, parts: PodParts) -> None:
    source = mapping(variable, "valueFrom")
    fields = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
    given = [field for field in fields if source.get(field) is not None]
    for field in given:
        reference, where = source[field], f"{path}.{field}"
        if field == "fieldRef":
            field_problems(found, reference, where, _ENVIRONMENT_FIELDS)
        elif field == "resourceFieldRef":
            resource_field_problems(found, reference, where, of_volume=False)
        elif field == "fileKeyRef":
            _file_key_problems(found, reference, where, parts)
        else:
            found.check(f"{where}.name", text(reference, "name"), dns_subdomain)
            found.name(f"{where}.key", text(reference, "key"), config_key)
    if not given:
        found.invalid(path, "", f"must specify one of: {', '.join(f'`{field}`' for field in fields)}")
    elif text(variable, "value"):
        found.invalid(path, "", "may not be specified when `value` is not empty")
    elif len(given) > 1:
        found.invalid(path, "", "may not have more than one field specified at a time")


def _file_key_problems(found: FieldErrors, reference: Value, path: str, parts: PodParts) -> None:
    checks: Mapping[str, Callable[[str], Messages]] = {
        "key": environment_name,
        "volumeName": dns_label,
        "path": no_backsteps,
    }
    for field, check in checks.items():
        found.name(f"{path}.{field}", text(reference, field), check)
    name = text(reference, "volumeName")
    if name not in parts.volumes:
        found.not_found(f"{path}.volumeName", name)
    elif any(
        parts.volumes[name].get(field) is not None for field in parts.volumes[name] if field not in ("name", "emptyDir")
    ):
        found.invalid(f"{path}.volumeName", name, "referenced volume must be of type emptyDir")


# -- volumes ----------------------------------------------------------------------------------------------------------


def _mount_problems(found: FieldErrors, container: Value, path: str, parts: PodParts) -> None:
    devices = [each for _, each in entries(container, "volumeDevices")]
    privileged = mapping(container, "securityContext").get("privileged") is True
    paths = set[str]()
    for index, mount in entries(container, "volumeMounts"):
        where, name, target = f"{path}.volumeMounts[{index}]", text(mount, "name"), text(mount, "mountPath")
        if not name:
            found.required(f"{where}.name")
        if name not in parts.volumes:
            found.not_found(f"{where}.name", name)
        if not target:
            found.required(f"{where}.mountPath")
        if target in paths:
            found.invalid(f"{where}.mountPath", target, "must be unique")
        paths.add(target)
        if any(text(each, "name") == name for each in devices):
            found.invalid(f"{where}.name", name, "must not already exist in volumeDevices")
        if any(text(each, "devicePath") == target for each in devices):
            found.invalid(f"{where}.mountPath", target, "must not already exist as a path in volumeDevices")
        for field in ("subPath", "subPathExpr"):
            found.check(f"{where}.{field}", text(mount, field), descending_path)
        if text(mount, "subPath") and text(mount, "subPathExpr"):
            found.invalid(
                f"{where}.subPathExpr", text(mount, "subPathExpr"), "subPathExpr and subPath are mutually exclusive"
            )
        _propagation_problems(found, mount, where, privileged=privileged)


def _propagation_problems(found: FieldErrors, mount: Value, path: str, *, privileged: bool) -> None:
    propagation, recursive = mount.get("mountPropagation"), mount.get("recursiveReadOnly")
    kinds = ("Bidirectional", "HostToContainer", "None")
    found.one_of(f"{path}.mountPropagation", propagation, kinds)
    if propagation == "Bidirectional" and not privileged:
        found.forbidden(
            f"{path}.mountPropagation", "Bidirectional mount propagation is available only to privileged containers"
        )
    if recursive in ("Enabled", "IfPossible"):
        if not mount.get("readOnly"):
            found.forbidden(f"{path}.recursiveReadOnly", "may only be specified when readOnly is true")
        if propagation not in (None, "None"):
            detail = "may only be specified when mountPropagation is None or not specified"
            found.forbidden(f"{path}.recursiveReadOnly", detail)
    elif recursive is not None and recursive != "Disabled":
        found.unsupported(f"{path}.recursiveReadOnly", recursive, ("Disabled", "Enabled", "IfPossible"))


def _device_problems(found: FieldErrors, container: Value, path: str, parts: PodParts) -> None:
    mounts = [each for _, each in entries(container, "volumeMounts")]
    names, paths = set[str](), set[str]()
    for index, device in entries(container, "volumeDevices"):
        where, name, target = f"{path}.volumeDevices[{index}]", text(device, "name"), text(device, "devicePath")
        if not name:
            found.required(f"{where}.name")
        if name in names:
            found.invalid(f"{where}.name", name, "must be unique")
        volume = parts.volumes.get(name)
        if volume is None:
            found.not_found(f"{where}.name", name)
        elif volume.get("persistentVolumeClaim") is None and volume.get("ephemeral") is None:
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            found.invalid(f"{where}.name", name, detail)
        if not target:
            found.required(f"{where}.devicePath")
        if target in paths:
            found.invalid(f"{where}.devicePath", target, "must be unique")
        found.check(f"{where}.devicePath", target, no_backsteps)
        if any(text(each, "name") == name for each in mounts):
            found.invalid(f"{where}.name", name, "must not already exist in volumeMounts")
        if any(text(each, "mountPath") == target for each in mounts):
            found.invalid(f"{where}.devicePath", target, "must not already exist as a path in volumeMounts")
        names.add(name)
        paths.add(target)


# -- probes, lifecycle, restarts --------------------------------------------------------------------------------------


def _running_problems(found: FieldErrors, container: Value, path: str, parts: PodParts) -> None:
    """Validate what only containers that keep running may have."""
    lifecycle = mapping(container, "lifecycle")
    for field in ("postStart", "preStop"):
        if lifecycle.get(field) is not None:
            _handler_problems(found, lifecycle[field], f"{path}.lifecycle.{field}", parts, "sleep")
    for field in _PROBES:
        probe = container.get(field)
        if probe is None:
            continue
        where = f"{path}.{field}"
        _handler_problems(found, probe, where, parts, "grpc")
        for number in (
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ):
            found.not_negative(f"{where}.{number}", probe.get(number) or 0)
        grace = probe.get("terminationGracePeriodSeconds")
        if grace is not None and grace <= 0:
            found.invalid(f"{where}.terminationGracePeriodSeconds", grace, "must be greater than 0")
        if field == "readinessProbe":
            if grace is not None:
                found.invalid(f"{where}.terminationGracePeriodSeconds", grace, "must not be set for readinessProbes")
        elif (probe.get("successThreshold") or 1) != 1:
            found.invalid(f"{where}.successThreshold", probe["successThreshold"], "must be 1")


def _handler_problems(found: FieldErrors, handler: Value, path: str, parts: PodParts, last: str) -> None:
    given = [field for field in ("exec", "httpGet", "tcpSocket", last) if handler.get(field) is not None]
    for field in given[1:]:
        found.forbidden(f"{path}.{field}", "may not specify more than 1 handler type")
    if not given:
        found.required(path, "must specify a handler type")
        return
    field = given[0]
    action, where = handler[field], f"{path}.{field}"
    if field == "exec":
        if not action.get("command"):
            found.required(f"{where}.command")
    elif field == "sleep":
        seconds = action.get("seconds") or 0
        if not 0 <= seconds <= parts.grace_seconds:
            detail = f"must be non-negative and less than terminationGracePeriodSeconds ({parts.grace_seconds})"
            found.invalid(where, seconds, detail)
    elif field == "grpc":
        found.invalid(f"{where}.port", action.get("port") or 0, *port_number(action.get("port") or 0))
    else:
        port_or_name_problems(found, action.get("port"), f"{where}.port")
        if field == "httpGet":
            found.choice(f"{where}.scheme", text(action, "scheme"), ("HTTP", "HTTPS"))
            for index, header in entries(action, "httpHeaders"):
                found.check(f"{where}.httpHeaders[{index}].name", text(header, "name"), header_name)


def port_or_name_problems(found: FieldErrors, port: object, path: str) -> None:
    """Validate a port given by number or name."""
    if isinstance(port, str):
        found.check(path, port, port_name)
    else:
        number = int(port) if isinstance(port, int | float) else 0
        found.invalid(path, number, *port_number(number))


def _restart_problems(found: FieldErrors, container: Value, path: str) -> None:
    policy, rules = container.get("restartPolicy"), entries(container, "restartPolicyRules")
    if policy is None:
        if rules:
            found.required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used")
    elif policy not in ("Always", "Never", "OnFailure"):
        found.unsupported(f"{path}.restartPolicy", policy, ("Always", "Never", "OnFailure"))
    if len(rules) > 20:
        found.too_many(f"{path}.restartPolicyRules", len(rules), 20)
    for index, rule in rules:
        where = f"{path}.restartPolicyRules[{index}]"
        found.one_of(f"{where}.action", text(rule, "action"), ("Restart", "RestartAllContainers"))
        codes = rule.get("exitCodes")
        if codes is None:
            found.required(f"{where}.exitCodes", "must be specified")
            continue
        found.one_of(f"{where}.exitCodes.operator", text(codes, "operator"), ("In", "NotIn"))
        if len(codes.get("values") or ()) > 255:
            found.too_many(f"{where}.exitCodes.values", len(codes["values"]), 255)


def _resize_problems(found: FieldErrors, container: Value, path: str, parts: PodParts) -> None:
    seen = set[str]()
    for index, policy in entries(container, "resizePolicy"):
        where, name, restart = (
            f"{path}.resizePolicy[{index}]",
            text(policy, "resourceName"),
            text(policy, "restartPolicy"),
        )
        found.unique(where, name, seen)
        found.choice(f"{where}.resourceName", name, ("cpu", "memory"), is_required=True)
        found.choice(f"{where}.restartPolicy", restart, ("NotRequired", "RestartContainer"), is_required=True)
        if parts.restart_policy == "Never" and restart != "NotRequired":
            detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            found.invalid(f"{where}.restartPolicy", restart, detail)


_MAX_ID = 2**31 - 1
_SYSCTL = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")
_IPC_SYSCTLS = ("kernel.sem", "kernel.msg", "kernel.shm", "fs.mqueue.")
_PROFILE_TYPES = ("Localhost", "RuntimeDefault", "Unconfined")
_MAX_PROFILE, _MAX_CREDENTIALS = 4095, 64 * 1024
_POD_LINUX = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
)
_CONTAINER_LINUX = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
)


def pod_security_problems(found: FieldErrors, spec: Value, path: str) -> None:
    """Validate the security context of a pod, and what depends on the operating system."""
    context = mapping(spec, "securityContext")
    where = f"{path}.securityContext"
    for field in ("fsGroup", "runAsUser", "runAsGroup"):
        if context.get(field) is not None:
            found.between(f"{where}.{field}", context[field], 0, _MAX_ID)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        found.between(f"{where}.supplementalGroups[{index}]", group or 0, 0, _MAX_ID)
    _sysctl_problems(found, context, spec, where)
    for field, values in (
        ("fsGroupChangePolicy", ("OnRootMismatch", "Always")),
        ("supplementalGroupsPolicy", ("Merge", "Strict")),
        ("seLinuxChangePolicy", ("MountOption", "Recursive")),
    ):
        found.one_of(f"{where}.{field}", context.get(field), values)
    _shared_problems(found, context, where)
    _host_process_problems(found, spec, path)
    _operating_system_problems(found, spec, path)


def container_security_problems(found: FieldErrors, context: Value, path: str, *, has_host_users: bool) -> None:
    for field in ("runAsUser", "runAsGroup"):
        if context.get(field) is not None:
            found.between(f"{path}.{field}", context[field], 0, _MAX_ID)
    mount = context.get("procMount")
    if mount is not None:
        if mount not in ("Default", "Unmasked"):
            found.unsupported(f"{path}.procMount", mount, ("Default", "Unmasked"))
        elif has_host_users and mount == "Unmasked":
            found.invalid(f"{path}.procMount", mount, "`hostUsers` must be false to use `Unmasked`")
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            found.invalid(f"{path}.allowPrivilegeEscalation", False, detail)
        if "CAP_SYS_ADMIN" in (mapping(context, "capabilities").get("add") or ()):
            detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            found.invalid(f"{path}.allowPrivilegeEscalation", False, detail)
    _shared_problems(found, context, path)


def _shared_problems(found: FieldErrors, context: Value, path: str) -> None:
    for field in ("seccompProfile", "appArmorProfile"):
        profile = context.get(field)
        if profile is not None:
            _profile_problems(found, profile, f"{path}.{field}", is_path=field == "seccompProfile")
    options = mapping(context, "windowsOptions")
    where = f"{path}.windowsOptions"
    found.optional(f"{where}.gmsaCredentialSpecName", options.get("gmsaCredentialSpecName"), dns_subdomain)
    credentials = options.get("gmsaCredentialSpec")
    if credentials is not None and not 0 < len(credentials.encode()) <= _MAX_CREDENTIALS:
        found.invalid(f"{where}.gmsaCredentialSpec", credentials, "must not be empty, and under 64 KiB")
    found.optional(f"{where}.runAsUserName", options.get("runAsUserName"), _windows_user_messages)


def _profile_problems(found: FieldErrors, profile: Value, path: str, *, is_path: bool) -> None:
    kind, local = text(profile, "type"), profile.get("localhostProfile")
    found.choice(f"{path}.type", kind, _PROFILE_TYPES, is_required=True)
    if kind == "Localhost":
        if local is None or (not local.strip() and not is_path):
            found.required(f"{path}.localhostProfile", "must be set when the type is Localhost")
        elif is_path:
            found.check(f"{path}.localhostProfile", local, descending_path)
        else:
            if local != local.strip():
                found.invalid(f"{path}.localhostProfile", local, "must not be padded with whitespace")
            if len(local.encode()) > _MAX_PROFILE:
                found.too_long(f"{path}.localhostProfile", _MAX_PROFILE)
    elif local is not None and (is_path or kind in _PROFILE_TYPES):
        found.invalid(f"{path}.localhostProfile", local, "can only be set when the type is Localhost")


def _sysctl_problems(found: FieldErrors, context: Value, spec: Value, path: str) -> None:
    names = set[str]()
    for index, sysctl in entries(context, "sysctls"):
        where, name = f"{path}.sysctls[{index}].name", text(sysctl, "name")
        if not name:
            found.required(where)
        elif len(name) > 253 or not _SYSCTL.fullmatch(name):
            found.invalid(where, name, f"must have at most 253 characters and match regex ^{_SYSCTL.pattern}$")
        elif name in names:
            found.duplicate(where, name)
        names.add(name)
        dotted = _dotted(name)
        if spec.get("hostNetwork") and dotted.startswith("net."):
            found.invalid(where, name, "may not be specified when 'hostNetwork' is true")
        if spec.get("hostIPC") and (dotted.startswith(_IPC_SYSCTLS)):
            found.invalid(where, name, "may not be specified when 'hostIPC' is true")


def _dotted(name: str) -> str:
    """Return a sysctl with dots between its segments; its first separator decides which one it uses."""
    separators = [each for each in name if each in "./"]
    return name.translate(str.maketrans("./", "/.")) if separators[:1] == ["/"] else name


def _windows_user_messages(name: str) -> tuple[str, ...]:
    if not name:
        return ("runAsUserName cannot be an empty string",)
    if re.search(r"[\x00-\x1f\x7f]", name):
        return ("runAsUserName cannot contain control characters",)
    parts = name.split("\\")
    if len(parts) > 2:
        return ("runAsUserName cannot contain more than one backslash",)
    found = []
    domain, user = parts if len(parts) == 2 else ("", parts[0])
    label = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
    if len(domain) >= 256:
        found.append("runAsUserName's Domain length must be under 256 characters")
    if len(parts) == 2 and not (
        re.fullmatch(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}', domain) or re.fullmatch(rf"{label}(?:\.{label})*", domain)
    ):
        found.append("runAsUserName's Domain doesn't match the NetBios nor the DNS format")
    if not 0 < len(user) <= 104:
        found.append("runAsUserName's User must have 1 to 104 characters")
    if re.fullmatch(r"[. ]+", user):
        found.append("runAsUserName's User cannot contain only periods or spaces")
    if re.search(r'["/\\:;|=,+*?<>@\[\]]', user):
        found.append("runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]")
    return tuple(found)


def _host_process_problems(found: FieldErrors, spec: Value, path: str) -> None:
    of_pod = mapping(mapping(spec, "securityContext"), "windowsOptions").get("hostProcess")
    count = 0
    containers = [
        (f"{path}.{field}[{index}]", each)
        for field in ("initContainers", "containers")
        for index, each in entries(spec, field)
    ]
    for where, container in containers:
        own = mapping(mapping(container, "securityContext"), "windowsOptions").get("hostProcess")
        if of_pod is not None and own is not None and of_pod != own:
            detail = "pod hostProcess value must be identical if both are specified"
            found.invalid(f"{where}.securityContext.windowsOptions.hostProcess", own, detail)
        count += bool(of_pod if own is None else own)
    if not count:
        return
    if count != len(containers):
        found.invalid(
            path, "", "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        )
    if not spec.get("hostNetwork"):
        found.invalid(
            f"{path}.hostNetwork", False, "hostNetwork must be true if pod contains any hostProcess containers"
        )


def _operating_system_problems(found: FieldErrors, spec: Value, path: str) -> None:
    if spec.get("os") is None:
        return
    name = text(spec["os"], "name")
    found.choice(f"{path}.os.name", name, ("linux", "windows"), is_required=True)
    contexts: list[tuple[str, Value, tuple[str, ...]]] = [
        (f"{path}.securityContext", mapping(spec, "securityContext"), _POD_LINUX)
    ]
    contexts += [
        (f"{path}.{field}[{index}].securityContext", mapping(each, "securityContext"), _CONTAINER_LINUX)
        for field in ("initContainers", "containers")
        for index, each in entries(spec, field)
    ]
    for where, context, linux_fields in contexts:
        if name == "linux" and context.get("windowsOptions") is not None:
            found.forbidden(f"{where}.windowsOptions", "windows options cannot be set for a linux pod")
        for field in linux_fields if name == "windows" else ():
            value = context.get(field)
            if value is not None and not (field == "sysctls" and not value):
                found.forbidden(f"{where}.{field}", "cannot be set for a windows pod")
    for field in ("hostUsers", "hostPID", "hostIPC", "shareProcessNamespace") if name == "windows" else ():
        value = spec.get(field)
        if value is not None and (value or field in ("hostUsers", "shareProcessNamespace")):
            found.forbidden(f"{path}.{field}", "cannot be set for a windows pod")
