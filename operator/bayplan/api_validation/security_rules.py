"""Rules for the security contexts of pods and containers.

Follows Kubernetes v1.37.1, pkg/apis/core/validation/validation.go. Privileged containers are allowed, as by the flag
``--allow-privileged`` that kubeadm and most providers set.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bayplan.api_validation.field_errors import FieldErrors, entries, mapping, text
from bayplan.api_validation.text_formats import descending_path, dns_subdomain

Value = Mapping[str, Any]

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
