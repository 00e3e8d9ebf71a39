"""``bayplan history``: the kept revisions of a profile.

Owns the command's options and how revisions are printed. It must not know where they are kept.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from bayplan.cli.cluster_connection import ClusterChoice, cluster_options
from bayplan.printable import printable, printable_json, printable_record
from bayplan.resources.resource_model import format_time
from bayplan.rollout.profile_history import ProfileHistory, read_history
from bayplan.rollout.spec_changes import as_yaml, changes, changes_summary, unified_diff
from bayplan.stored_revision import StoredRevision
from bayplan.text_output import plain_table, text_of
from scheduler_core.errors import ClusterWriteError

_FIRST = "the first that is kept"
_UNREADABLE = "cannot be read by this version"


@click.command(short_help="Show the kept revisions of a profile.")
@click.argument("profile")
@click.option("--revision", type=click.IntRange(min=1), help="Print the spec of this revision.")
@click.option("--diff", "pair", type=click.IntRange(min=1), nargs=2, metavar="A B", help="Compare two revisions.")
@click.option("--resolved", is_flag=True, help="Show args of PluginConfigs as they were in the place of references.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", help="How to print.")
@cluster_options
def history(
    *,
    profile: str,
    revision: int | None,
    pair: tuple[int, int] | None,
    resolved: bool,
    output: str,
    namespace: str | None,
    kubeconfig: Path | None,
    kube_context: str | None,
) -> None:
    """Show the last ten good revisions of the SchedulerProfile PROFILE: those that were live.

    Each is told with its number, the hash of its content, since when it is kept, who changed it to what and why; the
    reason is the annotation kubernetes.io/change-cause of the profile, as for Deployments. The live one is marked.

    `bayplan rollback` goes back to one of them.

    Exit codes: 0 done, 1 no such profile or revision, or no right to see it.
    """
    if revision is not None and pair is not None:
        raise click.UsageError("choose one of --revision and --diff")
    choice = ClusterChoice(kubeconfig, kube_context, namespace)
    found = choice.run(lambda connection: read_history(connection, profile, namespace, choice.own_namespace))
    if pair is not None:
        click.echo(printable(_diff(found, pair, resolved=resolved)), nl=False)
    elif revision is not None:
        spec = found.spec_of(found.numbered(revision), resolved=resolved)
        click.echo(_as_json(spec) if output == "json" else as_yaml(spec), nl=output == "json")
    elif output == "table":
        click.echo(_table(found))
    else:
        told = [_document(found, each, resolved=resolved) for each in found.revisions]
        click.echo(_as_json(told) if output == "json" else as_yaml(told), nl=output == "json")


def _as_json(document: Any) -> str:
    return printable_json(json.dumps(document, indent=2))


def _diff(found: ProfileHistory, pair: tuple[int, int], *, resolved: bool) -> str:
    old, new = (found.numbered(number) for number in pair)
    specs = [found.spec_of(each, resolved=resolved) for each in (old, new)]
    told = unified_diff(specs[0], specs[1], (f"revision {old.number}", f"revision {new.number}"))
    if not told and not resolved and old.content != new.content:
        return "The specs are equal; PluginConfigs that they refer to have changed, see --resolved.\n"
    return told


def _table(found: ProfileHistory) -> str:
    if not found.revisions:
        told = f'No revision of SchedulerProfile "{found.name}" is kept'
        return printable(f"{told}: none was live yet, or they are kept in another namespace; see --namespace.")
    table = plain_table("REVISION", "HASH", "AGE", "LIVE", "BY", "CHANGE-CAUSE", "WHAT CHANGED")
    for each in reversed(found.revisions):
        live = "*" if each is found.current else ""
        texts = (each.origin.manager or "-", each.origin.cause or "<none>", _changed(found, each))
        table.add_row(
            str(each.number),
            printable_record(each.hash),
            _age(each.created),
            live,
            *(Text(printable_record(text)) for text in texts),
        )
    return text_of([table])


def _changed(found: ProfileHistory, revision: StoredRevision) -> str:
    if revision.config is None:
        return _UNREADABLE
    before = _before(found, revision)
    return _FIRST if before is None else changes_summary(changes(before.content, revision.content))


def _before(found: ProfileHistory, revision: StoredRevision) -> StoredRevision | None:
    return next((each for each in found.revisions if each.number < revision.number and each.config is not None), None)


def _document(found: ProfileHistory, revision: StoredRevision, *, resolved: bool) -> dict[str, Any]:
    before = _before(found, revision)
    try:
        spec: dict[str, Any] | None = found.spec_of(revision, resolved=resolved)
    except ClusterWriteError:
        spec = None
    return {
        "revision": revision.number,
        "hash": revision.hash,
        "created": None if revision.created is None else format_time(revision.created),
        "live": revision is found.current,
        "manager": revision.origin.manager or None,
        "changeCause": revision.origin.cause or None,
        "changes": [] if before is None or revision.config is None else changes(before.content, revision.content),
        "references": dict(revision.origin.references),
        "spec": spec,
    }


def _age(created: datetime | None) -> str:
    """How long ago, as kubectl writes it."""
    if created is None:
        return "-"
    seconds = max(0, int((datetime.now(UTC) - created).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"
