"""
Brings stored rows to what their project's setting says: sealed with the newest key, or plain.

Each chunk is a transaction of its own. Rows that are already as set are left alone, so an interrupted run is simply
repeated.
"""

# ruff: noqa: S608 - put together from our own words

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q

from jobs.feature import SealedColumns
from jobs.features import FEATURES
from jobs.features.results.garbage_collect import remove_objects
from jobs.features.results.reference import is_reference, new_name, read_name, stored_in
from jobs.features.results.store import put_content, result_store
from jobs.handlers.registry import all_handlers
from jobs.models import BulkOperation, Job, PauseSwitch, RefusedCalls, ScheduleFire, ServiceBreaker, Tag
from jobs.services.finish.encrypted_outcomes import TOLD
from jobs.states import RUNNING
from queueops.audit import trail
from queueops.core import sealing
from queueops.core.stores.store import StoreError
from queueops.core.values.tags import field_tag
from queueops.tenancy.models import CredentialRefusal, Project, ProjectMove
from queueops.tenancy.secrets.encryption import SETTING_KNOWN_SECONDS, forget_encrypted

SEALED_AT_ONCE = 200  # rows locked and in memory at once; a payload may have megabytes
FOLLOW_SECONDS = 2.0
WRITERS_SECONDS = 600.0  # how long to wait for transactions that may follow the old setting
HASHED_KEY = r"\|[0-9a-f]{64}(#.*)?$"  # how choose_lane.py writes a hashed key
HASH_KEYS = """
UPDATE jobs_job SET coalesce_key = split_part(coalesce_key, '|', 1) || '|'
                                   || encode(sha256(convert_to(coalesce_key, 'UTF8')), 'hex')
 WHERE project_id = %s AND coalesce_key IS NOT NULL AND coalesce_key !~ %s"""
BESIDE_TEXT = '"see payload_text"'  # stands in the older column of a payload that is kept as text
# The fields that may quote a payload, in an event or in a dead letter's attempts and timeline.
QUOTED = TOLD | {"error_message", "message"}

Change = Callable[[Any], Any]
Results = dict[str, str | sealing.SealedAway]  # by old reference to a large result: the new one, or why there is none


PLACES = (
    SealedColumns(
        "jobs_job",
        whole=("payload", "result"),
        written=("payload_text", "result_text"),
        texts=("last_error_message", "progress_message"),
    ),
    SealedColumns(
        "jobs_deadletter",
        whole=("payload",),
        written=("payload_text",),
        parts=("attempts", "timeline"),
        texts=("error_message",),
    ),
    SealedColumns(
        "jobs_jobevent",
        parts=("data",),
        texts=("message",),
        rows="(event_type = 'progress'"
        " OR data ?| ARRAY['error_message', 'error_class', 'log', 'traceback', 'details'])",
    ),
    SealedColumns("jobs_idempotencyrecord", whole=("answer",)),
    SealedColumns("door_doorbatch", whole=("metadata", "errors")),
    SealedColumns("door_doorfilepart", contents=("content",)),
    *(place for feature in FEATURES for place in feature.sealed),
)


@dataclass(slots=True)
class Resealed:
    """
    Attributes:
        rows: By table, how many rows were changed; in a dry run, how many would be.
        read: By table, how many rows were looked at.
        missing: By key that is not set here, how many rows need the key and therefore stay as they are.
        running: Jobs that run with a payload that was not sealed when they began.
    """

    rows: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)
    running: set[UUID] = field(default_factory=set)


def encrypt_project(
    project: Project,
    *,
    actor: str,
    keeps: bool = False,
    tell: Callable[[str, Resealed], None] = lambda table, done: None,
) -> Resealed:
    """
    Seal or open a project's rows, as the project is set. Waits for writers that may still follow the old setting.

    Not to be called inside a transaction.

    Args:
        keeps: A dry run: nothing is written.
        tell: Called after each chunk.

    Raises:
        PayloadKeysMissing: The project is set to be encrypted, and there is no key.
    """
    done = Resealed()
    if project.encrypted:
        sealing.newest_key()
    if not keeps:
        forget_encrypted()
        _wait_for_writers()
    try:
        for place in PLACES:
            _go_over(place, project, done, keeps=keeps, tell=tell)
        if project.encrypted and not keeps:
            _hide_the_rest(project.pk, done)
            _follow_running(project, done, tell)
    finally:
        if not keeps and done.rows:
            with transaction.atomic():
                trail.record(
                    actor=actor,
                    action="encrypt_payloads" if project.encrypted else "decrypt_payloads",
                    target=f"project {project.pk}",
                    after={"rows": dict(done.rows), "keys_missing": dict(done.missing)},
                    moved=done.rows.total(),
                    project_id=project.pk,
                )
    return done


def keys_needed(project_ids: Sequence[str], known: Sequence[str]) -> dict[str, str]:
    """Return unknown keys that rows of the projects need, each with a table; reads one such row of each table."""
    found: dict[str, str] = {}
    # The pattern must match only unknown keys: a row may need known keys, too.
    unknown = f"{sealing.MARK}(?!({'|'.join(known)})!)[A-Za-z0-9_-]{{1,40}}![A-Za-z0-9_=-]"
    for place in PLACES:
        columns = [f"own.{column}::text" for column in (*place.wholes, *place.parts, *place.texts)]
        columns += [f"encode(own.{column}, 'escape')" for column in place.contents]
        text = f"concat_ws(' ', {', '.join(columns)})"
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT {text} FROM {place.table} AS own WHERE project_id = ANY(%s) AND {text} LIKE %s"
                f" AND {text} ~ %s LIMIT 1",
                [list(project_ids), f"%{sealing.MARK}%", unknown],
            )
            for (stored,) in cursor.fetchall():
                found |= dict.fromkeys(sealing.keys_in(stored) - set(known), place.table)
    return found


def keys_used(project_id: str) -> set[str]:
    """The names of all keys that rows of a project need. Reads all rows once for each key at most, and once more."""
    used: set[str] = set()
    while found := keys_needed([project_id], sorted(used)):
        used |= found.keys()
    return used


def still_plain(project_ids: Sequence[str]) -> list[str]:
    """Return the projects among these that have a job or dead letter whose payload is not sealed."""
    statement = """
    SELECT pk.id FROM unnest(%s::text[]) AS pk (id)
     WHERE EXISTS (SELECT FROM jobs_job
                    WHERE project_id = pk.id AND coalesce(payload_text, payload::text) !~ '^("|{}$)')
        OR EXISTS (SELECT FROM jobs_deadletter
                    WHERE project_id = pk.id AND coalesce(payload_text, payload::text) !~ '^("|{}$)')
     ORDER BY 1"""
    with connection.cursor() as cursor:
        cursor.execute(statement, [list(project_ids)])
        return [project for (project,) in cursor.fetchall()]


def _go_over(
    place: SealedColumns, project: Project, done: Resealed, *, keeps: bool, tell: Callable[[str, Resealed], None]
) -> None:
    cursor_at: Any = None
    while True:
        results: Results = {}
        while True:
            with transaction.atomic(durable=True):
                rows = _chunk(place, project.pk, cursor_at, lock=not keeps)
                strange = _references(place, rows) - results.keys()
                if not strange:
                    changed = [
                        change for row in rows if (change := _changed(place, row, project, done, results=results))
                    ]
                    if changed and not keeps:
                        _write(place, changed)
                    break
            # Lock no row while the store is read: an executor that ends one of these jobs would wait for the lock, and
            # renew none of its leases meanwhile.
            results |= {one: _object_as_set(one, project, keeps=keeps) for one in strange}
        replaced = [] if keeps else _replaced(place, rows, changed)
        # Keep the objects if the project moves or has moved: its rows at the other installation still name them.
        stays = replaced and Project.objects.filter(pk=project.pk, move=ProjectMove.NONE).exists()
        if stays and (store := result_store()):
            remove_objects(store, replaced)
        done.read[place.table] += len(rows)
        done.rows[place.table] += len(changed)
        tell(place.table, done)
        if len(rows) < SEALED_AT_ONCE:
            return
        cursor_at = rows[-1][0]


def _chunk(place: SealedColumns, project_id: str, after: Any, *, lock: bool) -> list[tuple[Any, ...]]:
    columns = [f"own.{column}::text" for column in (*place.wholes, *place.parts)]
    columns += [f"own.{column}" for column in (*place.texts, *place.contents)]
    status = "own.status" if place.table == "jobs_job" else "NULL"
    beyond = "" if after is None else "AND own.id > %s"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT own.id, {status}, {', '.join(columns)} FROM {place.table} AS own"
            f" WHERE own.project_id = %s AND {place.rows.replace('data', 'own.data')} {beyond}"
            f" ORDER BY own.id LIMIT {SEALED_AT_ONCE} {'FOR UPDATE' if lock else ''}",
            [project_id, *([] if after is None else [after])],
        )
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


def _references(place: SealedColumns, rows: Sequence[tuple[Any, ...]]) -> set[str]:
    """The references in rows to results that are in the result store."""
    wholes = (value for row in rows for value in row[2 : 2 + len(place.wholes)])
    return {value for value in wholes if value is not None and is_reference(value)}


def _replaced(place: SealedColumns, rows: Sequence[tuple[Any, ...]], changed: Sequence[tuple[Any, ...]]) -> list[str]:
    """The objects of the result store that rows named before their change and no longer name."""
    written = {row[0] for row in changed}
    before = _references(place, [row for row in rows if row[0] in written])
    after = {value for row in changed for value in row[1 : 1 + len(place.wholes)]}
    return [stored.name for one in before - after if (stored := stored_in(json.loads(one)))]


def _changed(
    place: SealedColumns, row: tuple[Any, ...], project: Project, done: Resealed, *, results: Results
) -> tuple[Any, ...] | None:
    """The row's id and its columns as they should be; None: nothing is to change, or a key is missing."""
    key, status, *stored = row
    kinds = ["whole"] * len(place.wholes) + ["parts"] * len(place.parts)
    kinds += ["text"] * len(place.texts) + ["bytes"] * len(place.contents)
    change = SEALING if project.encrypted else OPENING

    def as_set(kind: str, value: Any) -> Any:
        if kind == "whole" and value in results:
            if isinstance(found := results[value], sealing.SealedAway):
                raise found
            return found
        return None if value is None else change[kind](value)

    try:
        wanted = [as_set(kind, value) for kind, value in zip(kinds, stored, strict=True)]
    except sealing.SealedAway as away:
        done.missing[away.key] += 1
        return None
    payload = next((text for text in stored[: len(place.wholes)] if text is not None and text != BESIDE_TEXT), "")
    if project.encrypted and status in RUNNING and not sealing.is_whole_sealed(payload):
        done.running.add(key)
    if all(_same(old, new) for old, new in zip(stored, wanted, strict=True)):
        return None
    return (key, *wanted)


def _object_as_set(reference: str, project: Project, *, keeps: bool) -> str | sealing.SealedAway:
    """
    Return a reference to the result, sealed or plain as the project is set; the object is written anew if needed. If
    the object cannot be opened, return why.

    Raises:
        StoreError
    """
    store, stored = result_store(), stored_in(json.loads(reference))
    if store is None:
        raise StoreError("There are results in a result store: set QUEUEOPS_RESULT_STORE here.")
    known = stored and read_name(stored.name)
    if stored is None or known is None:
        return reference
    try:
        with store.read(stored.name) as file:
            content = file.read()
    except FileNotFoundError:  # the object was lost: there is nothing to write anew
        return reference
    newest = f"{sealing.MARK}{sealing.newest_key()}!".encode() if project.encrypted else b""
    if content.startswith(newest) if project.encrypted else not content.startswith(sealing.MARK.encode()):
        return reference
    try:
        plain = sealing.open_bytes(content)
    except sealing.SealedAway as away:
        return away
    if keeps:
        return ""  # stands for the reference, as a dry run writes no object
    return put_content(store, new_name(project.pk, *known), plain, sealed=project.encrypted).as_json


def _same(old: Any, new: Any) -> bool:
    return bool((bytes(old) if isinstance(old, memoryview) else old) == new)


def _write(place: SealedColumns, changed: Sequence[tuple[Any, ...]]) -> None:
    kinds = ["jsonb"] * len(place.whole) + ["text"] * len(place.written) + ["jsonb"] * len(place.parts)
    kinds += ["text"] * len(place.texts) + ["bytea"] * len(place.contents)
    columns = (*place.wholes, *place.parts, *place.texts, *place.contents)
    settings = ", ".join(f"{column} = %s::{kind}" for column, kind in zip(columns, kinds, strict=True))
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL queueops.encrypts = on")  # without this setting the log is append-only
        cursor.executemany(
            f"UPDATE {place.table} SET {settings} WHERE id = %s", [(*values, key) for key, *values in changed]
        )


def _seal_whole(text: str) -> str:
    if sealing.is_whole_sealed(text):
        return sealing.reseal(text)
    return text if text in {"{}", "[]", "null", BESIDE_TEXT} else sealing.seal_json(text)


def _seal_text(text: str) -> str:
    return sealing.reseal(text) if sealing.is_sealed(text) else sealing.seal_text(text)


def _seal_parts(text: str) -> str:
    value = json.loads(text)
    sealed = _sealed_parts(value)
    return text if sealed == value else json.dumps(sealed)


def _sealed_parts(value: Any) -> Any:
    if isinstance(value, list):
        return [_sealed_parts(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: _sealed_part(one) if name in QUOTED else _sealed_parts(one) for name, one in value.items()}


def _sealed_part(value: Any) -> Any:
    if isinstance(value, str):
        return _seal_text(value)
    return sealing.seal_value(value) if value else value


def _seal_bytes(content: memoryview) -> bytes:
    plain = bytes(content)
    if plain.startswith(f"{sealing.MARK}{sealing.newest_key()}!".encode()):
        return plain
    return sealing.seal_bytes(sealing.open_bytes(plain))


SEALING: dict[str, Change] = {"whole": _seal_whole, "parts": _seal_parts, "text": _seal_text, "bytes": _seal_bytes}
OPENING: dict[str, Change] = {
    "whole": sealing.open_json,
    "parts": sealing.open_json,
    "text": sealing.open_text,
    "bytes": lambda content: sealing.open_bytes(bytes(content)),
}


def _hide_the_rest(project_id: str, done: Resealed) -> None:
    """Remove or seal pieces of payloads in other places: searchable fields, keys of groups, quoted errors, edits."""
    fields = {field_tag(name, "") for handler in all_handlers() for name in handler.searchable}
    if fields:
        named = reduce(or_, (Q(name__startswith=one) for one in fields))
        Tag.objects.filter(named, project_id=project_id).delete()
    ServiceBreaker.objects.filter(project_id=project_id).exclude(last_error="").update(last_error=sealing.WITHHELD)
    refused = RefusedCalls.objects.filter(project_id=project_id).exclude(last_error="")
    stops = PauseSwitch.objects.filter(scope=PauseSwitch.Scope.REFUSED, key__in=refused.values("name"))
    stops.update(reason=sealing.WITHHELD)
    refused.update(last_error=sealing.WITHHELD)
    ScheduleFire.objects.filter(project_id=project_id).exclude(error_message="").update(error_message=sealing.WITHHELD)
    CredentialRefusal.objects.filter(of_project=project_id).exclude(reason="").update(reason=sealing.WITHHELD)
    for operation in _edits(project_id):
        payload = operation.parameters["payload"]
        try:
            sealed = sealing.reseal(payload) if isinstance(payload, str) else sealing.seal_value(payload)
        except sealing.SealedAway as away:
            done.missing[away.key] += 1
            continue
        BulkOperation.objects.filter(pk=operation.pk).update(parameters={**operation.parameters, "payload": sealed})
    with connection.cursor() as cursor:
        cursor.execute(HASH_KEYS, [project_id, HASHED_KEY])


def _edits(project_id: str) -> list[BulkOperation]:
    """Bulk operations that give a new payload to dead letters of the project, or of several projects."""
    whose = Q(parameters__filter__project_id=project_id) | ~Q(parameters__filter__has_key="project_id")
    with sealing.left_sealed():
        edits = BulkOperation.objects.filter(whose, parameters__has_key="payload")
        return list(edits.exclude(parameters__payload=None))


def _wait_for_writers() -> None:
    """
    Wait until transactions that may follow the old setting have ended. Processes remember a setting for
    SETTING_KNOWN_SECONDS.
    """
    time.sleep(SETTING_KNOWN_SECONDS)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_xact_id()::text::bigint")
        [(mine,)] = cursor.fetchall()
    until = time.monotonic() + WRITERS_SECONDS
    for _ in _looks(until):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint > %s", [mine])
            if cursor.fetchone() == (True,):
                return


def _follow_running(project: Project, done: Resealed, tell: Callable[[str, Resealed], None]) -> None:
    """Wait for jobs that began with a plain payload, as they write plain results; then go over the rows once more."""
    if not done.running:
        return
    while done.running:
        tell("jobs_job", done)
        time.sleep(FOLLOW_SECONDS)
        going = Job.objects.filter(pk__in=done.running, status__in=RUNNING)
        done.running = set(going.values_list("pk", flat=True))
    for place in PLACES[:3]:
        _go_over(place, project, done, keeps=False, tell=tell)


def _looks(until: float) -> Iterator[None]:
    while time.monotonic() < until:
        yield
        time.sleep(FOLLOW_SECONDS / 4)
