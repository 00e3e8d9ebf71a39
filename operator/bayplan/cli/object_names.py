"""Names of pods and PodGroups on the command line, and the options ``-n`` and ``-A``, which mean the same everywhere.

A name without a namespace is in that of ``-n``, otherwise in the default of its source: the namespace of the context
for a cluster, "default" for files and records. A list has all namespaces, unless ``-n`` names one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from bayplan.cli.completion import complete_namespaces
from scheduler_core.errors import NotFoundError
from scheduler_core.model.pod_group import POD_GROUP_SOURCES, GroupSource

Command = TypeVar("Command", bound=Callable[..., Any] | click.Command)

ALL_NAMESPACES = "*"
"""Namespace of a name that is looked for in all namespaces, as with ``-A``; no namespace has this name."""
DEFAULT_NAMESPACE = "default"
"""Namespace of names without one in files and records, which are of no context."""

_LISTED = 8
_PODS = frozenset({"pod", "pods", "po"})
_GROUPS = frozenset({"podgroup", "podgroups", "bpg", "pg"})
_SHORT = "bpg"
_OTHER_KINDS = frozenset(
    {"cronjob", "cronjobs", "cj", "daemonset", "daemonsets", "ds", "deployment", "deployments", "deploy"}
    | {"job", "jobs", "node", "nodes", "no", "replicaset", "replicasets", "rs", "statefulset", "statefulsets", "sts"}
    | {"schedulerprofile", "schedulerprofiles", "sp"}
)
"""Kinds that users try to name; a namespace of one of these names needs ``-n``."""


@dataclass(frozen=True, slots=True)
class PodName:
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class GroupName:
    """Name of a PodGroup.

    Attributes:
        source: API of the PodGroup; None for the first API that has one with this name.
    """

    namespace: str
    name: str
    source: GroupSource | None = None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def object_name(namespace: str | None, text: str, default_namespace: str = DEFAULT_NAMESPACE) -> PodName | GroupName:
    """Parse the name of a pod or PodGroup.

    Args:
        namespace: Namespace of ``-n``, :data:`ALL_NAMESPACES` with ``-A``; None if neither is given.
        text: Argument: ``web-0``, ``shop/web-0``, ``podgroup/train`` or ``podgroup/shop/train``.

    Raises:
        UsageError: The argument names neither a pod nor a PodGroup of a supported API, or another namespace than
            ``-n``.
    """
    *prefix, name = text.split("/")
    resource = prefix.pop(0) if prefix and _is_kind(prefix[0]) else ""
    if not name or len(prefix) > 1 or "" in prefix or (prefix and prefix[0] in _OTHER_KINDS):
        forms = "POD, NAMESPACE/POD, podgroup/NAME or podgroup/NAMESPACE/NAME"
        raise click.UsageError(f'"{text}" does not name a pod or PodGroup; specify {forms}')
    if prefix and namespace not in (None, prefix[0]):
        other = "-A selects all" if namespace == ALL_NAMESPACES else f"-n is {namespace}"
        raise click.UsageError(f'"{text}" is in namespace {prefix[0]}, and {other}; specify one of them')
    namespace = prefix[0] if prefix else namespace or default_namespace
    kind, dot, api = resource.partition(".")
    if kind not in _GROUPS:
        return PodName(namespace, name)
    if not dot:
        return GroupName(namespace, name, GroupSource.BAYPLAN if kind == _SHORT else None)
    known = {source.value: source for source in POD_GROUP_SOURCES}
    if api not in known:
        raise click.UsageError(f'unsupported API of PodGroups "{api}": supported values: {", ".join(known)}')
    return GroupName(namespace, name, known[api])


def _is_kind(text: str) -> bool:
    return text in _PODS or text.partition(".")[0] in _GROUPS


def only_namespace(kind: str, name: str, namespaces: Collection[str]) -> str:
    """Return the only namespace that has a name.

    Raises:
        NotFoundError: No namespace or several have it.
    """
    if not namespaces:
        raise NotFoundError(f"{kind} {name} not found in any namespace; check the name")
    if len(namespaces) > 1:
        listed = ", ".join(f"{each}/{name}" for each in sorted(namespaces)[:_LISTED])
        more = f" and {len(namespaces) - _LISTED} more" if len(namespaces) > _LISTED else ""
        raise NotFoundError(f"several namespaces have this name: {listed}{more}; specify one of them")
    return next(iter(namespaces))


def pod_key(namespace: str | None, text: str) -> str:
    """Parse the name of a pod in a record, and return it as ``namespace/name``.

    Raises:
        UsageError: The text does not name a pod, or another namespace than ``-n``.
    """
    found = object_name(namespace, text)
    if isinstance(found, GroupName):
        raise click.UsageError(f'"{text}" is a PodGroup; decisions of a record are on pods: specify [NAMESPACE/]POD')
    return str(found)


def namespace_options(one: str, every: str) -> Callable[[Command], Command]:
    """Add ``-n`` and ``-A``, with what they select as help; the command reads them with :func:`chosen_namespace`."""

    def decorate(command: Command) -> Command:
        command = click.option("-A", "--all-namespaces", "is_all_namespaces", is_flag=True, help=every)(command)
        return click.option("-n", "--namespace", shell_complete=complete_namespaces, help=one)(command)

    return decorate


def chosen_namespace(namespace: str | None, *, is_all_namespaces: bool) -> str:
    """Return the namespace of a list; "" for all.

    Raises:
        UsageError: Both options are given, or an empty namespace.
    """
    if namespace == "":
        raise click.UsageError("-n: the namespace is empty; name one, or use -A for all namespaces")
    if namespace is not None and is_all_namespaces:
        raise click.UsageError(f"-n {namespace} selects one namespace and -A all; specify one of them")
    return namespace or ""
