import http.client
import json
import time
import urllib.error

import pytest

from tests.sandbox.batches import create, ended, lines_of, make, read, request_line, upload, wait_until
from tests.sandbox.providers import KEY, ask, complete

AT_ONCE = {"mode": "fixed", "seconds": 0}
LONG = {"mode": "fixed", "seconds": 3600}


def turn(sandbox, **knobs):
    sandbox.turn(batches={"processing": AT_ONCE, **knobs})


def numbered(count):
    return [request_line(f"job-{number}", f"question {number}") for number in range(count)]


def cancel(sandbox, batch_id):
    return ask(f"{sandbox.url}/v1/batches/{batch_id}/cancel", method="POST", token=KEY)


def test_a_file_is_stored_described_read_back_and_deleted(sandbox):
    stored = upload(sandbox.url, ["{}"]).json()
    assert (stored["object"], stored["purpose"], stored["bytes"], stored["filename"]) == (
        "file",
        "batch",
        2,
        "in.jsonl",
    )
    path = f"{sandbox.url}/v1/files/{stored['id']}"
    assert ask(path, token=KEY).json() == stored
    assert ask(f"{path}/content", token=KEY).body == b"{}"
    assert ask(path, token="project:other").status == 404
    assert ask(path, method="DELETE", token=KEY).json() == {"id": stored["id"], "object": "file", "deleted": True}
    assert ask(path, token=KEY).status == 404


def test_a_batch_is_answered_line_by_line_in_any_order(sandbox):
    turn(sandbox)
    made = create(sandbox.url, upload(sandbox.url, numbered(30)).json()["id"], metadata={"intent": "i-1"}).json()
    assert (made["object"], made["status"], made["endpoint"]) == ("batch", "validating", "/v1/chat/completions")
    batch = ended(sandbox.url, made["id"])
    assert batch["status"] == "completed"
    assert batch["request_counts"] == {"total": 30, "completed": 30, "failed": 0}
    assert (batch["metadata"], batch["model"], batch["error_file_id"]) == ({"intent": "i-1"}, "m1", None)
    assert batch["created_at"] <= batch["in_progress_at"] <= batch["finalizing_at"] <= batch["completed_at"]
    assert batch["usage"]["output_tokens"] == 30 * 64
    found = lines_of(sandbox.url, batch["output_file_id"])
    ids = [line["custom_id"] for line in found]
    assert ids != sorted(ids, key=lambda name: int(name[4:]))
    assert set(ids) == {f"job-{number}" for number in range(30)}
    assert found[0]["response"]["status_code"] == 200
    assert found[0]["response"]["body"]["usage"]["completion_tokens"] == 64
    assert found[0]["error"] is None
    turn(sandbox, results_in_order=True)
    batch = ended(sandbox.url, make(sandbox.url, numbered(30)))
    assert [line["custom_id"] for line in lines_of(sandbox.url, batch["output_file_id"])] == [
        f"job-{number}" for number in range(30)
    ]


def wrong(sandbox, *lines):
    batch = ended(sandbox.url, make(sandbox.url, lines))
    assert (batch["status"], batch["output_file_id"]) == ("failed", None)
    return [(error["code"], error["line"], error["param"]) for error in batch["errors"]["data"]]


def test_one_mistake_fails_the_whole_file(sandbox):
    good = request_line("a")
    assert wrong(sandbox, good, good) == [("duplicate_custom_id", 2, "custom_id")]
    assert wrong(sandbox, good, "{nonsense") == [("invalid_json_line", 2, None)]
    assert wrong(sandbox, good, request_line("b", model="m2")) == [("mismatched_model", 2, "body.model")]
    assert wrong(sandbox, good, request_line("b", url="/v1/other")) == [("mismatched_endpoint", 2, "url")]
    assert wrong(sandbox, {"custom_id": "a"}) == [("missing_required_parameter", 1, "body")]
    assert wrong(sandbox, "") == [("empty_file", None, None)]
    sandbox.turn(openai={"batch_lines": 1})
    assert wrong(sandbox, good, request_line("b")) == [("too_many_requests", None, None)]
    sandbox.turn(openai={"batch_lines": 50_000, "models": ["m9"]})
    assert wrong(sandbox, good) == [("model_not_found", None, "body.model")]
    assert sandbox.billing()["billed"] == []


def test_what_waits_is_bounded_in_tokens_for_each_model(sandbox):
    sandbox.turn(openai={"enqueued_tokens": 150}, batches={"processing": LONG})
    first = make(sandbox.url, [request_line("a", "x" * 400)])
    wait_until(lambda: read(sandbox.url, first)["status"] == "in_progress")
    batch = ended(sandbox.url, make(sandbox.url, [request_line("b", "x" * 400)]))
    [error] = batch["errors"]["data"]
    assert (error["code"], "Limit: 150 enqueued tokens" in error["message"]) == ("token_limit_exceeded", True)
    other = make(sandbox.url, [request_line("b", "x" * 400, model="m2")])
    wait_until(lambda: read(sandbox.url, other)["status"] == "in_progress")
    cancel(sandbox, first)
    assert ended(sandbox.url, first)["status"] == "cancelled"
    again = make(sandbox.url, [request_line("b", "x" * 400)])
    wait_until(lambda: read(sandbox.url, again)["status"] == "in_progress")


def test_batches_are_listed_newest_first(sandbox):
    turn(sandbox)
    made = [make(sandbox.url, numbered(1)) for _ in range(5)][::-1]
    page = ask(f"{sandbox.url}/v1/batches?limit=2", token=KEY).json()
    assert ([batch["id"] for batch in page["data"]], page["has_more"]) == (made[:2], True)
    page = ask(f"{sandbox.url}/v1/batches?limit=3&after={page['last_id']}", token=KEY).json()
    assert ([batch["id"] for batch in page["data"]], page["has_more"]) == (made[2:], False)
    assert ask(f"{sandbox.url}/v1/batches", token="project:other").json()["data"] == []


def test_a_cancelled_batch_keeps_what_was_answered(sandbox):
    sandbox.turn(batches={"processing": {"mode": "fixed", "seconds": 4000}, "cancelling_seconds": 3600})
    batch_id = make(sandbox.url, numbered(40))
    sandbox.move_clock(seconds=1000)
    wait_until(lambda: read(sandbox.url, batch_id)["request_counts"]["completed"] >= 2)
    assert cancel(sandbox, batch_id).json()["status"] == "cancelling"
    wait_until(lambda: read(sandbox.url, batch_id)["status"] == "cancelling")
    sandbox.move_clock(seconds=3600)
    batch = ended(sandbox.url, batch_id)
    done = batch["request_counts"]["completed"]
    assert (batch["status"], 2 <= done < 40) == ("cancelled", True)
    assert len(lines_of(sandbox.url, batch["output_file_id"])) == done
    assert {line["error"]["code"] for line in lines_of(sandbox.url, batch["error_file_id"])} == {"batch_cancelled"}
    assert cancel(sandbox, batch_id).status == 409


def test_an_expired_batch_names_the_lines_that_were_not_answered(sandbox):
    turn(sandbox, expires_at_share=0.5)
    batch = ended(sandbox.url, make(sandbox.url, numbered(41)))
    assert (batch["status"], batch["request_counts"]["completed"]) == ("expired", 20)
    late = lines_of(sandbox.url, batch["error_file_id"])
    assert len(late) == 21
    assert (late[0]["response"], late[0]["error"]["code"]) == (None, "batch_expired")
    sandbox.turn(batches={"processing": LONG, "window_seconds": 60, "expires_at_share": None})
    outlived = make(sandbox.url, numbered(2))
    sandbox.move_clock(seconds=60)
    assert ended(sandbox.url, outlived)["status"] == "expired"


def test_lines_can_fail_get_lost_come_twice_or_be_malformed(sandbox):
    turn(sandbox, line_error_rates={"500": 1})
    batch = ended(sandbox.url, make(sandbox.url, numbered(5)))
    assert (batch["status"], batch["request_counts"]["failed"]) == ("completed", 5)
    failed = lines_of(sandbox.url, batch["error_file_id"])
    assert (failed[0]["response"]["status_code"], failed[0]["error"]) == (500, None)
    assert failed[0]["response"]["body"]["error"]["type"] == "server_error"
    turn(sandbox, line_error_rates={}, repeated_line_rate=1)
    batch = ended(sandbox.url, make(sandbox.url, numbered(5)))
    assert len(lines_of(sandbox.url, batch["output_file_id"])) == 10
    turn(sandbox, repeated_line_rate=0, lost_line_rate=1)
    assert ended(sandbox.url, make(sandbox.url, numbered(5)))["output_file_id"] is None
    turn(sandbox, lost_line_rate=0, malformed_line_rate=1)
    batch = ended(sandbox.url, make(sandbox.url, numbered(5)))
    with pytest.raises(json.JSONDecodeError):
        lines_of(sandbox.url, batch["output_file_id"])
    assert sandbox.billing()["lines"]["delivered"] == 10


def test_a_request_that_cannot_be_answered_is_an_error_of_its_line(sandbox):
    turn(sandbox)
    lines = [request_line("a"), request_line("b", body={"model": "m1", "messages": []})]
    batch = ended(sandbox.url, make(sandbox.url, lines))
    assert batch["request_counts"] == {"total": 2, "completed": 1, "failed": 1}
    [line] = lines_of(sandbox.url, batch["error_file_id"])
    assert (line["custom_id"], line["response"]["status_code"]) == ("b", 400)


def test_the_answer_to_a_create_can_get_lost(sandbox):
    turn(sandbox, lost_create_rate=1)
    stored = upload(sandbox.url, numbered(2)).json()["id"]
    with pytest.raises((urllib.error.URLError, http.client.HTTPException, ConnectionError)):
        create(sandbox.url, stored, metadata={"intent": "i-7"})
    [batch] = ask(f"{sandbox.url}/v1/batches", token=KEY).json()["data"]
    assert batch["metadata"] == {"intent": "i-7"}
    assert [(found["answer_lost"], found["id"]) for found in sandbox.batches()] == [(True, batch["id"])]
    assert sandbox.calls(cause="answer_lost")[0]["status"] is None
    ended(sandbox.url, batch["id"])
    assert sandbox.billing()["batches"] == {
        "made": 1,
        "by_phase": {"completed": 1},
        "answers_lost": 1,
        "never_fetched": 1,
    }


def test_looking_and_fetching_can_fail(sandbox):
    turn(sandbox)
    batch = ended(sandbox.url, make(sandbox.url, numbered(600)))
    path = f"{sandbox.url}/v1/files/{batch['output_file_id']}/content"
    turn(sandbox, status_error_rate=1, results_error_rate=1)
    assert ask(f"{sandbox.url}/v1/batches/{batch['id']}", token=KEY).status == 500
    assert ask(path, token=KEY).status == 500
    turn(sandbox, results_error_rate=0, results_cut_rate=1)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        ask(path, token=KEY)
    assert sandbox.billing()["lines"]["delivered"] == 0
    turn(sandbox, results_cut_rate=0)
    assert len(lines_of(sandbox.url, batch["output_file_id"])) == 600
    assert sandbox.billing()["lines"]["delivered"] == 600


def test_a_whole_batch_can_fail_and_costs_nothing(sandbox):
    turn(sandbox, failed_rate=1)
    batch = ended(sandbox.url, make(sandbox.url, numbered(3)))
    assert (batch["status"], batch["errors"]["data"][0]["code"]) == ("failed", "server_error")
    assert sandbox.billing()["billed"] == []


def test_the_account_of_lines_says_what_each_was_billed(sandbox):
    turn(sandbox, lost_line_rate=1)
    batch_id = make(sandbox.url, numbered(2))
    ended(sandbox.url, batch_id)
    lines = sandbox.batch_lines(batch_id)
    assert [(line["custom_id"], line["outcome"], line["copies"]) for line in lines] == [
        ("job-0", "succeeded", 0),
        ("job-1", "succeeded", 0),
    ]
    assert {line["output_tokens"] for line in lines} == {64}
    assert sandbox.billing()["prompts_paid"] == 0


def test_validation_can_be_slow(sandbox):
    turn(sandbox, validation_seconds=3600)
    batch_id = make(sandbox.url, numbered(1))
    assert read(sandbox.url, batch_id)["status"] == "validating"
    cancel(sandbox, batch_id)
    assert ended(sandbox.url, batch_id)["status"] == "cancelled"


def test_what_is_paid_for_again_is_counted_over_both_ways(sandbox):
    turn(sandbox)
    sandbox.turn(openai={"requests_per_minute": None, "tokens_per_minute": None})
    complete(sandbox.url, "question 0")
    for _ in range(2):
        ended(sandbox.url, make(sandbox.url, numbered(3)))
    found = sandbox.billing()
    sums = {bill["via"]: (bill["calls"], bill["output_tokens"]) for bill in found["billed"]}
    assert sums == {"live": (1, 64), "batch": (6, 6 * 64)}
    assert (found["prompts_paid"], found["prompts_paid_again"]) == (3, 4)
    assert (found["custom_ids_paid"], found["custom_ids_paid_again"]) == (3, 3)
    assert found["lines"] == {"received": 6, "succeeded": 6, "errored": 0, "canceled": 0, "expired": 0, "delivered": 0}


def test_wrong_creates_are_refused(sandbox):
    stored = upload(sandbox.url, numbered(1)).json()["id"]
    assert create(sandbox.url, "file-none").error()["param"] == "input_file_id"
    assert create(sandbox.url, stored, token="project:other").status == 400
    assert create(sandbox.url, stored, endpoint="/v1/nowhere").error()["param"] == "endpoint"
    assert create(sandbox.url, stored, completion_window="1h").error()["param"] == "completion_window"
    assert create(sandbox.url, stored, metadata={"a": 1}).error()["param"] == "metadata"
    assert create(sandbox.url, stored, output_expires_after={"anchor": "created_at", "seconds": 3600}).status == 200
    assert upload(sandbox.url, ["{}"], purpose="other").status == 400
    assert ask(f"{sandbox.url}/v1/files", method="POST", body={}, token=KEY).status == 400
    assert read(sandbox.url, "batch_none")["error"]["message"] == "No batch found with id 'batch_none'."
    sandbox.turn(openai={"batch_bytes": 10})
    assert upload(sandbox.url, numbered(1)).status == 413


def test_twenty_thousand_lines_hold_nobody_up(sandbox):
    turn(sandbox)
    sandbox.turn(openai={"enqueued_tokens": None})
    batch_id = make(sandbox.url, numbered(20_000))
    waits = []

    def has_ended():
        start = time.monotonic()
        batch = read(sandbox.url, batch_id)
        waits.append(time.monotonic() - start)
        return batch["status"] == "completed"

    wait_until(has_ended)
    assert len(lines_of(sandbox.url, read(sandbox.url, batch_id)["output_file_id"])) == 20_000
    assert sandbox.billing()["lines"]["delivered"] == 20_000
    assert sorted(waits)[-2] < sum(waits) / 4, "answers waited for much of the work"
