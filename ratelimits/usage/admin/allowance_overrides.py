"""Quotas of single users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from queueops.screens import formatting
from queueops.screens.admin import ServiceFormAdmin
from queueops.screens.filters import ProjectFilter
from queueops.screens.forms import ReasonForm
from queueops.screens.one_page import NewestPage
from queueops.screens.paging import IdSearchMixin
from queueops.screens.verbs import Verb, VerbOutcome, actor_of, on_one, on_selected
from queueops.tenancy.models import Project
from ratelimits.models import AllowanceOverride
from ratelimits.usage import allowances

from .allowance_form import UserQuotaForm
from .parts import amount, narrowed, tell_units
from .verbs import REMOVE_QUOTA


def _remove(ids: Sequence[int], *, actor: str, reason: str) -> VerbOutcome:
    rows = list(AllowanceOverride.objects.filter(pk__in=ids).order_by("pk"))
    removed = sum(allowances.remove_override(row.project_id, row.user_id, actor=actor, reason=reason) for row in rows)
    return VerbOutcome(removed, len(ids) - removed, goes_to=narrowed("ratelimits_allowanceoverride"))


REMOVE = Verb(
    name="remove",
    permission=REMOVE_QUOTA.permission,
    label="Remove",
    done="removed",
    explains="These users have everybody's quota again, also in the current month.",
    icon="delete",
    carry_out=_remove,
    form=ReasonForm,
    overrides=True,
)


@admin.register(AllowanceOverride)
class AllowanceOverrideAdmin(IdSearchMixin, ServiceFormAdmin):
    form = UserQuotaForm
    list_display = ("user", "of_project", "quota_shown", "note_shown", "months")
    sortable_by = ()
    list_display_links = ("user",)
    list_filter = (ProjectFilter,)
    list_filter_submit = True
    search_fields = ("pk",)
    search_help_text = "A user's id, in full"
    fields = ("project", "user_id", "quota", "note", "reason")
    fixed_fields = ("project", "user_id")
    is_deletable = False  # only the verb deletes: it also resets the months' quota
    empty_title = "Every user has the quota of the project's allowance."
    empty_hint = "A quota for one user is set here, or on the page of the user's month."
    actions = ("remove_selected",)
    actions_detail = ("remove",)

    remove_selected, remove = on_selected(REMOVE), on_one(REMOVE)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[NewestPage]:
        return NewestPage

    def prepare_rows(self, rows: list[AllowanceOverride]) -> None:
        tell_units(rows)

    def with_id(self, rows: QuerySet[AllowanceOverride], identifier: UUID) -> QuerySet[AllowanceOverride]:
        return rows.filter(project_id__in=Project.objects.values("pk"), user_id=identifier)

    def save_model(self, request: HttpRequest, obj: AllowanceOverride, form: UserQuotaForm, change: bool) -> None:  # noqa: FBT001 - Django's signature
        allowances.set_override(
            obj.project_id,
            obj.user_id,
            quota=obj.quota,
            note=obj.note,
            actor=actor_of(request),
            reason=form.cleaned_data.get("reason", ""),
        )
        obj.pk = AllowanceOverride.objects.get(project_id=obj.project_id, user_id=obj.user_id).pk

    @admin.display(description="user")
    def user(self, override: AllowanceOverride) -> SafeString:
        return format_html('<code class="qo-id">{}</code>', override.user_id)

    @admin.display(description="a month")
    def quota_shown(self, override: AllowanceOverride) -> str:
        return amount(override.quota, override.unit)

    @admin.display(description="note")
    def note_shown(self, override: AllowanceOverride) -> str:
        return override.note[:120] or formatting.NOTHING

    @admin.display(description="usage")
    def months(self, override: AllowanceOverride) -> SafeString:
        href = narrowed("ratelimits_usagetracking", q=override.user_id)
        return format_html('<a class="qo-link" href="{}">months</a>', href)
