"""``bayplan simulate``: options and exit codes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click

from bayplan.cli import allow_invalid_option, feature_gates_option, given_command
from bayplan.cli.simulation_report import SHORT_LIST, Lists, as_html, as_json, as_table, as_yaml
from bayplan.explanation.unscheduled_pods import ExplainedPods, explain_unscheduled, is_rejected_for_devices
from bayplan.page.report_documents import ReportDocuments
from bayplan.page.simulated_documents import SimulatedDocuments, SimulationCommands
from bayplan.settings.feature_gates import FeatureGates, parse_feature_gates
from bayplan.simulation.admission import admit
from bayplan.simulation.cluster_files import read_cluster_files
from bayplan.simulation.simulation import PodPlacement, SimulationOptions, Verdict, installed_plugins
from bayplan.simulation.simulation import simulate as run_simulation
from bayplan.texts.printable import printable_record
from scheduler_core.scheduler import Scheduler

_EXPLAINED = 20
EXIT_UNDECIDED = 1
EXIT_UNSCHEDULABLE = 3


@click.command(short_help="Schedule the pods in files, without a cluster.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml", "html"]), default="table", help="Format.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed to resolve ties.")
@click.option(
    "--percentage-of-nodes-to-score",
    "percentage",
    type=click.IntRange(0, 100),
    help="Percentage for profiles that set none; 0 is kube-scheduler's formula.  [default: all nodes]",
)
@click.option("--pods", is_flag=True, help=f"List all pods. Without it: only if there are at most {SHORT_LIST}.")
@click.option("--gangs", is_flag=True, help=f"List all gangs. Without it: only if there are at most {SHORT_LIST}.")
@click.option("--nodes", is_flag=True, help=f"List all nodes. Without it: only if there are at most {SHORT_LIST}.")
@feature_gates_option("Feature gates of the scheduler.")
@allow_invalid_option("")
@click.option("--fail-on-unschedulable", is_flag=True, help="Exit with code 3 if a pod is not scheduled; for CI.")
@click.pass_context
def simulate(
    context: click.Context,
    *,
    files: tuple[str, ...],
    output: str,
    seed: int,
    percentage: int | None,
    pods: bool,
    gangs: bool,
    nodes: bool,
    feature_gates: str,
    allow_invalid: bool,
    fail_on_unschedulable: bool,
) -> None:
    """Schedule the pods in FILEs to the nodes in FILEs, with the same scheduler as in a cluster.

    Files contain YAML or JSON: nodes, pods, volumes, claims and storage classes, services, owners of pods, namespaces,
    PodDisruptionBudgets, PriorityClasses, PodGroups of all three APIs, SchedulerProfiles, PluginConfigs, kube-scheduler
    configurations, and lists of them as "kubectl get -o yaml" prints them; - is standard input. Without any profile
    the default profile serves the pods of default-scheduler. Objects are validated as by an API server v1.37: unknown
    fields, wrong values and other versions of these kinds are errors.

    The output starts with a summary: scheduled pods; requested and allocatable amounts of all nodes by resource, and
    devices in use by driver; fragmentation; and the causes for which pods were not scheduled. LARGEST FREE is the
    largest free amount on one node. UNUSABLE is the share of the free amount on nodes where a pod does not fit,
    averaged over the decided pods that request the resource. For pods whose resource claims cannot be allocated it has
    what `bayplan explain` prints about devices, once for pods with equal specs. Lists of pods, gangs and nodes follow
    if they are short; --pods, --gangs and --nodes print long ones. With -o json and -o yaml everything is printed.
    With -o html it is one file to attach to a ticket, which needs no server: the page's panels of pending pods, gangs
    and nodes, explanations of the oldest attempted pod of each cause and of ten gangs, and below them the tables, which
    need no script.

    Claims are bound as a volume controller and provisioners would bind them, immediately and with unlimited capacity. A
    PodDisruptionBudget allows the disruptions in its status, none without a status.

    Exit codes: 0 success, 1 a plugin failed, 2 the files are invalid, 3 see --fail-on-unschedulable.
    """
    gates = FeatureGates(parse_feature_gates(feature_gates))
    registry = installed_plugins()
    options = [option for file in files for option in ("-f", file)]
    options += ["--others-placed", *(["--seed", str(seed)] if seed else [])]
    options += ["--feature-gates", feature_gates] if feature_gates else []
    options += ["--allow-invalid"] if allow_invalid else []
    cluster = admit(read_cluster_files(files, registry.decoded_types(reads_marks=True), allow_invalid=allow_invalid))
    given = {(pod.metadata.namespace, pod.metadata.name): pod for pod in cluster.pods}
    claims = ExplainedPods()

    documents = ReportDocuments()

    async def read_end(scheduler: Scheduler, placements: Sequence[PodPlacement]) -> None:
        nonlocal claims, documents
        waiting = (given[each.namespace, each.name] for each in placements if not each.node)
        rejected = [pod for pod in waiting if is_rejected_for_devices(scheduler, pod)]
        claims = explain_unscheduled(scheduler, rejected, _EXPLAINED)
        if output == "html":
            documents = await SimulatedDocuments(scheduler, _commands(context, options)).build()

    result = run_simulation(cluster, SimulationOptions(seed, percentage, gates=gates), registry, inspect=read_end)
    if output == "json":
        click.echo(as_json(result, claims))
    elif output == "yaml":
        click.echo(as_yaml(result, claims), nl=False)
    elif output == "html":
        click.echo(as_html(result, Lists(pods, gangs, nodes), claims, documents), nl=False)
    else:
        for notice in result.notices:
            click.echo(printable_record(f"note: {notice}"), err=True)
        click.echo(as_table(result, Lists(pods, gangs, nodes), claims))
    if result.count(Verdict.ERROR):
        context.exit(EXIT_UNDECIDED)
    if fail_on_unschedulable and result.count(Verdict.PLACED) < len(result.pods):
        context.exit(EXIT_UNSCHEDULABLE)


def _commands(context: click.Context, options: Sequence[str]) -> SimulationCommands:
    """Return the commands that give the same as the panels of a report, from the options of ``bayplan explain``."""

    def explain(namespace: str, name: str) -> str:
        return shlex.join(["bayplan", "explain", *options, "-n", namespace, name])

    return SimulationCommands(given_command(context), explain)
