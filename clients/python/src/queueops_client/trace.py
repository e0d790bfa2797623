"""Tells the server the trace of a request, if the program uses OpenTelemetry."""

from __future__ import annotations

import sys


def trace_headers() -> dict[str, str]:
    """Return `traceparent` of the current span; empty: there is none. It imports no package that the program lacks."""
    if "opentelemetry.trace" not in sys.modules:  # then the program has begun no span
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers
