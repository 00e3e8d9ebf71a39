"""Names of objects on the command line, their completion in a shell, and the options ``-n`` and ``-A``.

A name without a namespace is in that of ``-n``, otherwise in the default of its source: the namespace of the context
for a cluster, "default" for files and records. A list has all namespaces, unless ``-n`` names one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from click.shell_completion import CompletionItem, get_completion_class

from bayplan.cli.operator_location import ClusterChoice
from bayplan.kube.http.api_request import path_part
from bayplan.kube.http.connection import ApiConnection, ApiRequest, Lane, ListPage
from bayplan.kube.http.deep_json import ObjectJsonDecoder
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod_group import POD_GROUP_SOURCES, GroupSource

Command = TypeVar("Command", bound=Callable[..., Any] | click.Command)

ALL_NAMESPACES = "*"
"""Namespace of a name that is looked for in all namespaces, as with ``-A``; no namespace has this name."""
DEFAULT_NAMESPACE = "default"
"""Namespace of names without one in files and records, which are of no context."""

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
    """Name of a PodGroup; its API is None for the first one that has the name."""

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


_VARIABLE = "_BAYPLAN_COMPLETE"
_SECONDS = 3.0
_LIMIT = "500"
_NAMES_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_PROFILES = "/apis/bayplan.dev/v1alpha1/schedulerprofiles"
_NAMESPACES = "/api/v1/namespaces"
_GROUP_PREFIX = "podgroup/"

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


@click.command(short_help="Print the script that completes commands in a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands, options and the names of a cluster in SHELL.

    Profiles, their revisions, pods and PodGroups are read from the cluster of the kubeconfig, with your rights.

    \b
    bash:  source <(bayplan completion bash)      in ~/.bashrc; needs bash 4.4
    zsh:   source <(bayplan completion zsh)       in ~/.zshrc, after compinit
    fish:  bayplan completion fish | source       in ~/.config/fish/config.fish
    """  # noqa: D301 - click needs the backspace itself: it keeps the lines as they are
    root = click.get_current_context().find_root().command
    scripts = get_completion_class(shell)
    assert scripts is not None, "click completes in these shells"
    click.echo(scripts(root, {}, "bayplan", _VARIABLE).source())


class NamedObject(msgspec.Struct, frozen=True):
    """The metadata of an object of any kind."""

    metadata: ObjectMeta


NAMES = ObjectJsonDecoder(ListPage[NamedObject])


def complete_profiles(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    del parameter
    return _items(_listed(context, lambda connection: _names(connection, _PROFILES)), incomplete)


def complete_explained(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a pod, or of a PodGroup after ``podgroup/``."""
    del parameter
    prefix = _GROUP_PREFIX if incomplete.startswith(_GROUP_PREFIX) else ""
    named, slash, _ = incomplete.removeprefix(prefix).partition("/")
    prefix += f"{named}{slash}" if slash else ""
    is_group = prefix.startswith(_GROUP_PREFIX)
    api, plural = ("/apis/bayplan.dev/v1alpha1", "podgroups") if is_group else ("/api/v1", "pods")
    if context.params.get("is_all_namespaces") and not slash:
        path = f"{api}/{plural}"
    else:
        namespace = named if slash else context.params.get("namespace") or _choice(context).own_namespace
        path = f"{api}/namespaces/{path_part(namespace)}/{plural}"
    found = [f"{prefix}{name}" for name in _listed(context, lambda connection: _names(connection, path))]
    return _items(found if prefix else [*found, _GROUP_PREFIX], incomplete)


def complete_groups(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a PodGroup of ``bayplan.dev`` in the namespace of ``-n``."""
    del parameter
    namespace = context.params.get("namespace") or _choice(context).own_namespace
    path = f"/apis/bayplan.dev/v1alpha1/namespaces/{path_part(namespace)}/podgroups"
    return _items(_listed(context, lambda connection: _names(connection, path)), incomplete)


def complete_namespaces(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    del parameter
    return _items(_listed(context, lambda connection: _names(connection, _NAMESPACES)), incomplete)


def complete_references(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a SchedulerProfile, or its revision after ``NAME@``; files are completed by their names."""
    name, at, _ = incomplete.partition("@")
    if not at:
        found = complete_profiles(context, parameter, incomplete)
        return found or [CompletionItem(incomplete, type="file")]
    return _items([f"{name}@{each}" for each in _revisions(context, name)], incomplete)


def complete_revisions(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the number of a revision of the profile that the command names."""
    del parameter
    # click assigns no arguments if the line ends with an option whose value is missing, which is completed here.
    profile = context.params.get("profile") or next(iter(context.args), "")
    return _items(_revisions(context, profile), incomplete)


def _revisions(context: click.Context, profile: str) -> list[str]:
    """Return the numbers of the stored revisions, newest first."""
    # Imported here because completion of other names must not wait for it, and not in the time to read the cluster.
    from bayplan.profiles.rollback import read_history  # noqa: PLC0415

    async def read(connection: ApiConnection) -> list[str]:
        own = _choice(context).own_namespace
        found = await read_history(connection, profile, context.params.get("revision_namespace"), own)
        return [str(each.number) for each in reversed(found.revisions)]

    return _listed(context, read) if profile else []


def _items(names: list[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _choice(context: click.Context) -> ClusterChoice:
    given: Mapping[str, Any] = context.params
    kubeconfig = given.get("kubeconfig")
    return ClusterChoice(None if kubeconfig is None else Path(kubeconfig), given.get("kube_context"))


def _listed(context: click.Context, read: Callable[[ApiConnection], Awaitable[list[str]]]) -> list[str]:
    """Return what is read from the cluster; nothing if it cannot be read in time, since a completion has no errors."""

    async def in_time(connection: ApiConnection) -> list[str]:
        return await asyncio.wait_for(read(connection), _SECONDS)

    logging.disable()
    try:
        return _choice(context).run(in_time)
    except (SchedulerCoreError, OSError, TimeoutError, msgspec.DecodeError):
        return []
    finally:
        logging.disable(logging.NOTSET)


async def _names(connection: ApiConnection, path: str) -> list[str]:
    request = ApiRequest("GET", path, params=(("limit", _LIMIT),), lane=Lane.READS, accept=_NAMES_ONLY)
    found = NAMES.decode(await connection.request(request))
    return sorted(each.metadata.name for each in found.items or ())
