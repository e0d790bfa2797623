"""A payload names the file in which its text is: `{"$file": "file-..."}`."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db.models.functions import Now

from jobs.door.models import DoorFile
from jobs.features.schedules.fire_schedules import fire_schedules
from jobs.models import Job, ScheduleFire
from jobs.services.submit.prepare import Rules, prepare_job
from jobs.services.submit.spec import InvalidJob, JobSpec
from tests.factories import make_schedule

from .within import Door, door_of

pytestmark = pytest.mark.django_db

TEXT = "Jánoš signs.\n" * 50
JOBS = "/api/v1/jobs/"
BATCHES = "/api/v1/batches/"


@pytest.fixture
def door() -> Door:
    return door_of("acme")


def file_with(door: Door, content: bytes, purpose: str = "user_data") -> str:
    given = {"purpose": purpose, "file": SimpleUploadedFile("contract.txt", content)}
    answer = door.client.post("/openai/v1/files", given)
    assert answer.status_code == 200, answer.content
    return str(answer.json()["id"])


def asked(prompt: Any, **fields: Any) -> dict[str, Any]:
    payload = {"provider": "openai", "credential": "openai-key", "model": "m-1", "prompt": prompt, **fields}
    return {"kind": "llm.generate", "payload": payload}


def submit(door: Door, job: dict[str, Any], path: str = JOBS, **headers: str) -> Any:
    return door.client.post(path, json.dumps(job), content_type="application/json", headers=headers)


def submit_lines(door: Door, *jobs: dict[str, Any], path: str = BATCHES) -> Any:
    lines = "\n".join(map(json.dumps, jobs))
    return door.client.post(path, lines, content_type="application/x-ndjson")


def test_a_job_has_the_files_text_and_needs_the_file_no_more(door: Door):
    name = file_with(door, b"\xef\xbb\xbf" + TEXT.encode())
    answer = submit(door, asked({"$file": name}))
    assert answer.status_code == 201, answer.content
    door.send("DELETE", f"files/{name}")
    job = Job.objects.get()
    assert job.payload["prompt"] == TEXT
    plain = submit(door, asked(TEXT)).json()
    assert Job.objects.get(pk=plain["id"]).cost == job.cost  # counted as what is written there


def test_lines_of_a_batch_name_files_among_others(door: Door):
    first, second = file_with(door, b"one"), file_with(door, b"two")
    jobs = [asked({"$file": first}), asked("between"), asked({"$file": second}), asked({"$file": first})]
    answer = submit_lines(door, *jobs)
    assert answer.status_code == 201, answer.content
    assert [job.payload["prompt"] for job in Job.objects.order_by("pk")] == ["one", "between", "two", "one"]


def test_a_forecast_counts_the_text_of_a_file(door: Door):
    name = file_with(door, TEXT.encode())
    told = [
        submit_lines(door, asked(prompt), path="/api/v1/forecast/").json()["tokens"]
        for prompt in ({"$file": name}, TEXT)
    ]
    assert told[0] == told[1]
    assert not Job.objects.exists()


def test_a_picture_comes_from_a_file(door: Door):
    content = bytes(range(256))
    picture = {"media_type": "image/png", "base64": {"$file": file_with(door, content), "as": "base64"}}
    answer = submit(door, asked("What is it?", pictures=[picture]))
    assert answer.status_code == 201, answer.content
    assert Job.objects.get().payload["pictures"][0]["base64"] == b64encode(content).decode()


def test_many_texts_are_stored_chunk_by_chunk(door: Door):
    name = file_with(door, b"a" * 900_000)
    answer = submit_lines(door, *(asked({"$file": name}) for _ in range(10)))
    assert answer.json()["accepted"] == 10
    assert {len(job.payload["prompt"]) for job in Job.objects.iterator()} == {900_000}


def test_the_same_file_again_is_the_same_work(door: Door):
    name = file_with(door, TEXT.encode())
    codes = [submit(door, {**asked(given), "idempotency_key": "k"}).status_code for given in ({"$file": name}, TEXT)]
    assert codes == [201, 200]


def test_a_schedule_reads_its_file_at_each_fire(door: Door):
    name = file_with(door, b"one")
    schedule = make_schedule(jobs=[asked({"$file": name})])
    assert fire_schedules(at=schedule.next_due_at) == 1
    assert Job.objects.get().payload["prompt"] == "one"
    door.send("DELETE", f"files/{name}")
    schedule.refresh_from_db()
    fire_schedules(at=schedule.next_due_at)
    failed = ScheduleFire.objects.latest("due_at")
    assert (failed.job_id, Job.objects.count()) == (None, 1)
    assert failed.error_code


BAD = {
    "another form": ({"$file": 7}, "is {"),
    "another field": ({"$file": "file-1", "pages": 2}, "is {"),
    "another encoding": ({"$file": "file-1", "as": "latin1"}, "is {"),
    "no such name": ({"$file": "contract.txt"}, "nothing with the id"),
    "not there": ({"$file": "file-" + "0" * 32}, "There is no file"),
    "not a text": (b"\xff\xfe\x00", "not UTF-8 (byte 0)"),
    "too large": (b"a" * 2_000_001, "2,000,001 bytes"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_names_are_told_with_their_place_and_line(door: Door, name: str):
    given, words = BAD[name]
    prompt = {"$file": file_with(door, given)} if isinstance(given, bytes) else given
    answer = submit(door, asked(prompt))
    assert answer.status_code == 422, answer.content
    assert words in answer.json()["error"]["fields"]["payload.prompt"][0]
    answer = submit_lines(door, asked("fine"), asked(prompt), asked("fine, too"))
    assert answer.status_code == 422
    [fault] = answer.json()["error"]["details"]["errors"]
    assert (fault["line"], list(fault["fields"])) == (2, ["payload.prompt"])
    assert not Job.objects.exists()


def test_a_payload_names_so_many_files(door: Door):
    name = file_with(door, b"one")
    messages = [{"role": "user", "content": {"$file": name}}] * 21
    answer = submit(door, asked(None, messages=messages))
    assert answer.json()["error"]["fields"]["payload.messages.20.content"]


def test_files_together_fit_into_the_payload(door: Door):
    name = file_with(door, b"a" * 1_200_000)
    answer = submit(door, asked({"$file": name}, system={"$file": name}))
    assert list(answer.json()["error"]["fields"]) == ["payload.system"]


def test_a_file_of_another_project_or_of_yesterday_is_not_there(door: Door):
    other = file_with(door_of("globex"), b"secret")
    name = file_with(door, b"old")
    DoorFile.objects.filter(file_name="contract.txt", project_id="acme").update(expires_at=Now() - timedelta(seconds=1))
    for one in (other, name):
        answer = submit(door, asked({"$file": one}))
        assert "There is no file" in answer.json()["error"]["fields"]["payload.prompt"][0]


def test_end_users_name_no_files_of_the_project(door: Door):
    name = file_with(door, b"one")
    spec = JobSpec(**asked({"$file": name}))
    with pytest.raises(InvalidJob) as caught:
        prepare_job(spec, rules=Rules("acme", only_user=uuid4()))
    assert "not for end users" in caught.value.fields["payload"][0]


def test_an_http_body_is_a_files_text(door: Door):
    payload = {"method": "POST", "url": "https://example.com/", "text": {"$file": file_with(door, b"<a/>")}}
    assert submit(door, {"kind": "http.request", "payload": payload}).status_code == 201
    assert Job.objects.get().payload["text"] == "<a/>"
