"""The audit trail: who changed what, when and why."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import CharField, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Cast, Concat
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from queueops.core.values.masking import masked, masked_text
from queueops.screens import formatting
from queueops.screens.admin import QueueAdmin
from queueops.screens.columns import time_column
from queueops.screens.paging import as_uuid
from queueops.screens.verbs import ReadOnlyMixin

from .models import AuditEntry

NEWEST_ENTRIES = 10_000  # entries that the list shows; a search for a target also finds older ones


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyMixin, QueueAdmin):
    list_display = ("when", "who", "action", "target", "of_project", "moved", "reason_shown", "address")
    sortable_by = ()
    search_fields = ("pk",)
    search_help_text = "Target in full, such as “job <id>”, or an id"
    fields = (
        "when",
        "who",
        "action",
        "target",
        "project_id",
        "moved",
        "reason_whole",
        "address",
        "before_shown",
        "after_shown",
    )
    readonly_fields = ("when", "who", "reason_whole", "before_shown", "after_shown")

    def get_queryset(self, request: HttpRequest) -> QuerySet[AuditEntry]:
        person = User.objects.annotate(actor=Concat(Value("user:"), Cast("pk", CharField())))
        username = person.filter(actor=OuterRef("actor")).values("username")[:1]
        return AuditEntry.objects.annotate(username=Subquery(username)).order_by("-id")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[AuditEntry], search_term: str
    ) -> tuple[QuerySet[AuditEntry], bool]:
        term = search_term.strip().replace("\0", "")
        if not term:
            newest = AuditEntry.objects.order_by("-id").values_list("pk", flat=True).first() or 0
            return queryset.filter(pk__gt=newest - NEWEST_ENTRIES), False
        nouns = ("job", "batch", "dead letter", "bulk operation")
        targets = [f"{noun} {term}" for noun in nouns] if as_uuid(term) else [term]
        return queryset.filter(target__in=targets), False

    when = time_column("when", "created_at")

    @admin.display(description="who")
    def who(self, entry: AuditEntry) -> str:
        name = getattr(entry, "username", None)
        return f"{name} ({entry.actor})" if name else entry.actor

    @admin.display(description="reason")
    def reason_shown(self, entry: AuditEntry) -> str:
        return masked_text(entry.reason)[:120] or formatting.NOTHING

    @admin.display(description="reason")
    def reason_whole(self, entry: AuditEntry) -> str:
        return masked_text(entry.reason) or formatting.NOTHING

    @admin.display(description="before")
    def before_shown(self, entry: AuditEntry) -> SafeString | str:
        return _json(entry.before)

    @admin.display(description="after")
    def after_shown(self, entry: AuditEntry) -> SafeString | str:
        return _json(entry.after)


def _json(value: Any) -> SafeString | str:
    if value is None:
        return formatting.NOTHING
    return format_html(
        '<pre class="qo-json">{}</pre>', json.dumps(masked(value), indent=2, ensure_ascii=False)[:20_000]
    )
