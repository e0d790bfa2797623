"""The admin screen of objectives: the share of some jobs that is to start, end or succeed, and the share that did."""

from __future__ import annotations

from functools import partial
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminTextareaWidget

from jobs.features.objectives.change import FIGURES, delete_objective, save_objective
from jobs.features.objectives.objectives import AN_HOUR, ObjectiveStanding, span_words, standings_of, words_of
from jobs.models import Objective
from queueops.screens import formatting
from queueops.screens.admin import ServiceFormAdmin
from queueops.screens.attribute import TypedAttribute
from queueops.screens.columns import column
from queueops.screens.filters import ProjectFilter
from queueops.screens.forms import SuggestingWidget, optional_reason
from queueops.screens.verbs import actor_of
from ratelimits.limits.known_names import KnownName, suggested, unheard_of

FULL_PERCENT = 100
_now = TypedAttribute[ObjectiveStanding]("now")


class ObjectiveForm(forms.ModelForm):  # type: ignore[type-arg]
    reason = optional_reason()

    class Meta:
        model = Objective
        fields = FIGURES
        widgets = {
            "note": UnfoldAdminTextareaWidget(attrs={"rows": 2}),
            **{name.value: SuggestingWidget(partial(suggested, name)) for name in (KnownName.KIND, KnownName.SERVICE)},
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            self.initial["percent"] = float(self.instance.percent)  # not 95.000

    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        if given.get("aim") == Objective.Aim.SUCCEED:
            given["within_seconds"] = None
        elif not given.get("within_seconds") and "within_seconds" not in self.errors:
            self.add_error("within_seconds", "Say within how many seconds.")
        return given


@admin.register(Objective)
class ObjectiveAdmin(ServiceFormAdmin):
    form = ObjectiveForm
    list_display = ("name", "wanted", "attained", "left", "pace", "stands")
    list_display_links = ("name",)
    sortable_by = ()
    list_filter = (ProjectFilter,)
    list_filter_submit = True
    search_fields = ("name", "kind")
    search_help_text = "A part of its name or kind"
    actions = None
    empty_title = "There are no objectives."
    empty_hint = "With one, such as 95 % of a kind's jobs start within 5 min, you are told before it is missed."
    change_form_outer_before_template = "admin/jobs/objective/standing.html"
    fieldsets = (
        (None, {"fields": ("name",)}),
        (
            "What is wanted",
            {
                "fields": ("percent", "aim", "within_seconds"),
                "description": "Such as 95 percent of jobs start within 300 seconds.",
            },
        ),
        (
            "Of which jobs",
            {
                "fields": ("project", "kind", "service"),
                "description": "Those that fit all that is filled in. Where this or the time is changed, the objective "
                "is counted anew.",
            },
        ),
        ("Over how long", {"fields": ("window_days", "note")}),
        ("Why", {"fields": ("reason",)}),
    )

    def prepare_rows(self, rows: list[Objective]) -> None:
        standings = standings_of(rows)
        for row in rows:
            _now.set(row, standings[row.pk])

    def shown_of(self, request: HttpRequest, row: Objective) -> dict[str, Any]:
        now = _standing(row)
        return {
            "subtitle": words_of(row),
            "counts_from": row.counts_from,
            "windows": [
                (f"{row.window_days} d", now.whole, _share(now.whole.share), _burn(_whole_burn(now))),
                *(
                    (span_words(seconds), lately, _share(lately.share), _burn(now.burn(seconds)))
                    for seconds, lately in sorted(now.recent.items(), reverse=True)
                ),
            ],
            "badge": self.stands(row),
            "left": self.left(row),
        }

    def save_model(self, request: HttpRequest, obj: Objective, form: ObjectiveForm, change: bool) -> None:  # noqa: FBT001 - Django's signature
        figures = {name: form.cleaned_data[name] for name in FIGURES}
        told = {"actor": actor_of(request), "reason": form.cleaned_data.get("reason", "")}
        obj.pk = save_objective(obj.pk if change else None, figures, **told).pk
        for name in (KnownName.KIND, KnownName.SERVICE):
            for unheard in unheard_of(name, figures[name]) if name in form.changed_data else ():
                messages.warning(request, f"{unheard} The objective counts nothing until then.")

    def delete_model(self, request: HttpRequest, obj: Objective) -> None:
        delete_objective(obj.pk, actor=actor_of(request))

    wanted = column("wanted", words_of)

    @admin.display(description="attained")
    def attained(self, row: Objective) -> SafeString | str:
        now = _standing(row)
        if now.whole.share is None:
            return formatting.NOTHING
        # Return a single element: a phone's list sets several elements side by side, which would split the figure.
        return format_html(
            '<span>{} <span class="qo-muted">of {} jobs in {} d</span></span>',
            _share(now.whole.share),
            f"{now.whole.due:,}",
            row.window_days,
        )

    @admin.display(description="budget left")
    def left(self, row: Objective) -> SafeString | str:
        left = _standing(row).budget_left
        if left is None:
            return formatting.NOTHING
        return formatting.bar(max(0, FULL_PERCENT * left), f"{FULL_PERCENT * left:,.0f} %")

    @admin.display(description="burn in 1 h")
    def pace(self, row: Objective) -> str:
        now = _standing(row)
        return _burn(now.burn(AN_HOUR)) if now.recent[AN_HOUR].due else formatting.NOTHING

    @admin.display(description="is")
    def stands(self, row: Objective) -> SafeString:
        now = _standing(row)
        if row.counts_from is None:
            return formatting.badge("grey", "hourglass_empty", "about to be counted")
        if now.whole.share is None:
            return formatting.badge("grey", "hourglass_empty", "without jobs")
        if now.is_broken:
            return formatting.badge("red", "error", "broken")
        if now.burn(AN_HOUR) > 1:
            return formatting.badge("amber", "local_fire_department", "burning")
        return formatting.badge("green", "check_circle", "kept")


def _standing(row: Objective) -> ObjectiveStanding:
    if (found := _now.find(row)) is None:
        _now.set(row, found := standings_of([row])[row.pk])
    return found


def _whole_burn(now: ObjectiveStanding) -> float:
    return 0.0 if now.budget_left is None else 1 - now.budget_left


def _share(share: float | None) -> str:
    return formatting.NOTHING if share is None else f"{FULL_PERCENT * share:.3f}".rstrip("0").rstrip(".") + " %"


def _burn(rate: float) -> str:
    return f"{rate:,.1f} times"
