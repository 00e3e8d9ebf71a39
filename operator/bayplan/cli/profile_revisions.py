"""``bayplan history``, ``bayplan rollback`` and ``bayplan promote``: revisions of a profile, and writes of its spec."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click
from msgspec import Struct

from bayplan.cli.object_names import complete_profiles, complete_revisions
from bayplan.cli.operator_location import ClusterChoice, cluster_options, kubeconfig_options
from bayplan.kube.http.connection import ApiConnection
from bayplan.profiles.revision_store import StoredRevision
from bayplan.profiles.rollback import (
    ProfileHistory,
    Rollback,
    SpecWrite,
    as_yaml,
    changes,
    changes_summary,
    condition,
    is_revision,
    plan_promotion,
    plan_rollback,
    read_history,
    unified_diff,
    wait_until_live,
    write_spec,
)
from bayplan.texts.document_formats import as_json, printable, printable_record, renderers
from bayplan.texts.report_sections import table_of, text_of
from scheduler_core.errors import ClusterWriteError

_FIRST = "oldest stored revision"
_UNREADABLE = "not supported by this version"


class RevisionName(click.ParamType):  # type: ignore[type-arg]  # at runtime not generic before click 8.4
    """A revision by its number or its hash."""

    name = "revision"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not is_revision(value):
            self.fail(
                f'"{value}" is not a revision; give a number or a hash, as bayplan history lists them', param, ctx
            )
        return value


@click.command(short_help="Show the stored revisions of a profile.")
@click.argument("profile", shell_complete=complete_profiles)
@click.option(
    "--revision",
    type=RevisionName(),
    shell_complete=complete_revisions,
    help="Print the spec of this revision, given by number or hash.",
)
@click.option("--diff", "pair", type=RevisionName(), nargs=2, metavar="A B", help="Compare two revisions.")
@click.option("--resolved", is_flag=True, help="Show the args of PluginConfigs at that time instead of references.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", help="Output format.")
@cluster_options
def history(
    *,
    profile: str,
    revision: str | None,
    pair: tuple[str, str] | None,
    resolved: bool,
    output: str,
    cluster: ClusterChoice,
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
    found = cluster.run(lambda connection: read_history(connection, profile, cluster.namespace, cluster.own_namespace))
    if pair is not None:
        click.echo(printable(_revision_diff(found, pair, resolved=resolved)), nl=False)
    elif revision is not None:
        spec = found.spec_of(found.named(revision), resolved=resolved)
        click.echo(as_json(spec) if output == "json" else as_yaml(spec), nl=output == "json")
    else:
        click.echo(renderers(_table)[output](history_document(found, resolved=resolved)), nl=output != "yaml")


def _revision_diff(found: ProfileHistory, pair: tuple[str, str], *, resolved: bool) -> str:
    old, new = (found.named(revision) for revision in pair)
    specs = [found.spec_of(each, resolved=resolved) for each in (old, new)]
    diff = unified_diff(specs[0], specs[1], (f"revision {old.number}", f"revision {new.number}"))
    if not diff and not resolved and old.content != new.content:
        return "The specs are equal, but referenced PluginConfigs have changed; use --resolved.\n"
    return diff


class RevisionDocument(Struct, frozen=True, rename="camel"):
    """Stored revision of a profile.

    Attributes:
        manager: Field manager that wrote it, "" if it is not known.
        changed_from: Number of the revision that ``changes`` refers to; None for the oldest one that can be read.
        is_readable: Whether this version of Bayplan can read it; otherwise its changes are not known.
        spec: The spec; None if it cannot be read.
    """

    revision: int
    hash: str
    created: datetime | None
    live: bool
    manager: str
    change_cause: str
    changed_from: int | None
    changes: tuple[str, ...]
    is_readable: bool
    references: dict[str, str]
    spec: dict[str, Any] | None


class HistoryDocument(Struct, frozen=True, rename="camel"):
    """Stored revisions of a profile, the newest first."""

    profile: str
    revisions: tuple[RevisionDocument, ...]


def history_document(found: ProfileHistory, *, resolved: bool) -> HistoryDocument:
    return HistoryDocument(found.name, tuple(_document(found, each, resolved=resolved) for each in found.revisions))


def _document(found: ProfileHistory, revision: StoredRevision, *, resolved: bool) -> RevisionDocument:
    older = (each for each in found.revisions if each.number < revision.number and each.config is not None)
    before = None if revision.config is None else next(older, None)
    try:
        spec: dict[str, Any] | None = found.spec_of(revision, resolved=resolved)
    except ClusterWriteError:
        spec = None
    return RevisionDocument(
        revision.number,
        revision.hash,
        revision.created,
        revision is found.current,
        revision.origin.manager,
        revision.origin.cause,
        None if before is None else before.number,
        () if before is None else tuple(changes(before.content, revision.content)),
        revision.config is not None,
        dict(revision.origin.references),
        spec,
    )


def _table(found: HistoryDocument) -> str:
    if not found.revisions:
        text = f'SchedulerProfile "{found.profile}" has no stored revisions'
        return f"{text}: none was live yet, or they are in another namespace; see --revision-namespace."
    rows = []
    for each in reversed(found.revisions):
        texts = (each.manager or "-", each.change_cause or "<none>", _changed(each))
        rows.append((each.revision, each.hash, _age(each.created), "*" if each.live else "", *texts))
    return text_of([table_of(("REVISION", "HASH", "AGE", "LIVE", "BY", "CHANGE-CAUSE", "CHANGES"), rows)])


def _changed(revision: RevisionDocument) -> str:
    if not revision.is_readable:
        return _UNREADABLE
    return _FIRST if revision.changed_from is None else changes_summary(list(revision.changes))


def _age(created: datetime | None) -> str:
    """Return the age as kubectl prints it."""
    if created is None:
        return "-"
    seconds = max(0, int((datetime.now(UTC) - created).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


@click.command(short_help="Roll a profile back to an earlier revision.")
@click.argument("profile", shell_complete=complete_profiles)
@click.option(
    "--to-revision",
    "revision",
    type=RevisionName(),
    shell_complete=complete_revisions,
    help="Number or hash of the revision.  [default: the previous good one]",
)
@click.option("--resolved", is_flag=True, help="Write the args of PluginConfigs at that time instead of references.")
@click.option("--dry-run", is_flag=True, help="Show the changes and let the API server validate them; change nothing.")
@click.option("--wait/--no-wait", "waits", default=True, show_default=True, help="Wait until the revision is live.")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=30.0, show_default=True, help="Seconds to wait.")
@cluster_options
def rollback(
    *,
    profile: str,
    revision: str | None,
    resolved: bool,
    dry_run: bool,
    waits: bool,
    timeout: float,
    cluster: ClusterChoice,
) -> None:
    """Roll the SchedulerProfile PROFILE back to an earlier revision (see `bayplan history`).

    The command prints the changes and writes the revision's spec with your own rights; the operator activates it like
    any edit. If the current spec was rejected, the default is the last good revision, which is still live; otherwise it
    is the previous one. The restored content gets a new number and loses its old one, as with a Deployment.

    If the revision references a PluginConfig that has changed or was deleted, --resolved writes the args at that time
    into the profile.

    If the profile is applied from a repository (GitOps), change it there too; otherwise the next sync restores the
    other spec.

    Exit codes: 0 success, 1 not possible, rejected, or not live before the timeout.
    """

    async def work(connection: ApiConnection) -> None:
        history = await read_history(connection, profile, cluster.namespace, cluster.own_namespace)
        planned = await plan_rollback(connection, history, revision, resolved=resolved)
        click.echo(printable(_diff(planned)), nl=False)
        what, target = f'SchedulerProfile "{profile}"', f"revision {planned.revision.number} ({planned.revision.hash})"
        texts = f"{what} would be rolled back to {target}", f"{what} rolled back to {target}"
        await _write(connection, planned.change, texts, dry_run=dry_run, seconds=timeout if waits else None)

    cluster.run(work)


async def _write(
    connection: ApiConnection, change: SpecWrite, texts: tuple[str, str], *, dry_run: bool, seconds: float | None
) -> None:
    """Write an edit of a profile, and print its condition when it is live, unless the time limit is None.

    Args:
        texts: What a dry run would change, and what was changed.
    """
    written = await write_spec(connection, change, dry_run=dry_run)
    if dry_run:
        click.echo(printable_record(f"{texts[0]}; nothing was changed"))
        return
    click.echo(printable_record(texts[1]))
    click.echo("note: if the profile is applied from a repository, change it there too", err=True)
    if seconds is not None:
        live = await wait_until_live(connection, written, seconds)
        click.echo(printable_record(f"Ready: {condition(live, 'Ready').get('message')}"))


def _diff(planned: Rollback) -> str:
    names = (f"{planned.history.name} now", f"revision {planned.revision.number}")
    return unified_diff(planned.history.spec, planned.spec, names)


@click.command(short_help="Write the spec of a shadow profile into its live profile.")
@click.argument("shadow", shell_complete=complete_profiles)
@click.option("--dry-run", is_flag=True, help="Show the changes and let the API server validate them; change nothing.")
@click.option("--wait/--no-wait", "waits", default=True, show_default=True, help="Wait until the revision is live.")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=30.0, show_default=True, help="Seconds to wait.")
@kubeconfig_options
def promote(*, shadow: str, dry_run: bool, waits: bool, timeout: float, cluster: ClusterChoice) -> None:
    """Write the spec of the shadow profile SHADOW into its live profile, without the fields of shadows.

    The command prints the changes and what the shadow has compared, and writes the spec with your own rights, as one
    edit: the operator activates it like any edit, `bayplan history` lists it, and `bayplan rollback` takes it back. The
    shadow stays; delete it when you no longer need it.

    If the live profile is applied from a repository (GitOps), change it there too; otherwise the next sync restores the
    other spec.

    Exit codes: 0 success, 1 not possible, rejected, or not live before the timeout.
    """

    async def work(connection: ApiConnection) -> None:
        planned = await plan_promotion(connection, shadow)
        names = (f"{planned.live_name} now", planned.shadow_name)
        click.echo(printable(unified_diff(planned.live.get("spec") or {}, planned.spec, names)), nl=False)
        click.echo(printable_record(planned.evidence))
        what = f'SchedulerProfile "{planned.live_name}"'
        texts = f'{what} would get the spec of "{shadow}"', f'{what} has the spec of "{shadow}" now'
        await _write(connection, planned.change, texts, dry_run=dry_run, seconds=timeout if waits else None)

    cluster.run(work)
