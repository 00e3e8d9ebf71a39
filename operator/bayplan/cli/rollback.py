"""``bayplan rollback``: write an earlier revision's spec into a profile again.

Owns the command's options and what it prints. It must not know how a revision is found or written.
"""

from __future__ import annotations

from pathlib import Path

import click

from bayplan.cli.cluster_connection import ClusterChoice, cluster_options
from bayplan.kube.connection import ApiConnection
from bayplan.printable import printable, printable_record
from bayplan.rollout.profile_history import condition, read_history
from bayplan.rollout.rollback import Rollback, plan_rollback, wait_until_live, write
from bayplan.rollout.spec_changes import unified_diff


@click.command(short_help="Take a profile back to an earlier revision.")
@click.argument("profile")
@click.option(
    "--to-revision", "number", type=click.IntRange(min=1), help="Its number.  [default: the previous good one]"
)
@click.option("--resolved", is_flag=True, help="Write args of PluginConfigs as they were in the place of references.")
@click.option("--dry-run", is_flag=True, help="Show what would change and let the API server judge it; change nothing.")
@click.option("--wait/--no-wait", "waits", default=True, show_default=True, help="Wait until it is live.")
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
    """Take the SchedulerProfile PROFILE back to an earlier revision (see `bayplan history`).

    The revision's spec is written with your own rights; the operator makes it live like any edit. What changes is
    shown. When the spec as it is now was refused, the default is the last good revision, which is live still; else it
    is the one before. The content that comes back takes a new number, and its old number goes, as with a Deployment.

    When the revision refers to a PluginConfig that has changed or is gone, --resolved writes the args as they were
    into the profile itself.

    Where the profile is applied from a repository (GitOps), change it there too, or the next sync brings the other
    spec back.

    Exit codes: 0 done, 1 not possible, refused, or not live in time.
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
        click.echo("note: change it in the repository too, if it is applied from one", err=True)
        if waits:
            live = await wait_until_live(connection, written, timeout)
            click.echo(printable_record(f"Ready: {condition(live, 'Ready').get('message')}"))

    choice.run(work)


def _diff(planned: Rollback) -> str:
    names = (f"{planned.history.name} now", f"revision {planned.revision.number}")
    return unified_diff(planned.history.spec, planned.spec, names)
