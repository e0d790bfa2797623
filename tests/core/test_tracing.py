"""Spans where the environment asks for them; nothing at all where it does not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from queueops.core.telemetry import tracing
from queueops.site.diagnosis.surroundings import examine_tracing
from tests.support.processes import ROOT

ENDPOINT = "http://127.0.0.1:4318"
IMPORTED = """
import os, sys, django
os.environ["DJANGO_SETTINGS_MODULE"] = "queueops.settings"
django.setup()
import jobs.executor.pump, jobs.services.submit.submit
from queueops.core.telemetry import tracing
with tracing.from_caller({"traceparent": "00-%032x-%016x-01" % (1, 1)}), tracing.submitting("submit", {}) as span:
    span.note(messaging__message__id="1")
    assert tracing.carried(3) is None
print(tracing.tracer(), "opentelemetry.sdk" in sys.modules, "opentelemetry.trace" in sys.modules)
"""


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


def test_the_standard_variables_say_whether_spans_are_wanted(monkeypatch):
    for wanted, variables in (
        (False, {}),
        (True, {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT}),
        (True, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": ENDPOINT}),
        (True, {"OTEL_TRACES_EXPORTER": "otlp"}),
        (False, {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT}),
        (False, {"OTEL_TRACES_EXPORTER": "console"}),
        (False, {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT}),
    ):
        with monkeypatch.context() as environ:
            for name, value in variables.items():
                environ.setenv(name, value)
            assert tracing.is_wanted() is wanted, variables


@pytest.mark.parametrize("variables", [{}, {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT}])
def test_nothing_is_imported_where_they_are_not(variables):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    ran = subprocess.run(
        [sys.executable, "-c", IMPORTED], cwd=ROOT, env=clean | variables, capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["None", "False", "False"]


def test_doctor_says_what_keeps_spans_from_being_sent(monkeypatch):
    assert examine_tracing().observation.startswith("off")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", ENDPOINT)
    assert (examine_tracing().verdict, examine_tracing().advice) == ("ok", "")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    assert "not by grpc" in examine_tracing().advice
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_PROTOCOL")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)  # as where it is not installed
    assert examine_tracing().advice == "install the extra queueops[otel]"


def test_spans_that_cannot_be_sent_are_a_warning_and_no_failure(monkeypatch, caplog):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", ENDPOINT)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    tracing.tracer.cache_clear()
    try:
        assert tracing.tracer() is None
        assert tracing.tracer() is None
    finally:
        tracing.tracer.cache_clear()
    assert caplog.text.count("no spans are sent") == 1
