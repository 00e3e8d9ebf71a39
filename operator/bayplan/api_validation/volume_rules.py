"""Rules for the volumes of pods, PersistentVolumes and PersistentVolumeClaims.

Follows Kubernetes v1.37.1, pkg/apis/core/validation/validation.go, with the feature gates that are on by default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from bayplan.api_validation.field_errors import (
    Fields,
    Form,
    Messages,
    descending_path,
    dns_label,
    dns_subdomain,
    no_backsteps,
    qualified_name,
    unreserved_path,
)
from bayplan.api_validation.resource_rules import amount
from bayplan.api_validation.selection_rules import node_selector_problems, selector_problems, template_metadata_problems
from scheduler_core.model.pod_requests import canonical_text, notation

Rule = Callable[[Fields], None]

_ACCESS_MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_HOST_PATH_TYPES = ("", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_KEY_TYPES = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
_MAX_MODE = 0o777
_IQN = re.compile(r"iqn\.\d{4}-\d{2}\.([a-zA-Z0-9-]+\.?)+(:[^,;*&$|\s]+)$")
_EUI = re.compile(r"^eui.[a-zA-Z0-9]{16}$")
_NAA = re.compile(r"^naa.[a-zA-Z0-9]{32}$")
_MAX_CERTIFICATE_SECONDS, _MAX_KUBERNETES_SECONDS = 91 * 86400, 86400


def volume_problems(volumes: list[Fields], pod_name: str) -> dict[str, Fields]:
    """Validate the volumes of a pod; return those without a problem by name."""
    created = {f"{pod_name}-{each.text('name')}" for each in volumes if pod_name and each.get("ephemeral") is not None}
    valid: dict[str, Fields] = {}
    for volume in volumes:
        before, name = len(volume.problems), volume.text("name")
        _source_problems(volume, POD_SOURCES)
        iscsi = volume.part("iscsi")
        if iscsi.get("initiatorName") is not None and len(f"{name}:{iscsi.text('targetPortal')}") > 64:
            detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters"
            volume.invalid("name", name, detail)
        if volume.get("ephemeral") is not None and pod_name and name:
            claim = f"{pod_name}-{name}"
            volume.invalid("name", name, *(f'PVC name "{claim}": {each}' for each in dns_subdomain(claim)))
        volume.name("name", dns_label)
        if name in valid:
            volume.duplicate("name", name)
        if len(volume.problems) == before:
            valid[name] = volume
        reference = volume.part("persistentVolumeClaim")
        if reference.text("claimName") in created:
            detail = "must not reference a PVC that gets created for an ephemeral volume"
            reference.invalid("claimName", reference.text("claimName"), detail)
    return valid


def _source_problems(volume: Fields, rules: Mapping[str, Rule]) -> list[str]:
    """Validate the source of a volume; return the fields of all sources that are set."""
    sources = volume.given(*rules)
    for field in sources[1:]:
        volume.forbidden(field, "may not specify more than 1 volume type")
    for field in sources[:1]:
        rules[field](volume.part(field))
    return sources


# -- PersistentVolumes and claims -------------------------------------------------------------------------------------


def persistent_volume_problems(spec: Fields, *, inline: bool = False) -> None:
    """Validate the spec of a PersistentVolume; an inline one is that of a VolumeAttachment."""
    _access_mode_problems(spec, "add it")
    capacity = spec.mapping("capacity")
    if not inline:
        spec.require("capacity")
        if set(capacity) - {"storage"}:
            spec.unsupported("capacity", ", ".join(capacity), ("storage",))
        for name, value in capacity.items():
            if amount(value) <= 0:
                spec.invalid(f"capacity[{name}]", value, "must be greater than zero")
    policies = ("Retain",) if inline else ("Delete", "Recycle", "Retain")
    spec.choice("persistentVolumeReclaimPolicy", policies)
    affinity = spec.part("nodeAffinity")
    has_affinity = spec.get("nodeAffinity") is not None
    if has_affinity and not inline:
        if affinity.get("required") is None:
            affinity.required("required", "must specify required node constraints")
        else:
            node_selector_problems(affinity.part("required"))
    if inline:
        for field in spec.given("claimRef", "nodeAffinity"):
            spec.forbidden(field, "may not be specified in the context of inline volumes")
        if capacity or spec.text("storageClassName"):
            spec.forbidden("capacity", "may not be specified in the context of inline volumes")
    sources = _source_problems(spec, PERSISTENT_SOURCES)
    if sources[:1] == ["local"] and not has_affinity:
        spec.required("nodeAffinity", "Local volume requires node affinity")
    if not sources or (inline and "csi" not in sources):
        spec.required("", "must specify a volume type" if not inline else "csi has to be specified")
    host_path, policy = spec.part("hostPath").text("path"), spec.text("persistentVolumeReclaimPolicy")
    if host_path.startswith("/") and not host_path.strip("/.") and policy == "Recycle":
        spec.forbidden("persistentVolumeReclaimPolicy", "may not be 'recycle' for a hostPath mount of '/'")
    if not inline:
        spec.name("storageClassName", dns_subdomain, is_required=False)
    mode = spec.get("volumeMode")
    if mode is not None and mode not in (("Filesystem",) if inline else ("Block", "Filesystem")):
        spec.unsupported("volumeMode", mode, ("Block", "Filesystem"))
    if spec.get("volumeAttributesClassName") is not None:
        spec.name("volumeAttributesClassName", dns_subdomain, "an empty string is disallowed")
        if "csi" not in sources:
            spec.required("csi", "has to be specified when using volumeAttributesClassName")


def claim_problems(spec: Fields, *, drops_source: bool = True) -> None:
    """Validate the spec of a PersistentVolumeClaim.

    Args:
        drops_source: Whether the API server drops a data source that is neither a claim nor a snapshot, as it does
            except in templates.
    """
    _access_mode_problems(spec, "at least 1 access mode is required")
    selector_problems(spec.part("selector"))
    requests = spec.part("resources").mapping("requests")
    if "storage" not in requests:
        spec.required("resources.requests[storage]")
    elif amount(requests["storage"]) <= 0:
        spec.invalid("resources.requests[storage]", requests["storage"], "must be greater than zero")
    spec.name("storageClassName", dns_subdomain, is_required=False)
    spec.one_of("volumeMode", ("Block", "Filesystem"))
    source, reference = spec.part("dataSource"), spec.part("dataSourceRef")
    given = spec.given("dataSource", "dataSourceRef")
    if "dataSource" in given and drops_source and not _is_kept(source):
        given.remove("dataSource")
    for each in map(spec.part, given):
        _data_source_problems(each)
    if len(given) == 2:
        if reference.text("namespace"):
            spec.invalid("dataSource", "", "may not be specified when dataSourceRef.namespace is specified")
        elif any(source.get(each) != reference.get(each) for each in ("apiGroup", "kind", "name")):
            spec.invalid("dataSource", "", "must match dataSourceRef")
    spec.name("volumeAttributesClassName", dns_subdomain, is_required=False)


def _access_mode_problems(spec: Fields, missing: str) -> None:
    spec.require("accessModes", detail=missing)
    modes = spec.texts("accessModes")
    for index, mode in enumerate(modes):
        if mode not in _ACCESS_MODES:
            spec.unsupported(f"accessModes[{index}]", mode, _ACCESS_MODES)
    if "ReadWriteOncePod" in modes and any(mode in _ACCESS_MODES[:3] for mode in modes):
        spec.forbidden("accessModes", "may not use ReadWriteOncePod with other access modes")


def _is_kept(source: Fields) -> bool:
    group, kind = source.text("apiGroup"), source.text("kind")
    return (group, kind) in (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))


def _data_source_problems(source: Fields) -> None:
    source.require("name", "kind")
    kind = source.text("kind")
    if not source.text("apiGroup") and kind != "PersistentVolumeClaim":
        source.invalid("", kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
    source.name("apiGroup", dns_subdomain, is_required=False)
    source.name("namespace", dns_label, is_required=False)


# -- sources ----------------------------------------------------------------------------------------------------------


def _needs(*fields: str, **forms: Form) -> Rule:
    """Return the rule that some fields are set, and that those with a format have it if they are."""

    def check(source: Fields) -> None:
        source.require(*fields)
        for field, form in forms.items():
            source.name(field, form, is_required=False)

    return check


def _all(*rules: Rule) -> Rule:
    def check(source: Fields) -> None:
        for rule in rules:
            rule(source)

    return check


def _secret(*fields: str) -> Rule:
    """Return the rule of a reference to a secret, which may be absent."""

    def check(source: Fields) -> None:
        if source.get("secretRef") is not None:
            source.part("secretRef").require(*fields)

    return check


def _mode_problems(source: Fields, field: str = "defaultMode") -> None:
    mode = source.get(field)
    if mode is not None and not 0 <= mode <= _MAX_MODE:
        source.invalid(field, mode, "must be a number between 0 and 0777 (octal), both inclusive")


def _key_problems(source: Fields) -> None:
    for item in source.parts("items"):
        item.require("key", "path")
        item.check("path", unreserved_path)
        _mode_problems(item, "mode")


def _empty_dir(source: Fields) -> None:
    if amount(source.get("sizeLimit")) < 0:
        source.forbidden("sizeLimit", "SizeLimit field must be a valid resource quantity")


def _host_path(source: Fields) -> None:
    source.name("path", no_backsteps)
    if source.text("path"):
        source.choice("type", _HOST_PATH_TYPES)


def _disk(name: str) -> Rule:
    def check(source: Fields) -> None:
        source.require(name)
        source.between("partition", 0, 255)

    return check


def _absolute_path(value: str) -> Messages:
    return () if value.startswith("/") else ("must be an absolute path",)


def _iscsi(source: Fields) -> None:
    source.require("targetPortal", "iqn")
    for field in ("iqn", "initiatorName"):
        name = source.get(field)
        if name or (field == "initiatorName" and name is not None):
            pattern = {"iqn": _IQN, "eui": _EUI, "naa": _NAA}.get(name[:3])
            if pattern is None:
                source.invalid(field, name, "must be valid format starting with iqn, eui, or naa")
            elif not pattern.search(name):
                source.invalid(field, name, "must be valid format")
    source.between("lun", 0, 255)
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and source.get("secretRef") is None:
        source.required("secretRef")


def _fc(source: Fields) -> None:
    names, ids = source.get("targetWWNs"), source.get("wwids")
    if not names and not ids:
        source.required("targetWWNs", "must specify either targetWWNs or wwids, but not both")
    if names and ids:
        source.invalid("targetWWNs", names, "targetWWNs and wwids can not be specified simultaneously")
    if names and source.get("lun") is None:
        source.required("lun", "lun is required if targetWWNs is specified")
    elif names:
        source.between("lun", 0, 255)


def _quobyte(source: Fields) -> None:
    registry, detail = source.text("registry"), "must be a host:port pair or multiple pairs separated by commas"
    if not registry:
        source.required("registry", detail)
    elif len(source.text("tenant")) >= 65:
        source.required("tenant", "must be a UUID and may not exceed a length of 64 characters")
    else:
        for pair in registry.split(","):
            if not re.fullmatch(r"(\[[^\[\]]*\]|[^:\[\]]*):[^:\[\]]*", pair):
                source.invalid("registry", registry, detail)
    source.require("volume")


def _flocker(source: Fields) -> None:
    name, identity = source.text("datasetName"), source.text("datasetUUID")
    if not name and not identity:
        source.required("", "one of datasetName and datasetUUID is required")
    if name and identity:
        source.invalid("", "resource", "datasetName and datasetUUID can not be specified simultaneously")
    if "/" in name:
        source.invalid("datasetName", name, "must not contain '/'")


def _flex(source: Fields) -> None:
    source.require("driver")
    for key in source.mapping("options"):
        namespace = key.partition("/")[0].lower()
        if f".{namespace}".endswith((".kubernetes.io", ".k8s.io")):
            source.invalid(f"options[{key}]", key, "kubernetes.io and k8s.io namespaces are reserved")


def _azure_disk(source: Fields) -> None:
    source.require("diskName", "diskURI")
    kind = "Shared" if source.get("kind") is None else source.get("kind")
    source.one_of("cachingMode", ("None", "ReadOnly", "ReadWrite"))
    source.one_of("kind", ("Shared", "Dedicated", "Managed"))
    uri = source.text("diskURI")
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        source.unsupported("diskURI", uri, ("/subscriptions/...",))
    if kind != "Managed" and not uri.startswith("https://"):
        source.unsupported("diskURI", uri, ("https://...",))


def _downward_api(source: Fields) -> None:
    _mode_problems(source)
    for item in source.parts("items"):
        _downward_file_problems(item)


def _downward_file_problems(item: Fields) -> None:
    """Validate a file with a field or a resource of the pod."""
    item.require("path")
    item.check("path", unreserved_path)
    _mode_problems(item, "mode")
    given = item.given("fieldRef", "resourceFieldRef")
    if len(given) > 1:
        item.invalid("", "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
    if "fieldRef" in given:
        field_problems(item.part("fieldRef"), _VOLUME_FIELDS)
    elif given:
        resource_field_problems(item.part("resourceFieldRef"), of_volume=True)
    else:
        item.required("", "one of fieldRef and resourceFieldRef is required")


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


def field_problems(reference: Fields, supported: Collection[str]) -> None:
    version, field = reference.text("apiVersion") or "v1", reference.text("fieldPath")
    if not field:
        reference.required("fieldPath")
        return
    match = re.fullmatch(r"(.*)\['([^']*)'\]", field)
    base = match[1] if match else field
    if version != "v1" or (base not in _KNOWN_FIELDS if match is None else base not in _VOLUME_FIELDS[2:4]):
        reference.invalid("fieldPath", field, "error converting fieldPath: field label not supported")
    elif match is not None:
        key = match[2]
        reference.invalid("", key, *qualified_name(key.lower() if base == "metadata.annotations" else key))
    elif base not in supported:
        reference.unsupported("fieldPath", base, supported)


def resource_field_problems(reference: Fields, *, of_volume: bool) -> None:
    """Validate a reference to requests or limits of a container."""
    resource = reference.text("resource")
    is_known, is_huge = resource in _RESOURCE_FIELDS, resource.startswith(_HUGE_PAGE_FIELDS)
    if of_volume and not reference.text("containerName"):
        reference.required("containerName")
    elif not resource:
        reference.required("resource")
    elif not is_known and not is_huge:
        reference.unsupported("resource", resource, _RESOURCE_FIELDS)
    written = reference.get("divisor")
    if not amount(written):
        return
    divisor = canonical_text(amount(written), notation(str(written).strip()))
    if is_known and resource.endswith(".cpu"):
        if divisor not in ("1", "1m"):
            detail = "only divisor's values 1m and 1 are supported with the cpu resource"
            reference.invalid("divisor", resource, detail)
    elif (is_known or is_huge) and divisor not in _DIVISORS:
        detail = "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki ... 1Ei are supported"
        reference.invalid("divisor", resource, detail)


def _projected(source: Fields) -> None:
    _mode_problems(source)
    paths: list[str] = []
    for each in source.parts("sources"):
        given = each.given(*_PROJECTIONS)
        if len(given) > 1:
            each.forbidden("", "may not specify more than 1 volume type per source")
        for field in given:
            paths += _PROJECTIONS[field](each.part(field))
    for index, target in enumerate(paths):
        if target in paths[:index]:
            source.invalid("", target, "conflicting duplicate paths")


def _projected_items(source: Fields) -> list[str]:
    source.require("name")
    _key_problems(source)
    return _item_paths(source)


def _projected_fields(source: Fields) -> list[str]:
    for item in source.parts("items"):
        _downward_file_problems(item)
    return _item_paths(source)


def _item_paths(source: Fields) -> list[str]:
    return [item.text("path") for item in source.parts("items") if item.text("path")]


def _projected_token(source: Fields) -> list[str]:
    seconds = source.get("expirationSeconds")
    if seconds is not None and not 600 <= seconds <= 1 << 32:
        detail = "may not specify a duration less than 10 minutes or larger than 2^32 seconds"
        source.invalid("expirationSeconds", seconds, detail)
    source.require("path")
    source.check("path", unreserved_path)
    return []


def _projected_bundle(source: Fields) -> list[str]:
    name, signer = source.get("name"), source.get("signerName")
    if name is not None and signer is not None:
        source.invalid("", name, "only one of name and signerName may be used")
    elif name is not None:
        if not name:
            source.required("name", "must be a valid object name")
        # The name of a bundle of a signer begins with that of the signer, with colons instead of slashes.
        source.invalid("name", name, *dns_subdomain(name.rpartition(":")[2]))
        if name.count(":") not in (0, 2):
            source.invalid("name", name, "not a valid clustertrustbundlename")
        if source.get("labelSelector") is not None:
            source.invalid("labelSelector", "", "labelSelector must be unset if name is specified")
    elif signer is not None:
        _signer_problems(source)
        selector_problems(source.part("labelSelector"))
    else:
        source.required("", "either name or signerName must be specified")
    source.require("path")
    source.check("path", unreserved_path)
    return [source.text("path")]


def _projected_certificate(source: Fields) -> list[str]:
    _signer_problems(source)
    for key in source.mapping("userAnnotations"):
        source.invalid(f"userAnnotations[{key}]", key, *qualified_name(key.lower()))
        if "/" not in key:
            source.invalid(f"userAnnotations[{key}]", key, "must have a domain prefix")
    if source.text("keyType") not in _KEY_TYPES:
        source.unsupported("keyType", source.text("keyType") or "unset", _KEY_TYPES)
    seconds = source.get("maxExpirationSeconds")
    is_kubernetes = source.text("signerName").startswith("kubernetes.io/")
    highest = _MAX_KUBERNETES_SECONDS if is_kubernetes else _MAX_CERTIFICATE_SECONDS
    if seconds is not None and not 3600 <= seconds <= highest:
        source.invalid("maxExpirationSeconds", seconds, f"must be between 3600 and {highest}")
    fields = ("credentialBundlePath", "keyPath", "certificateChainPath")
    given = [field for field in fields if source.text(field)]
    if not given:
        source.required("", "specify at least one of credentialBundlePath, keyPath, and certificateChainPath")
    for field in given:
        source.check(field, unreserved_path)
    return [source.text(field) for field in given]


def _signer_problems(source: Fields) -> None:
    name = source.text("signerName")
    if not name:
        source.required("signerName", "must be a valid signer name")
        return
    domain, slash, rest = name.partition("/")
    if not slash or not domain or not rest or "/" in rest:
        detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        source.invalid("signerName", name, detail)
        return
    source.invalid("signerName", name, *dns_subdomain(domain))
    if "." not in domain:
        source.invalid("signerName", name, "should be a domain with at least two segments separated by dots")
    source.invalid("signerName", name, *dns_subdomain(rest))


def csi_driver_name_problems(owner: Fields, field: str, name: str | None = None) -> None:
    """Validate the name of a driver in a field; ``name`` is set if it is only a part of the field."""
    name = owner.text(field) if name is None else name
    if not name:
        owner.required(field)
        return
    if len(name) > 63:
        owner.too_long(field, 63)
    owner.invalid(field, name, *dns_subdomain(name.lower()))


def _csi(source: Fields) -> None:
    csi_driver_name_problems(source, "driver")
    if source.get("nodePublishSecretRef") is not None:
        source.part("nodePublishSecretRef").name("name", dns_subdomain)


def _csi_volume(source: Fields) -> None:
    csi_driver_name_problems(source, "driver")
    source.require("volumeHandle")
    for field in source.given(
        "controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"
    ):
        source.part(field).name("name", dns_subdomain)
        source.part(field).name("namespace", dns_label)


def _ephemeral(source: Fields) -> None:
    template = source.part("volumeClaimTemplate")
    if source.get("volumeClaimTemplate") is None:
        source.required("volumeClaimTemplate")
    else:
        template_metadata_problems(template.part("metadata"))
        claim_problems(template.part("spec"), drops_source=False)


def _image(source: Fields) -> None:
    source.require("reference")
    source.choice("pullPolicy", PULL_POLICIES)


def _glusterfs_volume(source: Fields) -> None:
    source.require("endpoints", "path")
    source.optional("endpointsNamespace", dns_label)


def _azure_file_volume(source: Fields) -> None:
    source.require("secretName", "shareName")
    if source.get("secretNamespace") is not None:
        source.require("secretNamespace")


_PROJECTIONS: Mapping[str, Callable[[Fields], list[str]]] = {
    "secret": _projected_items,
    "configMap": _projected_items,
    "downwardAPI": _projected_fields,
    "serviceAccountToken": _projected_token,
    "clusterTrustBundle": _projected_bundle,
    "podCertificate": _projected_certificate,
}

_STORAGE_OS = _needs("volumeName", volumeName=dns_label, volumeNamespace=dns_label)
_NFS = _needs("server", "path", path=_absolute_path)

POD_SOURCES: Mapping[str, Rule] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "gitRepo": _needs("repository", directory=descending_path),
    "gcePersistentDisk": _disk("pdName"),
    "awsElasticBlockStore": _disk("volumeID"),
    "secret": _all(_needs("secretName"), _mode_problems, _key_problems),
    "nfs": _NFS,
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
    "storageos": _all(_STORAGE_OS, _secret("name")),
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
    "nfs": _NFS,
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
    "local": _needs("path", path=no_backsteps),
    "storageos": _all(_STORAGE_OS, _secret("name", "namespace")),
    "csi": _csi_volume,
}
"""Rules of the volume sources of PersistentVolumes."""
