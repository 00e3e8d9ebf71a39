"""``bayplan diff``: options, sources and exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

import click
import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bayplan.cli import allow_invalid_option, feature_gates_option, given_command, report_head, tie_and_sampling_options
from bayplan.cli.object_names import chosen_namespace, complete_references, namespace_options
from bayplan.cli.operator_location import ClusterChoice, cluster_options
from bayplan.comparison import (
    Change,
    ComparedProfile,
    Comparison,
    PodDifference,
    PodSelection,
    ProfileReference,
    Reschedule,
    Side,
    compare,
    find_profile,
    parse_label_query,
    parse_reference,
)
from bayplan.page.page_sources import Commands
from bayplan.page.report_documents import (
    ReportDocuments,
    compared,
    profile_revisions,
    simulated_documents,
    with_packing,
)
from bayplan.page.report_file import report_of
from bayplan.profiles.rollback import ProfileHistory, read_history
from bayplan.settings.feature_gates import FeatureGates, parse_feature_gates
from bayplan.simulation.admission import AdmittedCluster
from bayplan.simulation.cluster_snapshot import list_cluster
from bayplan.simulation.memory_cluster import installed_plugins
from bayplan.simulation.packing import ResourceTotal, devices_title, share
from bayplan.simulation.simulated_profiles import without_invalid
from bayplan.simulation.simulation import PodPlacement, SimulationOptions, read_cluster
from bayplan.texts.document_formats import PIPED_WIDTH, printable_json, printable_record, printable_yaml
from bayplan.texts.report_sections import NO_HEAD, ReportHead, table_of, text_of
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.model.pod_requests import amount_text
from scheduler_core.scheduler import Scheduler

SHORT_LIST = 20
"""Pods of each kind that are listed without being requested."""

WORDS = {
    Change.NO_LONGER_FITS: "no longer fits",
    Change.FITS_NOW: "fits now",
    Change.MOVES: "moves",
    Change.OTHER_REASON: "waits for another reason",
    Change.PREEMPTED: "is preempted",
    Change.SPARED: "is no longer preempted",
}


def as_table(comparison: Comparison, *, every: bool) -> str:
    """Return the summary, the figures and the pods that differ, without ``every`` the first ones of each kind."""
    sections: list[RenderableType] = [Text(printable_record(summary(comparison))), _figure_table(comparison)]
    shown, hidden = shown_differences(comparison, every=every)
    if shown:
        sections.append(_pod_table(shown))
    if hidden:
        sections.append(Text(f"{hidden} more pods differ; list them with --all", style="dim"))
    return text_of(sections)


def as_html(comparison: Comparison, documents: ReportDocuments, head: ReportHead = NO_HEAD) -> str:
    """Return a report with panels of the page for both profiles, and tables."""
    sections: list[RenderableType] = [
        Text(summary(comparison)),
        Group(Text("Figures", style="bold"), _figure_table(comparison)),
    ]
    if comparison.differences:
        sections.append(Group(Text("Pods", style="bold"), _pod_table(comparison.differences)))
    notices = [
        *comparison.notices,
        *(f"with {side.profile}: {each}" for side in (comparison.before, comparison.after) for each in side.notices),
    ]
    if notices:
        sections.append(Group(Text("Notes", style="bold"), *map(Text, notices)))
    return report_of(f"{comparison.before.profile} and {comparison.after.profile}", documents, sections, head)


def _figure_table(comparison: Comparison) -> Table:
    return table_of(("", "BEFORE", "AFTER"), (map(printable_record, row) for row in figure_rows(comparison)))


def _pod_table(differences: Sequence[PodDifference]) -> Table:
    rows = (map(printable_record, pod_row(each)) for each in differences)
    return table_of(("POD", "CHANGE", "RUNS ON", "BEFORE", "AFTER", "REASON"), rows)


def summary(comparison: Comparison) -> str:
    numbers = comparison.summary
    decided = f"{numbers.pending} pending"
    if numbers.rescheduled:
        decided += f" and {numbers.rescheduled} running"
    text = f"{decided} pods decided on {numbers.nodes} nodes: "
    if not comparison.differences:
        return text + "no difference"
    counts = [f"{count} {_counted(change, count)}" for change, count in numbers.differences.items() if count]
    return text + ", ".join(counts)


def _counted(change: Change, count: int) -> str:
    if count == 1:
        return WORDS[change]
    plural = {
        Change.NO_LONGER_FITS: "no longer fit",
        Change.FITS_NOW: "fit now",
        Change.MOVES: "move",
        Change.OTHER_REASON: "wait for another reason",
        Change.PREEMPTED: "are preempted",
        Change.SPARED: "are no longer preempted",
    }
    return plural[change]


def figure_rows(comparison: Comparison) -> Iterator[tuple[str, str, str]]:
    """Yield name and both values of each figure."""
    before, after = comparison.before, comparison.after
    yield "profile", before.profile, after.profile
    yield "pods scheduled", str(before.scheduled), str(after.scheduled)
    yield "pods not scheduled", str(before.unscheduled), str(after.unscheduled)
    yield "running pods that would move", str(before.moved_running_pods), str(after.moved_running_pods)
    yield "nodes without pods", str(before.empty_nodes), str(after.empty_nodes)
    first, second = before.resources, after.resources
    for name in [name for name, total in first.items() if total.allocatable and total.requested]:
        yield f"{name} requested", _requested(first, name), _requested(second, name)
    for driver in before.devices:
        yield f"{devices_title(driver)} in use", _in_use(before, driver), _in_use(after, driver)
    unusable = [{name: total.unusable_share_of_free for name, total in side.items()} for side in (first, second)]
    for name in _names(unusable):
        yield f"largest free {name} on one node", _largest(first, name), _largest(second, name)
    for title, values in (
        ("free {} that no compared pod can use", unusable),
        ("imbalance of {}", [_imbalances(side) for side in (before, after)]),
    ):
        for name in _names(values):
            yield title.format(name), _percent(values[0].get(name)), _percent(values[1].get(name))
    if before.zone_skew is not None:
        yield "zone skew (pods)", str(before.zone_skew), str(after.zone_skew)


def _names(values: Iterable[Mapping[str, float | None]]) -> list[str]:
    return sorted({name for side in values for name, value in side.items() if value is not None})


def _imbalances(side: Side) -> dict[str, float | None]:
    devices = {devices_title(driver): total.imbalance for driver, total in side.devices.items()}
    return {name: total.imbalance for name, total in side.resources.items()} | devices


def _requested(totals: Mapping[str, ResourceTotal], name: str) -> str:
    total = totals.get(name)
    if total is None:
        return "-"
    both = amount_text(name, total.requested), amount_text(name, total.allocatable)
    return f"{' of '.join(both)} ({share(total.requested, total.allocatable)})"


def _in_use(side: Side, driver: str) -> str:
    total = side.devices.get(driver)
    return "-" if total is None else f"{total.requested} of {total.allocatable}"


def _largest(totals: Mapping[str, ResourceTotal], name: str) -> str:
    return amount_text(name, totals[name].largest_free_on_one_node) if name in totals else "-"


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.1f}%"


def shown_differences(comparison: Comparison, *, every: bool) -> tuple[Sequence[PodDifference], int]:
    """Return the pods to list, and the number of the others."""
    if every:
        return comparison.differences, 0
    shown: list[PodDifference] = []
    for change in Change:
        shown += [each for each in comparison.differences if each.change is change][:SHORT_LIST]
    return shown, len(comparison.differences) - len(shown)


def pod_row(each: PodDifference) -> tuple[str, str, str, str, str, str]:
    """Return the cells of a pod: name, change, node now, node before, node after, reason."""
    return (
        f"{each.namespace}/{each.name}",
        WORDS[each.change],
        each.runs_on or "-",
        each.before.node or "-",
        each.after.node or "-",
        each.reason,
    )


EXIT_DIFFERENT = 1


@click.command(short_help="Show what another profile would decide.")
@click.argument("before", shell_complete=complete_references)
@click.argument("after", shell_complete=complete_references)
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
@namespace_options(
    "Only running pods of this namespace; with --reschedule.",
    "Running pods of all namespaces, which is the default; with --reschedule.",
)
@click.option("-l", "--selector", default="", help="Only running pods with these labels; with --reschedule.")
@tie_and_sampling_options
@feature_gates_option("Feature gates of both schedulers.")
@allow_invalid_option("With --cluster: ")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml", "html"]), default="table", help="Format.")
@click.option("--all", "every", is_flag=True, help="List all pods that differ. Without it: the first of each kind.")
@cluster_options
@click.pass_context
def diff(
    context: click.Context,
    *,
    before: str,
    after: str,
    files: tuple[str, ...],
    reschedule: str | None,
    namespace: str | None,
    is_all_namespaces: bool,
    selector: str,
    seed: int,
    percentage: int | None,
    feature_gates: str,
    allow_invalid: bool,
    output: str,
    every: bool,
    cluster: ClusterChoice,
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
    selected = chosen_namespace(namespace, is_all_namespaces=is_all_namespaces)
    if (selected or is_all_namespaces or selector) and reschedule is None:
        raise click.UsageError(
            "--namespace, --all-namespaces and --selector choose running pods; use them with --reschedule"
        )
    if allow_invalid and not files:
        raise click.UsageError("--allow-invalid requires --cluster")
    selection = PodSelection(Reschedule(reschedule or "no"), selected, parse_label_query(selector))
    references = parse_reference(before), parse_reference(after)
    options = SimulationOptions(seed, percentage, gates=FeatureGates(parse_feature_gates(feature_gates)))
    admitted, profiles = _read(files, references, cluster, allow_invalid=allow_invalid)
    documents: list[ReportDocuments] = []
    revisions: dict[str, None] = {}

    async def read_end(scheduler: Scheduler, _: Sequence[PodPlacement]) -> None:
        documents.append(await simulated_documents(scheduler, Commands.of_simulation(given_command(context))))
        revisions.update(dict.fromkeys(profile_revisions(scheduler)))

    inspect = read_end if output == "html" else None
    comparison = compare(admitted, profiles, selection, options, installed_plugins(), inspect=inspect)
    if output == "html":
        sides = (comparison.before, comparison.after)
        packed = (with_packing(each, side.resources) for each, side in zip(documents, sides, strict=True))
        found = compared((before, after), *packed)
        click.echo(as_html(comparison, found, report_head(context, summary(comparison), profiles=revisions)), nl=False)
    else:
        _print(comparison, output, every=every)
    if comparison.differences:
        context.exit(EXIT_DIFFERENT)


def _print(comparison: Comparison, output: str, *, every: bool) -> None:
    if output == "json":
        click.echo(printable_json(json.dumps(msgspec.to_builtins(comparison), indent=2)))
    elif output == "yaml":
        click.echo(printable_yaml(msgspec.to_builtins(comparison), PIPED_WIDTH), nl=False)
    else:
        for notice in comparison.notices:
            click.echo(printable_record(f"note: {notice}"), err=True)
        for side in (comparison.before, comparison.after):
            for notice in side.notices:
                click.echo(printable_record(f"note: with {side.profile}: {notice}"), err=True)
        click.echo(as_table(comparison, every=every))


def _read(
    files: tuple[str, ...],
    references: tuple[ProfileReference, ProfileReference],
    live: ClusterChoice,
    *,
    allow_invalid: bool,
) -> tuple[AdmittedCluster, tuple[ComparedProfile, ComparedProfile]]:
    def history(name: str) -> ProfileHistory:
        if files:
            message = f"revisions of {name} are stored in the live cluster; leave out --cluster, or name a file"
            raise ConfigError([Problem("--cluster", message)])
        return live.run(lambda connection: read_history(connection, name, live.namespace, live.own_namespace))

    if files:
        cluster = read_cluster(files, allow_invalid=allow_invalid)
    else:
        decoded = installed_plugins().decoded_types(reads_marks=True)
        cluster = live.run(lambda connection: list_cluster(connection, decoded))
    first, second = (find_profile(reference, cluster, history) for reference in references)
    if not files:
        cluster = without_invalid(cluster, first.references | second.references)
    return cluster, (first, second)
