"""Single calls of a door: one request is one job."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from jobs.models import Job
from jobs.services.submit.spec import LONGEST_IDEMPOTENCY_KEY, InvalidJob, parse_spec
from jobs.services.submit.submit import submit_job
from queueops.core.values.written import with_members

from .errors import BadDoorRequest, NoSuchObject
from .lines import call_payload, fault_of
from .models import Protocol
from .routes import routes_of

KEY_PREFIX = "door/"  # before the keys of requests, which are not those of jobs


def submit_call(
    body: dict[str, Any],
    text: str,
    *,
    endpoint: str,
    provider: Protocol,
    project_id: str,
    actor: str,
    key: str | None = None,
) -> UUID:
    """
    Submit a request as a job and return the job's id.

    Args:
        text: The body as it was written.
        key: Of the request: another one with it is the same.

    Raises:
        BadDoorRequest, NoModelRoute, QueueFull, IdempotencyKeyReused: Nothing was stored.
    """
    if body.get("background") is not None:  # the queue waits for the provider
        body, text = {**body, "background": False}, with_members(text, {"background": False})
    payload = call_payload(routes_of(project_id), provider, body, text, endpoint=endpoint, where="")
    job: dict[str, Any] = {"kind": "llm.call", "via": "live"}
    if key is not None:
        job["idempotency_key"] = (KEY_PREFIX + key)[:LONGEST_IDEMPOTENCY_KEY]
    try:
        spec = parse_spec(f'{json.dumps(job)[:-1]}, "payload": {payload}}}')
        return submit_job(spec, project_id=project_id, actor=actor).id
    except InvalidJob as error:
        where, said = fault_of(error.fields, error.message)
        raise BadDoorRequest(said, fields={where: [said]} if where else None) from error


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
