"""Samples the operator's metrics during a soak test, and computes the growth of memory and the percentiles.

The growth is a least-squares fit, not the difference of two samples, because a garbage collection changes a single
sample by more than the bound.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from hack.controlplane.probes import LOOPBACK

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
    with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    values: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values.setdefault(sample.name, []).append((sample.labels, sample.value))

    def total(name: str, **labels: str) -> float:
        return sum(value for held, value in values.get(name, ()) if labels.items() <= held.items())

    return Sample(
        seconds=seconds,
        rss_mib=total("process_resident_memory_bytes") / _MIB,
        cpu_seconds=total("process_cpu_seconds_total"),
        queues={held["queue"]: int(value) for held, value in values.get("scheduler_pending_pods", ())},
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
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread


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
