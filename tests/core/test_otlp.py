"""Our encoding of spans beside OpenTelemetry's own: the same messages, whatever a span holds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common import trace_encoder
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from queueops.core.telemetry import otlp
from tests.support.processes import ROOT

ELSEWHERE = SpanContext(
    7, 8, is_remote=True, trace_flags=TraceFlags(1), trace_state=TraceState([("a", "b"), ("c", "d")])
)
VALUES: dict[str, Any] = {
    "text": "ä\n",
    "empty": "",
    "yes": True,
    "no": False,
    "zero": 0,
    "negative": -(2**63),
    "share": 0.5,
    "raw": b"\x00\xff",
    "nothing": None,
    "list": ["a", 1, True, None, [2.5]],
    "tree": {"kind": "http", "deep": {"n": [1, 2]}},
}
WHICH_ENCODER = """
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from queueops.core.telemetry import otlp, tracing
asked = []
otlp.encode_spans = lambda spans, encode=otlp.encode_spans: asked.append([span.name for span in spans]) or encode(spans)
tracing.tracer().start_span("one").end()
tracing.flush()
print(asked)
"""


@pytest.fixture
def kept() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(kept: InMemorySpanExporter) -> Iterator[TracerProvider]:
    about: Mapping[str, Any] = {"service.name": "test", "process.pid": 3}
    provider = TracerProvider(resource=Resource.create(about), span_limits=SpanLimits(max_events=2, max_links=2))
    provider.add_span_processor(SimpleSpanProcessor(kept))
    yield provider
    provider.shutdown()


def test_spans_of_every_kind_and_with_every_value_are_encoded_alike(
    provider: TracerProvider, kept: InMemorySpanExporter
):
    tracer = provider.get_tracer("test", "1.0", "https://schema", {"scope": "s"})
    for kind in SpanKind:
        tracer.start_span(f"kind {kind.name}", kind=kind, attributes=VALUES).end()
    with tracer.start_as_current_span("root"):
        child = tracer.start_span("child", links=[Link(ELSEWHERE, {"n": 1})] * 3)
        for number in range(3):
            child.add_event("step", {"number": number, "list": ["x"]}, timestamp=number + 1)
        child.set_status(Status(StatusCode.ERROR, "it broke"))
        child.end()
    carrier = {"traceparent": f"00-{7:032x}-{8:016x}-01", "tracestate": "a=b,c=d"}
    far = tracer.start_span("far", context=TraceContextTextMapPropagator().extract(carrier))
    far.set_status(StatusCode.OK)
    far.end()
    spans = kept.get_finished_spans()
    assert len(spans) == len(SpanKind) + 3
    assert otlp.encode_spans(spans) == trace_encoder.encode_spans(spans)


def test_spans_of_two_scopes_are_told_apart(provider: TracerProvider, kept: InMemorySpanExporter):
    for name in ("one", "two"):
        provider.get_tracer(name).start_span(name).end()
    encoded = otlp.encode_spans(kept.get_finished_spans())
    assert [
        (group.scope_spans[0].scope.name, [span.name for span in group.scope_spans[0].spans])
        for group in encoded.resource_spans
    ] == [("one", ["one"]), ("two", ["two"])]


def test_an_attribute_that_has_no_encoding_takes_no_other_span_with_it(
    provider: TracerProvider, kept: InMemorySpanExporter
):
    tracer = provider.get_tracer("test")
    tracer.start_span("good", attributes={"n": 1}).end()
    tracer.start_span("bad", attributes={"large": 2**70, "half": "\ud800", "n": 2}).end()
    spans = kept.get_finished_spans()
    [group] = otlp.encode_spans(spans).resource_spans
    assert [[pair.key for pair in span.attributes] for span in group.scope_spans[0].spans] == [["n"], ["n"]]


def test_what_a_process_sends_is_encoded_here():
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    environ |= {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", WHICH_ENCODER], cwd=ROOT, env=environ, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[['one']]"
