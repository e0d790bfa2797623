"""Calls that are refused before a job is made of them, and that official clients send again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any

import httpx
import pytest
from django.db import transaction
from django.db.models import F
from openai import DefaultHttpxClient, OpenAI

from jobs.door.calls import TURNED_AWAY_FOR, note_refused, submit_call
from jobs.door.models import DoorCall, Protocol
from jobs.models import Job
from queueops.tenancy.models import ProducerKey, Project
from tests.dashboards.live.conftest import web_process

from .conftest import MODEL
from .within import MESSAGES

TEXT = json.dumps({"model": MODEL, "messages": MESSAGES}, separators=(",", ":"))  # as the client writes it


@contextmanager
def patient_client(address: str, key: str, heard: Callable[[httpx.Response], None]) -> Iterator[OpenAI]:
    """A client that sends a refused call once more, and hears each answer before."""
    http = DefaultHttpxClient(event_hooks={"response": [heard]})
    with OpenAI(base_url=f"{address}/openai/v1", api_key=key, max_retries=1, timeout=60, http_client=http) as client:
        yield client


def job_of(client: OpenAI) -> str:
    told = client.chat.completions.with_raw_response.create(
        messages=MESSAGES, model=MODEL, extra_headers={"X-QueueOps-Wait": "0"}
    )
    assert told.http_response.request.content == TEXT.encode()
    return str(told.headers["X-QueueOps-Job"])


def submit(project: Project, **fields: Any) -> str:
    actor = f"key:{ProducerKey.objects.get().prefix}"
    where: Any = {"endpoint": "/v1/chat/completions", "provider": Protocol.OPENAI, "project_id": project.pk}
    return str(submit_call(json.loads(TEXT), TEXT, actor=actor, **where, **fields))


def test_a_call_that_found_the_queue_full_gets_a_job_of_its_own(address: str, key: str, project: Project):
    statuses = []

    def heard(response: httpx.Response) -> None:
        statuses.append(response.status_code)
        if response.status_code == 429:
            Project.objects.update(max_waiting_jobs=100)

    with patient_client(address, key, heard) as client:
        first = job_of(client)
        Project.objects.update(max_waiting_jobs=1)
        assert job_of(client) != first
    assert statuses == [202, 429, 202]
    assert Job.objects.count() == 2


def test_a_call_that_found_the_process_busy_gets_a_job_of_its_own(project: Project, key: str):
    refused = Event()

    def heard(response: httpx.Response) -> None:
        if response.status_code == 503:
            refused.set()

    with (
        web_process(QUEUEOPS_POOL_SIZE="2") as (address, _),
        patient_client(address, key, heard) as client,
        ThreadPoolExecutor(2) as threads,
    ):
        with transaction.atomic():
            first = submit(project)  # equal calls wait for this one's transaction
            asked = [threads.submit(job_of, client) for _ in range(2)]
            assert refused.wait(60)
        jobs = {first, *(one.result(60) for one in asked)}
    assert len(jobs) == Job.objects.count() == 3


@pytest.mark.django_db
def test_a_refusal_is_good_for_one_call_and_for_a_minute(project: Project, key: str):
    first = submit(project)
    note_refused([(project.pk, "theirs")])
    again = submit(project, is_repeated=True, refused="theirs")
    assert again != first
    assert submit(project, is_repeated=True, refused="theirs") in (first, again)
    note_refused([(project.pk, "theirs")])
    DoorCall.objects.update(created_at=F("created_at") - TURNED_AWAY_FOR)
    assert submit(project, is_repeated=True, refused="theirs") in (first, again)
