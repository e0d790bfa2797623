"""Encrypts what is written about jobs with an encrypted payload: results, and texts that may quote the payload."""

from __future__ import annotations

import json

from jobs.features.results.reference import is_reference
from queueops.core.sealing import WITHHELD, seal_json, seal_text, seal_value

from .claimed import ClaimedJob

# The fields of an event's data that may quote a payload or an answer. All others are figures, which statements read.
TOLD = frozenset({"log", "traceback", "details"})


def result_of(job: ClaimedJob, result: str | None) -> str | None:
    """Return a result as JSON text, encrypted for a sealed job. A reference to the result store stays readable."""
    if not job.sealed or result is None or is_reference(result):
        return result
    return seal_json(result)


def message_of(job: ClaimedJob, message: str) -> str:
    """Return the message of an error or a handler, encrypted for a sealed job."""
    return seal_text(message) if job.hides else message


def data_of(job: ClaimedJob, data: str | None) -> str | None:
    """Return an event's data as JSON text, for a sealed job with the fields of TOLD encrypted."""
    if not job.hides or data is None:
        return data
    facts = json.loads(data)
    return json.dumps({name: seal_value(value) if name in TOLD else value for name, value in facts.items()})


def outward(job: ClaimedJob, code: str, message: str) -> str:
    """Return an error's text for places outside its job: alerts, breakers and refusals of credentials."""
    return f"{code}: {WITHHELD}" if job.sealed else message
