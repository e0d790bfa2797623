"""The rules for Prometheus: on no data, on promtool's own cases, and on a recorded outage."""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from dashboards.metrics.catalogue import METRICS
from dashboards.services.shared.cache import forget_all
from jobs.models import Executor
from jobs.services.upkeep.executors import register
from jobs.states import JobState
from queueops.core.clock import Now
from tests.factories import make_jobs
from tests.support.processes import ROOT
from tests.support.promql import Series, firing, seconds, series_of

FOLDER = Path(ROOT, "deploy/prometheus")
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for group in yaml.safe_load((FOLDER / "rules.yaml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
}
CASES: list[dict[str, Any]] = yaml.safe_load((FOLDER / "rules_test.yaml").read_text(encoding="utf-8"))["tests"]
SCRAPED_EVERY = 15.0


def test_every_rule_reads_metrics_that_exist_and_names_a_page_that_does():
    exported = {metric.exported for metric in METRICS.values()}
    for name, rule in RULES.items():
        assert set(re.findall(r"queueops_\w+", rule["expr"])) <= exported, name
        assert Path(ROOT, rule["annotations"]["runbook"]).exists(), name
        assert rule["labels"]["severity"] in {"page", "look"}, name


def test_the_cases_that_promtool_tries_come_out_as_they_say():
    for case in CASES:
        every = seconds(case["interval"])
        series = [series_of(one["series"], one["values"], every) for one in case["input_series"]]
        for wanted in case["alert_rule_test"]:
            at = seconds(wanted["eval_time"])
            found = firing(RULES[wanted["alertname"]], series, until=at, every=every).get(at, [])
            expected = [one["exp_labels"] for one in wanted["exp_alerts"]]
            assert [dict(labels) for labels, _ in found] == expected, (case["name"], wanted["alertname"], at)


def scrape() -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    forget_all()
    text = Client().get("/metrics").content.decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def recorded(*phases: tuple[float, dict[tuple[str, tuple[tuple[str, str], ...]], float]]) -> list[Series]:
    """What two web processes told, each phase for so many seconds."""
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[float, float]]] = {}
    at = 0.0
    for lasts, values in phases:
        until = at + lasts
        while at < until:
            for key, value in values.items():
                samples.setdefault(key, []).append((at, value))
            at += SCRAPED_EVERY
    return [
        Series(name, {**dict(labels), "instance": instance}, those)
        for (name, labels), those in samples.items()
        for instance in ("a", "b")
    ]


@pytest.mark.django_db
def test_an_outage_of_all_workers_pages_within_three_minutes_once_and_an_empty_installation_pages_nobody():
    nobody = scrape()
    quiet = recorded((900.0, nobody))
    assert {name for name, rule in RULES.items() if firing(rule, quiet, until=900.0, every=15.0)} == set()

    [job, *_] = make_jobs(4)
    register(job.pk, cluster_pid=1, slots=5)
    make_jobs(2, state=JobState.IN_PROGRESS)
    sound = scrape()
    Executor.objects.update(heartbeat_at=Now() - timedelta(seconds=61))  # a lease later
    silent = scrape()
    Executor.objects.all().delete()
    gone = scrape()
    outage, back = 300.0, 1200.0
    series = recorded((outage + 60.0, sound), (60.0, silent), (back - outage - 120.0, gone), (300.0, sound))
    pages = {name: sorted(firing(rule, series, until=1500.0, every=15.0)) for name, rule in RULES.items()}
    assert [name for name, times in pages.items() if times] == ["QueueOpsNobodyWorks"]
    times = pages["QueueOpsNobodyWorks"]
    assert times[0] - outage <= 180.0
    assert times[-1] < back + SCRAPED_EVERY
    assert {later - one for one, later in pairwise(times)} == {15.0}, "it ended and began anew"
