"""R14: one project asks for far more than the web process can do, beside two that ask now and then."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from http import HTTPStatus
from multiprocessing import get_context
from typing import Any

import psutil
import pytest

from queueops.tenancy.models import ProducerKey
from tests.dashboards.live.conftest import web_process
from tests.factories import make_project
from tests.faults.asking import Asked, ask_at, ask_for

pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.proves("R14")]

AT_CAPACITY, OVERLOAD = 16, 300  # greedy clients at once: as many as are served, and more than may wait
TRIES = 5  # a crowd that a busy machine holds up is none
GROWTH_BYTES = 50_000_000
MEASURED_SECONDS = 10.0  # less says nothing of goodput
POLITE_PAUSE = 0.05
OVER = 3  # times what is served
# Measured on two quiet cores, which clients and database share: docs/adr/0027-requests-take-turns.md.
MIN_GOODPUT = {"three times": 0.5, "all at once": 0.25}
MAX_OF_POLITE = 4  # times that at the peak


def beside(
    apart: Executor, polite: Callable[..., Asked], greedy: Callable[..., Asked] | None, seconds: float
) -> tuple[Asked, Asked]:
    """Return what became of the greedy's requests, made here, and of those of the polite, made in another process."""
    asked = apart.submit(polite, seconds)
    return greedy(seconds) if greedy else Asked(), asked.result()


@pytest.mark.parametrize(
    "seconds", [pytest.param(1.0, id="short"), pytest.param(15.0, id="long", marks=pytest.mark.soak)]
)
def test_a_greedy_project_is_refused_with_a_time_to_come_back_and_others_are_served(seconds: float, figures: Any):
    greedy, *others = [
        ProducerKey.issue(make_project(name), name="producer")[1] for name in ("greedy", "polite", "modest")
    ]
    is_measured = seconds >= MEASURED_SECONDS
    with (
        web_process(QUEUEOPS_REQUESTS_PER_MINUTE="1000000") as (address, process),
        ProcessPoolExecutor(1, get_context("spawn")) as apart,
    ):
        polite_ones = partial(ask_for, address=address, keys=others, pause=POLITE_PAUSE)
        crowd = partial(ask_for, address=address, pause=0.0)
        few = partial(crowd, keys=[greedy] * AT_CAPACITY)
        beside(apart, polite_ones, few, 1)
        _, alone = beside(apart, polite_ones, None, seconds)
        peak, patient = beside(apart, polite_ones, few, seconds)
        resident = psutil.Process(process.pid).memory_info().rss
        floods = {}
        for _ in range(TRIES):
            floods["all at once"] = beside(apart, polite_ones, partial(crowd, keys=[greedy] * OVERLOAD), seconds)
            if floods["all at once"][0].statuses[HTTPStatus.SERVICE_UNAVAILABLE]:
                break
        if is_measured:
            rate = OVER * peak.statuses[HTTPStatus.CREATED] / seconds
            floods["three times"] = beside(
                apart, polite_ones, partial(ask_at, rate, address=address, key=greedy), seconds
            )
        grown = psutil.Process(process.pid).memory_info().rss - resident
        assert process.runs
    told = [
        f"the polite p99 {alone.most_seconds * 1000:.0f} ms alone, {patient.most_seconds * 1000:.0f} ms at the peak"
    ]
    for name, (flood, polite) in floods.items():
        goodput = flood.statuses[HTTPStatus.CREATED] / peak.statuses[HTTPStatus.CREATED]
        told.append(f"{name} {dict(flood.statuses)}: goodput {goodput:.0%}, {polite.most_seconds * 1000:.0f} ms")
        assert set(polite.statuses) == {HTTPStatus.CREATED}, "somebody polite was refused"
        assert flood.statuses[HTTPStatus.SERVICE_UNAVAILABLE], "it was no overload"
        assert set(flood.statuses) <= {HTTPStatus.CREATED, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
        assert flood.unmarked == 0
        if is_measured:
            assert goodput >= MIN_GOODPUT[name]
            assert polite.most_seconds <= MAX_OF_POLITE * patient.most_seconds
    figures(f"{'; '.join(told)}; resident memory {grown / 2**20:+.0f} MiB")
    assert grown < GROWTH_BYTES
