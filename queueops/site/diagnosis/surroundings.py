"""The doctor's questions that need no database: about settings, metrics, the sandbox and tracing."""

import socket
from collections.abc import Iterator

from django.conf import settings
from django.core import checks

from queueops.core.telemetry import tracing

from .finding import DoctorFinding, DoctorVerdict, ok, warn


def examine_settings() -> Iterator[DoctorFinding]:
    problems = checks.run_checks(include_deployment_checks=not settings.DEBUG)
    for problem in problems:
        verdict = DoctorVerdict.FAIL if problem.level >= checks.ERROR else DoctorVerdict.WARN
        yield DoctorFinding("settings", verdict, f"{problem.id}: {problem.msg}", problem.hint or "")
    if not problems:
        mode = "development" if settings.DEBUG else "production"
        yield ok("settings", f"valid, {mode} mode")


def examine_metrics() -> DoctorFinding:
    if settings.QUEUEOPS.metrics_token:
        return ok("metrics", "/metrics wants QUEUEOPS_METRICS_TOKEN")
    if settings.QUEUEOPS.debug:
        return ok("metrics", "/metrics answers this machine only")
    return warn(
        "metrics",
        "/metrics answers this machine only",
        "Set QUEUEOPS_METRICS_TOKEN to let Prometheus read them from elsewhere, or through a proxy.",
    )


def examine_sandbox() -> DoctorFinding:
    port = settings.QUEUEOPS.sandbox_port
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return ok("sandbox", f"not running on port {port}; only the demo needs it")
    return ok("sandbox", f"answers on port {port}")


def examine_tracing() -> DoctorFinding:
    if not tracing.is_wanted():
        return ok("tracing", "off; no OTEL_* variable names where spans go")
    if cause := tracing.trouble():
        return warn("tracing", "asked for, but no spans are sent", cause)
    return ok("tracing", "spans go by OTLP to where the OTEL_* variables say")
