"""A provider's outage: nothing is spent on it, nothing floods the dead letters, and it ends by itself."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from jobs.features.outages.breaker import THRESHOLD
from jobs.features.outages.outages import probe_now
from jobs.models import DeadLetter, Job, JobEvent, ServiceBreaker
from jobs.states import JobState
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.faults.records import submit, wait_until_drained
from tests.support.processes import free_port, wait_for

COUNT = 60
PROBE_SECONDS = 0.2

pytestmark = pytest.mark.usefixtures("transactional_db")


class Provider:
    """A provider that fails until told to work; it knows how many calls it got, and how many at once."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.works = False
        self.answer_seconds = 0.0
        self.calls = 0
        self.most_at_once = 0
        self.done: list[str] = []
        self._port = port
        self._at_once = 0
        self._lock = threading.Lock()

    @contextmanager
    def serving(self) -> Iterator[None]:
        provider = self

        class Answer(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                self.send_response(provider._status(self.path))
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_POST = do_PUT  # noqa: N815 - the base class's name

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        with ThreadingHTTPServer(("127.0.0.1", self._port), Answer) as server:
            threading.Thread(target=server.serve_forever, args=(0.02,)).start()
            try:
                yield
            finally:
                server.shutdown()

    def _status(self, path: str) -> int:
        with self._lock:
            self.calls += 1
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        time.sleep(self.answer_seconds)
        with self._lock:
            self._at_once -= 1
            if not self.works:
                return 503
            self.done.append(path)
        return 200


def _call(provider: Provider, method: str) -> None:
    submit({"kind": "http.request", "payload": {"method": method, "url": f"{provider.url}/{n}"}} for n in range(COUNT))


def _wait_until_parked() -> None:
    probes = ServiceBreaker.objects.filter(probe_job_id__isnull=False).values("probe_job_id")
    others = Job.objects.exclude(status=JobState.RATE_LIMITED, scheduled_at=None).exclude(pk__in=probes)
    wait_for(lambda: not others.exists(), what="the parking of the service's jobs")


def _attempts_spent() -> int:
    return sum(Job.objects.values_list("retry_count", flat=True))


def _check_recovery(provider: Provider) -> None:
    wait_until_drained(seconds=90)
    assert sorted(provider.done) == sorted(f"/{number}" for number in range(COUNT))
    wait_for(lambda: not ServiceBreaker.objects.exists(), what="the breaker's end")
    assert not DeadLetter.objects.exists()
    ours = JobEvent.objects.filter(job_id__in=Job.objects.values("pk"))  # the log outlives a test
    assert _attempts_spent() < THRESHOLD + ours.filter(message="sent as a probe").count()


def test_a_failing_service_is_asked_by_one_probe_at_a_time_and_recovers_by_itself(ledger: Ledger, figures):
    provider = Provider(free_port())
    with provider.serving(), cluster(ledger, faults_probe_seconds=PROBE_SECONDS):
        _call(provider, "PUT")
        _wait_until_parked()
        spent, breaker = _attempts_spent(), ServiceBreaker.objects.get()
        assert spent < THRESHOLD + breaker.probes, "what was under way when it opened spent attempts"
        provider.answer_seconds = 1.0
        provider.most_at_once = 0
        seen = provider.calls
        # Asked for again and again, also while one is under way.
        wait_for(
            lambda: probe_now([breaker.pk], actor="user:test") and provider.calls >= seen + 3, what="three more probes"
        )
        assert provider.most_at_once == 1
        calls, spent_now, asked = provider.calls, _attempts_spent(), ServiceBreaker.objects.get()
        assert calls <= COUNT + spent + asked.probes, "a probe was repeated instead of waiting its turn"
        assert spent_now < THRESHOLD + asked.probes, "an outage spent attempts beyond its probes'"
        assert not DeadLetter.objects.exists()
        assert asked.failures > breaker.failures
        provider.works, provider.answer_seconds = True, 0.0
        probe_now([breaker.pk], actor="user:test")
        _check_recovery(provider)
    figures(
        f"{COUNT} jobs, {provider.calls - COUNT} failed calls, "
        f"{spent} attempts spent, no dead letter, one probe at a time"
    )


def test_a_service_that_is_not_there_costs_no_attempts_even_where_calls_may_not_be_repeated(ledger: Ledger):
    provider = Provider(free_port())
    provider.works = True
    with cluster(ledger, faults_probe_seconds=PROBE_SECONDS):
        _call(provider, "POST")
        _wait_until_parked()
        failures = ServiceBreaker.objects.get().failures
        wait_for(lambda: ServiceBreaker.objects.get().failures >= failures + 2, what="two failed probes")
        assert not DeadLetter.objects.exists()
        with provider.serving():
            _check_recovery(provider)
