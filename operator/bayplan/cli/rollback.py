"""``bayplan rollback``: writes the spec of an earlier revision to a profile."""

from __future__ import annotations

from pathlib import Path

import click

from bayplan.cli.cluster_connection import ClusterChoice, cluster_options
from bayplan.kube.http.connection import ApiConnection
from bayplan.profiles.history_listing import Body, condition, read_history
from bayplan.profiles.rollback import Rollback, plan_rollback, wait_until_live, write
from bayplan.profiles.spec_changes import unified_diff
from bayplan.texts.printable import printable, printable_record


@click.command(short_help="Roll a profile back to an earlier revision.")
@click.argument("profile")
@click.option(
    "--to-revision",
    "number",
    type=click.IntRange(min=1),
    help="Number of the revision.  [default: the previous good one]",
)
@click.option("--resolved", is_flag=True, help="Write the args of PluginConfigs at that time instead of references.")
@click.option("--dry-run", is_flag=True, help="Show the changes and let the API server validate them; change nothing.")
@click.option("--wait/--no-wait", "waits", default=True, show_default=True, help="Wait until the revision is live.")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=30.0, show_default=True, help="Seconds to wait.")
@cluster_options
def rollback(
    *,
    profile: str,
    number: int | None,
    resolved: bool,
    dry_run: bool,
    waits: bool,
    timeout: float,
    namespace: str | None,
    kubeconfig: Path | None,
    kube_context: str | None,
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
    choice = ClusterChoice(kubeconfig, kube_context, namespace)

    async def work(connection: ApiConnection) -> None:
        history = await read_history(connection, profile, namespace, choice.own_namespace)
        planned = await plan_rollback(connection, history, number, resolved=resolved)
        click.echo(printable(_diff(planned)), nl=False)
        written = await write(connection, planned, dry_run=dry_run)
        what, target = f'SchedulerProfile "{profile}"', f"revision {planned.revision.number} ({planned.revision.hash})"
        if dry_run:
            click.echo(printable_record(f"{what} would be rolled back to {target}; nothing was changed"))
            return
        click.echo(printable_record(f"{what} rolled back to {target}"))
        await report_written(connection, written, timeout if waits else None)

    choice.run(work)


async def report_written(connection: ApiConnection, written: Body, seconds: float | None) -> None:
    """Print what to do after an edit of a profile, and its condition when it is live.

    Args:
        seconds: Longest wait in seconds; None for no wait.
    """
    click.echo("note: if the profile is applied from a repository, change it there too", err=True)
    if seconds is not None:
        live = await wait_until_live(connection, written, seconds)
        click.echo(printable_record(f"Ready: {condition(live, 'Ready').get('message')}"))


def _diff(planned: Rollback) -> str:
    names = (f"{planned.history.name} now", f"revision {planned.revision.number}")
    return unified_diff(planned.history.spec, planned.spec, names)
