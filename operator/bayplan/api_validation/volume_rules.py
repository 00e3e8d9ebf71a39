"""Rules for the volumes of pods, PersistentVolumes and PersistentVolumeClaims.

Follows Kubernetes v1.37.1, pkg/apis/core/validation/validation.go, with the feature gates that are on by default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from bayplan.api_validation.field_errors import (
    FieldErrors,
    descending_path,
    dns_label,
    dns_subdomain,
    entries,
    mapping,
    no_backsteps,
    qualified_name,
    text,
    texts,
    unreserved_path,
)
from bayplan.api_validation.resource_rules import amount
from bayplan.api_validation.selection_rules import (
    annotation_problems,
    label_problems,
    node_selector_problems,
    selector_problems,
)
from scheduler_core.model.pod_requests import canonical_text, notation

Value = Mapping[str, Any]
Rule = Callable[[FieldErrors, Value, str], None]

ACCESS_MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_HOST_PATH_TYPES = ("", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_KEY_TYPES = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
_MAX_MODE = 0o777
_IQN = re.compile(r"iqn\.\d{4}-\d{2}\.([a-zA-Z0-9-]+\.?)+(:[^,;*&$|\s]+)$")
_EUI = re.compile(r"^eui.[a-zA-Z0-9]{16}$")
_NAA = re.compile(r"^naa.[a-zA-Z0-9]{32}$")
_MAX_CERTIFICATE_SECONDS, _MAX_KUBERNETES_SECONDS = 91 * 86400, 86400
_PLAIN_TEMPLATE_FIELDS = ("annotations", "labels")


def volume_problems(found: FieldErrors, volumes: list[tuple[int, Value]], path: str, pod_name: str) -> dict[str, Value]:
    created = {
        f"{pod_name}-{text(each, 'name')}" for _, each in volumes if pod_name and each.get("ephemeral") is not None
    }
    valid: dict[str, Value] = {}
    for index, volume in volumes:
        before, where = len(found.problems), f"{path}[{index}]"
        name = text(volume, "name")
        _source_problems(found, volume, where)
        if volume.get("ephemeral") is not None and pod_name and name:
            claim = f"{pod_name}-{name}"
            found.invalid(f"{where}.name", name, *(f'PVC name "{claim}": {each}' for each in dns_subdomain(claim)))
        found.name(f"{where}.name", name, dns_label)
        if name in valid:
            found.duplicate(f"{where}.name", name)
        if len(found.problems) == before:
            valid[name] = volume
        claim_name = text(mapping(volume, "persistentVolumeClaim"), "claimName")
        if claim_name in created:
            detail = "must not reference a PVC that gets created for an ephemeral volume"
            found.invalid(f"{where}.persistentVolumeClaim.claimName", claim_name, detail)
    return valid


def _source_problems(found: FieldErrors, volume: Value, path: str) -> None:
    sources = [field for field in POD_SOURCES if volume.get(field) is not None]
    for field in sources[1:]:
        found.forbidden(f"{path}.{field}", "may not specify more than 1 volume type")
    for field in sources[:1]:
        POD_SOURCES[field](found, volume[field], f"{path}.{field}")
    iscsi = volume.get("iscsi") or {}
    if iscsi.get("initiatorName") is not None and len(f"{text(volume, 'name')}:{text(iscsi, 'targetPortal')}") > 64:
        detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters"
        found.invalid(f"{path}.name", text(volume, "name"), detail)


# -- PersistentVolumes and claims -------------------------------------------------------------------------------------


def persistent_volume_problems(found: FieldErrors, spec: Value, path: str, *, inline: bool = False) -> None:
    """Validate the spec of a PersistentVolume; an inline one is that of a VolumeAttachment."""
    _access_mode_problems(found, spec, path, "add it")
    capacity = mapping(spec, "capacity")
    if not inline:
        if not capacity:
            found.required(f"{path}.capacity")
        elif set(capacity) != {"storage"}:
            found.unsupported(f"{path}.capacity", ", ".join(capacity), ("storage",))
        for name, value in capacity.items():
            if amount(value) <= 0:
                found.invalid(f"{path}.capacity[{name}]", value, "must be greater than zero")
    policy = text(spec, "persistentVolumeReclaimPolicy")
    found.choice(
        f"{path}.persistentVolumeReclaimPolicy", policy, ("Retain",) if inline else ("Delete", "Recycle", "Retain")
    )
    affinity = spec.get("nodeAffinity")
    if affinity is not None and not inline:
        if affinity.get("required") is None:
            found.required(f"{path}.nodeAffinity.required", "must specify required node constraints")
        else:
            node_selector_problems(found, affinity["required"], f"{path}.nodeAffinity.required")
    for field in ("claimRef", "nodeAffinity"):
        if inline and spec.get(field) is not None:
            found.forbidden(f"{path}.{field}", "may not be specified in the context of inline volumes")
    if inline and (capacity or text(spec, "storageClassName")):
        found.forbidden(f"{path}.capacity", "may not be specified in the context of inline volumes")
    sources = [field for field in PERSISTENT_SOURCES if spec.get(field) is not None]
    for field in sources[1:]:
        found.forbidden(f"{path}.{field}", "may not specify more than 1 volume type")
    for field in sources[:1]:
        PERSISTENT_SOURCES[field](found, spec[field], f"{path}.{field}")
    if sources[:1] == ["local"] and affinity is None:
        found.required(f"{path}.nodeAffinity", "Local volume requires node affinity")
    if not sources or (inline and "csi" not in sources):
        found.required(path, "must specify a volume type" if not inline else "csi has to be specified")
    host_path = text(mapping(spec, "hostPath"), "path")
    if host_path.startswith("/") and not host_path.strip("/.") and policy == "Recycle":
        found.forbidden(f"{path}.persistentVolumeReclaimPolicy", "may not be 'recycle' for a hostPath mount of '/'")
    if not inline:
        _class_problems(found, spec, path)
    mode = spec.get("volumeMode")
    if mode is not None and mode not in (("Filesystem",) if inline else ("Block", "Filesystem")):
        found.unsupported(f"{path}.volumeMode", mode, ("Block", "Filesystem"))
    attributes = spec.get("volumeAttributesClassName")
    if attributes is not None:
        found.name(f"{path}.volumeAttributesClassName", attributes, dns_subdomain, "an empty string is disallowed")
        if "csi" not in sources:
            found.required(f"{path}.csi", "has to be specified when using volumeAttributesClassName")


def claim_problems(found: FieldErrors, spec: Value, path: str, *, drops_source: bool = True) -> None:
    """Validate the spec of a PersistentVolumeClaim.

    Args:
        drops_source: Whether the API server drops a data source that is neither a claim nor a snapshot, as it does
            except in templates.
    """
    _access_mode_problems(found, spec, path, "at least 1 access mode is required")
    selector_problems(found, spec.get("selector"), f"{path}.selector")
    requests = mapping(mapping(spec, "resources"), "requests")
    where = f"{path}.resources.requests[storage]"
    if "storage" not in requests:
        found.required(where)
    elif amount(requests["storage"]) <= 0:
        found.invalid(where, requests["storage"], "must be greater than zero")
    _class_problems(found, spec, path)
    found.one_of(f"{path}.volumeMode", spec.get("volumeMode"), ("Block", "Filesystem"))
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and drops_source and not _is_kept(source):
        source = None
    for field, given in (("dataSource", source), ("dataSourceRef", reference)):
        if given is not None:
            _data_source_problems(found, given, f"{path}.{field}")
    if source is not None and reference is not None:
        if text(reference, "namespace"):
            found.invalid(f"{path}.dataSource", "", "may not be specified when dataSourceRef.namespace is specified")
        elif any(source.get(each) != reference.get(each) for each in ("apiGroup", "kind", "name")):
            found.invalid(f"{path}.dataSource", "", "must match dataSourceRef")
    attributes = text(spec, "volumeAttributesClassName")
    found.name(f"{path}.volumeAttributesClassName", attributes, dns_subdomain, is_required=False)


def claim_template_problems(found: FieldErrors, template: Value, path: str) -> None:
    """Validate the template of a claim that is created for an ephemeral volume."""
    metadata = mapping(template, "metadata")
    annotation_problems(found, metadata.get("annotations"), f"{path}.metadata.annotations")
    label_problems(found, metadata.get("labels"), f"{path}.metadata.labels")
    for field, value in metadata.items():
        if field not in _PLAIN_TEMPLATE_FIELDS and value not in (None, "", 0):  # An empty list is set, too.
            found.forbidden(f"{path}.metadata.{field}", "cannot be set")
    claim_problems(found, mapping(template, "spec"), f"{path}.spec", drops_source=False)


def _access_mode_problems(found: FieldErrors, spec: Value, path: str, missing: str) -> None:
    modes = texts(spec, "accessModes")
    if not modes:
        found.required(f"{path}.accessModes", missing)
    for index, mode in enumerate(modes):
        found.one_of(f"{path}.accessModes[{index}]", mode, ACCESS_MODES)
    if "ReadWriteOncePod" in modes and any(mode in ACCESS_MODES[:3] for mode in modes):
        found.forbidden(f"{path}.accessModes", "may not use ReadWriteOncePod with other access modes")


def _class_problems(found: FieldErrors, spec: Value, path: str) -> None:
    found.name(f"{path}.storageClassName", text(spec, "storageClassName"), dns_subdomain, is_required=False)


def _is_kept(source: Value) -> bool:
    group, kind = text(source, "apiGroup"), text(source, "kind")
    return (group, kind) in (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))


def _data_source_problems(found: FieldErrors, source: Value, path: str) -> None:
    for field in ("name", "kind"):
        if not text(source, field):
            found.required(f"{path}.{field}")
    group, kind = text(source, "apiGroup"), text(source, "kind")
    if not group and kind != "PersistentVolumeClaim":
        found.invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
    found.name(f"{path}.apiGroup", group, dns_subdomain, is_required=False)
    found.name(f"{path}.namespace", text(source, "namespace"), dns_label, is_required=False)


# -- sources ----------------------------------------------------------------------------------------------------------


def _needs(*fields: str) -> Rule:
    def check(found: FieldErrors, source: Value, path: str) -> None:
        for field in fields:
            if not source.get(field):
                found.required(f"{path}.{field}")

    return check


def _all(*rules: Rule) -> Rule:
    def check(found: FieldErrors, source: Value, path: str) -> None:
        for rule in rules:
            rule(found, source, path)

    return check


def _secret(*fields: str) -> Rule:
    """Return the rule of a reference to a secret, which may be absent."""

    def check(found: FieldErrors, source: Value, path: str) -> None:
        if source.get("secretRef") is not None:
            _needs(*fields)(found, source["secretRef"], f"{path}.secretRef")

    return check


def _mode_problems(found: FieldErrors, source: Value, path: str, field: str = "defaultMode") -> None:
    mode = source.get(field)
    if mode is not None and not 0 <= mode <= _MAX_MODE:
        found.invalid(f"{path}.{field}", mode, "must be a number between 0 and 0777 (octal), both inclusive")


def _key_problems(found: FieldErrors, source: Value, path: str) -> None:
    for index, item in entries(source, "items"):
        where = f"{path}.items[{index}]"
        _needs("key", "path")(found, item, where)
        found.check(f"{where}.path", text(item, "path"), unreserved_path)
        _mode_problems(found, item, where, "mode")


def _empty_dir(found: FieldErrors, source: Value, path: str) -> None:
    if amount(source.get("sizeLimit")) < 0:
        found.forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")


def _path_problems(found: FieldErrors, source: Value, path: str) -> None:
    found.name(f"{path}.path", text(source, "path"), no_backsteps)


def _host_path(found: FieldErrors, source: Value, path: str) -> None:
    _path_problems(found, source, path)
    if text(source, "path"):
        found.one_of(f"{path}.type", text(source, "type"), _HOST_PATH_TYPES)


def _git_repo(found: FieldErrors, source: Value, path: str) -> None:
    _needs("repository")(found, source, path)
    found.check(f"{path}.directory", text(source, "directory"), descending_path)


def _disk(name: str) -> Rule:
    def check(found: FieldErrors, source: Value, path: str) -> None:
        _needs(name)(found, source, path)
        found.between(f"{path}.partition", source.get("partition") or 0, 0, 255)

    return check


def _nfs(found: FieldErrors, source: Value, path: str) -> None:
    _needs("server", "path")(found, source, path)
    if text(source, "path") and not text(source, "path").startswith("/"):
        found.invalid(f"{path}.path", text(source, "path"), "must be an absolute path")


def _iscsi(found: FieldErrors, source: Value, path: str) -> None:
    _needs("targetPortal", "iqn")(found, source, path)
    for field in ("iqn", "initiatorName"):
        name = source.get(field)
        if name or (field == "initiatorName" and name is not None):
            pattern = {"iqn": _IQN, "eui": _EUI, "naa": _NAA}.get(name[:3])
            if pattern is None:
                found.invalid(f"{path}.{field}", name, "must be valid format starting with iqn, eui, or naa")
            elif not pattern.search(name):
                found.invalid(f"{path}.{field}", name, "must be valid format")
    found.between(f"{path}.lun", source.get("lun") or 0, 0, 255)
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and source.get("secretRef") is None:
        found.required(f"{path}.secretRef")


def _fc(found: FieldErrors, source: Value, path: str) -> None:
    names, ids, lun = source.get("targetWWNs"), source.get("wwids"), source.get("lun")
    if not names and not ids:
        found.required(f"{path}.targetWWNs", "must specify either targetWWNs or wwids, but not both")
    if names and ids:
        found.invalid(f"{path}.targetWWNs", names, "targetWWNs and wwids can not be specified simultaneously")
    if names and lun is None:
        found.required(f"{path}.lun", "lun is required if targetWWNs is specified")
    elif names and lun is not None:
        found.between(f"{path}.lun", lun, 0, 255)


def _quobyte(found: FieldErrors, source: Value, path: str) -> None:
    registry = text(source, "registry")
    if not registry:
        found.required(f"{path}.registry", "must be a host:port pair or multiple pairs separated by commas")
    elif len(text(source, "tenant")) >= 65:
        found.required(f"{path}.tenant", "must be a UUID and may not exceed a length of 64 characters")
    else:
        for pair in registry.split(","):
            if not re.fullmatch(r"(\[[^\[\]]*\]|[^:\[\]]*):[^:\[\]]*", pair):
                found.invalid(
                    f"{path}.registry", registry, "must be a host:port pair or multiple pairs separated by commas"
                )
    _needs("volume")(found, source, path)


def _flocker(found: FieldErrors, source: Value, path: str) -> None:
    name, identity = text(source, "datasetName"), text(source, "datasetUUID")
    if not name and not identity:
        found.required(path, "one of datasetName and datasetUUID is required")
    if name and identity:
        found.invalid(path, "resource", "datasetName and datasetUUID can not be specified simultaneously")
    if "/" in name:
        found.invalid(f"{path}.datasetName", name, "must not contain '/'")


def _flex(found: FieldErrors, source: Value, path: str) -> None:
    _needs("driver")(found, source, path)
    for key in mapping(source, "options"):
        namespace = key.partition("/")[0].lower()
        if f".{namespace}".endswith((".kubernetes.io", ".k8s.io")):
            found.invalid(f"{path}.options[{key}]", key, "kubernetes.io and k8s.io namespaces are reserved")


def _azure_disk(found: FieldErrors, source: Value, path: str) -> None:
    _needs("diskName", "diskURI")(found, source, path)
    caching = source.get("cachingMode")
    kind = "Shared" if source.get("kind") is None else source["kind"]
    found.one_of(f"{path}.cachingMode", caching, ("None", "ReadOnly", "ReadWrite"))
    found.one_of(f"{path}.kind", kind, ("Shared", "Dedicated", "Managed"))
    uri = text(source, "diskURI")
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        found.unsupported(f"{path}.diskURI", uri, ("/subscriptions/...",))
    if kind != "Managed" and not uri.startswith("https://"):
        found.unsupported(f"{path}.diskURI", uri, ("https://...",))


def _storage_os(found: FieldErrors, source: Value, path: str) -> None:
    found.name(f"{path}.volumeName", text(source, "volumeName"), dns_label)
    found.name(f"{path}.volumeNamespace", text(source, "volumeNamespace"), dns_label, is_required=False)


def _downward_api(found: FieldErrors, source: Value, path: str) -> None:
    _mode_problems(found, source, path)
    for index, item in entries(source, "items"):
        downward_file_problems(found, item, f"{path}.items[{index}]")


def downward_file_problems(found: FieldErrors, item: Value, path: str) -> None:
    """Validate a file with a field or a resource of the pod."""
    _needs("path")(found, item, path)
    found.check(f"{path}.path", text(item, "path"), unreserved_path)
    _mode_problems(found, item, path, "mode")
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None and resource is not None:
        found.invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
    if field is not None:
        field_problems(found, field, f"{path}.fieldRef", _VOLUME_FIELDS)
    elif resource is not None:
        resource_field_problems(found, resource, f"{path}.resourceFieldRef", of_volume=True)
    else:
        found.required(path, "one of fieldRef and resourceFieldRef is required")


_VOLUME_FIELDS = ("metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations", "metadata.uid")
_KNOWN_FIELDS = frozenset(
    {
        *_VOLUME_FIELDS,
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.serviceAccount",
        "spec.host",
        "spec.hostNetwork",
        "status.phase",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    }
)
_RESOURCE_FIELDS = tuple(
    f"{kind}.{name}" for kind in ("limits", "requests") for name in ("cpu", "memory", "ephemeral-storage")
)
_HUGE_PAGE_FIELDS = ("requests.hugepages-", "limits.hugepages-")
_DIVISORS = frozenset(f"1{unit}" for unit in ("", *"kMGTPE", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))


def field_problems(found: FieldErrors, reference: Value, path: str, supported: Collection[str]) -> None:
    version, field = text(reference, "apiVersion") or "v1", text(reference, "fieldPath")
    if not field:
        found.required(f"{path}.fieldPath")
        return
    match = re.fullmatch(r"(.*)\['([^']*)'\]", field)
    base = match[1] if match else field
    if version != "v1" or (base not in _KNOWN_FIELDS if match is None else base not in _VOLUME_FIELDS[2:4]):
        found.invalid(f"{path}.fieldPath", field, "error converting fieldPath: field label not supported")
    elif match is not None:
        key = match[2]
        found.invalid(path, key, *qualified_name(key.lower() if base == "metadata.annotations" else key))
    elif base not in supported:
        found.unsupported(f"{path}.fieldPath", base, supported)


def resource_field_problems(found: FieldErrors, reference: Value, path: str, *, of_volume: bool) -> None:
    """Validate a reference to requests or limits of a container."""
    resource = text(reference, "resource")
    if of_volume and not text(reference, "containerName"):
        found.required(f"{path}.containerName")
    elif not resource:
        found.required(f"{path}.resource")
    elif resource not in _RESOURCE_FIELDS and not resource.startswith(_HUGE_PAGE_FIELDS):
        found.unsupported(f"{path}.resource", resource, _RESOURCE_FIELDS)
    written = reference.get("divisor")
    if not amount(written):
        return
    divisor = canonical_text(amount(written), notation(str(written).strip()))
    if resource.endswith(".cpu") and resource in _RESOURCE_FIELDS:
        if divisor not in ("1", "1m"):
            found.invalid(
                f"{path}.divisor", resource, "only divisor's values 1m and 1 are supported with the cpu resource"
            )
    elif (resource in _RESOURCE_FIELDS or resource.startswith(_HUGE_PAGE_FIELDS)) and divisor not in _DIVISORS:
        found.invalid(
            f"{path}.divisor", resource, "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki ... 1Ei are supported"
        )


def _projected(found: FieldErrors, source: Value, path: str) -> None:
    _mode_problems(found, source, path)
    paths: list[str] = []
    for index, each in entries(source, "sources"):
        where = f"{path}.sources[{index}]"
        given = [field for field in _PROJECTIONS if each.get(field) is not None]
        if len(given) > 1:
            found.forbidden(where, "may not specify more than 1 volume type per source")
        for field in given:
            paths += _PROJECTIONS[field](found, each[field], f"{where}.{field}")
    for index, target in enumerate(paths):
        if target in paths[:index]:
            found.invalid(path, target, "conflicting duplicate paths")


def _projected_items(found: FieldErrors, source: Value, path: str) -> list[str]:
    _needs("name")(found, source, path)
    _key_problems(found, source, path)
    return [text(item, "path") for _, item in entries(source, "items") if text(item, "path")]


def _projected_fields(found: FieldErrors, source: Value, path: str) -> list[str]:
    for index, item in entries(source, "items"):
        downward_file_problems(found, item, f"{path}.items[{index}]")
    return [text(item, "path") for _, item in entries(source, "items") if text(item, "path")]


def _projected_token(found: FieldErrors, source: Value, path: str) -> list[str]:
    seconds = source.get("expirationSeconds")
    if seconds is not None and not 600 <= seconds <= 1 << 32:
        found.invalid(
            f"{path}.expirationSeconds",
            seconds,
            "may not specify a duration less than 10 minutes or larger than 2^32 seconds",
        )
    _needs("path")(found, source, path)
    found.check(f"{path}.path", text(source, "path"), unreserved_path)
    return []


def _projected_bundle(found: FieldErrors, source: Value, path: str) -> list[str]:
    name, signer = source.get("name"), source.get("signerName")
    if name is not None and signer is not None:
        found.invalid(path, name, "only one of name and signerName may be used")
    elif name is not None:
        if not name:
            found.required(f"{path}.name", "must be a valid object name")
        # The name of a bundle of a signer begins with that of the signer, with colons instead of slashes.
        found.invalid(f"{path}.name", name, *dns_subdomain(name.rpartition(":")[2]))
        if name.count(":") not in (0, 2):
            found.invalid(f"{path}.name", name, "not a valid clustertrustbundlename")
        if source.get("labelSelector") is not None:
            found.invalid(f"{path}.labelSelector", "", "labelSelector must be unset if name is specified")
    elif signer is not None:
        _signer_problems(found, f"{path}.signerName", signer)
        selector_problems(found, source.get("labelSelector"), f"{path}.labelSelector")
    else:
        found.required(path, "either name or signerName must be specified")
    _needs("path")(found, source, path)
    found.check(f"{path}.path", text(source, "path"), unreserved_path)
    return [text(source, "path")]


def _projected_certificate(found: FieldErrors, source: Value, path: str) -> list[str]:
    signer = text(source, "signerName")
    _signer_problems(found, f"{path}.signerName", signer)
    for key in mapping(source, "userAnnotations"):
        found.invalid(f"{path}.userAnnotations[{key}]", key, *qualified_name(key.lower()))
        if "/" not in key:
            found.invalid(f"{path}.userAnnotations[{key}]", key, "must have a domain prefix")
    found.choice(f"{path}.keyType", text(source, "keyType") or "unset", _KEY_TYPES)
    seconds = source.get("maxExpirationSeconds")
    highest = _MAX_KUBERNETES_SECONDS if signer.startswith("kubernetes.io/") else _MAX_CERTIFICATE_SECONDS
    if seconds is not None and not 3600 <= seconds <= highest:
        found.invalid(f"{path}.maxExpirationSeconds", seconds, f"must be between 3600 and {highest}")
    fields = ("credentialBundlePath", "keyPath", "certificateChainPath")
    given = [field for field in fields if text(source, field)]
    if not given:
        found.required(path, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath")
    for field in given:
        found.check(f"{path}.{field}", text(source, field), unreserved_path)
    return [text(source, field) for field in given]


def _signer_problems(found: FieldErrors, path: str, name: str) -> None:
    if not name:
        found.required(path, "must be a valid signer name")
        return
    domain, slash, rest = name.partition("/")
    if not slash or not domain or not rest or "/" in rest:
        found.invalid(path, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")
        return
    found.invalid(path, name, *dns_subdomain(domain))
    if "." not in domain:
        found.invalid(path, name, "should be a domain with at least two segments separated by dots")
    found.invalid(path, name, *dns_subdomain(rest))


def csi_driver_name_problems(found: FieldErrors, path: str, name: str) -> None:
    if not name:
        found.required(path)
        return
    if len(name) > 63:
        found.too_long(path, 63)
    found.invalid(path, name, *dns_subdomain(name.lower()))


def _csi(found: FieldErrors, source: Value, path: str) -> None:
    csi_driver_name_problems(found, f"{path}.driver", text(source, "driver"))
    secret = source.get("nodePublishSecretRef")
    if secret is not None:
        found.name(f"{path}.nodePublishSecretRef.name", text(secret, "name"), dns_subdomain)


def _csi_volume(found: FieldErrors, source: Value, path: str) -> None:
    csi_driver_name_problems(found, f"{path}.driver", text(source, "driver"))
    _needs("volumeHandle")(found, source, path)
    for field in (
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ):
        if source.get(field) is not None:
            for part, check in (("name", dns_subdomain), ("namespace", dns_label)):
                found.name(f"{path}.{field}.{part}", text(source[field], part), check)


def _ephemeral(found: FieldErrors, source: Value, path: str) -> None:
    if source.get("volumeClaimTemplate") is None:
        found.required(f"{path}.volumeClaimTemplate")
    else:
        claim_template_problems(found, source["volumeClaimTemplate"], f"{path}.volumeClaimTemplate")


def _image(found: FieldErrors, source: Value, path: str) -> None:
    _needs("reference")(found, source, path)
    found.choice(f"{path}.pullPolicy", text(source, "pullPolicy"), _PULL_POLICIES)


def _glusterfs_volume(found: FieldErrors, source: Value, path: str) -> None:
    _needs("endpoints", "path")(found, source, path)
    found.optional(f"{path}.endpointsNamespace", source.get("endpointsNamespace"), dns_label)


def _azure_file_volume(found: FieldErrors, source: Value, path: str) -> None:
    _needs("secretName", "shareName")(found, source, path)
    if source.get("secretNamespace") is not None and not source["secretNamespace"]:
        found.required(f"{path}.secretNamespace")


_PROJECTIONS: Mapping[str, Callable[[FieldErrors, Value, str], list[str]]] = {
    "secret": _projected_items,
    "configMap": _projected_items,
    "downwardAPI": _projected_fields,
    "serviceAccountToken": _projected_token,
    "clusterTrustBundle": _projected_bundle,
    "podCertificate": _projected_certificate,
}

POD_SOURCES: Mapping[str, Rule] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "gitRepo": _git_repo,
    "gcePersistentDisk": _disk("pdName"),
    "awsElasticBlockStore": _disk("volumeID"),
    "secret": _all(_needs("secretName"), _mode_problems, _key_problems),
    "nfs": _nfs,
    "iscsi": _iscsi,
    "glusterfs": _needs("endpoints", "path"),
    "flocker": _flocker,
    "persistentVolumeClaim": _needs("claimName"),
    "rbd": _needs("monitors", "image"),
    "cinder": _all(_needs("volumeID"), _secret("name")),
    "cephfs": _needs("monitors"),
    "quobyte": _quobyte,
    "downwardAPI": _downward_api,
    "fc": _fc,
    "flexVolume": _flex,
    "configMap": _all(_needs("name"), _mode_problems, _key_problems),
    "azureFile": _needs("secretName", "shareName"),
    "vsphereVolume": _needs("volumePath"),
    "photonPersistentDisk": _needs("pdID"),
    "portworxVolume": _needs("volumeID"),
    "azureDisk": _azure_disk,
    "storageos": _all(_storage_os, _secret("name")),
    "projected": _projected,
    "scaleIO": _needs("gateway", "system", "volumeName"),
    "csi": _csi,
    "ephemeral": _ephemeral,
    "image": _image,
}
"""Rules of the volume sources of pods, in the order of the API server."""

PERSISTENT_SOURCES: Mapping[str, Rule] = {
    "hostPath": _host_path,
    "gcePersistentDisk": _disk("pdName"),
    "awsElasticBlockStore": _disk("volumeID"),
    "glusterfs": _glusterfs_volume,
    "flocker": _flocker,
    "nfs": _nfs,
    "rbd": _needs("monitors", "image"),
    "quobyte": _quobyte,
    "cephfs": _needs("monitors"),
    "iscsi": _iscsi,
    "cinder": _all(_needs("volumeID"), _secret("name", "namespace")),
    "fc": _fc,
    "flexVolume": _flex,
    "azureFile": _azure_file_volume,
    "vsphereVolume": _needs("volumePath"),
    "photonPersistentDisk": _needs("pdID"),
    "portworxVolume": _needs("volumeID"),
    "azureDisk": _azure_disk,
    "scaleIO": _needs("gateway", "system", "volumeName"),
    "local": _path_problems,
    "storageos": _all(_storage_os, _secret("name", "namespace")),
    "csi": _csi_volume,
}
"""Rules of the volume sources of PersistentVolumes."""
