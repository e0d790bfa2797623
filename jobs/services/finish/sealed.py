"""What comes of jobs whose payload is encrypted, as it is written: their results, and what tells pieces of them."""

from __future__ import annotations

import json

from jobs.services.results.reference import is_reference
from queueops.core.sealing import WITHHELD, seal_json, seal_text, seal_value

from .claimed import ClaimedJob

# What the log's data has of a payload or an answer. Figures are read by statements, and say nothing of either.
TOLD = frozenset({"log", "traceback", "details"})


def result_of(job: ClaimedJob, result: str | None) -> str | None:
    """A result as JSON text. What names an object of the result store hides nothing: the object is encrypted."""
    if not job.sealed or result is None or is_reference(result):
        return result
    return seal_json(result)


def message_of(job: ClaimedJob, message: str) -> str:
    """What an error or a handler says."""
    return seal_text(message) if job.sealed else message


def data_of(job: ClaimedJob, data: str | None) -> str | None:
    """An event's data as JSON text."""
    if not job.sealed or data is None:
        return data
    facts = json.loads(data)
    return json.dumps({name: seal_value(value) if name in TOLD else value for name, value in facts.items()})


def outward(job: ClaimedJob, code: str, message: str) -> str:
    """What is told of an error where no job shows it: in alerts, breakers and refusals of credentials."""
    return f"{code}: {WITHHELD}" if job.sealed else message
