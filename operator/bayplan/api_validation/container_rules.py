"""Rules for the containers of pods, and for the security contexts of pods and containers.

Follows Kubernetes v1.37.1, pkg/apis/core/validation/validation.go, after the defaults of pkg/apis/core/v1/defaults.go
and with the feature gates that are on by default. Privileged containers are allowed, as by the flag
``--allow-privileged`` that kubeadm and most providers set.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass

from bayplan.api_validation.field_errors import (
    Fields,
    config_key,
    descending_path,
    dns_label,
    dns_subdomain,
    environment_name,
    header_name,
    no_backsteps,
    port_name,
    port_number,
)
from bayplan.api_validation.resource_rules import requirement_problems
from bayplan.api_validation.volume_rules import PULL_POLICIES, field_problems, resource_field_problems

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
    """What the rules of a container need of its pod; in the network of the host, host ports have defaults."""

    volumes: Mapping[str, Fields]
    claims: Container[str]
    restart_policy: str
    grace_seconds: int
    has_host_users: bool
    is_template: bool
    host_network: bool

    @staticmethod
    def of(spec: Fields, volumes: Mapping[str, Fields], *, is_template: bool) -> PodParts:
        grace = spec.get("terminationGracePeriodSeconds")
        return PodParts(
            volumes,
            {claim.text("name") for claim in spec.parts("resourceClaims")} - {""},
            spec.text("restartPolicy") or "Always",
            # A negative one of a pod, not of a template, is replaced by 1.
            _DEFAULT_GRACE_SECONDS if grace is None else 1 if grace < 0 and not is_template else grace,
            spec.get("hostUsers") is not False,
            is_template,
            bool(spec.get("hostNetwork")),
        )


def container_problems(spec: Fields, pod: PodParts) -> None:
    spec.require("containers")
    names = set[str]()
    ports = set[tuple[str, str, int]]()
    for container in spec.parts("containers"):
        _common_problems(container, pod)
        container.unique("name", container.text("name"), names)
        _running_problems(container, pod)
        _restart_problems(container)
        _host_port_problems(container, ports, pod)
    for container in spec.parts("initContainers"):
        _common_problems(container, pod)
        container.unique("name", container.text("name"), names)
        _restart_problems(container)
        _host_port_problems(container, set(), pod)
        if container.get("restartPolicy") == "Always":
            _running_problems(container, pod)
            continue
        for field in container.given("lifecycle", *_PROBES):
            container.forbidden(field, "may not be set for init containers without restartPolicy=Always")
        for policy in container.parts("resizePolicy"):
            if policy.text("restartPolicy") == "RestartContainer":
                detail = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                policy.invalid("restartPolicy", "RestartContainer", detail)


def _common_problems(container: Fields, pod: PodParts) -> None:
    image = container.text("image")
    container.name("name", dns_label)
    container.require("image")
    if image != image.strip() and not pod.is_template:
        container.invalid("image", image, "must not have leading or trailing whitespace")
    container.choice("terminationMessagePolicy", ("File", "FallbackToLogsOnError"))
    container.choice("imagePullPolicy", PULL_POLICIES)
    _port_problems(container)
    _environment_problems(container, pod)
    _mount_problems(container, pod)
    _device_problems(container, pod)
    requirement_problems(container.part("resources"), pod.claims)
    _resize_problems(container, pod)
    if container.get("securityContext") is not None:
        _container_security_problems(container.part("securityContext"), has_host_users=pod.has_host_users)


def _port_problems(container: Fields) -> None:
    names = set[str]()
    for port in container.parts("ports"):
        if port.text("name"):
            port.check("name", port_name)
            port.unique("name", port.text("name"), names)
        for field in ("containerPort", "hostPort"):
            if port.number(field):
                port.port(field)
            elif field == "containerPort":
                port.required(field)
        port.choice("protocol", ("TCP", "UDP", "SCTP"))


def _host_port_problems(container: Fields, seen: set[tuple[str, str, int]], pod: PodParts) -> None:
    for port in container.parts("ports"):
        number, host = port.number("containerPort"), port.number("hostPort")
        if pod.host_network:
            if host and host != number and ".containers[" in container.path:
                port.invalid("hostPort", host, "must match `containerPort` when `hostNetwork` is true")
            host = host or number
        if host:
            key = (port.text("protocol") or "TCP", port.text("hostIP"), host)
            port.unique("hostPort", key, seen, "/".join(map(str, key)))


# -- environment ------------------------------------------------------------------------------------------------------


def _environment_problems(container: Fields, pod: PodParts) -> None:
    for variable in container.parts("env"):
        variable.name("name", environment_name)
        if variable.get("valueFrom") is not None:
            _value_source_problems(variable.part("valueFrom"), pod, has_value=bool(variable.text("value")))
    for source in container.parts("envFrom"):
        source.name("prefix", environment_name, is_required=False)
        given = source.given("configMapRef", "secretRef")
        for reference in map(source.part, given):
            name = reference.text("name")
            # Here the API server accepts a trailing hyphen, as of a prefix.
            masked = f"{name[:-1]}a" if len(name) > 1 and name.endswith("-") else name
            reference.require("name")
            if name:
                reference.invalid("name", name, *dns_subdomain(masked))
        if len(given) != 1:
            source.invalid("", "", "must specify exactly one of: `configMapRef` or `secretRef`")


def _value_source_problems(source: Fields, pod: PodParts, *, has_value: bool) -> None:
    fields = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
    given = source.given(*fields)
    for field in given:
        reference = source.part(field)
        if field == "fieldRef":
            field_problems(reference, _ENVIRONMENT_FIELDS)
        elif field == "resourceFieldRef":
            resource_field_problems(reference, of_volume=False)
        elif field == "fileKeyRef":
            _file_key_problems(reference, pod)
        else:
            reference.check("name", dns_subdomain)
            reference.name("key", config_key)
    if not given:
        source.invalid("", "", f"must specify one of: {', '.join(f'`{field}`' for field in fields)}")
    elif has_value:
        source.invalid("", "", "may not be specified when `value` is not empty")
    elif len(given) > 1:
        source.invalid("", "", "may not have more than one field specified at a time")


def _file_key_problems(reference: Fields, pod: PodParts) -> None:
    reference.name("key", environment_name)
    reference.name("volumeName", dns_label)
    reference.name("path", no_backsteps)
    name = reference.text("volumeName")
    if name not in pod.volumes:
        reference.not_found("volumeName", name)
    elif set(pod.volumes[name].given(*pod.volumes[name].value)) - {"name", "emptyDir"}:
        reference.invalid("volumeName", name, "referenced volume must be of type emptyDir")


# -- volumes ----------------------------------------------------------------------------------------------------------


def _mount_problems(container: Fields, pod: PodParts) -> None:
    devices = container.parts("volumeDevices")
    privileged = container.part("securityContext").get("privileged") is True
    paths = set[str]()
    for mount in container.parts("volumeMounts"):
        name, target = mount.text("name"), mount.text("mountPath")
        mount.require("name")
        if name not in pod.volumes:
            mount.not_found("name", name)
        mount.require("mountPath")
        if target in paths:
            mount.invalid("mountPath", target, "must be unique")
        paths.add(target)
        if any(each.text("name") == name for each in devices):
            mount.invalid("name", name, "must not already exist in volumeDevices")
        if any(each.text("devicePath") == target for each in devices):
            mount.invalid("mountPath", target, "must not already exist as a path in volumeDevices")
        for field in ("subPath", "subPathExpr"):
            mount.check(field, descending_path)
        if mount.text("subPath") and mount.text("subPathExpr"):
            mount.invalid("subPathExpr", mount.text("subPathExpr"), "subPathExpr and subPath are mutually exclusive")
        _propagation_problems(mount, privileged=privileged)


def _propagation_problems(mount: Fields, *, privileged: bool) -> None:
    propagation, recursive = mount.get("mountPropagation"), mount.get("recursiveReadOnly")
    mount.one_of("mountPropagation", ("Bidirectional", "HostToContainer", "None"))
    if propagation == "Bidirectional" and not privileged:
        detail = "Bidirectional mount propagation is available only to privileged containers"
        mount.forbidden("mountPropagation", detail)
    mount.one_of("recursiveReadOnly", ("Disabled", "Enabled", "IfPossible"))
    if recursive in ("Enabled", "IfPossible"):
        if not mount.get("readOnly"):
            mount.forbidden("recursiveReadOnly", "may only be specified when readOnly is true")
        if propagation not in (None, "None"):
            detail = "may only be specified when mountPropagation is None or not specified"
            mount.forbidden("recursiveReadOnly", detail)


def _device_problems(container: Fields, pod: PodParts) -> None:
    mounts = container.parts("volumeMounts")
    names, paths = set[str](), set[str]()
    for device in container.parts("volumeDevices"):
        name, target = device.text("name"), device.text("devicePath")
        device.require("name")
        if name in names:
            device.invalid("name", name, "must be unique")
        volume = pod.volumes.get(name)
        if volume is None:
            device.not_found("name", name)
        elif not volume.given("persistentVolumeClaim", "ephemeral"):
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            device.invalid("name", name, detail)
        device.require("devicePath")
        if target in paths:
            device.invalid("devicePath", target, "must be unique")
        device.check("devicePath", no_backsteps)
        if any(each.text("name") == name for each in mounts):
            device.invalid("name", name, "must not already exist in volumeMounts")
        if any(each.text("mountPath") == target for each in mounts):
            device.invalid("devicePath", target, "must not already exist as a path in volumeMounts")
        names.add(name)
        paths.add(target)


# -- probes, lifecycle, restarts --------------------------------------------------------------------------------------


def _running_problems(container: Fields, pod: PodParts) -> None:
    """Validate what only containers that keep running may have."""
    lifecycle = container.part("lifecycle")
    for field in lifecycle.given("postStart", "preStop"):
        _handler_problems(lifecycle.part(field), pod, "sleep")
    for field in container.given(*_PROBES):
        probe = container.part(field)
        _handler_problems(probe, pod, "grpc")
        probe.not_negative(
            "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"
        )
        grace = probe.get("terminationGracePeriodSeconds")
        if grace is not None and grace <= 0:
            probe.invalid("terminationGracePeriodSeconds", grace, "must be greater than 0")
        if field == "readinessProbe":
            if grace is not None:
                probe.invalid("terminationGracePeriodSeconds", grace, "must not be set for readinessProbes")
        elif (probe.number("successThreshold") or 1) != 1:
            probe.invalid("successThreshold", probe.get("successThreshold"), "must be 1")


def _handler_problems(handler: Fields, pod: PodParts, last: str) -> None:
    given = handler.given("exec", "httpGet", "tcpSocket", last)
    for field in given[1:]:
        handler.forbidden(field, "may not specify more than 1 handler type")
    if not given:
        handler.required("", "must specify a handler type")
        return
    field = given[0]
    action = handler.part(field)
    if field == "exec":
        action.require("command")
    elif field == "sleep":
        seconds = action.number("seconds")
        if not 0 <= seconds <= pod.grace_seconds:
            detail = f"must be non-negative and less than terminationGracePeriodSeconds ({pod.grace_seconds})"
            action.invalid("", seconds, detail)
    elif field == "grpc":
        action.port("port")
    else:
        port_or_name_problems(action, "port")
        if field == "httpGet":
            action.choice("scheme", ("HTTP", "HTTPS"))
            for header in action.parts("httpHeaders"):
                header.check("name", header_name)


def port_or_name_problems(owner: Fields, field: str) -> None:
    """Validate a port given by number or name."""
    port = owner.get(field)
    if isinstance(port, str):
        owner.invalid(field, port, *port_name(port))
    else:
        number = int(port) if isinstance(port, int | float) else 0
        owner.invalid(field, number, *port_number(number))


def _restart_problems(container: Fields) -> None:
    rules = container.parts("restartPolicyRules")
    container.one_of("restartPolicy", ("Always", "Never", "OnFailure"))
    if container.get("restartPolicy") is None and rules:
        container.required("restartPolicy", "must specify restartPolicy when restart rules are used")
    container.fits("restartPolicyRules", 20)
    for rule in rules:
        if rule.text("action") not in ("Restart", "RestartAllContainers"):
            rule.unsupported("action", rule.text("action"), ("Restart", "RestartAllContainers"))
        codes = rule.part("exitCodes")
        if rule.get("exitCodes") is None:
            rule.required("exitCodes", "must be specified")
            continue
        if codes.text("operator") not in ("In", "NotIn"):
            codes.unsupported("operator", codes.text("operator"), ("In", "NotIn"))
        codes.fits("values", 255)


def _resize_problems(container: Fields, pod: PodParts) -> None:
    seen = set[str]()
    for policy in container.parts("resizePolicy"):
        restart = policy.text("restartPolicy")
        policy.unique("", policy.text("resourceName"), seen)
        policy.choice("resourceName", ("cpu", "memory"), is_required=True)
        policy.choice("restartPolicy", ("NotRequired", "RestartContainer"), is_required=True)
        if pod.restart_policy == "Never" and restart != "NotRequired":
            policy.invalid("restartPolicy", restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")


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


def pod_security_problems(spec: Fields) -> None:
    """Validate the security context of a pod, and what depends on the operating system."""
    context = spec.part("securityContext")
    for field in ("fsGroup", "runAsUser", "runAsGroup"):
        context.between(field, 0, _MAX_ID)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        if not 0 <= (group or 0) <= _MAX_ID:
            context.invalid(f"supplementalGroups[{index}]", group, f"must be between 0 and {_MAX_ID}, inclusive")
    _sysctl_problems(context, spec)
    context.one_of("fsGroupChangePolicy", ("OnRootMismatch", "Always"))
    context.one_of("supplementalGroupsPolicy", ("Merge", "Strict"))
    context.one_of("seLinuxChangePolicy", ("MountOption", "Recursive"))
    _shared_problems(context)
    containers = [*spec.parts("initContainers"), *spec.parts("containers")]
    _host_process_problems(spec, containers)
    _operating_system_problems(spec, containers)


def _container_security_problems(context: Fields, *, has_host_users: bool) -> None:
    for field in ("runAsUser", "runAsGroup"):
        context.between(field, 0, _MAX_ID)
    context.one_of("procMount", ("Default", "Unmasked"))
    if has_host_users and context.get("procMount") == "Unmasked":
        context.invalid("procMount", "Unmasked", "`hostUsers` must be false to use `Unmasked`")
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            context.invalid("allowPrivilegeEscalation", False, detail)
        if "CAP_SYS_ADMIN" in context.part("capabilities").texts("add"):
            detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            context.invalid("allowPrivilegeEscalation", False, detail)
    _shared_problems(context)


def _shared_problems(context: Fields) -> None:
    for field in context.given("seccompProfile", "appArmorProfile"):
        _profile_problems(context.part(field), is_path=field == "seccompProfile")
    options = context.part("windowsOptions")
    options.optional("gmsaCredentialSpecName", dns_subdomain)
    credentials = options.get("gmsaCredentialSpec")
    if credentials is not None and not 0 < len(credentials.encode()) <= _MAX_CREDENTIALS:
        options.invalid("gmsaCredentialSpec", credentials, "must not be empty, and under 64 KiB")
    options.optional("runAsUserName", _windows_user_messages)


def _profile_problems(profile: Fields, *, is_path: bool) -> None:
    kind, local = profile.text("type"), profile.get("localhostProfile")
    profile.choice("type", _PROFILE_TYPES, is_required=True)
    if kind == "Localhost":
        if local is None or (not local.strip() and not is_path):
            profile.required("localhostProfile", "must be set when the type is Localhost")
        elif is_path:
            profile.check("localhostProfile", descending_path)
        else:
            if local != local.strip():
                profile.invalid("localhostProfile", local, "must not be padded with whitespace")
            if len(local.encode()) > _MAX_PROFILE:
                profile.too_long("localhostProfile", _MAX_PROFILE)
    elif local is not None and (is_path or kind in _PROFILE_TYPES):
        profile.invalid("localhostProfile", local, "can only be set when the type is Localhost")


def _sysctl_problems(context: Fields, spec: Fields) -> None:
    names = set[str]()
    for sysctl in context.parts("sysctls"):
        name = sysctl.text("name")
        if not name:
            sysctl.required("name")
        elif len(name) > 253 or not _SYSCTL.fullmatch(name):
            detail = f"must have at most 253 characters and match regex ^{_SYSCTL.pattern}$"
            sysctl.invalid("name", name, detail)
        elif name in names:
            sysctl.duplicate("name", name)
        names.add(name)
        dotted = _dotted(name)
        if spec.get("hostNetwork") and dotted.startswith("net."):
            sysctl.invalid("name", name, "may not be specified when 'hostNetwork' is true")
        if spec.get("hostIPC") and dotted.startswith(_IPC_SYSCTLS):
            sysctl.invalid("name", name, "may not be specified when 'hostIPC' is true")


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


def _host_process_problems(spec: Fields, containers: list[Fields]) -> None:
    of_pod = spec.part("securityContext").part("windowsOptions").get("hostProcess")
    count = 0
    for container in containers:
        options = container.part("securityContext").part("windowsOptions")
        own = options.get("hostProcess")
        if of_pod is not None and own is not None and of_pod != own:
            options.invalid("hostProcess", own, "pod hostProcess value must be identical if both are specified")
        count += bool(of_pod if own is None else own)
    if not count:
        return
    if count != len(containers):
        detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        spec.invalid("", "", detail)
    if not spec.get("hostNetwork"):
        spec.invalid("hostNetwork", False, "hostNetwork must be true if pod contains any hostProcess containers")


def _operating_system_problems(spec: Fields, containers: list[Fields]) -> None:
    system = spec.part("os")
    if spec.get("os") is None:
        return
    system.choice("name", ("linux", "windows"), is_required=True)
    for owner in (spec, *containers):
        context = owner.part("securityContext")
        if system.text("name") == "linux" and context.get("windowsOptions") is not None:
            context.forbidden("windowsOptions", "windows options cannot be set for a linux pod")
        if system.text("name") == "windows":
            for field in context.given(*(_POD_LINUX if owner is spec else _CONTAINER_LINUX)):
                if field != "sysctls" or context.get(field):
                    context.forbidden(field, "cannot be set for a windows pod")
    for field in spec.given("hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"):
        value = spec.get(field)
        if system.text("name") == "windows" and (value or field in ("hostUsers", "shareProcessNamespace")):
            spec.forbidden(field, "cannot be set for a windows pod")
