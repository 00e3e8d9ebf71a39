"""Prometheus on loopback, which scrapes operators every second and evaluates the chart's rules.

The rules have shorter durations: ``for`` is a second and each range ten seconds, so that an alert follows its fault at
once. Their expressions are otherwise those of the chart.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from hack.controlplane import binaries
from hack.controlplane.probes import LOOPBACK, free_port
from hack.controlplane.processes import Command, Process, start

RULES = Path(__file__).resolve().parents[2] / "charts" / "bayplan" / "alerts" / "bayplan.yaml"
RANGE = "10s"
"""Range of the rules, and of queries that use the interval of a dashboard."""

_WAIT_SECONDS = 120.0
_POLL_SECONDS = 0.25
_TARGETS = "targets.json"


def shortened(rules: str) -> str:
    """Return rules with short durations and ranges."""
    return re.sub(r"\[\d+[mh]\]", f"[{RANGE}]", re.sub(r"\bfor: \d+m\b", "for: 1s", rules))


class PrometheusServer:
    """A context manager that starts Prometheus and stops it at the end."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_port()
        self._process: Process | None = None

    def __enter__(self) -> Self:
        directory = self._directory
        (directory / "rules.yaml").write_text(shortened(RULES.read_text()))
        self.scrape({})
        targets = {"files": [str(directory / _TARGETS)], "refresh_interval": "1s"}
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{"job_name": "bayplan", "file_sd_configs": [targets]}],
        }
        (directory / "prometheus.yaml").write_text(yaml.safe_dump(config))
        argv = (
            str(binaries.resolve(("prometheus",))["prometheus"]),
            f"--config.file={directory / 'prometheus.yaml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address={LOOPBACK}:{self._port}",
        )
        self._process = start(Command("prometheus", argv, directory / "prometheus.log"))
        self.until(self._is_ready, "Prometheus is ready")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.stop()

    def scrape(self, targets: Mapping[str, int]) -> None:
        """Scrape these ports of loopback from now on, by the name of the pod."""
        groups = [
            {"targets": [f"{LOOPBACK}:{port}"], "labels": {"namespace": "monitored", "pod": pod}}
            for pod, port in targets.items()
        ]
        staged = self._directory / "targets.new"
        staged.write_text(json.dumps(groups))
        staged.replace(self._directory / _TARGETS)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of an expression now."""
        found: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return found

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        return {each["labels"]["alertname"] for each in self._get("alerts")["alerts"] if each["state"] == "firing"}

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while not condition():
            assert self._process is not None
            assert self._process.alive, self._process.log.read_text()[-4000:]
            assert time.monotonic() < deadline, f"not within {_WAIT_SECONDS:.0f} s: {what}"
            time.sleep(_POLL_SECONDS)

    def _is_ready(self) -> bool:
        with suppress(URLError, OSError), urlopen(f"http://{LOOPBACK}:{self._port}/-/ready") as answer:
            return bool(answer.status == 200)
        return False

    def _get(self, path: str, **params: str) -> dict[str, Any]:
        with urlopen(f"http://{LOOPBACK}:{self._port}/api/v1/{path}?{urlencode(params)}") as answer:
            data: dict[str, Any] = json.load(answer)["data"]
        return data
