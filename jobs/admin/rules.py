"""Retry policies and aging rules: edited with their effect in sight, and audited."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.http import HttpRequest

from jobs.aging import effective_priority
from jobs.backoff import Policy, ceiling
from jobs.models import AgingRule, RetryPolicy
from jobs.services.explain.position import aging_rules
from jobs.services.submit.spec import MAX_DELAY_SECONDS
from jobs.states import Priority
from queueops.audit.audited import AuditedMixin
from queueops.screens.admin import PageAdmin
from queueops.screens.formatting import duration

AGES_MINUTES = (0, 15, 30, 60, 120, 240, 480, 1440, 4320)
MAX_DELAYS = 10
# Bounds of a retry policy. A longer delay would end after the last time that can be stored, and no job could be put
# back.
LARGEST = {"multiplier": 1000, "max_delay_seconds": MAX_DELAY_SECONDS, "window_seconds": MAX_DELAY_SECONDS}


class RetryPolicyForm(forms.ModelForm):  # type: ignore[type-arg]
    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        for name, limit in LARGEST.items():
            if (value := given.get(name)) is not None and not value <= limit:
                self.add_error(name, f"At most {limit:,}.")
        first, longest = given.get("initial_seconds"), given.get("max_delay_seconds")
        if first is not None and longest is not None and longest < first:
            raise ValidationError({"max_delay_seconds": "The longest delay cannot be shorter than the first."})
        return given


@admin.register(RetryPolicy)
class RetryPolicyAdmin(AuditedMixin, PageAdmin):
    form = RetryPolicyForm
    list_display = (
        "name",
        "initial_seconds",
        "multiplier",
        "max_delay_seconds",
        "max_retries",
        "jitter",
        "window_seconds",
    )
    change_form_outer_after_template = "admin/jobs/retrypolicy/delays.html"
    fixed_fields = ("name",)  # its key: another name would be another policy
    is_deletable = False  # jobs may name the policy; a search for such jobs would read the whole table
    fieldsets = (
        (None, {"fields": ("name",)}),
        (
            "Delays",
            {
                "fields": ("initial_seconds", "multiplier", "max_delay_seconds", "jitter"),
                "description": "Retry n waits at most min(longest delay, first delay * multiplier^n). A longer"
                " Retry-After of the provider wins. A change counts from the next failure on.",
            },
        ),
        ("Limits", {"fields": ("max_retries", "window_seconds"), "description": "Whichever is reached first."}),
    )

    def shown_of(self, request: HttpRequest, row: RetryPolicy) -> dict[str, Any]:
        return {"delays": _delays(row)}


class AgingRuleForm(forms.ModelForm):  # type: ignore[type-arg]
    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        faults: dict[str, str] = {}
        base, cap, first = given.get("base"), given.get("cap"), given.get("first_score")
        if base is not None and cap is not None and cap < base:
            faults["cap"] = "The cap cannot be below the base."
        if base is not None and cap is not None and first is not None and not base <= first <= cap:
            faults["first_score"] = "Between the base and the cap."
        if (given.get("first_after_seconds") is None) != (first is None):
            faults.setdefault("first_score", "Give both the first threshold and its score, or neither.")
        if given.get("step_seconds") is not None and first is None:
            faults["step_seconds"] = "Steps begin after the first threshold; give that first."
        if (given.get("promote_after_seconds") is None) != (not given.get("promote_to")):
            faults["promote_to"] = "Give both when and to which tier, or neither."
        if given.get("promote_to") == self.instance.tier:
            faults["promote_to"] = "That is the tier itself."
        if faults:
            raise ValidationError(faults)
        self._check_order(base)
        return given

    def _check_order(self, base: int | None) -> None:
        """
        Check that bases are in the order of the classes: if urgent were not the highest, others would be claimed first.
        """
        bases = dict(AgingRule.objects.values_list("tier", "base"))
        bases[self.instance.tier] = base if base is not None else 0
        ordered = [bases.get(tier) for tier in (Priority.URGENT, Priority.NORMAL, Priority.LOW)]
        known = [one for one in ordered if one is not None]
        if known != sorted(set(known), reverse=True):
            raise ValidationError({"base": "The bases must fall from urgent over normal to low."})


@admin.register(AgingRule)
class AgingRuleAdmin(AuditedMixin, PageAdmin):
    form = AgingRuleForm
    list_display = (
        "tier",
        "base",
        "first_after_seconds",
        "first_score",
        "step_seconds",
        "cap",
        "promote_after_seconds",
        "promote_to",
    )
    readonly_fields = ("tier",)
    is_deletable = False
    list_after_template = "admin/jobs/agingrule/scores.html"
    change_form_outer_after_template = "admin/jobs/agingrule/scores.html"
    fieldsets = (
        (None, {"fields": ("tier", "base", "cap")}),
        (
            "Growth with waiting",
            {
                "fields": ("first_after_seconds", "first_score", "step_seconds"),
                "description": "A job that has waited this long gets the first score, then one point more with each"
                " step. The highest score is claimed first; a change counts from the next claim on.",
            },
        ),
        (
            "Promotion",
            {
                "fields": ("promote_after_seconds", "promote_to"),
                "description": "From then on it counts as a job of the other tier that began to wait at that moment.",
            },
        ),
    )

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # the three tiers are all there are

    def shown_above(self, request: HttpRequest) -> dict[str, Any]:
        return _scores()

    def shown_of(self, request: HttpRequest, row: AgingRule) -> dict[str, Any]:
        return _scores()


def _delays(policy: RetryPolicy) -> list[tuple[int, str]]:
    rule = Policy(
        initial=policy.initial_seconds,
        multiplier=policy.multiplier,
        max_delay=policy.max_delay_seconds,
        max_retries=policy.max_retries,
        jitter=policy.jitter,  # type: ignore[arg-type]
        window=policy.window_seconds,
    )
    return [(done + 1, duration(ceiling(rule, done))) for done in range(min(policy.max_retries, MAX_DELAYS))]


def _scores() -> dict[str, Any]:
    """Each tier's score after some ages, by the saved rules."""
    rules = aging_rules()
    tiers = [tier for tier in Priority if tier in rules]
    rows = [
        {
            "age": duration(minutes * 60) if minutes else "new",
            "scores": [effective_priority(tier, minutes * 60, rules) for tier in tiers],
        }
        for minutes in AGES_MINUTES
    ]
    return {"score_tiers": tiers, "score_rows": rows}
