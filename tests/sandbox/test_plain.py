import json
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from http.client import RemoteDisconnected

import pytest

from sandbox.knobs.settings import SECTIONS, Knobs
from sandbox.ledger import MAX_CALLS_KEPT, Ledger
from sandbox.server import make_app
from tests.sandbox.providers import ask
from tests.support.processes import wait_for
from tests.support.sandbox import ROOT, Sandbox


def call(url, *, key=None, **options):
    return ask(url, headers={"Idempotency-Key": key} if key else None, **options)


def write(sandbox, row, value=1, *, sheet="s", key=None):
    return call(sandbox.row_url(sheet, row), method="PUT", body=json.dumps(value).encode(), key=key)


def test_a_row_is_read_back_as_it_was_written(sandbox):
    write(sandbox, "r1", {"a": [1, "ü"]})
    write(sandbox, "r/2 ü", None)
    assert call(sandbox.row_url("s", "r1")).json() == {"sheet": "s", "row": "r1", "value": {"a": [1, "ü"]}}
    listing = call(f"{sandbox.url}/plain/sheets/s/rows").json()
    assert listing["rows"] == [{"row": "r1", "value": {"a": [1, "ü"]}}, {"row": "r/2 ü", "value": None}]
    assert call(sandbox.row_url("s", "r3")).status == 404


def test_rows_are_listed_in_pages(sandbox):
    for number in range(5):
        write(sandbox, f"r{number}", number)
    first = call(f"{sandbox.url}/plain/sheets/s/rows?limit=3").json()
    second = call(f"{sandbox.url}/plain/sheets/s/rows?limit=3&after={first['next_after']}").json()
    assert [row["value"] for row in first["rows"] + second["rows"]] == [0, 1, 2, 3, 4]
    assert second["next_after"] is None


def test_a_body_that_is_no_json_writes_nothing(sandbox):
    assert call(sandbox.row_url("s", "r"), method="PUT", body=b"{").status == 400
    assert sandbox.counters()["effects_applied"] == 0


@pytest.mark.parametrize(("code", "status"), [("204", 204), ("418", 418), ("599", 599), ("600", 400), ("x", 400)])
def test_any_status_can_be_asked_for(sandbox, code, status):
    assert call(f"{sandbox.url}/plain/status/{code}", method="DELETE").status == status


def test_the_ledger_shows_repeated_effects_from_the_providers_side(sandbox):
    write(sandbox, "r1", key="key-1")
    write(sandbox, "r1", key="key-1")
    write(sandbox, "r2", key="key-2")
    call(f"{sandbox.url}/plain/echo", method="POST", body=b"x", key="key-3")
    assert sandbox.effects() == {"s/r1": 2, "s/r2": 1}
    assert sandbox.effects(min_count=2) == {"s/r1": 2}
    assert sandbox.effects(by="effect_key") == {"key-1": 2, "key-2": 1, "key-3": 1}
    counters = sandbox.counters()
    assert (
        counters["effects_applied"],
        counters["rows_written_repeatedly"],
        counters["effect_keys_repeated"],
    ) == (4, 1, 1)


def test_the_ledger_can_be_filtered_and_paged(sandbox):
    write(sandbox, "r1", key="key-1")
    call(f"{sandbox.url}/plain/status/500")
    assert [entry["path"] for entry in sandbox.calls(method="put")] == ["/plain/sheets/s/rows/r1"]
    assert [entry["status"] for entry in sandbox.calls(status=500)] == [500]
    assert [entry["method"] for entry in sandbox.calls(effect_key="key-1")] == ["PUT"]
    assert len(sandbox.calls(accepted=True)) == 2
    page = call(f"{sandbox.url}/_sandbox/ledger?limit=1").json()
    assert page["next_after"] == 1
    assert call(f"{sandbox.url}/_sandbox/ledger?limit=1&after=1").json()["next_after"] is None


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=-1", "after=x", "accepted=maybe", "colour=red"])
def test_a_wrong_parameter_of_the_ledger_is_refused(sandbox, query):
    assert call(f"{sandbox.url}/_sandbox/ledger?{query}").status == 400


def test_clearing_the_ledger_keeps_rows_and_knobs(sandbox):
    sandbox.turn(html_429=True)
    write(sandbox, "r1")
    sandbox.clear_ledger()
    assert sandbox.calls() == []
    assert sandbox.counters()["received"] == 0
    assert call(sandbox.row_url("s", "r1")).status == 200
    assert sandbox.turn()["html_429"] is True


def test_a_call_from_before_a_clear_is_not_counted_after_it():
    ledger = Ledger()
    early = ledger.open_call(provider="plain", method="PUT", path="/", effect_key="k")
    ledger.clear()
    ledger.note_effect(early, row="s/r")
    ledger.close_call(early, 200)
    assert (ledger.counters()["answered"], ledger.counters()["effects_applied"]) == (0, 0)


def test_the_ledger_keeps_the_newest_calls_and_says_how_many_it_dropped():
    ledger = Ledger()
    for _ in range(MAX_CALLS_KEPT + 3):
        ledger.close_call(ledger.open_call(provider="p", method="GET", path="/", effect_key=None), 200)
    calls, _ = ledger.page(after=0, limit=2, matches=lambda _: True)
    assert [entry["seq"] for entry in calls] == [4, 5]
    assert ledger.counters()["calls_dropped"] == 3
    assert ledger.counters()["received"] == MAX_CALLS_KEPT + 3


@pytest.mark.parametrize(
    ("knobs", "mistake"),
    [
        ({"colour": "red"}, "colour: there is no such knob"),
        ({"quota": {"calls": 0, "window_seconds": 1}}, "quota.calls"),
        ({"quota": {"calls": 1}}, "quota.window_seconds"),
        ({"quota": {"calls": 1, "window_seconds": 1, "per": "user"}}, "quota.per: there is no such knob"),
        ({"latency": {"mode": "warp"}}, "latency"),
        ({"latency": {"mode": "fixed", "milliseconds": -1}}, "milliseconds"),
        ({"latency": {"mode": "fixed", "milliseconds": float("nan")}}, "milliseconds"),
        ({"latency": {"mode": "uniform", "low_milliseconds": 2, "high_milliseconds": 1}}, "low_milliseconds"),
        ({"error_rates": {"503": 1.5}}, "error_rates"),
        ({"error_rates": {"503": 0.6, "429": 0.6}}, "more than 1"),
        ({"error_rates": {"200": 0.1}}, "error_rates"),
        ({"outage": {"seconds": "5"}}, "outage.seconds"),
        ({"row_errors": [{"pattern": "", "status": 400}]}, "row_errors.0.pattern"),
        ({"retry_after": "later"}, "retry_after"),
        ({"apply_then_503_rate": True}, "apply_then_503_rate"),
        ({"seed": 1.5}, "seed"),
        ({"google_sheets": {"reads": 1}}, "google_sheets.reads: there is no such knob"),
        ({"google_sheets": {"window_mode": "floating"}}, "google_sheets.window_mode"),
        ({"google_sheets": 5}, "google_sheets"),
        ({"gemini": {"reset_zone": "America/Nowhere"}}, "America/Nowhere is no time zone"),
        ({"openai": {"requests_per_minute": -1}}, "openai.requests_per_minute"),
        ({"faulty_providers": ["bing"]}, "faulty_providers"),
        ([], "object"),
    ],
)
def test_a_wrong_knob_changes_nothing_and_is_named(sandbox, knobs, mistake):
    before = call(f"{sandbox.url}/_sandbox/knobs").json()
    changes = {"html_429": True, **knobs} if isinstance(knobs, dict) else knobs
    answer = call(f"{sandbox.url}/_sandbox/knobs", method="PATCH", body=json.dumps(changes).encode())
    assert answer.status == 400
    assert mistake in " ".join(answer.json()["error"]["mistakes"])
    assert call(f"{sandbox.url}/_sandbox/knobs").json() == before


def statuses_of(sandbox, count):
    return [write(sandbox, f"r{number}").status for number in range(count)]


def test_the_same_seed_draws_the_same_errors(sandbox):
    knobs = {"seed": 7, "error_rates": {"500": 0.2, "429": 0.2}, "apply_then_503_rate": 0.2}
    sandbox.turn(**knobs)
    first = statuses_of(sandbox, 60)
    sandbox.turn(**knobs)
    assert statuses_of(sandbox, 60) == first
    assert set(first) == {200, 429, 500, 503}
    sandbox.turn(**{**knobs, "seed": 8})
    assert statuses_of(sandbox, 60) != first


def test_a_quota_admits_exactly_its_calls(sandbox):
    sandbox.turn(quota={"calls": 10, "window_seconds": 3600}, retry_after="seconds")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: write(sandbox, f"r{number}"), range(40)))
    refused = [answer for answer in answers if answer.status == 429]
    assert len(refused) == 30
    assert all(3590 <= int(answer.headers["Retry-After"]) <= 3600 for answer in refused)
    assert len(sandbox.effects()) == 10
    assert sandbox.counters()["rejected"] == 30
    assert {entry["cause"] for entry in sandbox.calls(accepted=False)} == {"quota"}


def test_a_quota_lowered_while_calls_run_counts_the_earlier_calls(sandbox):
    sandbox.turn(quota={"calls": 5, "window_seconds": 3600})
    assert statuses_of(sandbox, 3) == [200] * 3
    sandbox.turn(quota={"calls": 2, "window_seconds": 3600})
    assert statuses_of(sandbox, 1) == [429]


@pytest.mark.parametrize("style", ["none", "seconds", "date", "garbage", "negative"])
def test_retry_after_comes_in_every_style(sandbox, style):
    sandbox.turn(error_rates={"429": 1}, retry_after=style, retry_after_seconds=30)
    value = call(f"{sandbox.url}/plain/status/200").headers["Retry-After"]
    if style == "date":
        assert 0 < parsedate_to_datetime(value).timestamp() - time.time() <= 40
    else:
        assert value == {"none": None, "seconds": "30", "garbage": "soon", "negative": "-5"}[style]


def test_a_429_can_be_a_web_page(sandbox):
    sandbox.turn(error_rates={"429": 1}, html_429=True)
    answer = call(f"{sandbox.url}/plain/status/200")
    assert answer.status == 429
    assert answer.headers["Content-Type"].startswith("text/html")
    assert b"<html>" in answer.body


def test_rows_with_certain_names_fail_for_good(sandbox):
    sandbox.turn(row_errors=[{"pattern": "bad-*"}, {"pattern": "gone-?", "status": 404}])
    assert [write(sandbox, row).status for row in ("bad-1", "gone-1", "gone-12", "good")] == [
        400,
        404,
        200,
        200,
    ]
    assert set(sandbox.effects()) == {"s/gone-12", "s/good"}


def test_a_503_can_hide_a_write_that_was_done(sandbox):
    sandbox.turn(apply_then_503_rate=1)
    assert write(sandbox, "r1").status == 503
    assert call(sandbox.row_url("s", "r1")).status == 200
    assert sandbox.effects() == {"s/r1": 1}


def test_an_outage_breaks_connections_until_it_is_ended_and_leaves_the_controls_alone(sandbox):
    assert 0 < sandbox.turn(outage={"seconds": 600})["outage_seconds_left"] <= 600
    with pytest.raises((RemoteDisconnected, ConnectionResetError)):
        write(sandbox, "r1")
    assert call(f"{sandbox.url}/_sandbox/health").json()["status"] == "ok"
    sandbox.turn(outage={"seconds": 600, "mode": "503"})
    assert write(sandbox, "r1").status == 503
    sandbox.turn(outage=None)
    assert write(sandbox, "r1").status == 200
    assert [(entry["status"], entry["accepted"]) for entry in sandbox.calls()] == [
        (None, False),
        (503, False),
        (200, True),
    ]


def test_an_outage_ends_by_itself(sandbox):
    sandbox.turn(outage={"seconds": 3600, "mode": "503"})
    sandbox.move_clock(seconds=1800)
    assert write(sandbox, "r1").status == 503
    sandbox.move_clock(seconds=1800)
    assert write(sandbox, "r1").status == 200


def test_a_clock_that_is_moved_ends_a_delay_and_a_reset_returns_to_real_time(sandbox):
    sandbox.turn(latency={"mode": "fixed", "milliseconds": 60_000})
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(write, sandbox, "r1")
        wait_for(lambda: sandbox.counters()["in_flight"] == 1)
        sandbox.move_clock(seconds=30)
        assert sandbox.counters()["in_flight"] == 1
        sandbox.move_clock(seconds=31)
        assert waiting.result(timeout=30).status == 200
    sandbox.reset()
    write(sandbox, "r1")
    assert abs(sandbox.calls()[0]["at"] - time.time()) < 30


@pytest.mark.parametrize("body", [b"", b"[]", b'{"seconds": -1}', b'{"seconds": true}', b'{"seconds": 1e9}'])
def test_a_clock_goes_on_and_so_far_at_most(sandbox, body):
    assert call(f"{sandbox.url}/_sandbox/clock", method="PATCH", body=body).status == 400


@pytest.mark.parametrize(
    "latency",
    [
        {"mode": "fixed", "milliseconds": 5},
        {"mode": "uniform", "low_milliseconds": 1, "high_milliseconds": 9},
        {"mode": "lognormal", "median_milliseconds": 5, "sigma": 0.5},
    ],
)
def test_the_same_seed_draws_the_same_delays(sandbox, latency):
    delays = []
    for _ in range(2):
        sandbox.turn(seed=1, latency=latency)
        statuses_of(sandbox, 5)
        delays.append([entry["latency_ms"] for entry in sandbox.calls()][-5:])
    assert delays[0] == delays[1]
    assert all(delay > 0 for delay in delays[0])


def test_sigterm_ends_the_sandbox_cleanly_while_calls_wait():
    command = [sys.executable, "-m", "sandbox", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        running = Sandbox(process.stdout.readline().split()[-1], process.pid)
        running.turn(latency={"mode": "fixed", "milliseconds": 60_000})
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(write, running, "r1")
            wait_for(lambda: running.counters()["in_flight"] == 1)
            process.send_signal(signal.SIGTERM)
            with pytest.raises(OSError, match=r"."):
                waiting.result(timeout=30)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")


@pytest.mark.parametrize("path", ["/plain/sheets/s/rows/r1", "/v1beta/models/gemini-2.5-flash:generateContent"])
def test_a_call_whose_caller_leaves_before_all_of_it_arrived_has_ended_and_did_nothing(sandbox, path):
    host, port = sandbox.url.removeprefix("http://").split(":")
    method = "PUT" if path.startswith("/plain") else "POST"
    with socket.create_connection((host, int(port))) as line:
        line.sendall(
            f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nx-goog-api-key: project:a\r\n"
            "Content-Length: 1000\r\n\r\n{".encode()
        )
        wait_for(lambda: sandbox.counters()["in_flight"] == 1)
        (under_way,) = sandbox.calls()
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, as of a killed process
    wait_for(lambda: sandbox.counters()["in_flight"] == 0)
    (left,) = sandbox.calls()
    assert (under_way["ended"], left["ended"]) == (False, True)
    assert (left["status"], left["accepted"], left["cause"], left["effects"]) == (None, False, "caller_left", 0)


@pytest.mark.parametrize(("port", "code"), [("-1", 2), ("65536", 2), ("http", 2), ("taken", 1)])
def test_a_port_that_cannot_be_used_is_said(sandbox, port, code):
    taken = re.sub(r".*:", "", sandbox.url)
    command = [sys.executable, "-m", "sandbox", "--port", taken if port == "taken" else port]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == code
    assert "Traceback" not in ended.stderr
    assert "port" in ended.stderr


def test_the_sandbox_runs_without_django():
    probe = "import sys, sandbox.__main__; sys.exit('django' in sys.modules or 'queueops' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], cwd=ROOT, timeout=30, check=False).returncode == 0


def knob_names():
    sections = {name: getattr(Knobs(), name) for name in SECTIONS}
    nested = {f"{section}.{name}" for section, knobs in sections.items() for name in type(knobs).model_fields}
    return nested | (Knobs.model_fields.keys() - SECTIONS)


def test_the_guide_names_every_knob_and_address():
    guide = (ROOT / "docs/how-to/sandbox.md").read_text()
    assert {name for name in knob_names() if f"| `{name}` |" not in guide} == set()
    paths = {resource.canonical for resource in make_app().router.resources()}
    assert {path for path in paths if path not in guide} == set()
