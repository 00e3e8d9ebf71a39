"""Tests of scheduling cycles as OpenTelemetry spans."""

from __future__ import annotations

import sys

import pytest
from bayplan.process.tracing import tracer_of, tracer_to
from bayplan.settings.operator_settings import TracingSettings
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from scheduler_core.errors import ConfigError
from scheduler_core.scheduler import SchedulerPorts
from tests.support.builders import node, pod
from tests.support.presence import present
from tests.support.scheduling import Rig, rig
from tests.support.virtual_clock import VirtualClock


def traced_rig(ratio: float = 1.0) -> tuple[Rig, InMemorySpanExporter]:
    """Return a scheduler with two nodes, and the exporter of its spans."""
    clock, exporter = VirtualClock(), InMemorySpanExporter()
    tracer = tracer_to(SimpleSpanProcessor(exporter), ratio, clock)
    made = rig(ports=SchedulerPorts(tracer=tracer), clock=clock)
    made.add(node("n0"), node("n1"))
    return made, exporter


def span_named(exporter: InMemorySpanExporter, name: str) -> ReadableSpan:
    (span,) = [each for each in exporter.get_finished_spans() if each.name == name]
    return span


async def test_cycles_of_a_bound_pod() -> None:
    """A scheduling cycle and its binding cycle are one trace with the decision and a span per extension point."""
    made, exporter = traced_rig()
    made.add(pod("web"))
    chosen = await made.attempt()
    cycle, binding = span_named(exporter, "scheduling cycle"), span_named(exporter, "binding cycle")
    assert cycle.attributes is not None
    instance = present(made.context.profiles.get("default-scheduler"))
    assert dict(cycle.attributes) == {
        "k8s.namespace.name": "default",
        "k8s.pod.name": "web",
        "k8s.node.name": chosen,
        "bayplan.profile": "default-scheduler",
        "bayplan.revision": instance.revision,
        "bayplan.result": "scheduled",
    }
    assert cycle.context is not None
    assert binding.parent is not None
    assert binding.parent.span_id == cycle.context.span_id
    for point, parent in (("Filter", cycle), ("Score", cycle), ("Bind", binding)):
        span = span_named(exporter, point)
        assert span.parent is not None
        assert parent.context is not None
        assert span.parent.span_id == parent.context.span_id


async def test_spans_have_wall_time() -> None:
    """Spans have wall time although cycles are timed by a monotonic clock."""
    made, exporter = traced_rig()
    made.clock.advance(5)
    made.add(pod("web"))
    made.decide()
    assert span_named(exporter, "scheduling cycle").start_time == made.clock.wall().timestamp() * 1_000_000_000


async def test_the_cycle_of_an_unschedulable_pod() -> None:
    """The span of an unschedulable pod has its result and no node, and is no error."""
    made, exporter = traced_rig()
    made.add(pod("web", namespace="shop"))
    made.scheduler.feed.node_deleted(node("n0"))
    made.scheduler.feed.node_deleted(node("n1"))
    made.decide()
    cycle = span_named(exporter, "scheduling cycle")
    assert cycle.attributes is not None
    assert (cycle.attributes["bayplan.result"], cycle.attributes["k8s.node.name"]) == ("unschedulable", "")
    assert cycle.status.is_unset


async def test_a_ratio_of_zero_exports_no_spans() -> None:
    """With a sampling ratio of 0 no span is exported, and pods are scheduled."""
    made, exporter = traced_rig(0.0)
    made.add(pod("web"))
    assert await made.attempt()
    assert exporter.get_finished_spans() == ()


def test_tracing_requires_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings with tracing name the missing extra; without tracing nothing is required."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    clock = VirtualClock()
    with pytest.raises(ConfigError, match="install bayplan with the extra otel, or remove tracing"):
        tracer_of(TracingSettings(endpoint="http://127.0.0.1:4318/v1/traces"), clock)
    assert tracer_of(None, clock) is None
