"""How far off forecasts are: the forecast and the real cost and duration of questions to a model."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from django.utils import timezone

from bench.harness.processes import cluster, wait_until_finished
from bench.harness.report import Report
from bench.harness.seeding import PROJECT, one_project
from bench.harness.session import Session, run
from jobs.features.forecast.submission import SubmissionForecast, forecast_submission
from jobs.handlers.llm.requests.payload import LlmGenerate
from jobs.models import Batch, FlowSample
from jobs.services.explain.snapshots import batch_snapshot
from jobs.services.submit.submit import submit_batch
from queueops.tenancy.models import Credential, Project
from queueops.tenancy.secrets.credentials import seal
from ratelimits.limits import catalogue
from ratelimits.models import CostEstimate, Price
from ratelimits.money.reports import spent_on_batch
from ratelimits.tuning.limits import create_limit
from tests.support.documents import document
from tests.support.processes import wait_for
from tests.support.sandbox import Sandbox, running_sandbox

SERVICE, MODEL, CREDENTIAL = "forecast", "small-1", "forecast"
WINDOW_SECONDS, FULL_WINDOW_SECONDS = 5, 60
WINDOWS = 4  # about as many windows as the batch takes at the pace of the binding limit
LESSON = 60  # calls from which the forecast learns what such calls take
OUTPUT_TOKENS = 90  # fewer if a question allows fewer
MIN_ALLOWED, MAX_ALLOWED = 20, 400
SHORTEST, LONGEST = 40, 400  # words of a question
TOKENS_OF_A_CALL = 380  # about, as the sandbox counts
TOKEN_FACTOR = 1.15  # the provider's tokenizer counts so many times our estimate
LATENCY = {"mode": "lognormal", "median_milliseconds": 80, "sigma": 0.4}
ALLOW_LOOPBACK = {"QUEUEOPS_ALLOW_LOOPBACK_TARGETS": "on"}
PRICES = {"input_tokens": 2_000_000, "output_tokens": 8_000_000}
# The calls and tokens that the provider allows in a window, by the binding unit.
QUOTAS = {"tokens": (120, 24_000), "requests": (50, 60_000)}
DOCUMENTS, MIN_DOCUMENT_LENGTH, MAX_DOCUMENT_LENGTH = 20, 5_000, 200_000  # tokens, in parts of 8,000
DOCUMENTS_QUOTA = (600, 250_000)
LOOKS_AT_THE_END = 5  # while documents go, spread evenly over the forecast time


def measure(session: Session) -> None:
    window = FULL_WINDOW_SECONDS if session.full else WINDOW_SECONDS
    costs, times = [], []
    for binds, quota in QUOTAS.items():
        with ExitStack() as stack:
            provider = stack.enter_context(running_sandbox())
            url = stack.enter_context(session.databases.copy("forecast", one_project))
            _open(provider, quota, window)
            stack.enter_context(cluster(url, environ=ALLOW_LOOPBACK))
            cost_error, time_error = _compare(binds, quota, window, session.report)
            costs.append(cost_error)
            times.append(time_error)
    _measure_documents(session, window)
    session.report.metric("cost_error", max(costs), "forecast's price, off by", "target: at most 0.10")
    session.report.metric("time_error", max(times), "forecast's end, off by", "target: at most 0.15")


def _measure_documents(session: Session, window: float) -> None:
    """Compare forecasts of documents in parts with their real end: forecasts before the submission, and as they go."""
    with ExitStack() as stack:
        provider = stack.enter_context(running_sandbox())
        url = stack.enter_context(session.databases.copy("forecast", one_project))
        _open(provider, DOCUMENTS_QUOTA, window)
        stack.enter_context(cluster(url, environ=ALLOW_LOOPBACK))
        submit_batch(_questions(LESSON, seed=1), project_id=PROJECT, actor="bench")
        wait_until_finished(LESSON, seconds=30 + 20 * window)
        _wait_until_learned()
        time.sleep(1.1 * window)
        told = forecast_submission(_documents(), project_id=PROJECT)
        if told.live.seconds is None or told.live.price is None:
            raise SystemExit(f"nothing is told: {told.live}")
        begun = time.monotonic()
        batch = Batch.objects.get(pk=submit_batch(_documents(), project_id=PROJECT, actor="bench").id)
        ends, progress = [], []
        for look in range(1, LOOKS_AT_THE_END):
            time.sleep(max(0.0, begun + look * told.live.seconds / LOOKS_AT_THE_END - time.monotonic()))
            batch.refresh_from_db()
            seen, at = batch_snapshot(batch), time.monotonic() - begun
            progress.append((at, seen.progress))
            ends.append(at + (seen.eta - timezone.now()).total_seconds() if seen.eta else 0.0)
        took = wait_until_finished(LESSON + DOCUMENTS, seconds=60 + 60 * window) - begun
        calls = sum(len(LlmGenerate.model_validate(line["payload"]).parts) for line in _documents())
        wait_for(lambda: _calls(batch.pk) == calls, what="the ledger of every call")
        spent = spent_on_batch(batch.pk)
    if spent is None:
        raise SystemExit("the ledger tells of no call")
    report = session.report
    report.figure("documents: end, told / was", f"{told.live.seconds:.1f} / {took:.1f} s", f"{calls} calls")
    report.figure("documents: price, told / was", f"{told.live.price:,} / {spent.money:,}", "millionths")
    report.figure("documents: end told as they went", ", ".join(f"{end:.1f}" for end in ends), "s from the start")
    report.figure("documents: progress", ", ".join(f"{done:.0f} % at {at / took:.0%}" for at, done in progress), "")
    off = max(abs(end / took - 1.0) for end in [told.live.seconds, *ends])
    report.metric("documents_error", off, "documents, end off by", "target, --full: at most 0.10")


def _documents() -> Iterator[dict[str, Any]]:
    step = (MAX_DOCUMENT_LENGTH - MIN_DOCUMENT_LENGTH) / (DOCUMENTS - 1)
    for number in range(DOCUMENTS):
        place = number * 7 % DOCUMENTS  # in mixed order
        payload = {
            "provider": "openai",
            "service": SERVICE,
            "credential": CREDENTIAL,
            "model": MODEL,
            "prompt": document(round(MIN_DOCUMENT_LENGTH + place * step), seed=number),
            "split": True,
            "max_output_tokens": OUTPUT_TOKENS,
        }
        yield {"kind": "llm.generate", "payload": payload}


def _compare(binds: str, quota: tuple[int, int], window: float, report: Report) -> tuple[float, float]:
    """Make calls to learn from, then forecast and submit a batch. Return by what shares price and time were off."""
    submit_batch(_questions(LESSON, seed=1), project_id=PROJECT, actor="bench")
    wait_until_finished(LESSON, seconds=30 + 20 * window)
    _wait_until_learned()
    time.sleep(1.1 * window)  # until the windows have room again after the lesson
    calls, tokens = quota
    count = round(WINDOWS * min(calls, tokens / TOKENS_OF_A_CALL))
    told = forecast_submission(_questions(count, seed=2), project_id=PROJECT)
    begun = time.monotonic()
    batch = submit_batch(_questions(count, seed=2), project_id=PROJECT, actor="bench").id
    took = wait_until_finished(LESSON + count, seconds=60 + 30 * window) - begun
    wait_for(lambda: _calls(batch) == count, what="the ledger of every call")
    spent = spent_on_batch(batch)
    if spent is None or told.live.price is None or told.live.seconds is None:
        raise SystemExit(f"nothing to compare: {spent}, {told.live}")
    _tell(report, binds, told, (took, spent.money))
    return abs(told.live.price / spent.money - 1.0), abs(told.live.seconds / took - 1.0)


def _tell(report: Report, binds: str, told: SubmissionForecast, was: tuple[float, int]) -> None:
    took, money = was
    limit = told.binding[0]
    report.figure(
        f"{binds}: end, told / was",
        f"{told.live.seconds:.1f} / {took:.1f} s",
        f"{told.jobs} calls; {limit.limit} binds",
    )
    report.figure(f"{binds}: price, told / was", f"{told.live.price:,} / {money:,}", "millionths")


def _calls(batch: Any) -> int:
    spent = spent_on_batch(batch)
    return 0 if spent is None else spent.calls


def _wait_until_learned() -> None:
    """Wait until executors have written the tokens of the lesson's calls, and the flow their durations."""
    learned = CostEstimate.objects.filter(id=f"{PROJECT}|{SERVICE}|llm.generate|{MODEL}")
    wait_for(lambda: len(learned.values_list("outputs", flat=True).first() or []) >= LESSON, what="the lesson's tokens")
    flow = FlowSample.objects.filter(service=SERVICE, span_seconds=0)
    wait_for(lambda: sum(flow.values_list("latencies", flat=True).first() or []) >= LESSON, what="its calls' durations")


def _questions(count: int, *, seed: int) -> Iterator[dict[str, Any]]:
    dice = random.Random(seed)
    for number in range(count):
        payload = {
            "provider": "openai",
            "service": SERVICE,
            "credential": CREDENTIAL,
            "model": MODEL,
            "prompt": f"{number} " + "word " * dice.randint(SHORTEST, LONGEST),
            "max_output_tokens": dice.randint(MIN_ALLOWED, MAX_ALLOWED),
        }
        yield {"kind": "llm.generate", "payload": payload}


def _open(provider: Sandbox, quota: tuple[int, int], window: float) -> None:
    """Set the provider's quota, the same limits here, a credential and prices."""
    calls, tokens = quota
    provider.turn(
        latency=LATENCY,
        openai={
            "window_mode": "sliding",
            "window_seconds": window,
            "requests_per_minute": calls,
            "tokens_per_minute": tokens,
            "output_tokens": OUTPUT_TOKENS,
            "token_factor": TOKEN_FACTOR,
        },
    )
    for unit, cap in (("requests", calls), ("tokens", tokens)):
        figures = {"service": SERVICE, "scope": "project", "per_model": True, "algorithm": "sliding_window"}
        create_limit(
            {
                **figures,
                "name": f"forecast-{unit}",
                "unit": unit,
                "capacity": cap,
                "window_seconds": window,
                "slack_seconds": 0.2,
            },
            actor="user:1",
        )
    secret = seal({"api_key": f"project:{PROJECT}/user:robot"})
    credential = Credential.objects.create(
        name=CREDENTIAL, service=SERVICE, quota_project=PROJECT, secret=secret, base_url=provider.url
    )
    credential.projects.add(Project.objects.get(pk=PROJECT))
    for unit, amount in PRICES.items():
        Price.objects.create(provider=SERVICE, model=MODEL, unit=unit, amount=amount, valid_from="2026-01-01T00:00Z")
    catalogue.forget()


if __name__ == "__main__":
    run("forecast", measure)
