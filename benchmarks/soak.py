"""Runs a long mixed load on Bayplan, and checks its memory during the load and the cluster at the end.

    python -m benchmarks.soak --minutes 30 --rate 50

Pods are created and deleted at the same rate, some gated and released, some too large for any node; nodes are cordoned
and uncordoned; on a tenth of the nodes pods of high priority preempt others, in bursts. Only etcd, kube-apiserver and
kwok run beside the operator. The exit code is 1 if memory grows faster than the bound, a pod was lost or bound twice, a
node is overcommitted, or the condition of a bound pod is False.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bayplan.kube.credentials import open_connection
from bayplan.kube.http.connection import ConnectionOptions
from bayplan.kube.timing import SystemClock
from bayplan.kube.watches.informer import Informer, Resource
from rich.console import Console
from rich.table import Table

from benchmarks import workloads
from benchmarks.harness import Metrics, add_output, command_line, percentile, report
from benchmarks.soak_load import Load, Plan
from hack.controlplane import accounts
from hack.controlplane.api_client import ApiClient
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.probes import LOOPBACK, fetch, free_port
from hack.controlplane.schedulers import start_bayplan
from hack.controlplane.servers import STAGES, Options
from scheduler_core.model.pod import Pod

SLOPE_BOUND = 1.0
"""Maximum growth of the resident memory in MiB per minute."""

_SETTLING_SECONDS = 300.0
_SETTLING_SHARE = 0.4
_SAMPLE_SECONDS = 10.0
_END_SECONDS = 60.0

# An audit log of all writes would have a gigabyte in half an hour.
_AUDIT_POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - {level: Metadata, verbs: [create], resources: [{group: "", resources: [pods/binding]}]}
  - {level: None}
"""

# With its default of four workers, kwok is too slow for 50 new pods per second, and terminating pods accumulate.
_KWOK_OPTIONS = """
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options: {podPlayStageParallelism: 32, nodePlayStageParallelism: 4}
"""


_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Sample:
    """Metrics of the operator at one time.

    Attributes:
        seconds: Time since the load began.
        queues: Waiting pods, by queue.
        assumed_pods: Assumed pods among them.
        live: Existing pods by the count of the load.
        scheduled: Number of attempts that ended in a binding.
    """

    seconds: float
    rss_mib: float
    cpu_seconds: float
    queues: dict[str, int]
    cache_pods: int
    assumed_pods: int
    informer_pods: int
    live: int
    scheduled: int
    errors: int


def take(port: int, seconds: float, live: int) -> Sample:
    metrics = Metrics(fetch(f"http://{LOOPBACK}:{port}/metrics"))
    total = metrics.total
    return Sample(
        seconds=seconds,
        rss_mib=total("process_resident_memory_bytes") / _MIB,
        cpu_seconds=total("process_cpu_seconds_total"),
        queues={held["queue"]: int(value) for held, value in metrics.samples.get("scheduler_pending_pods", ())},
        cache_pods=int(total("scheduler_cache_size", type="pods")),
        assumed_pods=int(total("scheduler_cache_size", type="assumed_pods")),
        informer_pods=int(total("bayplan_informer_objects", resource="pods")),
        live=live,
        scheduled=int(total("scheduler_schedule_attempts_total", result="scheduled")),
        errors=int(total("scheduler_schedule_attempts_total", result="error")),
    )


def rss_slope(samples: Sequence[Sample], after_seconds: float) -> float | None:
    """Fit a line through the resident memory.

    Args:
        after_seconds: Earlier samples are ignored, because caches and pools fill.

    Returns:
        MiB per minute; None with fewer than two samples.
    """
    points = [(sample.seconds / 60.0, sample.rss_mib) for sample in samples if sample.seconds >= after_seconds]
    if len(points) < 2:
        return None
    return statistics.linear_regression(*zip(*points, strict=True)).slope


@dataclass(frozen=True, slots=True)
class Trouble:
    """Warnings and errors in an operator's log.

    Attributes:
        counts: Number of lines by level, and of tracebacks.
    """

    counts: dict[str, int]
    examples: list[str]


def read_trouble(log: Path, most: int = 10) -> Trouble:
    counts = {"WARNING": 0, "ERROR": 0, "Traceback": 0}
    examples: list[str] = []
    with log.open() as lines:
        for line in lines:
            for word in counts:
                if f" {word} " in line or line.startswith(word):
                    counts[word] += 1
                    if len(examples) < most:
                        examples.append(line.strip()[:400])
    return Trouble(counts, examples)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a soak test.

    Attributes:
        settled_after: Seconds after which the growth of memory is measured.
        slope: Growth of the resident memory after this time, MiB per minute.
        latencies: Seconds from creation or release to the binding: p50 and p99, by kind of pod.
    """

    plan: Plan
    seconds: float
    settled_after: float
    slope: float | None
    done: dict[str, int]
    refused: dict[str, int]
    latencies: dict[str, tuple[float | None, float | None]]
    log: Trouble
    violations: list[str]
    samples: list[Sample]

    @property
    def passed(self) -> bool:
        """Whether there are no violations and memory does not grow faster than the bound."""
        return not self.violations and self.slope is not None and self.slope < SLOPE_BOUND


def soak(plan: Plan, *, quiet: bool = False) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        policy, kwok_options = Path(directory) / "audit.yaml", Path(directory) / "kwok.yaml"
        policy.write_text(_AUDIT_POLICY)
        kwok_options.write_text(_KWOK_OPTIONS)
        with ControlPlane(Options(audit=True, apiserver_args=[f"--audit-policy-file={policy}"])) as plane:
            plane.start_kwok((STAGES, kwok_options))
            return asyncio.run(_soak(plane, plan, quiet))


async def _soak(plane: ControlPlane, plan: Plan, quiet: bool) -> Outcome:
    clock, port = SystemClock(), free_port()
    options = ConnectionOptions(write_connections=32)
    async with await open_connection(plane.kubeconfig, None, options, clock) as connection:
        load = Load(connection, plan)
        informer: Informer[Pod] = Informer(connection, Resource("/api/v1/pods"), Pod, load, clock)
        watching = asyncio.create_task(informer.run())
        process = await asyncio.to_thread(start_bayplan, plane, workloads.SCHEDULER_NAME, port)
        await load.prepare()
        samples: list[Sample] = []
        began = time.monotonic()
        sampling = asyncio.create_task(_sample(port, load, samples, quiet))
        await load.run()
        seconds = time.monotonic() - began
        sampling.cancel()
        samples.append(await asyncio.to_thread(take, port, seconds, load.live))
        await load.finish()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(load.all_bound.wait(), _END_SECONDS)
        lost = [f"not bound: {name}" for name in load.waiting()]
        watching.cancel()
    settled_after = min(_SETTLING_SECONDS, _SETTLING_SHARE * plan.seconds)
    return Outcome(
        plan,
        seconds,
        settled_after,
        rss_slope(samples, settled_after),
        dict(load.counts.done),
        dict(load.counts.refused),
        {
            kind: (percentile(sorted(values), 0.5), percentile(sorted(values), 0.99)) if values else (None, None)
            for kind, values in sorted(load.counts.latencies.items())
        },
        read_trouble(process.log),
        lost + await asyncio.to_thread(_violations, plane),
        samples,
    )


async def _sample(port: int, load: Load, samples: list[Sample], quiet: bool) -> None:
    began = time.monotonic()
    while True:
        await asyncio.sleep(_SAMPLE_SECONDS)
        sample = await asyncio.to_thread(take, port, time.monotonic() - began, load.live)
        samples.append(sample)
        if not quiet:
            sys.stderr.write(
                f"{sample.seconds:6.0f} s  RSS {sample.rss_mib:6.1f} MiB  CPU {sample.cpu_seconds:6.1f} s  "
                f"live {sample.live}  cache {sample.cache_pods}  queues {sample.queues}  "
                f"scheduled {sample.scheduled}  errors {sample.errors}\n"
            )


def _violations(plane: ControlPlane) -> list[str]:
    log = accounts.BindingLog(plane.audit_log)
    log.read()
    with ApiClient(plane) as api:
        pods = api.items(f"/api/v1/namespaces/{workloads.NAMESPACE}/pods")
        nodes = api.items("/api/v1/nodes")
    return [
        *(f"bound twice: {name}" for name in log.twice()),
        *(f"overcommitted: {sentence}" for sentence in accounts.overcommitted(nodes, pods)),
        *(f"bound with condition PodScheduled=False: {name}" for name in accounts.reported_unscheduled(pods)),
    ]


def show(outcome: Outcome) -> None:
    console = Console()
    table = Table(title=f"{outcome.seconds / 60:.1f} minutes, {outcome.plan.nodes} nodes, seed {outcome.plan.seed}")
    for column in ("what", "value"):
        table.add_column(column)
    slope = "not enough samples" if outcome.slope is None else f"{outcome.slope:+.3f} MiB/min"
    table.add_row(f"slope of RSS after {outcome.settled_after:.0f} s (bound {SLOPE_BOUND})", slope)
    if outcome.samples:
        first, last = outcome.samples[0], outcome.samples[-1]
        table.add_row("RSS, first and last sample", f"{first.rss_mib:.1f} and {last.rss_mib:.1f} MiB")
        cores = (last.cpu_seconds - first.cpu_seconds) / max(1e-9, last.seconds - first.seconds)
        table.add_row("CPU of the operator", f"{100 * cores:.1f} % of a core")
    for action, times in sorted(outcome.done.items()):
        table.add_row(action, f"{times} ({times / outcome.seconds:.1f}/s)")
    for kind, (median, high) in outcome.latencies.items():
        if median is not None and high is not None:
            table.add_row(f"to the binding, {kind}", f"p50 {1000 * median:.0f} ms, p99 {1000 * high:.0f} ms")
    table.add_row("requests refused", json.dumps(outcome.refused))
    table.add_row("the operator's log", json.dumps(outcome.log.counts))
    table.add_row("violations at the end", "\n".join(outcome.violations[:20]) or "nothing")
    console.print(table)
    for line in outcome.log.examples:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def main() -> None:
    parser = command_line(__doc__, minutes=30.0, nodes=300, seed=1)
    parser.add_argument("--rate", type=float, default=50.0, help="pods created and deleted per second")
    parser.add_argument("--live", type=int, default=3000, help="maximum number of pods")
    add_output(parser)
    arguments = parser.parse_args()
    outcome = soak(Plan(arguments.minutes * 60, arguments.rate, arguments.nodes, arguments.live, arguments.seed))
    report(arguments.output, outcome, lambda: show(outcome))
    sys.exit(not outcome.passed)


if __name__ == "__main__":
    main()
