"""``bayplan diff``: options, sources and exit codes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from bayplan.cli import allow_invalid_option, feature_gates_option, given_command
from bayplan.cli.cluster_connection import ClusterChoice, kubeconfig_options
from bayplan.cli.diff_report import as_html, as_json, as_table, as_yaml
from bayplan.comparison.profile_choice import ProfileReference, find_profile, parse_reference
from bayplan.comparison.profile_comparison import ComparedProfile, Comparison, compare
from bayplan.comparison.rescheduled_pods import PodSelection, Reschedule, parse_label_query
from bayplan.page.report_documents import ReportDocuments, compared
from bayplan.page.simulated_documents import SimulatedDocuments, SimulationCommands
from bayplan.profiles.history_listing import ProfileHistory, read_history
from bayplan.settings.feature_gates import FeatureGates, parse_feature_gates
from bayplan.simulation.admission import AdmittedCluster, admit
from bayplan.simulation.cluster_files import read_cluster_files
from bayplan.simulation.listed_cluster import list_cluster
from bayplan.simulation.simulated_profiles import without_invalid
from bayplan.simulation.simulation import PodPlacement, SimulationOptions, installed_plugins
from bayplan.texts.printable import printable_record
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.scheduler import Scheduler

EXIT_DIFFERENT = 1


@click.command(short_help="Show what another profile would decide.")
@click.argument("before")
@click.argument("after")
@click.option(
    "--cluster",
    "files",
    multiple=True,
    type=click.Path(),
    metavar="FILE",
    help="Read the cluster from files, as `bayplan simulate` does; may be repeated.  [default: the live cluster]",
)
@click.option(
    "--reschedule",
    type=click.Choice([Reschedule.EMPTY.value, Reschedule.PRESENT.value]),
    help="Also decide running pods of the profile: from nodes without them (empty), or one by one from the present "
    "state, as if each was restarted (present).",
)
@click.option("-n", "--namespace", default="", help="Only running pods of this namespace; with --reschedule.")
@click.option("-l", "--selector", default="", help="Only running pods with these labels; with --reschedule.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed to resolve ties.")
@click.option(
    "--percentage-of-nodes-to-score",
    "percentage",
    type=click.IntRange(0, 100),
    help="Percentage for profiles that set none; 0 is kube-scheduler's formula.  [default: all nodes]",
)
@feature_gates_option("Feature gates of both schedulers.")
@allow_invalid_option("With --cluster: ")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml", "html"]), default="table", help="Format.")
@click.option("--all", "every", is_flag=True, help="List all pods that differ. Without it: the first of each kind.")
@kubeconfig_options
@click.option(
    "--revision-namespace",
    help="Namespace of the stored revisions, which is the operator's.  [default: all namespaces, or that of the "
    "context if you may not list revisions in all namespaces]",
)
@click.pass_context
def diff(
    context: click.Context,
    *,
    before: str,
    after: str,
    files: tuple[str, ...],
    reschedule: str | None,
    namespace: str,
    selector: str,
    seed: int,
    percentage: int | None,
    feature_gates: str,
    allow_invalid: bool,
    output: str,
    every: bool,
    kubeconfig: Path | None,
    kube_context: str | None,
    revision_namespace: str | None,
) -> None:
    """Decide the pending pods of profile BEFORE under BEFORE and under AFTER, and show what differs.

    A profile is a FILE with a SchedulerProfile and the PluginConfigs that it references (FILE#NAME if it has several),
    the NAME of a profile in the cluster, or NAME@REVISION of a stored revision (see `bayplan history`). AFTER decides
    the pods of BEFORE, whatever its own scheduler name is.

    With --reschedule, running pods are decided again too, except pods of DaemonSets, static pods and pods with resource
    claims: "empty" takes all of them off their nodes first; "present" restarts one after another, the members of a gang
    together, while all others keep running.

    The output has the pods that are decided differently, and for both profiles the use of resources and
    devices, empty nodes, free amounts that no compared pod can use, the imbalance of nodes and zones, and how many
    running pods would move. Both runs take place in memory, with the same seed; nothing is written to the cluster.

    With -o html it is one file to attach to a ticket, which needs no server: the page's panels of pending pods, gangs
    and nodes for both profiles, explanations of the oldest attempted pod of each cause and of ten gangs, and below them
    the tables, which need no script.

    Exit codes: 0 no pod is decided differently, 1 a pod is, 2 the profiles or the cluster cannot be read.
    """
    if (namespace or selector) and reschedule is None:
        raise click.UsageError("--namespace and --selector choose running pods; use them with --reschedule")
    if allow_invalid and not files:
        raise click.UsageError("--allow-invalid requires --cluster")
    selection = PodSelection(Reschedule(reschedule or "no"), namespace, parse_label_query(selector))
    references = parse_reference(before), parse_reference(after)
    choice = ClusterChoice(kubeconfig, kube_context, revision_namespace)
    options = SimulationOptions(seed, percentage, gates=FeatureGates(parse_feature_gates(feature_gates)))
    cluster, profiles = _read(files, references, choice, allow_invalid=allow_invalid)
    documents: list[ReportDocuments] = []

    async def read_end(scheduler: Scheduler, _: Sequence[PodPlacement]) -> None:
        documents.append(await SimulatedDocuments(scheduler, SimulationCommands(given_command(context))).build())

    inspect = read_end if output == "html" else None
    comparison = compare(cluster, profiles, selection, options, installed_plugins(), inspect=inspect)
    if output == "html":
        click.echo(as_html(comparison, compared((before, after), *documents)), nl=False)
    else:
        _print(comparison, output, every=every)
    if comparison.differences:
        context.exit(EXIT_DIFFERENT)


def _print(comparison: Comparison, output: str, *, every: bool) -> None:
    if output == "json":
        click.echo(as_json(comparison))
    elif output == "yaml":
        click.echo(as_yaml(comparison), nl=False)
    else:
        for notice in comparison.notices:
            click.echo(printable_record(f"note: {notice}"), err=True)
        for side in (comparison.before, comparison.after):
            for notice in side.notices:
                click.echo(printable_record(f"note: with {side.title}: {notice}"), err=True)
        click.echo(as_table(comparison, every=every))


def _read(
    files: tuple[str, ...],
    references: tuple[ProfileReference, ProfileReference],
    choice: ClusterChoice,
    *,
    allow_invalid: bool,
) -> tuple[AdmittedCluster, tuple[ComparedProfile, ComparedProfile]]:
    decoded = installed_plugins().decoded_types()

    def history(name: str) -> ProfileHistory:
        if files:
            message = f"revisions of {name} are stored in the live cluster; leave out --cluster, or name a file"
            raise ConfigError([Problem("--cluster", message)])
        return choice.run(lambda connection: read_history(connection, name, choice.namespace, choice.own_namespace))

    if files:
        cluster = admit(read_cluster_files(files, decoded, allow_invalid=allow_invalid))
    else:
        cluster = choice.run(lambda connection: list_cluster(connection, decoded))
    first, second = (find_profile(reference, cluster, history) for reference in references)
    if not files:
        cluster = without_invalid(cluster, first.references | second.references)
    return cluster, (first, second)
