"""
Spans as OTLP, in a quarter of the time that OpenTelemetry's own encoder takes.

That encoder makes a message of each part and copies it into the next larger one, three times over. It also hashes the
resource, as JSON, once a span. Here the whole request is made at once, from plain dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.common import trace_encoder
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import SpanFlags
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext

LOCAL = SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK  # says that the next flag, REMOTE, is meaningful
REMOTE = LOCAL | SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK

NAMES = {
    str: "string_value",
    bool: "bool_value",
    int: "int_value",
    float: "double_value",
    bytes: "bytes_value",
}

Message = dict[str, Any]  # field name -> value; a field that is None is left out


def encode_spans(sdk_spans: Sequence[ReadableSpan]) -> ExportTraceServiceRequest:
    try:
        return _encoded(sdk_spans)
    except (TypeError, ValueError):
        return trace_encoder.encode_spans(sdk_spans)  # their encoder leaves out only attributes that have no encoding


def _encoded(spans: Sequence[ReadableSpan]) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    begun: dict[tuple[int, int], Any] = {}
    for span in spans:
        place = id(span.resource), id(span.instrumentation_scope)
        if (add := begun.get(place)) is None:
            group = request.resource_spans.add(**_group(span.resource, span.instrumentation_scope))
            add = begun[place] = group.scope_spans[0].spans.add
        # Add span by span: a thousand dictionaries at once would start the garbage collector.
        add(**_fields(span))
    return request


def _group(resource: Resource, scope: InstrumentationScope | None) -> Message:
    """Return the fields of the group for spans of one resource and scope."""
    scoped: Message = {}
    if scope is not None:
        about = {"name": scope.name, "version": scope.version, "attributes": _pairs(scope.attributes)}
        scoped = {"scope": about, "schema_url": scope.schema_url}
    about = {"attributes": _pairs(resource.attributes)}
    return {"resource": about, "schema_url": resource.schema_url, "scope_spans": [scoped]}


def _fields(span: ReadableSpan) -> Message:
    context, parent, status = span.get_span_context(), span.parent, span.status
    fields: Message = {
        **_ids(context),
        "parent_span_id": parent.span_id.to_bytes(8) if parent else None,
        "flags": _flags(parent),
        "name": span.name,
        "kind": span.kind.value + 1,  # in OTLP, 0 means unspecified
        "start_time_unix_nano": span.start_time,
        "end_time_unix_nano": span.end_time,
        "attributes": _pairs(span.attributes),
        "dropped_attributes_count": span.dropped_attributes,
        "dropped_events_count": span.dropped_events,
        "dropped_links_count": span.dropped_links,
        "status": {"code": status.status_code.value, "message": status.description},
    }
    if context and context.trace_state:
        fields["trace_state"] = ",".join(f"{key}={value}" for key, value in context.trace_state.items())
    if events := span.events:
        fields["events"] = [_event(event) for event in events]
    if links := span.links:
        fields["links"] = [_link(link) for link in links]
    return fields


def _event(event: Event) -> Message:
    return {
        "name": event.name,
        "time_unix_nano": event.timestamp,
        "attributes": _pairs(event.attributes),
        "dropped_attributes_count": event.dropped_attributes,
    }


def _link(link: Link) -> Message:
    return {
        **_ids(link.context),
        "attributes": _pairs(link.attributes),
        "dropped_attributes_count": link.dropped_attributes,
        "flags": _flags(link.context),
    }


def _ids(context: SpanContext | None) -> Message:
    return {"trace_id": context.trace_id.to_bytes(16), "span_id": context.span_id.to_bytes(8)} if context else {}


def _flags(context: SpanContext | None) -> int:
    return REMOTE if context and context.is_remote else LOCAL


def _pairs(values: Mapping[str, Any] | None) -> list[Message]:
    return [{"key": key, "value": _value(value)} for key, value in (values or {}).items()]


def _value(value: Any) -> Message:
    name = NAMES.get(type(value)) or next((name for kind, name in NAMES.items() if isinstance(value, kind)), "")
    if name:
        return {name: value}
    if isinstance(value, Mapping):
        return {"kvlist_value": {"values": _pairs(value)}}
    return {"array_value": {"values": [_value(one) for one in value]}} if isinstance(value, Iterable) else {}
