"""Providers that hang, drip or are known to some processes alone keep nobody else's batches waiting."""

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from uuid import uuid4

import pytest
from django.utils import timezone

from jobs.features.batch_lane.steps import calls as batch_calls
from jobs.features.batch_lane.steps.calls import ITEMS_AHEAD, UPLOADED_A_SECOND, CallLoop
from jobs.features.batch_lane.steps.collect import collect_waiting
from jobs.features.batch_lane.steps.deadlines import hand_back_late
from jobs.features.batch_lane.steps.lane import BatchLane
from jobs.features.batch_lane.steps.rounds import (
    LATE,
    MAX_DUTY_LENGTH,
    STEPS_AT_ONCE,
    Rounds,
    duty_of,
    kinds_with_batches,
)
from jobs.handlers import registry
from jobs.handlers.errors import ProviderError
from jobs.models import DutyLease, Job, ProviderBatch
from tests.support.processes import wait_for
from tests.support.provider_batches import make_round

pytestmark = pytest.mark.django_db(transaction=True)

KIND = "llm.generate"
DRIP_SECONDS = 0.05


@dataclass
class Slow:
    """
    A provider that does not come to an end.

    `asked`: at least one call has arrived; `paths`: of all calls; `released`: let all go.
    """

    url: str
    asked: threading.Event
    paths: list[str]
    released: threading.Event


def hang(request: BaseHTTPRequestHandler, released: threading.Event) -> None:
    released.wait()


def drip(request: BaseHTTPRequestHandler, released: threading.Event) -> None:
    """Tell of a batch that has ended, and let its results drip."""
    if not request.path.endswith("/content"):
        answer(request, b'{"id": "batch_1", "status": "completed", "output_file_id": "file-1"}')
        return
    request.send_response(200)
    request.end_headers()
    while not released.wait(DRIP_SECONDS):
        request.wfile.write(b" ")


def begin_and_hang(request: BaseHTTPRequestHandler, released: threading.Event) -> None:
    request.send_response(200)
    request.end_headers()
    request.wfile.write(b"{}\n")
    released.wait()


def answer(request: BaseHTTPRequestHandler, body: bytes) -> None:
    request.send_response(200)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


@contextmanager
def provider_that(does: Callable[[BaseHTTPRequestHandler, threading.Event], None]) -> Iterator[Slow]:
    asked, released = threading.Event(), threading.Event()
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            asked.set()
            try:
                does(self, released)
            except ConnectionError:
                self.close_connection = True

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Slow(f"http://127.0.0.1:{server.server_port}", asked, paths, released)
    finally:
        released.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def rounds_of(lane) -> Iterator[Callable[[], None]]:
    """A holder of all duties: each call is a round of it, in which every healthy batch is due."""
    rounds = Rounds(lane.calls, is_over=lambda kind: False)

    def make() -> None:
        healthy = ProviderBatch.objects.filter(state__in=ProviderBatch.UNFINISHED, credential="openai-key")
        healthy.update(look_at=timezone.now())
        rounds.make([LATE, *kinds_with_batches()])

    try:
        yield make
    finally:
        lane.calls.close()
        rounds.wait(10)
        lane.calls = CallLoop()


def of(key: str) -> ProviderBatch:
    return ProviderBatch.objects.get(credential=key)


def after(make: Callable[[], None], holds: Callable[[], bool]) -> Callable[[], bool]:
    """Whether it holds after one more round."""

    def holds_now() -> bool:
        make()
        return holds()

    return holds_now


def is_done() -> bool:
    return ProviderBatch.objects.filter(credential="openai-key", state="completed").exists()


def goes_live() -> bool:
    """One that was never made has cost nothing; what another has done may be billed."""
    batch = of("slow-key")
    return (batch.handed_back, batch.unanswered) == ((2, 0) if batch.state == "creating" else (0, 2))


def test_a_provider_that_never_answers_keeps_no_other_waiting_and_its_late_lines_go_live(lane, settings):
    lane.credential()
    with provider_that(hang) as slow, rounds_of(lane) as make:
        lane.credential(name="slow-key", base_url=slow.url)
        lane.submit(2, key="slow-key")
        make()
        assert slow.asked.wait(10)
        lane.submit(3)
        wait_for(after(make, is_done), what="the healthy batch")
        assert (of("slow-key").state, of("slow-key").faults) == ("creating", 0), "its call is under way still"

        ProviderBatch.objects.filter(credential="slow-key").update(live_at=timezone.now() - timedelta(hours=1))
        make()
        assert not goes_live(), "what has had no time to answer is asked first"
        settings.QUEUEOPS = replace(settings.QUEUEOPS, batch_call_seconds=0.2)
        wait_for(after(make, goes_live), what="the late lines")
        assert of("slow-key").faults == 0, "its call is under way still"
    assert not Job.objects.filter(credential="slow-key", scheduled_at__gt=timezone.now()).exists()


def test_results_that_drip_keep_no_other_waiting_and_their_late_lines_go_live(lane, settings):
    lane.credential()
    with provider_that(drip) as slow, rounds_of(lane) as make:
        lane.credential(name="slow-key", base_url=slow.url)
        lane.submit(2, key="slow-key")
        wait_for(after(make, lambda: any(path.endswith("/content") for path in slow.paths)), what="the drip")
        settings.QUEUEOPS = replace(settings.QUEUEOPS, batch_call_seconds=1.0)  # of calls that begin now
        ProviderBatch.objects.filter(credential="slow-key").update(live_at=timezone.now() - timedelta(hours=1))
        lane.submit(3)
        wait_for(after(make, is_done), what="the healthy batch")
        wait_for(after(make, goes_live), what="the late lines")
        assert (of("slow-key").state, of("slow-key").faults) == ("collecting", 0), "it drips still"


def test_credentials_whose_calls_fail_never_take_all_places(lane):
    lane.credential()
    with provider_that(hang) as slow, rounds_of(lane) as make:
        for number in range(STEPS_AT_ONCE + 1):
            lane.credential(name=f"slow-{number}", base_url=slow.url)
            lane.submit(1, key=f"slow-{number}")
        assert len(collect_waiting(kinds_with_batches())) == STEPS_AT_ONCE + 1
        ProviderBatch.objects.update(faults=1)
        make()
        assert slow.asked.wait(10)
        lane.submit(3)
        wait_for(after(make, is_done), what="the healthy batch")


def test_a_batch_whose_calls_fail_for_weeks_keeps_no_other_of_its_credential_from_its_step(lane):
    lane.credential(base_url="http://127.0.0.1:9")
    for _ in range(2):
        lane.submit(1)
        assert len(collect_waiting(kinds_with_batches())) == 1
    ProviderBatch.objects.update(faults=32_767)  # the end of the column
    make_round(lane.calls)
    assert ProviderBatch.objects.filter(look_at__gt=timezone.now()).count() == 2


@pytest.mark.parametrize(
    "case", [(drip, 60.0, 1.0, "too slowly"), (begin_and_hang, 0.5, 60.0, "no complete answer in time")]
)
def test_results_that_come_too_slowly_are_not_waited_for(lane, settings, monkeypatch, case):
    does, of_a_piece, of_speed, words = (
        case  # one of the two at a time: a machine that stands still is slow in both ways
    )
    settings.QUEUEOPS = replace(settings.QUEUEOPS, batch_call_seconds=of_a_piece)
    monkeypatch.setattr(batch_calls, "SPEED_SECONDS", of_speed)
    with provider_that(does) as slow:

        async def fetch(put):
            await lane.calls.send("GET", f"{slow.url}/content", headers={}, on_line=put)

        with pytest.raises(ProviderError, match=words):
            list(lane.calls.stream(fetch))


def test_a_call_has_time_in_proportion_to_what_it_sends(lane, settings):
    settings.QUEUEOPS = replace(settings.QUEUEOPS, batch_call_seconds=0.3)

    def take_slowly(request: BaseHTTPRequestHandler, released: threading.Event) -> None:
        request.rfile.read(int(request.headers["Content-Length"]))
        released.wait(1.5)
        answer(request, b"{}")

    with provider_that(take_slowly) as slow:

        def upload(size: int) -> bytes:
            sent = lane.calls.send("POST", f"{slow.url}/files", headers={}, body=b"x" * size)
            return bytes(lane.calls.run(sent).body)

        assert upload(5 * UPLOADED_A_SECOND) == b"{}"
        with pytest.raises(ProviderError, match="no complete answer in time"):
            upload(1000)


def test_a_batch_that_is_being_sent_is_late_only_once_all_of_it_had_the_time_to_be_sent(lane):
    lane.credential()
    lane.submit(2)
    assert collect_waiting([KIND])
    long_ago = timezone.now() - timedelta(days=1)
    # It began to be sent ten minutes ago, after the last moment at which its lines could have gone live in time.
    sent_since = timezone.now() - timedelta(minutes=10)
    large = 1_000 * UPLOADED_A_SECOND
    row = ProviderBatch.objects.filter(state="creating")
    row.update(live_at=long_ago, look_at=sent_since, progressed_at=sent_since, looked_at=None, size_bytes=large)
    hand_back_late(since=long_ago.timestamp())
    assert set(lane.states()) == {"in_progress"}
    row.update(size_bytes=1_000)
    hand_back_late(since=long_ago.timestamp())
    assert "in_progress" not in lane.states()


def test_who_is_slow_to_take_results_keeps_no_other_call_waiting_and_not_all_is_read_ahead(lane):
    lines = 200 * ITEMS_AHEAD
    taken = []

    def tell(request, released):
        answer(request, b"a line of results, as long as lines of such files are wont to be\n" * lines)

    with provider_that(tell) as big:

        async def fetch(put):
            def note(line):
                taken.append(line)
                put(line)

            await lane.calls.send("GET", f"{big.url}/content", headers={}, on_line=note)

        async def other():
            return "answered"

        results = lane.calls.stream(fetch)
        next(results)
        sizes = deque[int](maxlen=8)

        def stands_still() -> bool:
            sizes.append(len(taken))
            return len(sizes) == sizes.maxlen and set(sizes) == {len(taken)}

        wait_for(stands_still, what="the end of reading ahead")
        answers = []
        thread = threading.Thread(target=lambda: answers.append(lane.calls.run(other())), daemon=True)
        thread.start()
        thread.join(timeout=10)
        assert answers == ["answered"]
        assert ITEMS_AHEAD < len(taken) < lines
        assert sum(1 for _ in results) == lines - 1


def test_a_process_that_does_not_know_a_kind_leaves_its_batches_to_one_that_does(lane, monkeypatch):
    lane.credential()
    lane.submit(3)
    ids = stranger_id, knower_id = uuid4(), uuid4()
    stranger, knower = map(BatchLane, ids)
    try:
        with monkeypatch.context() as elsewhere:
            known = {kind: one for kind, one in registry._handlers.items() if one.batch is None}
            elsewhere.setattr(registry, "_handlers", known)
            stranger.do(math.inf)
        assert dict(DutyLease.objects.values_list("duty", "holder")) == {duty_of(LATE): stranger_id}

        def tend() -> None:
            stranger.wake(LATE)
            knower.do(math.inf)

        wait_for(after(tend, lambda: set(lane.states()) == {"completed"}), what="the batch")
        assert DutyLease.objects.get(duty=duty_of(KIND)).holder == knower_id
    finally:
        for one in (stranger, knower):
            one.stop()


def test_an_executor_that_stops_cuts_off_what_hangs_and_leaves_no_thread_behind(lane):
    with provider_that(hang) as slow:
        lane.credential(name="slow-key", base_url=slow.url)
        lane.submit(2, key="slow-key")
        share = BatchLane(uuid4())
        share.wake(KIND)
        assert slow.asked.wait(10)
        share.stop(seconds=10)
        names = {"batch-lane", "batch-step"}
        wait_for(lambda: not names & {thread.name for thread in threading.enumerate()}, what="the end of the threads")
    assert (of("slow-key").state, of("slow-key").faults) == ("creating", 0), "whoever is next goes on"


@contextmanager
def no_room_for_threads() -> Iterator[None]:
    size = threading.stack_size(2**46)  # more than a process can have: the system refuses to start a thread
    try:
        yield
    finally:
        threading.stack_size(size)


def test_a_step_whose_thread_could_not_start_is_taken_in_a_later_round(lane):
    lane.credential()
    lane.submit(2)
    with rounds_of(lane) as make:
        with no_room_for_threads(), pytest.raises(RuntimeError, match="can't start new thread"):
            make()
        wait_for(after(make, is_done), what="the batch")


def test_the_duty_of_a_kind_with_a_long_name_has_a_name_that_can_be_kept():
    names = {duty_of(f"{'k' * 90}.{number}") for number in range(3)}
    assert len(names) == 3
    assert max(map(len, names)) <= MAX_DUTY_LENGTH == DutyLease._meta.get_field("duty").max_length
