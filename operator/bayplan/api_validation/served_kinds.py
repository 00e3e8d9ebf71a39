"""Decides whether an object that is not read is another resource, or one with a wrong version or a misspelt kind.

A wrong version must not be ignored: the scheduler would decide without the object.
"""

from __future__ import annotations

from collections.abc import Iterable

from bayplan.api_validation.openapi_schema import kubernetes_schema
from bayplan.resources.resource_model import API_VERSION, GROUP
from scheduler_core.config.plugin_args import API_VERSION as KUBE_SCHEDULER_API
from scheduler_core.config.validation import did_you_mean
from scheduler_core.errors import Problem

_UNIQUE = frozenset({"SchedulerProfile", "PluginConfig", "KubeSchedulerConfiguration"})
"""Kinds that no other API group has."""
_OTHER_KINDS = {
    API_VERSION: ("SchedulerProfile", "PluginConfig", "PodGroup"),
    KUBE_SCHEDULER_API: ("KubeSchedulerConfiguration",),
}
_GROUPS = frozenset({GROUP, KUBE_SCHEDULER_API.partition("/")[0], "scheduling.x-k8s.io"})


def version_problem(api_version: str, kind: str, known: Iterable[str]) -> Problem | None:
    """Return the problem of an object that is not read; None for a resource that does not matter.

    Args:
        api_version: Its apiVersion; "" if it has none.
        known: The apiVersions in which the kind is read; none for another kind.
    """
    served = kubernetes_schema().served
    group = _group(api_version)
    groups = _GROUPS | {_group(version) for version in served}
    versions = list(dict.fromkeys(known))
    if kind in served.get(api_version, ()):
        return None
    if versions and (group in groups or kind in _UNIQUE):
        expected = " or ".join(f'"{each}"' for each in versions)
        given = f'"{api_version}"' if api_version else "none"
        return Problem("apiVersion", f"must be {expected}, not {given}; convert the object to it")
    if kind == "List" and api_version:
        return Problem("apiVersion", f'must be "v1", not "{api_version}"; correct it')
    if not api_version:
        return Problem("apiVersion", "is required; add it")
    kinds = _OTHER_KINDS.get(api_version) or served.get(api_version)
    if kinds is not None:
        return Problem("kind", f'no kind "{kind}" in {api_version}{did_you_mean(kind, kinds)}; correct it')
    return None


def _group(api_version: str) -> str:
    return api_version.partition("/")[0] if "/" in api_version else ""
