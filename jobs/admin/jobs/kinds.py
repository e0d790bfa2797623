"""The kinds of jobs: their list, and for each kind the figures of its recent jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.db.models import Count, Min, Q
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobs.admin.pictures import picture_of
from jobs.handlers.registry import Handler, all_handlers
from jobs.models import DeadLetter, Executor, Job
from jobs.services.operate.pauses import MAX_PAUSE_KEY_LENGTH
from queueops.core.sql import run_sql_as
from queueops.core.values.identifiers import first_id_at, time_of
from queueops.core.web.read_your_writes import may_lag
from queueops.screens import formatting
from queueops.screens.formatting import NOTHING
from queueops.screens.verbs import show_page

from .form import SUBMIT

SPANS = {"hour": ("1 h", timedelta(hours=1)), "day": ("24 h", timedelta(days=1)), "week": ("7 d", timedelta(days=7))}
MAX_LOOKED_AT = 100_000  # the newest jobs, of all kinds, as no index has the kind; reading so many takes 0.1 s
MAX_LETTERS = 100_000  # dead letters are not counted beyond this
MAX_CODES = 20


@dataclass(frozen=True, slots=True)
class KindSums:
    """
    The figures that sum_up_kind.sql returns for jobs that were submitted in the span.

    `waited`, `ran`: the seconds that 50 and 95 % of the jobs waited or ran at most; None: no job has done so yet.
    """

    jobs: int
    since: datetime | None
    completed: int
    failed: int
    waiting: int
    running: int
    retries: int
    cost: int
    waited: Sequence[float] | None
    ran: Sequence[float] | None


@dataclass(frozen=True, slots=True)
class KindLetters:
    """Dead letters of a kind: how many came in the span, and how many are open, whenever they came."""

    came: int
    open: int
    oldest: datetime | None

    @property
    def any(self) -> bool:
        return bool(self.came or self.open)


def kinds(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """The kinds that this process knows."""
    _ensure_may_view(model_admin, request)
    handlers = sorted((one for one in all_handlers() if not one.internal), key=lambda one: one.kind)
    rows = [(one, _service(one), reverse("admin:jobs_job_kind", args=[one.kind])) for one in handlers]
    return show_page(model_admin, request, "admin/jobs/job/kinds.html", {"title": "Kinds of jobs", "kinds": rows})


@may_lag
def kind(model_admin: Any, request: HttpRequest, name: str) -> HttpResponse:
    """How jobs of one kind have gone in a span of time, its open dead letters, and what its handler promises."""
    _ensure_may_view(model_admin, request)
    handler = next((one for one in all_handlers() if one.kind == name), None)
    span = request.GET.get("span", "")
    span = span if span in SPANS else "day"
    first, is_cut = _first_looked_at(timezone.now() - SPANS[span][1])
    since = time_of(first)
    [sums] = run_sql_as(KindSums, "jobs", "sum_up_kind", {"kind": name, "first": first})
    letters = _letters(name, since)
    if handler is None and not sums.jobs and not letters.any and not Job.objects.filter(kind=name)[:1].exists():
        raise Http404
    own = Job.objects.filter(kind=name, pk__gte=first)
    pause = urlencode({"scope": "kind", "key": name})
    return show_page(
        model_admin,
        request,
        "admin/jobs/job/kind.html",
        {
            "title": name,
            "subtitle": "kind",
            "description": handler.description if handler else "No handler of this process carries it out.",
            "sums": sums,
            "letters": letters,
            "span": SPANS[span][0],
            "spans": [{"words": words, "name": key, "is_shown": key == span} for key, (words, _) in SPANS.items()],
            "since": formatting.ago(since),
            "is_cut": is_cut,
            "looked_at": f"{MAX_LOOKED_AT:,}",
            "figures": list(_figures(sums, letters)),
            "failures": _failures(name, since, sums, letters),
            "picture": picture_of(own, _starts(name)),
            "facts": _facts(handler) if handler else [],
            "schema": _schema(handler) if handler else "",
            "jobs_href": f"{reverse('admin:jobs_job_changelist')}?{urlencode({'kind': name})}",
            "letters_href": f"{reverse('admin:jobs_deadletter_changelist')}?{urlencode({'kind': name})}",
            "new_href": f"{reverse('admin:jobs_job_new')}?{urlencode({'kind': name})}"
            if handler and not handler.internal and request.user.has_perm(SUBMIT)
            else "",
            "pause_href": f"{reverse('admin:jobs_pauseswitch_pause_work')}?{pause}"
            if request.user.has_perm("jobs.pause_work") and len(name) <= MAX_PAUSE_KEY_LENGTH
            else "",
        },
    )


def _ensure_may_view(model_admin: Any, request: HttpRequest) -> None:
    if not model_admin.has_view_permission(request):
        raise PermissionDenied


def _first_looked_at(since: datetime) -> tuple[UUID, bool]:
    """Return the first id to read, and whether it leaves out older jobs: the span has more than MAX_LOOKED_AT jobs."""
    first = first_id_at(since)
    newest = Job.objects.filter(pk__gte=first).order_by("-pk").values_list("pk", flat=True)
    ends = list(newest[MAX_LOOKED_AT - 1 : MAX_LOOKED_AT + 1])
    return (ends[0], True) if len(ends) > 1 else (first, False)


def _letters(name: str, since: datetime) -> KindLetters:
    came = DeadLetter.objects.filter(kind=name, created_at__gte=since)
    open_ones = DeadLetter.objects.open().filter(kind=name)
    return KindLetters(
        came=came.order_by()[:MAX_LETTERS].count(),
        open=open_ones.order_by()[:MAX_LETTERS].count(),
        oldest=open_ones.order_by("created_at").values_list("created_at", flat=True).first(),
    )


def _starts(name: str) -> list[datetime]:
    """When each cluster of workers that carries out the kind was started, mostly by a deploy."""
    living = Executor.objects.filter(kinds__has_key=name).order_by().values_list("cluster_id")
    started = living.annotate(first=Min("process_started_at")).values_list("first", flat=True)
    return [datetime.fromtimestamp(one, UTC) for one in started]


def _figures(sums: KindSums, letters: KindLetters) -> Iterator[tuple[str, SafeString | str, SafeString | str]]:
    """The figures that are shown large: name, figure, and what it means."""
    ended = sums.completed + letters.came
    oldest = (
        format_html("the oldest came {}", formatting.ago(letters.oldest)) if letters.oldest else "whenever they came"
    )
    yield "Open dead letters", f"{letters.open:,}", oldest
    yield "Failed", f"{letters.came / ended:.1%}" if ended else NOTHING, f"{letters.came:,} of {ended:,} that ended"
    yield "Jobs", f"{sums.jobs:,}", f"{sums.waiting:,} wait, {sums.running:,} run"
    yield "Tried again", f"{sums.retries / ended:.2f}" if ended else NOTHING, "times a job, on average"
    for name, seconds, meaning in (
        ("Wait", sums.waited, "before the first attempt"),
        ("Run", sums.ran, "of the last attempt"),
    ):
        half, most = (_duration(one) for one in seconds) if seconds else (NOTHING, NOTHING)
        yield f"{name}, half within", half, meaning
        yield f"{name}, 95 % within", most, meaning
    if sums.cost > sums.completed:
        yield "Cost", f"{sums.cost:,}", "units or tokens of the completed"


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else formatting.duration(seconds)


def _failures(name: str, since: datetime, sums: KindSums, letters: KindLetters) -> list[dict[str, Any]]:
    """The error codes of dead letters that came in the span or are still open, the most frequent first."""
    found = DeadLetter.objects.filter(Q(resolution=None) | Q(created_at__gte=since), kind=name).order_by()
    counted = found.values_list("error_code").annotate(
        came=Count("pk", filter=Q(created_at__gte=since)), open=Count("pk", filter=Q(resolution=None))
    )
    ended, page = sums.completed + letters.came, reverse("admin:jobs_deadletter_changelist")
    return [
        {
            "code": code or "none",
            "open": f"{open_ones:,}",
            "count": f"{came:,}",
            "share": f"{came / ended:.1%}" if ended else NOTHING,
            "href": f"{page}?{urlencode({'kind': name, 'error_code': code})}",
        }
        for code, came, open_ones in counted.order_by("-open", "-came", "error_code")[:MAX_CODES]
    ]


def _facts(handler: Handler) -> list[tuple[str, str]]:
    depends = "depends on the payload"
    idempotent = depends if callable(handler.idempotent) else "yes" if handler.idempotent else "no"
    return [
        ("Service", _service(handler)),
        ("Call", handler.call_type.value),
        ("Time limit", formatting.duration(handler.timeout)),
        ("Retry policy", handler.retry),
        ("Repeatable (idempotent)", idempotent),
        ("Sends its effect key", "yes" if handler.sends_effect_key else "no"),
        ("Shares calls", f"up to {handler.coalesce.max_items:,} jobs a call" if handler.coalesce else "no"),
        ("Found by", ", ".join(handler.searchable) or "tags that producers give"),
    ]


def _service(handler: Handler) -> str:
    return "depends on the payload" if callable(handler.service) else handler.service


def _schema(handler: Handler) -> str:
    try:
        return json.dumps(handler.schema.json_schema(), indent=2, ensure_ascii=False)
    except Exception:  # noqa: BLE001 - a type that has no JSON Schema; `/handlers/` says the same
        return ""
