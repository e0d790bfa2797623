"""
Spans by OpenTelemetry, where the extra `queueops[otel]` is installed and OTEL_* variables name an exporter.

Without them nothing of OpenTelemetry is imported, and the functions here answer that there is nothing to do.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from queueops.core.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import Tracer, TracerProvider
    from opentelemetry.trace import Span

logger = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
HEADERS = ("traceparent", "tracestate")
SYSTEM = "queueops"
# Jobs traced of one submission: 100,000 jobs would be half a million spans of one trace, which nobody can look at.
MAX_TRACED = 100
FLUSH_MS = 3_000  # how long an ending process waits for its collector

Attributes = Mapping[str, str | int | float | bool]


@dataclass(slots=True)
class Submission:
    """
    A submission under way.

    Attributes:
        traceparent: The header that its jobs carry; None: the trace is not sampled.
        left: How many more of its jobs carry the header.
    """

    span: Span
    traceparent: str | None
    left: int = MAX_TRACED

    def note(self, **attributes: str | int) -> None:
        self.span.set_attributes({name.replace("__", "."): value for name, value in attributes.items()})


@dataclass(slots=True)
class _Nothing:
    """A submission that is not traced."""

    traceparent: str | None = field(default=None, init=False)

    def note(self, **attributes: str | int) -> None: ...


OFF = nullcontext(_Nothing())

_submission: ContextVar[Submission | None] = ContextVar("submission", default=None)


def is_wanted() -> bool:
    """Whether the environment asks for spans."""
    named = os.environ.get("OTEL_TRACES_EXPORTER", "")
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or named == "none":
        return False
    return named == "otlp" or (not named and any(os.environ.get(name) for name in ENDPOINTS))


def trouble() -> str:
    """Return the reason why wanted spans cannot be sent; empty: they can, or none are wanted."""
    if not is_wanted():
        return ""
    protocol = next((os.environ[name] for name in PROTOCOLS if os.environ.get(name)), "http/protobuf")
    if protocol != "http/protobuf":
        return f"OTLP goes by http/protobuf here, not by {protocol}: unset {' and '.join(PROTOCOLS)}"
    try:
        import opentelemetry.exporter.otlp.proto.http.trace_exporter
        import opentelemetry.sdk.trace  # noqa: F401
    except ImportError:
        return "install the extra queueops[otel]"
    return ""


@cache
def tracer() -> Tracer | None:
    """Return this process's tracer; None: spans are not wanted, or cannot be sent, which is logged once."""
    if not is_wanted():
        return None
    if cause := trouble():
        logger.warning("no spans are sent, though OTEL_* variables ask for them: %s", cause)
        return None
    from opentelemetry.sdk.trace import Tracer

    made = _provider().get_tracer(SYSTEM, VERSION)
    return made if isinstance(made, Tracer) else None


@cache
def _provider() -> TracerProvider:
    """Return the tracer provider that other code of the process has set up, or else set up our own."""
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http import trace_exporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from queueops.core.telemetry import otlp

    if isinstance(given := trace.get_tracer_provider(), TracerProvider):
        return given
    about: dict[str, str | int] = {
        "service.version": VERSION,
        "service.instance.id": str(uuid.uuid4()),
        "process.pid": os.getpid(),
    }
    if not os.environ.get("OTEL_SERVICE_NAME") and "service.name=" not in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    ):
        about["service.name"] = SYSTEM
    provider = TracerProvider(resource=Resource.create(about))
    # A release of OpenTelemetry that ignores this name uses its own encoder, which is only slower.
    vars(trace_exporter)["encode_spans"] = otlp.encode_spans
    provider.add_span_processor(BatchSpanProcessor(trace_exporter.OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider


def flush() -> None:
    """Send the spans that are not sent yet, within FLUSH_MS; for processes that end without Python's exit handlers."""
    if tracer() is not None:
        _provider().force_flush(FLUSH_MS)


@contextmanager
def from_caller(headers: Mapping[str, str]) -> Iterator[None]:
    """Put spans into the trace that a request's headers name, unless the process's own code has begun another."""
    if tracer() is None or HEADERS[0] not in headers:
        yield
        return
    from opentelemetry import context, trace

    if trace.get_current_span().get_span_context().is_valid:
        yield
        return
    given = context_of({name: headers[name] for name in HEADERS if name in headers})
    token = context.attach(given)
    try:
        yield
    finally:
        context.detach(token)


def context_of(carrier: Mapping[str, str]) -> Context:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract(carrier)


def submitting(name: str, attributes: Attributes) -> AbstractContextManager[Submission | _Nothing]:
    """Make a span of a submission. The first MAX_TRACED jobs that are inserted within it carry its traceparent."""
    made = tracer()
    return OFF if made is None else _submitting(made, name, attributes)


@contextmanager
def _submitting(made: Tracer, name: str, attributes: Attributes) -> Iterator[Submission]:
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    told = {"messaging.system": SYSTEM, "messaging.operation.name": "submit", "messaging.operation.type": "send"}
    with made.start_as_current_span(name, kind=SpanKind.PRODUCER, attributes={**told, **attributes}) as span:
        carrier: dict[str, str] = {}
        if span.get_span_context().trace_flags.sampled:
            TraceContextTextMapPropagator().inject(carrier)
        submission = Submission(span, carrier.get(HEADERS[0]))
        before = _submission.set(submission)
        try:
            yield submission
        finally:
            _submission.reset(before)


def carried(jobs: int) -> list[str | None] | None:
    """Return a traceparent or None for each of `jobs` new jobs of the submission under way; None: no job has one."""
    submission = _submission.get()
    if submission is None or submission.traceparent is None or not submission.left:
        return None
    traced = min(jobs, submission.left)
    submission.left -= traced
    return [submission.traceparent] * traced + [None] * (jobs - traced)
