"""Compare the sums of months with their events and reservations, and repair them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import OperationalError, connection, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from psycopg.errors import QueryCanceled
from unfold.decorators import action

from queueops.core.errors import QueueOpsError
from queueops.core.values.numbers import numbered
from queueops.screens import formatting
from queueops.screens.forms import ConfirmForm, ProjectField, ReasonForm, search_projects, set_queryset
from queueops.screens.verbs import actor_of, ask, list_address, mark, show_error, show_page
from queueops.tenancy.models import Project
from ratelimits.usage import ledger
from ratelimits.usage.ledger import Difference, LedgerCheck

PERMISSION = "ratelimits.correct_usage"
MAX_CHECK_SECONDS = 20  # the longest check in a request
MAX_DIFFERENCES_SHOWN = 200


class LedgerTooLarge(QueueOpsError):
    """It takes longer than a page may: check one project, or use `manage.py check_ledger`."""

    code = "ledger_too_large"
    status = 503


class CheckForm(ConfirmForm):
    project = ProjectField(
        required=False,
        empty_label="all of them",
        help_text=f"Large ledgers project by project: a check ends after {MAX_CHECK_SECONDS} s and then says nothing.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        set_queryset(self, "project", Project.objects.exclude(allowance=None))
        search_projects(self)


def _check(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """Ask for a project, or all of them, then show what the check found. Changes nothing."""
    if not request.user.has_perm(PERMISSION):
        raise PermissionDenied
    form = CheckForm(request.POST if request.method == "POST" else None)
    shown: dict[str, Any] = {}
    if form.is_bound and form.is_valid():
        chosen = form.cleaned_data["project"]
        project = chosen.pk if chosen else ""
        try:
            with _bounded():
                found = ledger.check_ledger(project or None)
        except QueueOpsError as error:
            show_error(form, error)
        else:
            shown = _found(found, project)
    shown |= {"title": "Check the ledger", "form": form, "goes_back_to": list_address(model_admin)}
    return show_page(model_admin, request, "admin/ratelimits/allowance/ledger.html", shown)


def repair(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """Ask for confirmation. Then set each wrong month to the sums of its events and active reservations."""
    if not request.user.has_perm(PERMISSION):
        raise PermissionDenied
    project = request.GET.get("project", "")
    form = ReasonForm(request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        try:
            with _bounded():
                ledger.check_ledger(project or None)
            # Outside the bounded transaction, which would keep every repaired month locked until its end.
            repaired = ledger.repair_ledger(
                project or None, actor=actor_of(request), reason=form.cleaned_data["reason"]
            )
        except QueueOpsError as error:
            show_error(form, error)
        else:
            messages.success(request, f"{_months(len(repaired))} repaired; each is in the audit trail.")
            return HttpResponseRedirect(reverse("admin:ratelimits_allowance_check_ledger"))
    return ask(
        model_admin,
        request,
        title="Repair the ledger",
        form=form,
        explains="Months that differ when you confirm are set to the sums of their events and active reservations,"
        " which stay as they are. Users may then have more or less left than they were told.",
        overrides=True,
        button="Yes, repair",
        named=[f"Project {project}" if project else "Every project"],
        goes_back_to=reverse("admin:ratelimits_allowance_check_ledger"),
    )


@contextmanager
def _bounded() -> Iterator[None]:
    """
    Raises:
        LedgerTooLarge: A statement took longer than MAX_CHECK_SECONDS; nothing was changed.
    """
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL statement_timeout = '{MAX_CHECK_SECONDS}s'")
            yield
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            raise LedgerTooLarge from error
        raise


def _found(found: LedgerCheck, project: str) -> dict[str, Any]:
    whole = f"{_months(found.rows)} of {project or 'all projects'} compared"
    count = len(found.differences)
    if not count:
        verdict = formatting.badge("green", "check", "Every month holds its sums")
    else:
        verdict = formatting.badge("red", "error", f"{_months(count)} differ{'s' if count == 1 else ''}")
    return {
        "checked": f"{whole} with all their events and active reservations.",
        "verdict": verdict,
        "differences": [_line(one) for one in found.differences[:MAX_DIFFERENCES_SHOWN]],
        "unshown": max(0, count - MAX_DIFFERENCES_SHOWN),
        "repair_href": f"{reverse('admin:ratelimits_allowance_repair')}?project={project}",
    }


def _months(count: int) -> str:
    return numbered(count, "month")


def _line(one: Difference) -> dict[str, Any]:
    return {
        "user": one.user_id,
        "project": one.project_id,
        "month": one.month,
        "used": f"{one.used:,}",
        "events": f"{one.events:,}",
        "reserved": f"{one.reserved:,}",
        "active": f"{one.reservations:,}",
    }


mark(_check, __name__="check_ledger", needs=PERMISSION)
ACTION = action(_check, description="Check the ledger…", url_path="check-ledger", icon="fact_check")
