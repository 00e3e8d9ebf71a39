"""``bayplan completion``, and the names of a cluster that a shell completes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
from click.shell_completion import CompletionItem, get_completion_class

from bayplan.cli.operator_location import ClusterChoice
from bayplan.kube.http.api_request import path_part
from bayplan.kube.http.connection import ApiConnection, ApiRequest, Lane, ListPage
from bayplan.kube.http.deep_json import ObjectJsonDecoder
from scheduler_core.errors import SchedulerCoreError

_VARIABLE = "_BAYPLAN_COMPLETE"
_SECONDS = 3.0
_LIMIT = "500"
_NAMES_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_PROFILES = "/apis/bayplan.dev/v1alpha1/schedulerprofiles"
_NAMESPACES = "/api/v1/namespaces"
_GROUPS = "podgroup/"

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


class _Metadata(msgspec.Struct):
    name: str


class _Named(msgspec.Struct):
    metadata: _Metadata


_LISTS = ObjectJsonDecoder(ListPage[_Named])


def complete_profiles(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a SchedulerProfile."""
    del parameter
    return _items(_listed(context, lambda connection: _names(connection, _PROFILES)), incomplete)


def complete_explained(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a pod, or of a PodGroup after ``podgroup/``."""
    del parameter
    prefix = _GROUPS if incomplete.startswith(_GROUPS) else ""
    named, slash, _ = incomplete.removeprefix(prefix).partition("/")
    prefix += f"{named}{slash}" if slash else ""
    api, plural = ("/apis/bayplan.dev/v1alpha1", "podgroups") if prefix.startswith(_GROUPS) else ("/api/v1", "pods")
    if context.params.get("is_all_namespaces") and not slash:
        path = f"{api}/{plural}"
    else:
        namespace = named if slash else context.params.get("namespace") or _choice(context).own_namespace
        path = f"{api}/namespaces/{path_part(namespace)}/{plural}"
    found = [f"{prefix}{name}" for name in _listed(context, lambda connection: _names(connection, path))]
    return _items(found if prefix else [*found, _GROUPS], incomplete)


def complete_namespaces(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a namespace."""
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
    found = _LISTS.decode(await connection.request(request))
    return sorted(each.metadata.name for each in found.items or ())
