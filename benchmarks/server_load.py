"""Measures the load of a run: requests to the API server by kind, and CPU time of each process and of the machine.

If all processes together use all processors, the rate depends on all of them, not on the scheduler alone.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from hack.controlplane.launcher import ControlPlane
from hack.controlplane.processes import Process

MACHINE, BENCHMARK, WALL = "machine", "benchmark", "seconds"
_REQUESTS = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_CLOCK_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_BUSY_FIELDS = (0, 1, 2, 5, 6)
"""Fields in the first line of /proc/stat: user, nice, system, irq and softirq, without idle and iowait."""


def answered_requests(plane: ControlPlane) -> Counter[str]:
    """Return the requests so far by verb, resource and subresource, without watches."""
    return requests_of(plane.kubectl("get", "--raw=/metrics"))


def requests_of(metrics: str) -> Counter[str]:
    """Return the requests by kind, for example ``PATCH resourceclaims/status``, from the API server's metrics."""
    found: Counter[str] = Counter()
    for text, count in _REQUESTS.findall(metrics):
        labels = dict(_LABEL.findall(text))
        if labels["verb"] != "WATCH":
            resource = "/".join(filter(None, (labels["resource"], labels["subresource"])))
            found[f"{labels['verb']} {resource or 'other'}"] += int(float(count))
    return found


def busy_seconds(processes: Sequence[Process]) -> dict[str, float]:
    """Return CPU seconds so far of processes, this process and the machine, and the time in seconds."""
    own = time.process_time()
    return {
        **{process.name: process.cpu_seconds() for process in processes},
        BENCHMARK: own,
        MACHINE: _machine_seconds(),
        WALL: time.monotonic(),
    }


def _machine_seconds() -> float:
    fields = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    return sum(int(fields[index]) for index in _BUSY_FIELDS) / _CLOCK_TICKS_PER_SECOND


def difference(later: Mapping[str, float], earlier: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value - earlier.get(name, 0.0), 3) for name, value in later.items()}
