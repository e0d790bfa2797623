"""Goes on from responses in the background: they have an id of ours, which their provider does not know."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import IO, Any
from uuid import UUID

from jobs.models import Job
from jobs.states import JobState
from queueops.core.values.written import with_members
from queueops.core.web.asking import ensure_wanted

from .errors import BadDoorRequest
from .outcomes import JOBS_AT_ONCE, RESULTS_AT_ONCE, outcome_of

RESPONSES = "/v1/responses"  # the endpoint whose requests may go on from responses
PREVIOUS = "previous_response_id"
NAMES_READ_BYTES = 262_144
_OURS = re.compile(r"resp_([0-9a-f]{32})")
_OURS_IN_FILE = re.compile(rb"resp_[0-9a-f]{32}(?![0-9a-f])")
_LONGEST = 38  # bytes of an id, and one behind it


def with_previous(
    body: dict[str, Any], text: str, known: Mapping[str, str | None], *, where: str = ""
) -> tuple[dict[str, Any], str]:
    """
    Return a request with the provider's id of the response that it goes on from; unchanged if that is none of ours.

    Args:
        text: The body as it was written.
        known: What `find_previous` returns.
        where: What stands before the name of the body's member in an error.

    Raises:
        BadDoorRequest: The response has no answer.
    """
    given = body.get(PREVIOUS)
    if not isinstance(given, str) or given not in known:
        return body, text
    theirs = known[given]
    if theirs is None:
        fault = {f"{where}{PREVIOUS}": ["no answer"]}
        raise BadDoorRequest("The previous response has no answer to go on from.", fields=fault)
    return {**body, PREVIOUS: theirs}, with_members(text, {PREVIOUS: theirs})


def find_previous(names: Collection[Any], project_id: str) -> dict[str, str | None]:
    """
    Return, by our id, the provider's own id of each response of a project; None: it has no answer.

    Args:
        names: Ids that requests name; what is no id of a response here is left out.

    Raises:
        ClientLeft, OutOfTime
        ResultMissing, StoreError
    """
    found = (_OURS.fullmatch(name) for name in names if isinstance(name, str))
    ids, known = sorted({UUID(one[1]) for one in found if one}), dict[str, str | None]()
    for start in range(0, len(ids), JOBS_AT_ONCE):
        rows = Job.objects.filter(pk__in=ids[start : start + JOBS_AT_ONCE], project_id=project_id, kind="llm.call")
        for job in rows.defer("payload").iterator(chunk_size=RESULTS_AT_ONCE):
            ensure_wanted()
            answer = outcome_of(job).body if job.status == JobState.COMPLETED else None
            theirs = answer.get("id") if isinstance(answer, dict) else None
            known[f"resp_{job.pk.hex}"] = theirs if isinstance(theirs, str) else None
    return known


def names_in(file: IO[bytes]) -> set[str]:
    """Return all that may be our id of a response in a file, which is left at its beginning."""
    found, before = set[str](), b""
    while piece := file.read(NAMES_READ_BYTES):
        found.update(name.decode() for name in _OURS_IN_FILE.findall(before + piece))
        before = piece[-_LONGEST:]
    file.seek(0)
    return found
