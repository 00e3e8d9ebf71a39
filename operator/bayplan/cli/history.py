"""``bayplan history``: shows the stored revisions of a profile."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from bayplan.cli.cluster_connection import ClusterChoice, cluster_options
from bayplan.profiles.controller_revision_format import StoredRevision
from bayplan.profiles.history_listing import ProfileHistory, read_history
from bayplan.profiles.spec_changes import as_yaml, changes, changes_summary, unified_diff
from bayplan.resources.resource_model import format_time
from bayplan.texts.printable import printable, printable_json, printable_record
from bayplan.texts.tables import plain_table, text_of
from scheduler_core.errors import ClusterWriteError

_FIRST = "oldest stored revision"
_UNREADABLE = "not supported by this version"


@click.command(short_help="Show the stored revisions of a profile.")
@click.argument("profile")
@click.option("--revision", type=click.IntRange(min=1), help="Print the spec of this revision.")
@click.option("--diff", "pair", type=click.IntRange(min=1), nargs=2, metavar="A B", help="Compare two revisions.")
@click.option("--resolved", is_flag=True, help="Show the args of PluginConfigs at that time instead of references.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", help="Output format.")
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
    """Show the last ten revisions of the SchedulerProfile PROFILE that were live.

    Each row has the revision's number, the hash of its content, its age, the field manager that changed it, the change
    cause and the changes. The change cause is the annotation kubernetes.io/change-cause of the profile, as for
    Deployments. An asterisk marks the live revision.

    `bayplan rollback` restores a revision.

    Exit codes: 0 success, 1 the profile or revision does not exist or is forbidden.
    """
    if revision is not None and pair is not None:
        raise click.UsageError("specify only one of --revision and --diff")
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
        documents = [_document(found, each, resolved=resolved) for each in found.revisions]
        click.echo(_as_json(documents) if output == "json" else as_yaml(documents), nl=output == "json")


def _as_json(document: Any) -> str:
    return printable_json(json.dumps(document, indent=2))


def _diff(found: ProfileHistory, pair: tuple[int, int], *, resolved: bool) -> str:
    old, new = (found.numbered(number) for number in pair)
    specs = [found.spec_of(each, resolved=resolved) for each in (old, new)]
    diff = unified_diff(specs[0], specs[1], (f"revision {old.number}", f"revision {new.number}"))
    if not diff and not resolved and old.content != new.content:
        return "The specs are equal, but referenced PluginConfigs have changed; use --resolved.\n"
    return diff


def _table(found: ProfileHistory) -> str:
    if not found.revisions:
        text = f'SchedulerProfile "{found.name}" has no stored revisions'
        return printable(f"{text}: none was live yet, or they are in another namespace; see --namespace.")
    table = plain_table("REVISION", "HASH", "AGE", "LIVE", "BY", "CHANGE-CAUSE", "CHANGES")
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
    """Return the age as kubectl prints it."""
    if created is None:
        return "-"
    seconds = max(0, int((datetime.now(UTC) - created).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"
