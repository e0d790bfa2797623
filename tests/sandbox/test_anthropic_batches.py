import json
from datetime import datetime

import pytest

from tests.sandbox.batches import wait_until
from tests.sandbox.providers import KEY, ask

PATH = "/v1/messages/batches"
AT_ONCE = {"mode": "fixed", "seconds": 0}


def turn(sandbox, **knobs):
    sandbox.turn(batches={"processing": AT_ONCE, **knobs})


def call(sandbox, path="", *, method="GET", body=None, key=KEY):
    headers = {"anthropic-version": "2023-06-01", "x-api-key": key}
    return ask(f"{sandbox.url}{PATH}{path}", method=method, body=body, headers=headers)


def asked(custom_id, text="hello", **params):
    body = {"model": "m1", "max_tokens": 100, "messages": [{"role": "user", "content": text}], **params}
    return {"custom_id": custom_id, "params": body}


def numbered(count):
    return [asked(f"job-{number}", f"question {number}") for number in range(count)]


def make(sandbox, requests):
    return call(sandbox, method="POST", body={"requests": requests}).json()


def ended(sandbox, batch_id):
    def look():
        batch = call(sandbox, f"/{batch_id}").json()
        return batch if batch.get("processing_status") == "ended" else None

    return wait_until(look)


def results(sandbox, batch_id):
    text = call(sandbox, f"/{batch_id}/results").body.decode()
    return {line["custom_id"]: line["result"] for line in map(json.loads, text.splitlines())}


def counts(**some):
    return {"processing": 0, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0, **some}


def test_a_batch_goes_from_in_progress_to_ended_and_has_a_result_for_each_request(sandbox):
    turn(sandbox)
    made = make(sandbox, numbered(30))
    assert (made["type"], made["processing_status"], made["results_url"]) == ("message_batch", "in_progress", None)
    assert made["request_counts"] == counts(processing=30)
    lasts = datetime.fromisoformat(made["expires_at"]) - datetime.fromisoformat(made["created_at"])
    assert lasts.total_seconds() == pytest.approx(86_400)
    batch = ended(sandbox, made["id"])
    assert batch["request_counts"] == counts(succeeded=30)
    assert batch["results_url"] == f"{sandbox.url}{PATH}/{made['id']}/results"
    found = results(sandbox, made["id"])
    assert set(found) == {f"job-{number}" for number in range(30)}
    assert list(found) != [f"job-{number}" for number in range(30)]
    message = found["job-3"]["message"]
    assert (found["job-3"]["type"], message["usage"]["service_tier"]) == ("succeeded", "batch")
    [bill] = sandbox.billing()["billed"]
    assert (bill["provider"], bill["model"], bill["via"], bill["calls"]) == ("anthropic", "m1", "batch", 30)
    assert sandbox.billing()["lines"]["delivered"] == 30


def test_a_request_that_cannot_be_answered_is_an_error_of_its_own(sandbox):
    turn(sandbox)
    made = make(sandbox, [asked("good"), asked("bad", max_tokens=None), asked("odd", model="m2")])
    assert ended(sandbox, made["id"])["request_counts"] == counts(succeeded=2, errored=1)
    error = results(sandbox, made["id"])["bad"]["error"]
    assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")
    turn(sandbox, line_error_rates={"529": 1})
    made = make(sandbox, numbered(2))
    ended(sandbox, made["id"])
    assert results(sandbox, made["id"])["job-0"]["error"]["error"]["type"] == "overloaded_error"


def test_where_no_batch_can_fail_every_request_does(sandbox):
    turn(sandbox, failed_rate=1)
    made = make(sandbox, numbered(3))
    assert ended(sandbox, made["id"])["request_counts"] == counts(errored=3)
    assert sandbox.billing()["billed"] == []


def test_prompts_of_a_batch_are_read_from_the_cache_too(sandbox):
    turn(sandbox)
    system = [{"type": "text", "text": "s" * 8000, "cache_control": {"type": "ephemeral"}}]
    made = make(sandbox, [asked("a", system=system), asked("b", "other", system=system)])
    ended(sandbox, made["id"])
    usages = [result["message"]["usage"] for result in results(sandbox, made["id"]).values()]
    assert sorted(usage["cache_read_input_tokens"] for usage in usages) == [0, 2000]


def test_a_cancelled_batch_ends_with_results_of_both_kinds(sandbox):
    turn(sandbox, processing={"mode": "fixed", "seconds": 4000})
    made = make(sandbox, numbered(40))
    sandbox.move_clock(seconds=1000)
    wait_until(lambda: sandbox.batches()[0]["counts"]["succeeded"])
    assert call(sandbox, f"/{made['id']}/results").status == 404
    cancelled = call(sandbox, f"/{made['id']}/cancel", method="POST").json()
    assert (cancelled["processing_status"], cancelled["cancel_initiated_at"] is not None) == ("canceling", True)
    batch = ended(sandbox, made["id"])
    done = batch["request_counts"]["succeeded"]
    assert batch["request_counts"] == counts(succeeded=done, canceled=40 - done)
    assert {result["type"] for result in results(sandbox, made["id"]).values()} == {"succeeded", "canceled"}
    assert call(sandbox, f"/{made['id']}/cancel", method="POST").status == 400


def test_an_expired_batch_ends_with_what_was_answered(sandbox):
    turn(sandbox, expires_at_share=0.5)
    made = make(sandbox, numbered(10))
    assert ended(sandbox, made["id"])["request_counts"] == counts(succeeded=5, expired=5)
    kinds = [result["type"] for result in results(sandbox, made["id"]).values()]
    assert sorted(kinds) == ["expired"] * 5 + ["succeeded"] * 5


def test_a_batch_found_by_listing_tells_nothing_of_what_was_sent_but_its_results_do(sandbox):
    turn(sandbox, lost_create_rate=1)
    with pytest.raises((OSError, ValueError)):
        make(sandbox, numbered(2))
    [found] = call(sandbox).json()["data"]
    assert "metadata" not in found
    ended(sandbox, found["id"])
    assert set(results(sandbox, found["id"])) == {"job-0", "job-1"}


def test_batches_are_listed_newest_first_and_can_be_deleted(sandbox):
    turn(sandbox)
    made = [make(sandbox, numbered(1))["id"] for _ in range(3)][::-1]
    page = call(sandbox, "?limit=2").json()
    assert ([batch["id"] for batch in page["data"]], page["has_more"]) == (made[:2], True)
    page = call(sandbox, f"?limit=2&after_id={page['last_id']}").json()
    assert ([batch["id"] for batch in page["data"]], page["has_more"]) == (made[2:], False)
    assert call(sandbox, key="project:other").json()["data"] == []
    ended(sandbox, made[0])
    assert call(sandbox, f"/{made[0]}", method="DELETE").json() == {"id": made[0], "type": "message_batch_deleted"}
    assert call(sandbox, f"/{made[0]}").status == 404
    assert len(call(sandbox).json()["data"]) == 2


def test_wrong_batches_are_refused(sandbox):
    def refused(body):
        answer = call(sandbox, method="POST", body=body)
        assert answer.error()["type"] == "invalid_request_error"
        return answer.message()

    assert refused({}) == "requests: Field required"
    assert refused({"requests": []}).startswith("requests: List should have")
    assert refused({"requests": [asked("a b")]}).startswith("requests.0.custom_id: String should match")
    assert refused({"requests": [asked("a"), asked("a")]}) == "requests.1.custom_id: 'a' is not unique"
    assert refused({"requests": [{"custom_id": "a"}]}) == "requests.0.params: Field required"
    sandbox.turn(anthropic={"queued_requests": 3})
    assert call(sandbox, method="POST", body={"requests": numbered(4)}).error()["type"] == "rate_limit_error"
    sandbox.turn(anthropic={"batch_bytes": 10})
    assert call(sandbox, method="POST", body={"requests": numbered(1)}).error()["type"] == "request_too_large"
    sandbox.turn(anthropic={"batch_calls_per_minute": 1, "window_mode": "sliding"})
    assert [call(sandbox).status for _ in range(2)] == [200, 429]


def test_twenty_thousand_requests_come_in_one_call(sandbox):
    turn(sandbox)
    made = make(sandbox, numbered(20_000))
    assert ended(sandbox, made["id"])["request_counts"] == counts(succeeded=20_000)
    assert len(results(sandbox, made["id"])) == 20_000
