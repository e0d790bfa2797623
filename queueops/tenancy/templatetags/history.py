"""People's changes to the row that a page shows, from the audit trail."""

from __future__ import annotations

from typing import Any

from django import template
from django.urls import reverse

from queueops.audit.models import AuditEntry
from queueops.core.values.masking import masked
from queueops.screens import formatting
from queueops.tenancy.people import name_of

MAX_SHOWN = 20
MAX_FIELDS = 4
MAX_VALUE_LENGTH = 60

register = template.Library()


@register.inclusion_tag("admin/kit/history.html", takes_context=True)
def history(context: template.Context) -> dict[str, Any]:
    """Return the newest entries about the page's row; none for people who may not see the trail."""
    row, form = context.get("original"), context.get("adminform")
    request = context.get("request")
    if row is None or form is None or request is None or not request.user.has_perm("audit.view_auditentry"):
        return {"entries": []}
    targets = form.model_admin.audit_targets(row)
    entries = list(AuditEntry.objects.filter(target__in=targets).order_by("-pk")[: MAX_SHOWN + 1])
    return {
        "entries": [_shown(entry) for entry in entries[:MAX_SHOWN]],
        "more": len(entries) > MAX_SHOWN,
        "trail_href": reverse("admin:audit_auditentry_changelist"),
    }


def _shown(entry: AuditEntry) -> dict[str, object]:
    return {
        "when": formatting.ago(entry.created_at),
        "who": name_of(entry.actor),
        "what": entry.action.replace("_", " "),
        "changed": "; ".join(_changes(entry)),
        "reason": entry.reason,
        "href": reverse("admin:audit_auditentry_change", args=[entry.pk]),
    }


def _changes(entry: AuditEntry) -> list[str]:
    """Say `capacity: 60 → 30` for the first MAX_FIELDS fields that changed; `…` stands for the others."""
    before, after = (masked(side) if isinstance(side, dict) else {} for side in (entry.before, entry.after))
    changed = [name for name in after if name not in before or before[name] != after[name]]
    said = [
        f"{name}: {_text(before[name])} → {_text(after[name])}" if name in before else f"{name}: {_text(after[name])}"
        for name in changed[:MAX_FIELDS]
        if after[name] not in ("", None, [], {}) or before.get(name) not in ("", None, [], {})
    ]
    return [*said, "…"] if len(changed) > MAX_FIELDS else said


def _text(value: Any) -> str:
    text = "none" if value in ("", None) else str(value)
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[: MAX_VALUE_LENGTH - 1]}…"
