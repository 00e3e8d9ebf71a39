"""Reads the metrics of both schedulers about attempts to schedule gangs.

scheduler_perf reports the same metric for its gang workload (kubernetes/kubernetes pull request 138341).
"""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from hack.controlplane.probes import LOOPBACK
from hack.controlplane.processes import Process

ATTEMPT = "scheduler_podgroup_scheduling_attempt_duration_seconds"
ALGORITHM = "scheduler_podgroup_scheduling_algorithm_duration_seconds"
SCRAPE_FLAG = "--authorization-always-allow-paths=/readyz,/livez,/healthz,/metrics"
"""Flag that allows scrapes of kube-scheduler without authentication."""

_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class GroupAttempts:
    """Attempts to schedule gangs.

    Attributes:
        mean_ms: Mean milliseconds of an attempt, without binding; None if there are none.
        algorithm_mean_ms: Mean milliseconds of the search for nodes in an attempt.
    """

    count: int
    mean_ms: float | None
    algorithm_mean_ms: float | None


def group_attempts(text: str) -> GroupAttempts:
    """Read the attempts from a scrape."""
    families = {family.name: family for family in text_string_to_metric_families(text)}

    def total(name: str, suffix: str) -> float:
        samples: Iterable[tuple[str, float]] = (
            [(sample.name, sample.value) for sample in families[name].samples] if name in families else []
        )
        return sum(value for sample, value in samples if sample == name + suffix)

    def mean_ms(name: str) -> float | None:
        count = total(name, "_count")
        return 1000 * total(name, "_sum") / count if count else None

    return GroupAttempts(int(total(ATTEMPT, "_count")), mean_ms(ATTEMPT), mean_ms(ALGORITHM))


def scrape_bayplan(port: int) -> str:
    """Read the metrics that Bayplan serves on a port of loopback.

    Raises:
        OSError: It does not respond.
    """
    return _get(http.client.HTTPConnection(LOOPBACK, port, timeout=_TIMEOUT_SECONDS))


def scrape_kube_scheduler(process: Process) -> str:
    """Read the metrics of kube-scheduler; it must have been started with :data:`SCRAPE_FLAG`.

    Raises:
        OSError: It does not respond.
    """
    flags = dict(re.findall(r"--([a-z-]+)=(\S*)", " ".join(process.command.argv)))
    trusted = ssl.create_default_context(cafile=str(Path(flags["cert-dir"]) / "kube-scheduler.crt"))
    port = int(flags["secure-port"])
    return _get(http.client.HTTPSConnection(LOOPBACK, port, timeout=_TIMEOUT_SECONDS, context=trusted))


def _get(connection: http.client.HTTPConnection) -> str:
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        body = answer.read().decode()
        if answer.status != http.client.OK:
            raise ConnectionError(f"/metrics was answered with {answer.status}: {body.strip()}; check its flags")
        return body
    finally:
        connection.close()
