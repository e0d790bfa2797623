import json

import pytest

from tests.sandbox.batches import wait_until
from tests.sandbox.providers import KEY, ask

AT_ONCE = {"mode": "fixed", "seconds": 0}


def turn(sandbox, **knobs):
    sandbox.turn(batches={"processing": AT_ONCE, **knobs})


def call(sandbox, path, *, method="GET", body=None, key=KEY, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ask(f"{sandbox.url}{path}", method=method, body=body, headers={"x-goog-api-key": key, **named})


def request_of(text="hello"):
    return {"contents": [{"role": "user", "parts": [{"text": text}]}]}


def numbered(count):
    return [{"request": request_of(f"question {n}"), "metadata": {"key": f"job-{n}"}} for n in range(count)]


def create(sandbox, requests=None, *, model="m1", name="lane-1", **config):
    source = config or {"requests": {"requests": requests}}
    body = {"batch": {"display_name": name, "input_config": source}}
    return call(sandbox, f"/v1beta/models/{model}:batchGenerateContent", method="POST", body=body)


def ended(sandbox, name):
    def look():
        operation = call(sandbox, f"/v1beta/{name}").json()
        return operation if operation.get("done") else None

    return wait_until(look)


def answers(operation):
    return {item["metadata"]["key"]: item for item in operation["response"]["inlinedResponses"]["inlinedResponses"]}


def test_a_batch_is_an_operation_that_holds_its_answers_once_it_is_done(sandbox):
    turn(sandbox)
    made = create(sandbox, numbered(30)).json()
    assert made["name"].startswith("batches/")
    assert made["metadata"]["state"] == "BATCH_STATE_PENDING"
    assert made["metadata"]["batchStats"] == {"requestCount": "30", "pendingRequestCount": "30"}
    assert "done" not in made
    operation = ended(sandbox, made["name"])
    metadata = operation["metadata"]
    assert (metadata["state"], metadata["displayName"], metadata["model"]) == (
        "BATCH_STATE_SUCCEEDED",
        "lane-1",
        "models/m1",
    )
    assert metadata["batchStats"] == {"requestCount": "30", "successfulRequestCount": "30"}
    found = answers(operation)
    assert set(found) == {f"job-{number}" for number in range(30)}
    assert found["job-3"]["response"]["usageMetadata"]["candidatesTokenCount"] == 64
    assert metadata["output"]["inlinedResponses"] == operation["response"]["inlinedResponses"]
    [bill] = sandbox.billing()["billed"]
    assert (bill["provider"], bill["via"], bill["calls"]) == ("gemini", "batch", 30)
    assert sandbox.billing()["lines"]["delivered"] == 30


def test_a_request_that_cannot_be_answered_is_an_error_of_its_own(sandbox):
    turn(sandbox)
    bad = {"request": {"contents": []}, "metadata": {"key": "bad"}}
    operation = ended(sandbox, create(sandbox, [*numbered(1), bad]).json()["name"])
    assert operation["metadata"]["batchStats"]["failedRequestCount"] == "1"
    assert answers(operation)["bad"]["error"]["status"] == "INVALID_ARGUMENT"


def upload(sandbox, lines):
    started = call(
        sandbox,
        "/upload/v1beta/files",
        method="POST",
        body={"file": {"display_name": "in"}},
        X_Goog_Upload_Protocol="resumable",
        X_Goog_Upload_Command="start",
    )
    path = started.headers["X-Goog-Upload-URL"].removeprefix(sandbox.url)
    data = "\n".join(json.dumps(line) for line in lines).encode()
    return call(sandbox, path, method="POST", body=data, X_Goog_Upload_Command="upload, finalize").json()["file"]


def test_a_batch_of_a_file_answers_with_a_file(sandbox):
    turn(sandbox)
    stored = upload(sandbox, [{"key": f"job-{n}", "request": request_of(f"question {n}")} for n in range(5)])
    assert (stored["state"], stored["mimeType"]) == ("ACTIVE", "application/jsonl")
    assert call(sandbox, f"/v1beta/{stored['name']}").json() == stored
    operation = ended(sandbox, create(sandbox, file_name=stored["name"]).json()["name"])
    name = operation["response"]["responsesFile"]
    lines = call(sandbox, f"/download/v1beta/{name}:download?alt=media").body.splitlines()
    assert {json.loads(line)["key"] for line in lines} == {f"job-{number}" for number in range(5)}
    assert json.loads(lines[0])["response"]["candidates"]
    assert call(sandbox, f"/v1beta/{name}", method="DELETE").json() == {}
    assert call(sandbox, f"/v1beta/{name}").status == 403


@pytest.mark.parametrize(
    ("knobs", "state"), [({"expires_at_share": 0.5}, "EXPIRED"), ({"failed_rate": 1}, "FAILED"), ({}, "CANCELLED")]
)
def test_what_was_not_completed_has_no_answers_and_costs_nothing(sandbox, knobs, state):
    turn(sandbox, processing={"mode": "fixed", "seconds": 0 if knobs else 3600}, **knobs)
    name = create(sandbox, numbered(10)).json()["name"]
    if not knobs:
        assert call(sandbox, f"/v1beta/{name}:cancel", method="POST").json() == {}
    operation = ended(sandbox, name)
    assert operation["metadata"]["state"] == f"BATCH_STATE_{state}"
    assert ("response" in operation, "error" in operation) == (False, True)
    assert sandbox.billing()["billed"] == []


def test_batches_are_listed_newest_first_and_can_be_deleted(sandbox):
    turn(sandbox)
    made = [create(sandbox, numbered(1)).json()["name"] for _ in range(3)][::-1]
    page = call(sandbox, "/v1beta/batches?pageSize=2").json()
    assert [operation["name"] for operation in page["operations"]] == made[:2]
    page = call(sandbox, f"/v1beta/batches?pageSize=2&pageToken={page['nextPageToken']}").json()
    assert ([operation["name"] for operation in page["operations"]], "nextPageToken" in page) == (made[2:], False)
    assert call(sandbox, "/v1beta/batches", key="project:other").json() == {"operations": []}
    assert call(sandbox, f"/v1beta/{made[0]}", method="DELETE").json() == {}
    assert call(sandbox, f"/v1beta/{made[0]}").status == 404


def test_a_batch_whose_answer_was_lost_is_found_by_its_name(sandbox):
    turn(sandbox, lost_create_rate=1)
    with pytest.raises((OSError, ValueError)):
        create(sandbox, numbered(1), name="intent-7")
    [operation] = call(sandbox, "/v1beta/batches").json()["operations"]
    assert operation["metadata"]["displayName"] == "intent-7"


def test_wrong_batches_are_refused(sandbox):
    assert "display_name" in create(sandbox, numbered(1), name="").message()
    assert "no requests" in create(sandbox, []).message()
    assert "requests[0].request" in create(sandbox, [{"metadata": {"key": "a"}}]).message()
    assert create(sandbox, file_name="files/none").status == 403
    sandbox.turn(gemini={"enqueued_tokens": 2})
    assert create(sandbox, numbered(1)).status == 429
    sandbox.turn(gemini={"batch_bytes": 10})
    assert "payload size" in create(sandbox, numbered(1)).message()
    sandbox.turn(gemini={"models": ["m9"]})
    assert create(sandbox, numbered(1)).status == 404


def test_looking_and_fetching_can_fail(sandbox):
    turn(sandbox, status_error_rate=1, processing={"mode": "fixed", "seconds": 3600})
    name = create(sandbox, numbered(1)).json()["name"]
    assert call(sandbox, f"/v1beta/{name}").error()["status"] == "UNAVAILABLE"
    turn(sandbox, status_error_rate=0)
    name = create(sandbox, numbered(1)).json()["name"]
    ended(sandbox, name)
    turn(sandbox, results_error_rate=1)
    assert call(sandbox, f"/v1beta/{name}").status == 503


def test_twenty_thousand_requests_come_in_one_call(sandbox):
    turn(sandbox)
    operation = ended(sandbox, create(sandbox, numbered(20_000)).json()["name"])
    assert len(answers(operation)) == 20_000
