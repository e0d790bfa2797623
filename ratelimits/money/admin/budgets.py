"""Budgets: what may be spent, and what happens beyond."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminDecimalFieldWidget, UnfoldAdminSelectWidget, UnfoldAdminTextareaWidget

from queueops.screens import formatting
from queueops.screens.admin import ServiceFormAdmin
from queueops.screens.attribute import TypedAttribute
from queueops.screens.columns import column
from queueops.screens.filters import ProjectFilter
from queueops.screens.forms import ReasonForm, offer, optional_reason
from queueops.screens.verbs import Verb, VerbOutcome, actor_of, on_one
from queueops.tenancy.user_labels import in_words
from ratelimits.models import Budget
from ratelimits.money.amounts import MICRO, MONEY_PLACES, shown
from ratelimits.money.models import MAX_MONEY
from ratelimits.money.save_budget import FIGURES, change_budget, create_budget, delete_budget, scope_faults
from ratelimits.money.standings import BudgetStanding, standings_of
from ratelimits.usage.admin.allowance_form import zones
from ratelimits.usage.admin.parts import narrowed

FULL = 100  # percent
_now = TypedAttribute[BudgetStanding]("now")


def _delete(ids: Sequence[int], *, actor: str, reason: str) -> VerbOutcome:
    for pk in ids:
        delete_budget(pk, actor=actor, reason=reason)
    return VerbOutcome(len(ids), goes_to=narrowed("ratelimits_budget"))


DELETE = Verb(
    name="delete",
    permission="ratelimits.delete_budget",
    label="Delete",
    done="deleted",
    explains="Jobs that wait for it go on, and nothing stops at it any more. What was spent stays in the ledger.",
    icon="delete",
    carry_out=_delete,
    form=ReasonForm,
    overrides=True,
)


class BudgetForm(forms.ModelForm):  # type: ignore[type-arg]
    money = forms.DecimalField(
        min_value=0,
        max_value=Decimal(MAX_MONEY) / MICRO,
        decimal_places=MONEY_PLACES,
        widget=UnfoldAdminDecimalFieldWidget,
        label="Amount",
    )
    time_zone = forms.ChoiceField(widget=UnfoldAdminSelectWidget, help_text="Where a day or month begins at midnight.")
    reason = optional_reason()

    class Meta:
        model = Budget
        fields = ("project", "name", "scope", "user_id", "batch_id", "period", "time_zone", "policy", "note")
        widgets = {"note": UnfoldAdminTextareaWidget(attrs={"rows": 2})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "money" in self.fields:
            self.fields["money"].help_text = f"In {settings.QUEUEOPS.currency}, for each period."
            if self.instance.pk:
                self.fields["money"].initial = Decimal(self.instance.amount) / MICRO
        if "time_zone" in self.fields:
            offer(self, "time_zone", zones())
            self.fields["time_zone"].initial = self.instance.time_zone

    def clean(self) -> dict[str, Any] | None:
        given = super().clean() or self.cleaned_data
        if {"project", "scope", "user_id", "batch_id"} <= given.keys():  # a stored budget's form lacks these
            whose = {name: given[name] for name in ("user_id", "batch_id")}
            for name, told in scope_faults(given["scope"], project_id=given["project"].pk, **whose).items():
                self.add_error(name, told)
        return given

    def figures(self) -> dict[str, Any]:
        """The form's figures, as the service takes them."""
        given = {name: self.cleaned_data[name] for name in FIGURES if name in self.cleaned_data}
        return {**given, "amount": int(self.cleaned_data["money"] * MICRO)}


@admin.register(Budget)
class BudgetAdmin(ServiceFormAdmin):
    form = BudgetForm
    list_display = ("budget", "of_project", "whose", "spent", "left", "at_the_end", "set_by")
    list_display_links = ("budget",)
    sortable_by = ()
    list_filter = (ProjectFilter,)
    list_filter_submit = True
    search_fields = ("name",)
    search_help_text = "A part of its name"
    fixed_fields = ("project", "scope", "user_id", "batch_id", "period", "time_zone", "spent", "left")
    is_deletable = False  # only the verb deletes: it also releases what calls hold
    empty_title = "No budgets yet."
    empty_hint = "With one, jobs whose calls cost more than what is left of it wait or fail before they are sent."
    actions_detail = ("delete",)
    fieldsets = (
        ("Whose money", {"fields": ("project", "name", "scope", "user_id", "batch_id")}),
        ("How much", {"fields": ("money", "period", "time_zone", "policy", "note")}),
        ("Why", {"fields": ("reason",)}),
    )

    class Media:
        css = {"all": ("dashboards/limits.css",)}

    delete = on_one(DELETE)

    def prepare_rows(self, rows: list[Budget]) -> None:
        standings = standings_of(rows)
        for row in rows:
            _now.set(row, standings[row.pk])

    def get_fieldsets(self, request: HttpRequest, obj: Budget | None = None) -> Sequence[Any]:
        if self.may_save(request, obj):
            return (*((("How it stands", {"fields": ("spent", "left")}),) if obj else ()), *self.fieldsets)
        return (self.fieldsets[0], ("How much", {"fields": ("amount_shown", "period", "time_zone", "policy", "note")}))

    def shown_of(self, request: HttpRequest, row: Budget) -> dict[str, Any]:
        return {"subtitle": f"{row.project_id}: {_in_words(_standing(row))}"}

    def save_model(self, request: HttpRequest, obj: Budget, form: BudgetForm, change: bool) -> None:  # noqa: FBT001 - Django's signature
        told = {"actor": actor_of(request), "reason": form.cleaned_data.get("reason", "")}
        if change:
            change_budget(obj.pk, form.figures(), **told)
        else:
            obj.pk = create_budget(obj.project_id, form.figures(), **told).id

    budget = column("budget", lambda row: row.name)

    @admin.display(description="for")
    def whose(self, row: Budget) -> SafeString:
        who = row.user_id or row.batch_id
        called = in_words([str(row.user_id)], project_id=row.project_id)[str(row.user_id)] if row.user_id else ""
        label = called if called != str(row.user_id) else ""
        more = format_html(" {}", label or formatting.short_id(who)) if who else ""
        return format_html("<span>{}{}, {}</span>", row.get_scope_display(), more, row.get_period_display())

    @admin.display(description="spent")
    def spent(self, row: Budget) -> SafeString:
        now = _standing(row)
        who = in_words([now.key], project_id=row.project_id)[now.key]
        whose = format_html(' <span class="qo-muted">by {}</span>', who) if who else ""
        return format_html("{}{}", formatting.bar(min(FULL, now.percent), _in_words(now)), whose)

    @admin.display(description="left")
    def left(self, row: Budget) -> SafeString:
        now = _standing(row)
        words = shown(now.left, settings.QUEUEOPS.currency)
        currency = settings.QUEUEOPS.currency
        held = f"{shown(now.held, currency)} held by calls under way" if now.held else ""
        unknown = f"{shown(now.unknown, currency)} of what is spent at most: it is not known" if now.unknown else ""
        return format_html('{} <span class="qo-muted">{}</span>', words, "; ".join(filter(None, (held, unknown))))

    @admin.display(description="beyond it")
    def at_the_end(self, row: Budget) -> SafeString:
        if row.policy == Budget.Policy.REJECT:
            return formatting.badge("red", "block", "jobs fail")
        return formatting.badge("amber", "hourglass_top", "jobs wait")

    @admin.display(description="set by")
    def set_by(self, row: Budget) -> str:
        return "an operator" if row.set_by_operator else "a key"

    @admin.display(description="amount")
    def amount_shown(self, row: Budget) -> str:
        return shown(row.amount, settings.QUEUEOPS.currency)


def _standing(row: Budget) -> BudgetStanding:
    """How a budget stands. A budget of each user has the standing of the user who has spent the most."""
    if (found := _now.find(row)) is None:
        _now.set(row, found := standings_of([row])[row.pk])
    return found


def _in_words(now: BudgetStanding) -> str:
    currency = settings.QUEUEOPS.currency
    return f"{shown(now.spent, currency)} of {shown(now.budget.amount, currency)}, {now.percent} %"
