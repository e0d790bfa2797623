"""One search over everything that has a name or an id."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import Model, Q, QuerySet
from django.db.models.functions import Upper
from django.urls import reverse

from jobs.door.batches import own_id_of
from jobs.features.served_kinds.served_kinds import kinds_served
from jobs.models import Batch, Job
from jobs.services.submit.tags import tags_meant
from jobs.states import SHOWN, JobState
from queueops.core.sql import run_sql
from queueops.core.values.identifiers import time_of
from queueops.core.values.numbers import numbered
from queueops.tenancy.models import KEY_PREFIX_LENGTH, Credential, Issuer, ProducerKey, Project, UserLabel
from ratelimits.models import Limit

LONGEST = 200
MAX_OF_A_SORT = 10
PROJECTS_PROBED = 1000  # a search by idempotency key reads its index once for each project
NEWEST_BATCHES = 50_000  # the newest batches, whose names are searched
ENDING_BYTES = 4  # lists show so many bytes of an id's end
IDS_AT_ONCE = 100_000  # ids of one window; reading them from memory takes some 15 ms
LOOK_SECONDS = 0.3  # no further window is begun after this time

SEARCHED = (
    "job and batch ids, in full or as lists show them",
    "ids that clients of OpenAI and Anthropic show: batch_…, msgbatch_…, file-output-…, resp_…, req_…",
    "idempotency keys, in full",
    "tags of jobs and batches, and payload fields that a kind is found by, in full",
    "users' ids, and the beginnings of their labels",
    "names of batches, projects, keys, people, limits, kinds, credentials and issuers",
    "the first characters of a key",
)

_DECORATION = re.compile(r"^(?:…|\.\.\.)|^key:(?=qo_)")


@dataclass(frozen=True, slots=True)
class Hit:
    """One match. `about`: what it belongs to, or its state. `key`: its row's key; empty: the match is a list."""

    title: str
    about: str
    href: str
    key: str = ""


@dataclass(slots=True)
class Found:
    """
    Attributes:
        hits: By sort, such as `Jobs`; at most MAX_OF_A_SORT of each.
        looked_back_to: How far back ids were compared with the typed ending; None: all were, or none had to be.
    """

    hits: dict[str, list[Hit]] = field(default_factory=dict)
    looked_back_to: datetime | None = None

    @property
    def only(self) -> Hit | None:
        """The hit, where there is exactly one."""
        everything = [hit for hits in self.hits.values() for hit in hits]
        return everything[0] if len(everything) == 1 else None


Finder = Callable[[str, Found], Iterator[Hit]]


class MaySee(Protocol):
    def has_perm(self, perm: str, /) -> bool: ...


def find(term: str, viewer: MaySee) -> Found:
    """
    Return the matches that the viewer may see, in a bounded number of reads.

    Args:
        term: As it was typed, or copied from a screen.
    """
    text = _DECORATION.sub("", term.strip().replace("\0", ""))[:LONGEST].strip()
    text = own_id_of(text) or text
    found = Found()
    if not text:
        return found
    for sort, permission, finder in _FINDERS:
        if viewer.has_perm(permission) and (hits := list(finder(text, found))):
            found.hits[sort] = hits[:MAX_OF_A_SORT]
    return found


def _jobs(text: str, found: Found) -> Iterator[Hit]:
    projects = list(Project.objects.values_list("pk", flat=True)[:PROJECTS_PROBED])
    # Sorted by id afterwards: with an ORDER BY here the planner might walk the whole table instead of the key's index.
    keyed = Job.objects.filter(project_id__in=projects, idempotency_key=text).order_by().ids()
    ids = list(keyed[:MAX_OF_A_SORT])  # even if the text looks like an id: many producers use ids as idempotency keys
    if identifier := _uuid(text):
        ids.append(identifier)
    elif ending := _ending(text):
        ended, found.looked_back_to = _ids_by_ending(ending)
        ids += ended
    chosen = Job.objects.filter(pk__in=ids).order_by("-pk").only("id", "kind", "status", "project_id")
    for job in chosen[:MAX_OF_A_SORT]:
        state = SHOWN[JobState(job.status)].words
        yield Hit(str(job.pk), f"{job.kind}, {job.project_id}, {state}", _page("jobs_job", job), str(job.pk))


def _tags_of(rows: Callable[[], Any], screen: str, what: str) -> Finder:
    """Return a finder by whole tag. Its hit leads to the one job or batch with the tag, or to a list of several."""

    def finder(text: str, found: Found) -> Iterator[Hit]:
        for name in tags_meant(text):
            some = list(rows().tagged([name]).order_by()[:2])
            if some:
                only = some[0] if len(some) == 1 else None
                href = _page(screen, only) if only else _list(screen, tags=name)
                yield Hit(name, str(only or what), href, str(only.pk) if only else "")

    return finder


def _batches(text: str, found: Found) -> Iterator[Hit]:
    rows = Batch.objects.order_by("-pk")
    if identifier := _uuid(text):
        rows = rows.filter(pk=identifier)
    else:
        newest = Batch.objects.filter(pk__in=Batch.objects.order_by("-pk").values("pk")[:NEWEST_BATCHES])
        end = _ending(text)
        ids = [pk for pk in newest.values_list("pk", flat=True) if pk.bytes.endswith(end)] if end else []
        rows = newest.filter(Q(name__icontains=text) | Q(pk__in=ids)).order_by("-pk")
    for batch in rows[:MAX_OF_A_SORT]:
        yield Hit(
            batch.name or str(batch.pk),
            f"{batch.project_id}, {numbered(batch.total, 'job')}",
            _page("jobs_batch", batch),
            str(batch.pk),
        )


def _users(text: str, found: Found) -> Iterator[Hit]:
    identifier = _uuid(text)
    if identifier and Job.objects.filter(user_id=identifier).order_by("-pk").exists():
        yield Hit(str(identifier), "their jobs", _list("jobs_job", user_id=identifier))
    for user in UserLabel.objects.filter(label__istartswith=text).order_by(Upper("label"))[:MAX_OF_A_SORT]:
        yield Hit(user.label, f"user {user.user_id} of {user.project_id}", _list("jobs_job", user_id=user.user_id))


def _kinds(text: str, found: Found) -> Iterator[Hit]:
    for kind in sorted(kinds_served()):
        if text.casefold() in kind.casefold():
            yield Hit(kind, "how its jobs go", reverse("admin:jobs_job_kind", args=[kind]))


def _keys(text: str, found: Found) -> Iterator[Hit]:
    # The database has only a key's first characters, but people may paste a whole key.
    wanted = Q(prefix__startswith=text[:KEY_PREFIX_LENGTH]) | Q(name__icontains=text)
    for key in ProducerKey.objects.filter(wanted).order_by("pk")[:MAX_OF_A_SORT]:
        yield Hit(str(key), key.project_id, _page("tenancy_producerkey", key))


def _named(screen: str, rows: Callable[[], QuerySet[Any]], *fields: str, about: str = "") -> Finder:
    """Return a finder of a small table's rows by a part of these fields; the first field is the rows' name."""

    def finder(text: str, found: Found) -> Iterator[Hit]:
        matches = Q()
        for name in fields:
            matches |= Q(**{f"{name}__icontains": text})
        for row in rows().filter(matches).order_by("pk")[:MAX_OF_A_SORT]:
            name, told = str(getattr(row, fields[0])), str(getattr(row, about, "") or "")
            yield Hit(name, told, _page(screen, row), str(row.pk))

    return finder


_FINDERS: Sequence[tuple[str, str, Finder]] = (
    ("Jobs", "jobs.view_job", _jobs),
    ("Batches", "jobs.view_batch", _batches),
    ("Jobs by tag", "jobs.view_job", _tags_of(Job.objects.all, "jobs_job", "its jobs")),
    ("Batches by tag", "jobs.view_batch", _tags_of(Batch.objects.all, "jobs_batch", "its batches")),
    ("Users", "jobs.view_job", _users),
    ("Kinds", "jobs.view_job", _kinds),
    ("Projects", "tenancy.view_project", _named("tenancy_project", Project.objects.all, "name", "id", about="id")),
    ("Limits", "ratelimits.view_limit", _named("ratelimits_limit", Limit.objects.all, "name", about="service")),
    ("Keys", "tenancy.view_producerkey", _keys),
    ("People", "auth.view_user", _named("auth_user", User.objects.all, "username", "email", about="email")),
    ("Credentials", "tenancy.view_credential", _named("tenancy_credential", Credential.objects.all, "name")),
    ("Issuers", "tenancy.view_issuer", _named("tenancy_issuer", Issuer.objects.all, "name", about="project_id")),
)


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _ending(text: str) -> bytes | None:
    """Return the last bytes of an id from the text that lists show; None: the text is no such end."""
    return bytes.fromhex(text) if re.fullmatch(rf"[0-9a-fA-F]{{{2 * ENDING_BYTES}}}", text) else None


def _ids_by_ending(ending: bytes) -> tuple[list[UUID], datetime | None]:
    """
    Return the newest jobs whose ids have this end, and the time back to which ids were searched. None: all ids were
    searched, or jobs were found.
    """
    until, before = time.monotonic() + LOOK_SECONDS, None
    while True:
        rows = run_sql("jobs", "find_by_ending", {"before": before, "most": IDS_AT_ONCE, "ending": ending})
        ids = [row[0] for row in rows if not row[1]]
        before = next((row[0] for row in rows if row[1]), None)
        if ids or before is None:
            return ids, None
        if time.monotonic() > until:
            return [], time_of(before)


def _page(screen: str, row: Model) -> str:
    return reverse(f"admin:{screen}_change", args=[row.pk])


def _list(screen: str, **filters: object) -> str:
    return f"{reverse(f'admin:{screen}_changelist')}?{urlencode(filters)}"
