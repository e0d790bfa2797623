"""The users who used the most of a project's allowance in a month."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from queueops.screens import formatting
from queueops.screens.forms import ProjectField, search_projects, set_queryset
from queueops.screens.verbs import list_address, show_page
from queueops.tenancy.models import Project
from queueops.tenancy.user_labels import labels_of
from ratelimits.models import Allowance
from ratelimits.usage.reports import MAX_USERS_READ, months_until, top_users_of_month

from .parts import amount, is_month, usage_marks

MONTHS_OF_TOP_USERS = 12


class TopUsersForm(forms.Form):
    project = ProjectField(empty_label=None)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        set_queryset(self, "project", Project.objects.exclude(allowance=None))
        search_projects(self)


def top_users(model_admin: Any, request: HttpRequest) -> HttpResponse:
    if not model_admin.has_view_permission(request):
        raise PermissionDenied
    allowance = Allowance.objects.filter(pk=request.GET.get("project", "")).first() or Allowance.objects.first()
    project = allowance.pk if allowance else ""
    asked = request.GET.get("month", "")
    now = f"{timezone.now():%Y-%m}"
    month = asked if is_month(asked) else now
    context = {
        "title": "Top users",
        "choose": TopUsersForm(initial={"project": project}),
        "project": project,
        "months": sorted({month, *months_until(now, MONTHS_OF_TOP_USERS)}, reverse=True),
        "month": month,
        "list_href": list_address(model_admin),
        **(_found(project, month, allowance.unit) if allowance else {}),
    }
    return show_page(model_admin, request, "admin/ratelimits/usagetracking/top.html", context)


def _found(project: str, month: str, unit: str) -> dict[str, Any]:
    top = top_users_of_month(project, month)
    most = top.users[0].used if top.users else 1
    labels = labels_of(project, [row.user_id for row in top.users])
    return {
        "users": [
            {
                "link": formatting.link("ratelimits_usagetracking", row.pk, labels.get(row.user_id, row.user_id)),
                "used": f"{row.used:,} of {amount(row.quota, unit)}",
                "marks": usage_marks(row, unit),
                "percent": round(100 * row.used / most, 1),
            }
            for row in top.users
        ],
        "count": f"{top.count:,}",
        "used": amount(top.used, unit),
        "partial": top.partial,
        "most_read": f"{MAX_USERS_READ:,}",
    }
