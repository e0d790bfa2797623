"""Writes each change that a person makes in a form to the audit trail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
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
    Saves or deletes a row and writes its audit entry in one transaction, which the admin begins. The trail may refuse
    the change: nobody changes a project that lives elsewhere.
    """

    opts: Any
    audited_as = ""  # the row's name in an action, such as `change_alertroute`; empty: the model's

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> Any:  # noqa: FBT001 - Django's signature
        before = type(form.instance).objects.filter(pk=form.instance.pk).first() if change else None
        audited_before.set(request, self.audited(before) if before else None)
        return super().save_form(request, form, change)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:  # noqa: FBT001
        super().save_related(request, form, formsets, change)
        row = form.instance
        after = {**self.audited(row), **self.audited_of_form(form)}
        self.record(request, row, "change" if change else "add", before=audited_before.of(request), after=after)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        self.record(request, obj, "delete", before=self.audited(obj), after=None)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for row in queryset:
            self.delete_model(request, row)

    def record(
        self,
        request: HttpRequest,
        row: Any,
        verb: str,
        *,
        before: Mapping[str, Any] | None,
        after: Mapping[str, Any] | None,
    ) -> None:
        trail.record(
            actor=actor_of(request),
            action=f"{verb}_{self.audited_as or self.opts.model_name}",
            target=self.audit_targets(row)[0],
            project_id=self.project_of(row),
            before=before,
            after=after,
        )

    def project_of(self, obj: Any) -> str:
        """Return the project that a change of the row belongs to; empty: none, or several."""
        return getattr(obj, "project_id", "") or ""

    def audited(self, obj: Any) -> Mapping[str, Any]:
        """Return what the audit trail keeps of a row; it holds no secret."""
        return model_to_dict(obj)

    def audited_of_form(self, form: Any) -> Mapping[str, Any]:
        """Return what the trail keeps of a change besides the row's values."""
        return {}
