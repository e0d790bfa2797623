"""Erases a user from the archive: each file that has rows of the user is rewritten."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import groupby, islice
from typing import Any
from uuid import UUID

from jobs.features.archive.archive import ArchiveDuty, Say
from jobs.features.archive.day_files import ArchivedPart, DayFiles
from jobs.features.archive.results import place_of, stored_of
from jobs.models import Batch, IdempotencyRecord, Job
from jobs.services.upkeep.user_rows import OPENED_AT_ONCE, opened_texts
from queueops.core.sql import run_sql
from queueops.core.stores.store import Store

RESULTS = "/results/"
ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
EMPTIED_JOB: dict[str, Any] = {
    "payload": {},
    "payload_text": None,
    "result": None,
    "result_text": None,
    "progress_message": "",
    "last_error_message": "",
    "takes": None,
    "idempotency_key": None,
    "unique_key": None,
    "coalesce_key": None,
    "lane": None,
    "target": "",
    "path": 0,
}
EMPTIED_LETTER: dict[str, Any] = {
    "payload": {},
    "payload_text": None,
    "error_message": "",
    "remediation": "",
    "attempts": [],
    "note": "",
    "resolved_by": "",
    "timeline": {"events": [], "logged": 0},
}


def delete_answers(project_id: str, user_id: UUID, archived: Sequence[str] = ()) -> int:
    """
    Delete stored answers that name the user, their jobs or batches, or these archived jobs.

    Raises:
        SealedAway: An answer is encrypted with a key that is not set here.
    """
    given = {"project": project_id, "user": user_id, "ids": list(archived)}
    sealed = _sealed_answers(project_id, user_id, archived)
    deleted = len(run_sql("jobs", "delete_answers_of_user", given))
    return deleted + IdempotencyRecord.objects.filter(pk__in=sealed).delete()[0]


def _sealed_answers(project_id: str, user_id: UUID, archived: Sequence[str]) -> list[int]:
    """
    Sealed answers that delete_answers_of_user.sql would delete if it could read them.

    Raises:
        SealedAway
    """
    found: list[int] = []
    answers = opened_texts(IdempotencyRecord.objects.filter(project_id=project_id), "answer")
    while some := list(islice(answers, OPENED_AT_ONCE)):
        named = {pk: {UUID(one) for one in ID.findall(opened)} for pk, opened in some}
        ids = set().union(*named.values())
        theirs = {user_id, *map(UUID, archived)}
        for model in (Job, Batch):
            theirs |= set(model.objects.filter(pk__in=ids, user_id=user_id).values_list("pk", flat=True))
        found += [pk for pk, its_ids in named.items() if its_ids & theirs]
    return found


def erase_from_archive(
    store: Store, project_id: str, user_id: UUID, pseudonym: UUID, *, duty: ArchiveDuty, say: Say
) -> dict[str, int]:
    """
    Erase the user from each file of the project; return by sort how many rows were emptied, or events removed.

    Raises:
        ArchiveError: A file is damaged, or a day has lost its manifest.
    """
    DayFiles.remove_rests(store, project_id)  # an erasure that was cut off may have left an old file that has the user
    done = {"archived jobs": 0, "archived events": 0, "archived batches": 0}
    done["archived results"] = _remove_unnamed_copies(store, project_id, duty)
    for files in DayFiles.every(store, project_id=project_id):
        for part in list(files.parts):
            duty.keep()
            ids = [
                _owner(part, json.loads(line))["id"] for line in files.lines(part) if _is_theirs(part, line, user_id)
            ]
            if ids:
                for line in files.lines(part):
                    # Remove the results before the file is rewritten: if this call is cut off, the next erasure finds
                    # them by the old file.
                    if (stored := stored_of(line)) and _is_theirs(part, line, user_id):
                        store.remove(place_of(files, stored))
                        done["archived results"] += 1
                if part.sort == "jobs":
                    delete_answers(project_id, user_id, ids)
                files.rewrite(part, _without(files, part, user_id, pseudonym))
                done[f"archived {part.sort}"] += len(ids)
                say(f"{project_id}/{files.day}/{part.name}: {len(ids):,} rows erased")
    return done


def _remove_unnamed_copies(store: Store, project_id: str, duty: ArchiveDuty) -> int:
    """
    Remove copies of large results that no archived job names: an archiving that was cut off left them.

    No row tells whose copies these are once the user's jobs are emptied. The next archiving copies the results of other
    users' jobs again.
    """
    removed = 0
    copies = (one.name for one in store.files(project_id) if RESULTS in one.name)
    for day, names in groupby(copies, key=lambda name: name.partition(RESULTS)[0]):
        duty.keep()
        unnamed = set(names)
        files = DayFiles(store, project_id, date.fromisoformat(day.rpartition("/")[2]))
        for part in files.of("jobs"):
            unnamed -= {place_of(files, stored) for line in files.lines(part) if (stored := stored_of(line))}
        for name in unnamed:
            store.remove(name)
        removed += len(unnamed)
    return removed


def _is_theirs(part: ArchivedPart, line: str, user_id: UUID) -> bool:
    return str(user_id) in line and _owner(part, json.loads(line)).get("user_id") == str(user_id)


def _owner(part: ArchivedPart, found: dict[str, Any]) -> dict[str, Any]:
    owner: dict[str, Any] = found if part.sort == "events" else found["job" if part.sort == "jobs" else "batch"]
    return owner


def _without(files: DayFiles, part: ArchivedPart, user_id: UUID, pseudonym: UUID) -> Iterator[tuple[str, str]]:
    for line in files.lines(part):
        found = json.loads(line)
        owner = _owner(part, found)
        key = f"{owner['job_id']}/{owner['id']}" if part.sort == "events" else owner["id"]
        if not _is_theirs(part, line, user_id):
            yield key, line.rstrip("\n")
        elif part.sort != "events":
            owner |= {"user_id": str(pseudonym)}
            owner |= EMPTIED_JOB | {"effect_key": f"erased:{key}"} if part.sort == "jobs" else {}
            owner |= {"name": "", "submitted_by": "erased"} if part.sort == "batches" else {}
            if found.get("dead_letter"):
                found["dead_letter"] |= EMPTIED_LETTER
            found["tags"] = []
            yield key, json.dumps(found, ensure_ascii=False)
