"""The other ways that a job may go, as its payload names them."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from django.db import DatabaseError
from pydantic import ValidationError

from jobs.handlers.fallback import Fallback
from jobs.handlers.registry import Handler, UnknownKind, find_handler, served_names
from jobs.lanes import escaped
from jobs.services.submit.choose_lane import choose_lanes
from jobs.services.submit.prepare import PreparedJob, describe
from jobs.services.submit.spec import JobSpec
from queueops.core.sql import nullable, plain_array, run_sql
from ratelimits.subjects import MAX_NAME_LENGTH

logger = logging.getLogger(__name__)

NAMED = '"fallback"'  # in the text of every payload that names other ways


class UnreadHere(Exception):
    """This process cannot tell a job's other ways; a process of another release, or with another key, may."""


def kinds_with_ways() -> list[str]:
    """The names of the kinds that go another way and that this process serves."""
    return [name for name, kind in served_names().items() if find_handler(kind).fallback]


def ways_of(kind: str, payload: str) -> tuple[Handler, Sequence[Fallback]] | None:
    """
    Return a stored job's handler and its other ways; None: no other way.

    Args:
        payload: JSON text.

    Raises:
        UnreadHere
    """
    if NAMED not in payload:
        return None
    try:
        handler = find_handler(kind)
        ways = handler.fallback and handler.fallback(handler.schema.validate_json(payload))
    except DatabaseError:
        raise
    except (UnknownKind, ValidationError) as error:
        raise UnreadHere(f"{type(error).__name__} of {kind}") from error
    except Exception as error:  # the handler's own code: its error would keep all other jobs from going on
        logger.exception("the handler %s cannot tell a payload's other ways", kind)
        raise UnreadHere(f"{type(error).__name__} of {kind}") from error
    if ways is None:
        raise UnreadHere(f"{kind} has no fallback here")
    return handler, ways


def watch_ways(jobs: Sequence[PreparedJob], project_id: str) -> None:
    """Store the conditions under which jobs, just inserted in the caller's transaction, go another way."""
    found = [(job.id, job.details.watched) for job in jobs if job.details.watched is not None]
    if found:  # jobs without other ways need no statement
        run_sql(
            "jobs",
            "watch_fallbacks",
            {
                "project": project_id,
                "ids": [job for job, _ in found],
                "afters": nullable([one.after_seconds for _, one in found]),
                "on_outages": plain_array([one.on_outage for _, one in found]),
            },
        )


class WayColumns(NamedTuple):
    """A job's columns for one of its ways."""

    service: str
    model: str | None
    credential: str | None
    target: str
    path: int
    lane: str | None
    cost: int
    known_cost: int | None
    costs: str | None


def columns_of(handler: Handler, way: Fallback, *, job: UUID, project: str, user: UUID | None) -> WayColumns:
    """
    Return a job's columns for one of its ways.

    Raises:
        ValueError: The way's model has too long a name. The handler's own code may raise anything.
    """
    spec = JobSpec.model_construct(kind=handler.kind, payload={}, user_id=user)
    details, cost = describe(handler, way.payload, spec)
    if len(escaped(details.model or "")) > MAX_NAME_LENGTH:
        raise ValueError(f"a model's name has at most {MAX_NAME_LENGTH} characters, percent-encoded")
    service = handler.service_of(way.payload)
    prepared = PreparedJob(job, handler, spec, "{}", service, cost, details)
    [chosen] = choose_lanes([prepared], project)
    return WayColumns(
        service=service,
        model=details.model,
        credential=details.credential,
        target=chosen.target,
        path=chosen.path,
        lane=chosen.lane,
        cost=chosen.cost,
        known_cost=details.known_cost,
        costs=chosen.units,
    )


def shown(service: str, model: str | None, credential: str | None) -> dict[str, Any]:
    """The facts of a way that a job's log and result show."""
    return {
        name: value for name, value in (("service", service), ("model", model), ("credential", credential)) if value
    }


def as_text(data: dict[str, Any]) -> str:
    return json.dumps(data, separators=(",", ":"))
