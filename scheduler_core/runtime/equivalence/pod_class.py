"""The definition of a pod class: pods that the plugins of a profile cannot distinguish.

A class key encodes everything decoded from a pod except its identity (name, UID, age) and conditions. A looser key also
leaves out aspects in which the pods of a workload often differ; plugins that read such an aspect are then called for
every pod of the class.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from operator import attrgetter

from msgspec import Struct
from msgspec.msgpack import Encoder

from scheduler_core.framework.object_reads import annotations_of
from scheduler_core.framework.plugin import PodReads
from scheduler_core.model.pod import Container, PodSpec
from scheduler_core.snapshot.pod_info import PodInfo

LOOSENESS = (PodReads.NOTHING, PodReads.RESOURCES, PodReads.LABELS, PodReads.RESOURCES | PodReads.LABELS)
"""Aspects that a key may leave out, the strictest key first; a key's looseness is its index."""

_WITHOUT_LABELS = tuple(PodReads.LABELS in varying for varying in LOOSENESS)
_RESOURCES_LEFT_OUT = tuple(PodReads.RESOURCES in varying for varying in LOOSENESS)
_DIGEST_BYTES = 32
_SHORT_BYTES = 512
_encode = Encoder().encode


def class_key(info: PodInfo, looseness: int = 0) -> bytes:
    """Return the key of a pod's class; pods with equal keys differ in identity and the aspects left out alone.

    Args:
        info: The pod.
        looseness: Index into :data:`LOOSENESS` of the aspects to leave out.

    Returns:
        The encoded pod, or its digest if that is long. The strict key is computed once for each version of the pod.
    """
    if looseness:
        return _key(info, looseness)
    known = info.class_key
    if known is None or known[0] is not info.pod:
        known = info.class_key = (info.pod, _key(info, 0))
    return known[1]


def _key(info: PodInfo, looseness: int) -> bytes:
    pod = info.pod
    spec, meta, status = pod.spec, pod.metadata, pod.status
    labels = None if _WITHOUT_LABELS[looseness] else meta.labels
    # An ephemeral volume's claim is named after the pod.
    common = (looseness, meta.namespace, labels, meta.owner_references, annotations_of(pod), info.volumes.claims)
    rest: tuple[object, ...]
    if _RESOURCES_LEFT_OUT[looseness]:
        read_status = _status_reader(type(status), resources=False)
        containers = [_WITHOUT_RESOURCES(each) for each in (*spec.containers, *spec.init_containers)]
        # Which extended resources a pod requests stays in the key: device classes may serve them.
        names = info.scalars, info.fit_names if info.scalars else ()
        rest = (len(spec.containers), containers, _SPEC_WITHOUT_RESOURCES(spec), read_status(status), names)
    else:
        rest = (spec, _status_reader(type(status), resources=True)(status))
    encoded = _encode((common, rest))
    return encoded if len(encoded) <= _SHORT_BYTES else blake2b(encoded, digest_size=_DIGEST_BYTES).digest()


def _all_but(struct: type[Struct], *names: str) -> attrgetter[tuple[object, ...]]:
    return attrgetter(*(name for name in struct.__struct_fields__ if name not in names))


_SPEC_WITHOUT_RESOURCES = _all_but(PodSpec, "containers", "init_containers", "overhead", "resources")
_WITHOUT_RESOURCES = _all_but(Container, "resources")
_PROGRESS = ("phase", "conditions", "start_time")
_STATUS_RESOURCES = ("container_statuses", "init_container_statuses", "allocated_resources", "resources")


@cache
def _status_reader(kind: type[Struct], *, resources: bool) -> Callable[[object], object]:
    return _all_but(kind, *_PROGRESS, *(() if resources else _STATUS_RESOURCES))
