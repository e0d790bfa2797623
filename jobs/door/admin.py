"""The admin screen of model routes, which say where calls that come in by a door go."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest

from queueops.screens.admin import ServiceFormAdmin
from queueops.screens.columns import column
from queueops.screens.filters import ProjectFilter
from queueops.screens.forms import CheckedForm, SuggestingWidget, optional_reason
from queueops.screens.verbs import actor_of

from .models import ModelRoute
from .routes import FIGURES, check_route, credentials_known, delete_route, save_route


class ModelRouteForm(CheckedForm):
    reason = optional_reason()

    class Meta:
        model = ModelRoute
        fields = ("project", *FIGURES)
        widgets = {"credential": SuggestingWidget(credentials_known)}

    def check_row(self) -> None:
        check_route(self.instance)


@admin.register(ModelRoute)
class ModelRouteAdmin(ServiceFormAdmin):
    form = ModelRouteForm
    list_display = ("pattern", "of_project", "provider", "credential", "service_shown", "place")
    list_display_links = ("pattern",)
    sortable_by = ()
    list_filter = (ProjectFilter, "provider")
    list_filter_submit = True
    search_fields = ("pattern", "credential")
    search_help_text = "A part of a model's name or of a credential's"
    actions = None
    fixed_fields = ("project",)
    empty_title = "There are no model routes."
    empty_hint = "One lets clients of OpenAI or Anthropic call a model here: they change base_url and the key alone."
    fieldsets = (
        ("Which calls", {"fields": ("project", "pattern", "place")}),
        ("Where they go", {"fields": ("provider", "credential", "service")}),
        ("Why", {"fields": ("reason",)}),
    )

    def save_model(self, request: HttpRequest, obj: ModelRoute, form: ModelRouteForm, change: bool) -> None:  # noqa: FBT001 - Django's signature
        figures = {name: form.cleaned_data[name] for name in FIGURES}
        told = {"actor": actor_of(request), "reason": form.cleaned_data.get("reason", "")}
        obj.pk = save_route(obj.pk if change else None, figures, project_id=obj.project_id, **told).pk

    def delete_model(self, request: HttpRequest, obj: ModelRoute) -> None:
        delete_route(obj.pk, project_id=obj.project_id, actor=actor_of(request))

    service_shown = column("service", lambda row: row.service_name)
