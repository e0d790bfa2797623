"""Single calls of a door: one request is one job."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction

from jobs.models import Job
from jobs.services.submit.spec import InvalidJob, parse_spec
from jobs.services.submit.submit import submit_job
from jobs.states import UNFINISHED
from queueops.core.clock import Now
from queueops.core.errors import IdempotencyKeyReused
from queueops.core.values.written import with_members

from .errors import BadDoorRequest, NoSuchObject
from .lines import call_payload, fault_of
from .models import DoorCall, Protocol
from .previous import PREVIOUS, RESPONSES, find_previous, with_previous
from .repeats import digest_of, lock_request
from .routes import routes_of

REPEATED_FOR = timedelta(minutes=30)  # since a call last came; official clients wait ten minutes before each new try
TURNED_AWAY_FOR = timedelta(seconds=65)  # official clients come again within a minute of a refusal
MAX_EQUAL_CALLS = 1_000
NO_JOB = UUID(int=0)  # of a call that was refused
KEY_PREFIX = "door/"  # keeps idempotency keys of requests apart from keys of jobs


def submit_call(
    body: dict[str, Any],
    text: str,
    *,
    endpoint: str,
    provider: Protocol,
    project_id: str,
    actor: str,
    key: str | None = None,
    is_repeated: bool = False,
    refused: str = "",
) -> UUID:
    """
    Submit a request as a job and return the job's id.

    Args:
        text: The body as it was written.
        key: The request's idempotency key: another request with this key is the same request.
        is_repeated: The client sends the request again, because no answer came. Returns the job that it made before.
            With a key, the key says what is the same.
        refused: The digest under which `note_refused` has it, if it was refused: then it made no job.

    Raises:
        BadDoorRequest, NoModelRoute, QueueFull, IdempotencyKeyReused: Nothing was stored.
    """
    # The queue does the waiting: the provider is to answer the call itself.
    if endpoint == RESPONSES and body.get("background") is not None:
        body, text = {**body, "background": False}, with_members(text, {"background": False})
    body, text = with_previous(body, text, find_previous([body.get(PREVIOUS)], project_id))
    digest = digest_of([actor, endpoint, text])
    with transaction.atomic():
        lock_request(project_id, digest)
        comes_again = is_repeated and key is None and not _was_refused(project_id, refused)
        made = _made_lately(project_id, digest) if comes_again else None
        if made is None:
            payload = call_payload(routes_of(project_id), provider, body, text, endpoint=endpoint, where="")
            made = _submit(payload, project_id=project_id, actor=actor, key=key)
            DoorCall.objects.create(project_id=project_id, digest=digest, job_id=made)
        return made


def _submit(payload: str, *, project_id: str, actor: str, key: str | None) -> UUID:
    job: dict[str, Any] = {"kind": "llm.call", "via": "live"}
    if key is not None:
        job["idempotency_key"] = KEY_PREFIX + digest_of(key)
    try:
        spec = parse_spec(f'{json.dumps(job)[:-1]}, "payload": {payload}}}')
        return submit_job(spec, project_id=project_id, actor=actor).id
    except IdempotencyKeyReused:
        raise IdempotencyKeyReused(
            f"The Idempotency-Key {key!r} was used for another request.", idempotency_key=key
        ) from None
    except InvalidJob as error:
        where, said = fault_of(error.fields, error.message)
        raise BadDoorRequest(said, fields={where: [said]} if where else None) from error


def _made_lately(project_id: str, digest: str) -> UUID | None:
    """
    Return the job of a call that comes again. Several equal calls may come again at once: each then gets another job.

    Returns the unfinished job whose call last came longest ago; if all jobs have ended, the newest.
    """
    rows = DoorCall.objects.filter(project_id=project_id, digest=digest, created_at__gt=Now() - REPEATED_FOR)
    calls = list(rows.order_by("-pk")[:MAX_EQUAL_CALLS])
    if not calls:
        return None
    jobs = Job.objects.filter(pk__in=[call.job_id for call in calls], status__in=UNFINISHED)
    goes_on = set(jobs.values_list("pk", flat=True))
    waits = [call for call in calls if call.job_id in goes_on]
    found = min(waits, key=lambda call: (call.created_at, call.pk)) if waits else calls[0]
    # Without a new time, a client that repeats its call for longer than REPEATED_FOR would make and pay a second job.
    DoorCall.objects.filter(pk=found.pk).update(created_at=Now())
    return found.job_id


def note_refused(calls: Iterable[tuple[str, str]]) -> None:
    """
    Note calls that were refused before a job was made of them. Without it, a call that comes again would get the job,
    and so the answer, of an equal call.

    Args:
        calls: Of each its project, and the digest that it will have when it comes again.
    """
    DoorCall.objects.bulk_create(
        DoorCall(project_id=project, digest=digest, job_id=NO_JOB) for project, digest in calls
    )


def _was_refused(project_id: str, digest: str) -> bool:
    """Whether a call was refused when it came before. Each refusal is good for one call."""
    rows = DoorCall.objects.filter(project_id=project_id, digest=digest, created_at__gt=Now() - TURNED_AWAY_FOR)
    found = rows.order_by("pk").first()
    return found is not None and bool(found.delete())


def forget_calls() -> int:
    """Delete the rows of calls that no client repeats any more; for house-keeping. Returns how many."""
    return DoorCall.objects.filter(created_at__lt=Now() - REPEATED_FOR).delete()[0]


def find_call(job_id: UUID, *, project_id: str) -> Job:
    """
    Raises:
        NoSuchObject
    """
    rows = Job.objects.filter(pk=job_id, project_id=project_id, kind="llm.call")
    found = rows.defer("payload").first()
    if found is None:
        raise NoSuchObject("There is no such answer.", fields={"id": ["no such answer"]})
    return found
