from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.sandbox.providers import SheetsClient
from tests.support.processes import wait_for

LONG = {"window_seconds": 3600, "window_mode": "sliding"}


@pytest.fixture
def sheets(sandbox):
    return SheetsClient(sandbox.url)


def usage(sandbox, quota, **key):
    return next(entry for entry in sandbox.usage("google_sheets") if entry["quota"] == quota and entry["key"] == key)


def statuses(client, count):
    with ThreadPoolExecutor(8) as pool:
        return sorted(pool.map(lambda number: client.update(f"A{number + 1}", [[number]]).status, range(count)))


@pytest.mark.parametrize("mode", ["aligned", "sliding", "anchored"])
def test_the_quota_of_a_user_admits_exactly_its_calls_in_every_mode(sandbox, sheets, mode):
    sandbox.turn(google_sheets={"window_seconds": 86_400, "window_mode": mode, "writes_per_user": 10})
    assert statuses(sheets, 30) == [200] * 10 + [429] * 20
    entry = usage(sandbox, "WriteRequestsPerMinutePerUser", project="p1", user="u1")
    assert (entry["limit"], entry["used_now"], entry["peak"], entry["rejected_calls"]) == (10, 10, 10, 20)
    [window] = entry["windows"]
    assert (window["limit"], window["used"], window["rejected_calls"]) == (10, 10, 20)
    rejected = sandbox.calls(accepted=False)
    assert {(call["project"], call["user"], call["quota_kind"], call["cause"]) for call in rejected} == {
        ("p1", "u1", "write", "provider_quota")
    }
    assert rejected[0]["violated"] == ["WriteRequestsPerMinutePerUser"]


def test_reads_and_writes_users_and_projects_are_counted_apart(sandbox, sheets):
    sandbox.turn(google_sheets={**LONG, "writes_per_user": 2, "writes_per_project": 3, "reads_per_user": 1})
    assert statuses(sheets, 3) == [200, 200, 429]
    assert [sheets.get("A1").status for _ in range(2)] == [200, 429]
    assert statuses(sheets.as_user("p1", "u2"), 2) == [200, 429]
    assert statuses(sheets.as_user("p2", "u1"), 1) == [200]
    assert usage(sandbox, "WriteRequestsPerMinutePerProject", project="p1")["used_now"] == 3


def test_the_quota_user_parameter_names_the_user(sandbox, sheets):
    sandbox.turn(google_sheets={**LONG, "writes_per_user": 1})
    assert [sheets.update("A1", [["a"]], quotaUser=user).status for user in ("x", "y", "x")] == [200, 200, 429]
    assert [call["user"] for call in sandbox.calls()] == ["x", "y", "x"]


def test_a_token_of_any_other_form_is_a_user_of_its_own(sandbox, sheets):
    sandbox.turn(google_sheets={**LONG, "reads_per_user": 1})
    for token, status in (("ya29.secret", 200), ("ya29.other", 200), ("ya29.secret", 429)):
        assert SheetsClient(sandbox.url, token=token).get("A1").status == status
    assert "secret" not in str(sandbox.calls())


def test_rejected_calls_can_use_up_the_quota(sandbox, sheets):
    sandbox.turn(google_sheets={**LONG, "writes_per_user": 1, "rejected_calls_count": True})
    statuses(sheets, 4)
    entry = usage(sandbox, "WriteRequestsPerMinutePerUser", project="p1", user="u1")
    assert (entry["used_now"], entry["accepted_calls"]) == (4, 1)


def test_room_comes_back_after_the_window(sandbox, sheets):
    sandbox.turn(google_sheets={"window_seconds": 3600, "window_mode": "anchored", "writes_per_user": 1})
    assert statuses(sheets, 2) == [200, 429]
    sandbox.move_clock(seconds=1800)
    assert statuses(sheets, 1) == [429]
    sandbox.move_clock(seconds=1800)
    assert statuses(sheets, 2) == [200, 429]


def test_a_cap_lowered_while_calls_run_counts_the_earlier_calls(sandbox, sheets):
    sandbox.turn(google_sheets={**LONG, "writes_per_user": 5})
    assert statuses(sheets, 3) == [200] * 3
    sandbox.turn(google_sheets={"writes_per_user": 2})
    assert statuses(sheets, 1) == [429]
    sandbox.turn(google_sheets={"writes_per_user": 4})
    assert statuses(sheets, 2) == [200, 429]


def refusal(sandbox, sheets, **knobs):
    sandbox.turn(google_sheets={**LONG, "writes_per_user": 0, "writes_per_project": 300, **knobs})
    return sheets.update("A1", [["a"]])


def test_a_full_429_names_metric_limit_and_value(sandbox, sheets):
    sandbox.turn(google_sheets={"writes_per_user": 60})
    error = refusal(sandbox, sheets).error()
    assert error["status"] == "RESOURCE_EXHAUSTED"
    assert error["message"] == (
        "Quota exceeded for quota metric 'Write requests' and limit 'Write requests per minute per user' of "
        "service 'sheets.googleapis.com' for consumer 'project_number:p1'."
    )
    info, link = error["details"]
    assert info["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert (info["reason"], info["domain"]) == ("RATE_LIMIT_EXCEEDED", "googleapis.com")
    assert info["metadata"] == {
        "service": "sheets.googleapis.com",
        "consumer": "projects/p1",
        "quota_metric": "sheets.googleapis.com/write_requests",
        "quota_limit": "WriteRequestsPerMinutePerUser",
        "quota_limit_value": "0",
        "quota_location": "global",
        "quota_unit": "1/min/{project}/{user}",
    }
    assert link["@type"] == "type.googleapis.com/google.rpc.Help"


def test_a_project_without_room_is_named_as_such(sandbox, sheets):
    error = refusal(sandbox, sheets, writes_per_user=5, writes_per_project=0).error()
    assert error["details"][0]["metadata"]["quota_limit"] == "WriteRequestsPerMinutePerProject"
    assert "limit 'Write requests per minute' of" in error["message"]


def test_older_bodies_of_a_429_say_less(sandbox, sheets):
    assert "metadata" not in refusal(sandbox, sheets, error_details="no_metadata").error()["details"][0]
    assert "details" not in refusal(sandbox, sheets, error_details="none").error()
    bodies = [refusal(sandbox, sheets, error_details="partial").error()["details"] for _ in range(30)]
    assert len({frozenset(details[0]["metadata"]) for details in bodies}) > 5
    assert {len(details) for details in bodies} == {1, 2}


def test_a_429_can_carry_retry_after_and_be_a_web_page(sandbox, sheets):
    assert refusal(sandbox, sheets).headers["Retry-After"] is None
    sandbox.turn(retry_after="seconds", html_429=True)
    answer = refusal(sandbox, sheets)
    assert 0 < int(answer.headers["Retry-After"]) <= 3600
    assert answer.headers["Content-Type"].startswith("text/html")


def test_a_drawn_429_looks_like_one_of_a_quota(sandbox, sheets):
    sandbox.turn(error_rates={"429": 1})
    error = sheets.get("A1").error()
    assert error["details"][0]["metadata"]["quota_limit"] == "ReadRequestsPerMinutePerUser"


def test_faults_can_be_kept_to_some_providers(sandbox, sheets):
    sandbox.turn(outage={"seconds": 600, "mode": "503"}, faulty_providers=["gemini"])
    assert sheets.get("A1").status == 200
    sandbox.turn(faulty_providers=["google_sheets"])
    assert sheets.get("A1").error()["status"] == "UNAVAILABLE"


def test_a_providers_knobs_go_back_to_their_defaults_with_null(sandbox):
    sandbox.turn(google_sheets={"writes_per_user": 5})
    assert sandbox.turn(google_sheets={"grid_rows": 9})["google_sheets"]["writes_per_user"] == 5
    knobs = sandbox.turn(google_sheets=None)["google_sheets"]
    assert (knobs["writes_per_user"], knobs["grid_rows"]) == (60, 1000)


def test_clearing_the_ledger_forgets_the_figures_and_gives_no_room_back(sandbox, sheets):
    sandbox.turn(google_sheets={**LONG, "writes_per_user": 1})
    statuses(sheets, 1)
    sandbox.clear_ledger()
    assert statuses(sheets, 1) == [429]
    entry = usage(sandbox, "WriteRequestsPerMinutePerUser", project="p1", user="u1")
    assert (entry["accepted_calls"], entry["rejected_calls"]) == (0, 1)


def test_the_ledger_agrees_with_the_quotas_on_when_a_call_arrived(sandbox, sheets):
    seconds = 0.4
    sandbox.turn(google_sheets={"window_seconds": seconds, "window_mode": "sliding", "writes_per_user": 3})
    with ThreadPoolExecutor(4) as pool:

        def has_filled_four_windows() -> bool:
            list(pool.map(lambda _: sheets.update("A1", [["a"]]), range(4)))
            return len(sandbox.calls(accepted=True)) >= 4 * 3

        wait_for(has_filled_four_windows)
    times = sorted(call["at"] for call in sandbox.calls(accepted=True))
    assert all(later - earlier > seconds - 1e-3 for earlier, later in zip(times, times[3:], strict=False))
    assert usage(sandbox, "WriteRequestsPerMinutePerUser", project="p1", user="u1")["peak"] == 3
