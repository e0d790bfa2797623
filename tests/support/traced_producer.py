"""
A producer with spans of its own: `python -m tests.support.traced_producer <server> <key> <jobs as JSON>`.

One job is submitted by itself, several as a batch. Prints the trace's id.
"""

from __future__ import annotations

import json
import sys

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from queueops_client import QueueOps

if __name__ == "__main__":
    server, key, jobs = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    provider = TracerProvider(resource=Resource.create({"service.name": "producer"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    with trace.get_tracer("producer").start_as_current_span("import") as span, QueueOps(server, key) as queue:
        if len(jobs) == 1:
            queue.submit(**jobs[0])
        else:
            queue.submit_many(jobs)
    print(trace.format_trace_id(span.get_span_context().trace_id))  # noqa: T201 - for who started it
