"""
A collector that takes spans by OTLP/HTTP and writes each as a line of JSON: `python -m tests.support.collector <file>`.

It prints its address once it listens.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.support.processes import python


@dataclass(frozen=True)
class Seen:
    """A span as it arrived; times in seconds since 1970."""

    name: str
    kind: int
    trace: str
    span: str
    parent: str
    began: float
    ended: float
    attributes: dict[str, Any]
    resource: dict[str, Any]
    events: list[str]
    failed: bool

    @property
    def operation(self) -> str:
        return self.name.partition(" ")[0]


class Collector:
    def __init__(self, url: str, file: Path) -> None:
        self.url = url
        self._file = file

    @property
    def environ(self) -> dict[str, str]:
        """What makes a process send its spans here, soon."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}

    def spans(self) -> list[Seen]:
        return [Seen(**json.loads(line)) for line in self._file.read_text().splitlines()]


@contextlib.contextmanager
def collecting(directory: Path) -> Iterator[Collector]:
    file = directory / "spans"
    file.touch()
    with python("-m", "tests.support.collector", str(file)) as process:
        process.wait_for_output("listens at ")
        yield Collector(process.output.partition("listens at ")[2].strip(), file)


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


def _seen(request: ExportTraceServiceRequest) -> Iterator[Seen]:
    for process in request.resource_spans:
        for scope in process.scope_spans:
            for span in scope.spans:
                yield Seen(
                    span.name,
                    span.kind,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.start_time_unix_nano / 1e9,
                    span.end_time_unix_nano / 1e9,
                    _values(span.attributes),
                    _values(process.resource.attributes),
                    [event.name for event in span.events],
                    span.status.code == span.status.STATUS_CODE_ERROR,
                )


def _serve(file: Path) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf")
            lines = [json.dumps(asdict(span)) + "\n" for span in _seen(ExportTraceServiceRequest.FromString(body))]
            with file.open("a") as kept:
                kept.write("".join(lines))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        print(f"listens at http://127.0.0.1:{server.server_address[1]}", flush=True)  # noqa: T201 - for who started it
        server.serve_forever()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
