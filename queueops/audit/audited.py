"""Writes each change that a person makes in a form to the audit trail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.forms.models import model_to_dict
from django.http import HttpRequest

from queueops.audit import trail
from queueops.screens.admin import RefusableAdmin
from queueops.screens.attribute import TypedAttribute
from queueops.screens.verbs import actor_of

# A form's row before the change. The entry is written later, once the rows saved along with it are saved.
audited_before = TypedAttribute[Mapping[str, Any] | None]("audited_before")


class AuditedMixin(RefusableAdmin):
    """
    Saves a row and its audit entry in one transaction, which the admin begins. The trail may refuse the change: nobody
    changes a project that lives elsewhere.
    """

    opts: Any

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        before = type(obj).objects.filter(pk=obj.pk).first() if change else None
        super().save_model(request, obj, form, change)
        trail.record(
            actor=actor_of(request),
            action=f"{'change' if change else 'add'}_{self.opts.model_name}",
            target=f"{self.opts.verbose_name} {obj.pk}",
            before=self.audited(before) if before else None,
            after=self.audited(obj),
            project_id=self.project_of(obj),
        )

    def project_of(self, obj: Any) -> str:
        """Return the project that a change of the row belongs to; empty: none, or several."""
        return getattr(obj, "project_id", "") or ""

    def audited(self, obj: Any) -> Mapping[str, Any]:
        """Return what the audit trail keeps of a row; it holds no secret."""
        return model_to_dict(obj)
