"""The kinds of jobs: which there are, and how each has gone lately."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.db.models import Count, Min
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from jobs.admin.pictures import picture_of
from jobs.handlers.registry import Handler, all_handlers
from jobs.models import Executor, Job
from jobs.services.operate.pauses import MAX_PAUSE_KEY_LENGTH
from jobs.states import JobState
from queueops.core.sql import run_sql_as
from queueops.core.web.recent_writes import may_lag
from queueops.screens import showing
from queueops.screens.showing import NOTHING

MOST_LOOKED_AT = 20_000  # jobs of all kinds, the newest; there is no index by kind
MOST_CODES = 20


@dataclass(frozen=True, slots=True)
class KindSums:
    """As sum_up_kind.sql returns them. `waited`, `ran`: seconds, 50 and 95 % of the jobs; None: none did yet."""

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


def kinds(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """The kinds that this process knows."""
    _ensure_may_view(model_admin, request)
    handlers = sorted((one for one in all_handlers() if not one.internal), key=lambda one: one.kind)
    rows = [(one, _service(one), reverse("admin:jobs_job_kind", args=[one.kind])) for one in handlers]
    return _answer(model_admin, request, "kinds", {"title": "Kinds of jobs", "kinds": rows})


@may_lag
def kind(model_admin: Any, request: HttpRequest, name: str) -> HttpResponse:
    """How jobs of one kind have gone among the newest, and what its handler promises."""
    _ensure_may_view(model_admin, request)
    handler = next((one for one in all_handlers() if one.kind == name), None)
    first = _first_looked_at()
    [sums] = run_sql_as(KindSums, "jobs", "sum_up_kind", {"kind": name, "first": first})
    if handler is None and not sums.jobs:
        raise Http404
    own = Job.objects.filter(kind=name, pk__gte=first)
    pause = urlencode({"scope": "kind", "key": name})
    return _answer(
        model_admin,
        request,
        "kind",
        {
            "title": name,
            "subtitle": "kind",
            "description": handler.description if handler else "No handler of this process carries it out.",
            "sums": sums,
            "since": showing.ago(sums.since),
            "looked_at": f"{MOST_LOOKED_AT:,}",
            "figures": list(_figures(sums)),
            "failures": _failures(name, own, sums),
            "picture": picture_of(own, _starts(name)),
            "facts": _facts(handler) if handler else [],
            "schema": _schema(handler) if handler else "",
            "jobs_href": f"{reverse('admin:jobs_job_changelist')}?{urlencode({'kind': name})}",
            "letters_href": f"{reverse('admin:jobs_deadletter_changelist')}?{urlencode({'kind': name})}",
            "pause_href": f"{reverse('admin:jobs_pauseswitch_pause_work')}?{pause}"
            if request.user.has_perm("jobs.pause_work") and len(name) <= MAX_PAUSE_KEY_LENGTH
            else "",
        },
    )


def _ensure_may_view(model_admin: Any, request: HttpRequest) -> None:
    if not model_admin.has_view_permission(request):
        raise PermissionDenied


def _answer(model_admin: Any, request: HttpRequest, template: str, shown: dict[str, Any]) -> HttpResponse:
    context = {**model_admin.admin_site.each_context(request), "opts": model_admin.opts, **shown}
    return TemplateResponse(request, f"admin/jobs/job/{template}.html", context)


def _first_looked_at() -> UUID:
    oldest = Job.objects.order_by("-pk").values_list("pk", flat=True)[MOST_LOOKED_AT - 1 : MOST_LOOKED_AT]
    return next(iter(oldest), UUID(int=0))


def _starts(name: str) -> list[datetime]:
    """When each cluster of workers that carries the kind out was started: a deploy, mostly."""
    living = Executor.objects.filter(kinds__has_key=name).order_by().values_list("cluster_id")
    started = living.annotate(first=Min("process_started_at")).values_list("first", flat=True)
    return [datetime.fromtimestamp(one, UTC) for one in started]


def _figures(sums: KindSums) -> Iterator[tuple[str, str, str]]:
    """What is shown large: its name, the figure, and what it means."""
    ended = sums.completed + sums.failed
    yield "Jobs", f"{sums.jobs:,}", f"{sums.waiting:,} wait, {sums.running:,} run"
    yield "Failed", f"{sums.failed / ended:.1%}" if ended else NOTHING, f"{sums.failed:,} of {ended:,} that ended"
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
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else showing.duration(seconds)


def _failures(name: str, own: Any, sums: KindSums) -> list[dict[str, Any]]:
    """With what jobs failed, the most frequent first."""
    counted = own.filter(status=JobState.FAILED).order_by().values_list("last_error_code")
    letters = reverse("admin:jobs_deadletter_changelist")
    return [
        {
            "code": code or "none",
            "count": f"{count:,}",
            "share": f"{count / (sums.completed + sums.failed):.1%}",
            "href": f"{letters}?{urlencode({'kind': name, 'error_code': code})}",
        }
        for code, count in counted.annotate(count=Count("pk")).order_by("-count", "last_error_code")[:MOST_CODES]
    ]


def _facts(handler: Handler) -> list[tuple[str, str]]:
    depends = "depends on the payload"
    idempotent = depends if callable(handler.idempotent) else "yes" if handler.idempotent else "no"
    return [
        ("Service", _service(handler)),
        ("Call", handler.call_type.value),
        ("Time limit", showing.duration(handler.timeout)),
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
