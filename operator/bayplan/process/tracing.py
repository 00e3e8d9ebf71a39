"""Export of cycles as OpenTelemetry spans; needs the extra ``otel``, imported only if tracing is configured.

Spans are made after a cycle has ended, so that no tracing code runs inside one. A scheduling cycle is a trace of its
own, with a child span for each extension point; the binding cycle that follows is a child of it, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bayplan.settings.operator_settings import TracingSettings
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.ports import Clock, CycleTrace, Stage

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

_NANOSECONDS = 1_000_000_000
_ERROR = "error"


class CycleTracer:
    """Implementation of :class:`scheduler_core.ports.Tracer` by OpenTelemetry."""

    def __init__(self, provider: TracerProvider, clock: Clock) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("bayplan")
        # Spans carry wall time, but cycles are timed by a monotonic clock.
        self._epoch = clock.wall().timestamp() - clock.now()

    def record(self, trace: CycleTrace, follows: object) -> object:
        """Record a cycle; the returned context links a binding cycle to its scheduling cycle."""
        from opentelemetry.context import Context  # noqa: PLC0415 - an extra that need not be installed
        from opentelemetry.trace import Status, StatusCode, set_span_in_context  # noqa: PLC0415 - as above

        parent: Context = follows if isinstance(follows, Context) else Context()
        span = self._tracer.start_span(
            f"{trace.kind} cycle",
            parent,
            attributes={
                "k8s.namespace.name": trace.namespace,
                "k8s.pod.name": trace.pod,
                "k8s.node.name": trace.node,
                "bayplan.profile": trace.profile,
                "bayplan.revision": trace.revision,
                "bayplan.result": trace.result,
            },
            start_time=self._nanoseconds(trace.started),
        )
        if trace.result == _ERROR:
            span.set_status(Status(StatusCode.ERROR))
        within = set_span_in_context(span, Context())
        if span.is_recording():
            for stage in trace.stages:
                self._add_stage(stage, within)
        span.end(self._nanoseconds(trace.ended))
        return within

    def _add_stage(self, stage: Stage, within: Context) -> None:
        child = self._tracer.start_span(
            stage.name, within, attributes={"bayplan.status": stage.status}, start_time=self._nanoseconds(stage.started)
        )
        child.end(self._nanoseconds(stage.ended))

    def _nanoseconds(self, seconds: float) -> int:
        return round((seconds + self._epoch) * _NANOSECONDS)

    def stop(self) -> None:
        self._provider.shutdown()


def tracer_of(settings: TracingSettings | None, clock: Clock) -> CycleTracer | None:
    """Make the tracer of the settings (OTLP over HTTP), if any; raises ConfigError without the extra ``otel``."""
    if settings is None:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above
    except ImportError as error:
        message = f"requires OpenTelemetry ({error}); install bayplan with the extra otel, or remove tracing"
        raise ConfigError([Problem("tracing", message)]) from error
    return tracer_to(BatchSpanProcessor(OTLPSpanExporter(endpoint=settings.endpoint)), settings.sampling_ratio, clock)


def tracer_to(processor: SpanProcessor, sampling_ratio: float, clock: Clock) -> CycleTracer:
    """Make a tracer that samples a fraction of cycles, and each binding cycle with its scheduling cycle."""
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - an extra that need not be installed
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - as above
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased  # noqa: PLC0415 - as above

    sampler = ParentBased(TraceIdRatioBased(sampling_ratio))
    provider = TracerProvider(sampler=sampler, resource=Resource.create({"service.name": "bayplan"}))
    provider.add_span_processor(processor)
    return CycleTracer(provider, clock)
