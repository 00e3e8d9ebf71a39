"""The chart's alerts and recorded objectives by Prometheus' own rule tests: when each alert fires, and that it ends.

Durations are those of the chart. ``tests/cluster/test_prometheus.py`` has real faults and shorter durations.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane import binaries
from tests.support.tables import table

pytestmark = pytest.mark.prometheus
ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "charts" / "bayplan" / "alerts" / "bayplan.yaml"
RUNBOOKS = "docs/reference/alerts.md"
TARGET = 'job="bayplan",namespace="ns"'


@dataclass(frozen=True, slots=True)
class Fault:
    """Samples of a fault that begins and ends, one a minute, in promtool's notation.

    Attributes:
        series: Values by metric with its labels, without those of the target.
        fires: First minute at which the alert fires.
        ends: First minute after that at which it does not.
        labels: Labels of the alert beside its name and severity.
    """

    series: Mapping[str, str]
    fires: int
    ends: int
    labels: Mapping[str, str]


PROFILE = {"namespace": "ns", "profile": "x"}
PODS = {"namespace": "ns", "resource": "pods"}
LEASE = {"namespace": "ns", "lease": "l"}
ATTEMPTS = "scheduler_schedule_attempts_total"
DURATION = 'scheduler_scheduling_attempt_duration_seconds_bucket{profile="x",result="scheduled",'
SLI = 'scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="1",'
CALLS = "scheduler_async_api_call_execution_total"

FAULTS = {
    "BayplanDown": Fault({'up{pod="a"}': "1x4 0x10 1x10"}, 10, 16, {}),
    "BayplanReplicaDown": Fault(
        {'up{pod="a"}': "1x40", 'up{pod="b"}': "1x4 0x20 1x10"},
        20,
        26,
        {"job": "bayplan", "namespace": "ns", "pod": "b"},
    ),
    "BayplanRestarting": Fault(
        {'process_start_time_seconds{pod="a"}': "0 100 200 300 400 400x80"},
        4,
        60,
        {"job": "bayplan", "namespace": "ns", "pod": "a"},
    ),
    "BayplanNoLeader": Fault(
        {'bayplan_leader{lease="l",pod="a"}': "1x4 0x5 1x5", 'bayplan_leader{lease="l",pod="b"}': "0x30"}, 6, 11, LEASE
    ),
    "BayplanSeveralLeaders": Fault(
        {'bayplan_leader{lease="l",pod="a"}': "1x30", 'bayplan_leader{lease="l",pod="b"}': "0x4 1x5 0x5"}, 7, 11, LEASE
    ),
    "BayplanLeaderChanges": Fault(
        {'bayplan_leader_transitions_total{lease="l",pod="a"}': "0x60 0+1x6 7x120"}, 66, 124, LEASE
    ),
    "BayplanProfileNotAccepted": Fault(
        {'bayplan_profile_condition{profile="x",type="Accepted",status="False"}': "0x4 1x20 0x5"}, 20, 26, PROFILE
    ),
    "BayplanProfileNotReady": Fault(
        {'bayplan_profile_condition{profile="x",type="Ready",status="False"}': "0x4 1x10 0x5"}, 10, 16, PROFILE
    ),
    "BayplanPluginConfigInvalid": Fault(
        {'bayplan_plugin_config_condition{plugin_config="x",type="Valid",status="False"}': "0x4 1x20 0x5"},
        20,
        26,
        {"namespace": "ns", "plugin_config": "x"},
    ),
    "BayplanNoProfileLive": Fault(
        {'up{pod="a"}': "1x40", 'bayplan_profile_revision_info{profile="x"}': "1x4 stale _x19 1x5"},
        20,
        25,
        {"job": "bayplan"},
    ),
    "BayplanSchedulingStalled": Fault(
        {
            'scheduler_pending_pods{queue="active"}': "5x60",
            f'{ATTEMPTS}{{profile="x",result="scheduled"}}': "0+10x10 100x30 110+10x10",
        },
        29,
        42,
        {"namespace": "ns"},
    ),
    "BayplanSchedulingErrors": Fault(
        {
            f'{ATTEMPTS}{{profile="x",result="scheduled"}}': "0+10x70",
            f'{ATTEMPTS}{{profile="x",result="error"}}': "0x4 0+6x30 180x40",
        },
        21,
        39,
        PROFILE,
    ),
    "BayplanSchedulingSlow": Fault(
        {
            f'{DURATION}le="1"}}': "0x70",
            f'{DURATION}le="2"}}': "0+10x30 300x40",
            f'{DURATION}le="+Inf"}}': "0+10x30 300x40",
        },
        16,
        34,
        PROFILE,
    ),
    "BayplanPodsWaitLong": Fault(
        {f'{SLI}le="300"}}': "0x90", f'{SLI}le="600"}}': "0+10x40 400x50", f'{SLI}le="+Inf"}}': "0+10x40 400x50"},
        31,
        54,
        {"namespace": "ns"},
    ),
    "BayplanCacheNotInSync": Fault({'bayplan_informer_synced{resource="pods"}': "1x4 0x15 1x5"}, 15, 21, PODS),
    "BayplanWatchSilent": Fault({'bayplan_informer_silence_seconds{resource="pods"}': "0+60x20 0x5"}, 9, 21, PODS),
    "BayplanObjectsUnreadable": Fault(
        {
            'bayplan_informer_undecodable_objects{resource="pods"}': "0x4 1x5 0x5",
            'bayplan_informer_unprocessed_objects{resource="pods"}': "0x20",
        },
        7,
        11,
        PODS,
    ),
    "BayplanWatchesUnstable": Fault({'bayplan_informer_relists_total{resource="pods"}': "0+6x40 240x30"}, 23, 47, PODS),
    "BayplanReconcilesFail": Fault(
        {'bayplan_reconciles_total{resource="schedulerprofiles",result="error"}': "0+1x40 40x30"},
        19,
        52,
        {"namespace": "ns", "resource": "schedulerprofiles"},
    ),
    "BayplanApiCallsFail": Fault(
        {
            f'{CALLS}{{call_type="pod_binding",result="success"}}': "0+10x70",
            f'{CALLS}{{call_type="pod_binding",result="error"}}': "0x4 0+6x30 180x40",
        },
        21,
        39,
        {"namespace": "ns", "call_type": "pod_binding"},
    ),
    "BayplanBindsLost": Fault({'bayplan_binds_lost_total{profile="x"}': "0+3x40 120x20"}, 18, 48, PROFILE),
    "BayplanNodesContested": Fault(
        {'bayplan_rival_overcommits_total{rival="default-scheduler"}': "0+1x40 40x20"},
        16,
        49,
        {"namespace": "ns", "rival": "default-scheduler"},
    ),
    "BayplanExtenderAway": Fault(
        {'bayplan_extender_circuit_open{profile="x",extender="http://e"}': "0x4 1x10 0x5"},
        10,
        16,
        {"namespace": "ns", "extender": "http://e"},
    ),
}


def rules() -> list[dict[str, Any]]:
    """Return every rule of the chart."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}


def promtool(*args: str) -> None:
    """Run promtool; fail with its output."""
    tool = binaries.resolve(("promtool",))["promtool"]
    outcome = subprocess.run((str(tool), *args), capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def samples(series: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"series": name.replace("{", f"{{{TARGET},", 1), "values": values} for name, values in series.items()]


def run_rule_test(directory: Path, name: str, test: dict[str, Any]) -> None:
    """Run one rule test at intervals of a minute."""
    file = directory / f"{name}.yaml"
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [{"interval": "1m", **test}]}
    file.write_text(yaml.safe_dump(document))
    promtool("test", "rules", str(file))


def firing(alert: str, minute: int, labels: Mapping[str, str] | None) -> dict[str, Any]:
    """Return the expectation that an alert fires with labels, or does not fire."""
    expected: list[dict[str, Any]] = []
    if labels is not None:
        severity = ALERTS[alert]["labels"]["severity"]
        every = {"alertname": alert, "alertstate": "firing", "severity": severity, **labels}
        text = ",".join(f'{name}="{value}"' for name, value in every.items())
        expected = [{"labels": f"ALERTS{{{text}}}", "value": 1}]
    expr = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
    return {"expr": expr, "eval_time": f"{minute}m", "exp_samples": expected}


def test_the_rules_are_valid() -> None:
    """Prometheus accepts the rules and their templates."""
    promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))


def test_every_alert_has_a_fault() -> None:
    """The table below has a row for each alert."""
    assert FAULTS.keys() == ALERTS.keys()


@pytest.mark.parametrize("alert", [pytest.param(name, id=name) for name in FAULTS])
def test_an_alert_fires_and_ends(tmp_path: Path, alert: str) -> None:
    """An alert fires when its fault has lasted long enough, not a minute before, and ends after it."""
    fault = FAULTS[alert]
    expected = [
        firing(alert, fault.fires - 1, None),
        firing(alert, fault.fires, fault.labels),
        firing(alert, fault.ends - 1, fault.labels),
        firing(alert, fault.ends, None),
    ]
    run_rule_test(tmp_path, alert, {"input_series": samples(fault.series), "promql_expr_test": expected})


def test_the_texts_are_filled_in(tmp_path: Path) -> None:
    """The values in braces of a description are replaced, and the runbook is part of the alert."""
    fault = FAULTS["BayplanReplicaDown"]
    annotations = ALERTS["BayplanReplicaDown"]["annotations"]
    text = annotations["description"].replace("{{ $labels.pod }}", "b")
    alert = {
        "eval_time": f"{fault.fires}m",
        "alertname": "BayplanReplicaDown",
        "exp_alerts": [
            {
                "exp_labels": {**fault.labels, "severity": "warning"},
                "exp_annotations": {
                    "summary": annotations["summary"],
                    "description": text,
                    "runbook_url": f"{RUNBOOKS}#bayplanreplicadown",
                },
            }
        ],
    }
    run_rule_test(tmp_path, "texts", {"input_series": samples(fault.series), "alert_rule_test": [alert]})


@table(
    "record, labels, series, value",
    (
        "binds",
        "namespace:bayplan_pods_bound_in_time:ratio_rate30m",
        'namespace="ns"',
        {
            'scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="1",le="5.12"}': "0+9x60",
            'scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="2",le="5.12"}': "0x60",
            'scheduler_pod_scheduling_sli_duration_seconds_count{attempts="1"}': "0+9x60",
            'scheduler_pod_scheduling_sli_duration_seconds_count{attempts="2"}': "0+1x60",
        },
        0.9,
    ),
    (
        "attempts",
        "namespace_profile:bayplan_attempts_in_time:ratio_rate30m",
        'namespace="ns",profile="x"',
        {
            'scheduler_scheduling_attempt_duration_seconds_bucket{profile="x",result="a",le="1.024"}': "0+3x60",
            'scheduler_scheduling_attempt_duration_seconds_count{profile="x",result="a"}': "0+4x60",
        },
        0.75,
    ),
)
def test_objectives_are_recorded(
    tmp_path: Path, record: str, labels: str, series: Mapping[str, str], value: float
) -> None:
    """An objective is recorded as the fraction of the last half hour."""
    expected = [{"labels": f"{record}{{{labels}}}", "value": value}]
    query = {"expr": record, "eval_time": "40m", "exp_samples": expected}
    run_rule_test(tmp_path, "objective", {"input_series": samples(series), "promql_expr_test": [query]})
