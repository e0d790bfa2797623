"""Prices: what a million of each unit cost, from a time on."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminDecimalFieldWidget

from queueops.audit.audited import AuditedMixin
from queueops.screens import formatting
from queueops.screens.columns import column, time_column
from queueops.screens.filters import Choice
from ratelimits.models import Price, Via
from ratelimits.money import prices
from ratelimits.money.amounts import MICRO, MONEY_PLACES, shown
from ratelimits.money.models import MAX_MONEY
from ratelimits.money.spend import resolve_priced


class PriceForm(forms.ModelForm):  # type: ignore[type-arg]
    a_million = forms.DecimalField(
        min_value=0,
        max_value=Decimal(MAX_MONEY) / MICRO,
        decimal_places=MONEY_PLACES,
        widget=UnfoldAdminDecimalFieldWidget,
        label="For a million",
    )

    class Meta:
        model = Price
        fields = ("provider", "model", "unit", "via", "above_tokens", "most_tokens", "valid_from")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "a_million" in self.fields:
            self.fields["a_million"].help_text = f"In {settings.QUEUEOPS.currency}; 0: it is free."
            if self.instance.pk:
                self.fields["a_million"].initial = Decimal(self.instance.amount) / MICRO
        if "valid_from" in self.fields:
            self.fields["valid_from"].required = False
            empty = f"Empty: from now on. In {settings.TIME_ZONE}."
            self.fields["valid_from"].help_text = f"Calls from then on cost this. {empty}"

    def clean_valid_from(self) -> Any:
        given = self.cleaned_data.get("valid_from")
        return given or self.instance.valid_from or prices.now()

    def save(self, commit: bool = True) -> Any:  # noqa: FBT001, FBT002 - Django's signature
        self.instance.amount = int(self.cleaned_data["a_million"] * MICRO)
        return super().save(commit)


class ProviderFilter(Choice):
    title = "provider"
    parameter_name = "provider"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        known = Price.objects.order_by("provider").values_list("provider", flat=True).distinct()
        return [(name, name) for name in known[:200]]


class ViaFilter(Choice):
    title = "way"
    parameter_name = "via"
    choices_offered = Via.choices


@admin.register(Price)
class PriceAdmin(AuditedMixin):
    form = PriceForm
    list_display = ("of_model", "of_provider", "unit_shown", "beyond", "a_million", "way", "since", "origin")
    list_display_links = ("of_model",)
    sortable_by = ()
    list_filter = (ProviderFilter, ViaFilter)
    list_filter_submit = True
    search_fields = ("model",)
    search_help_text = "A part of a model's name"
    fixed_fields = ("amount_shown",)
    is_deletable = False  # a later price replaces it from its own time on
    empty_title = "No prices yet."
    empty_hint = "manage.py load_prices takes LiteLLM's price map. Without a price nobody is told what calls cost."
    fields = ("provider", "model", "unit", "via", "above_tokens", "a_million", "most_tokens", "valid_from")

    def has_change_permission(self, request: HttpRequest, obj: Price | None = None) -> bool:
        return False  # the prices by which calls were priced must stay visible

    def get_fields(self, request: HttpRequest, obj: Price | None = None) -> tuple[str, ...]:
        return tuple("amount_shown" if obj and name == "a_million" else name for name in self.fields)

    def save_model(self, request: HttpRequest, obj: Price, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        super().save_model(request, obj, form, change)
        prices.forget()
        resolve_priced()

    of_model = column("model", lambda price: price.model)
    of_provider = column("provider", lambda price: price.provider)

    @admin.display(description="unit")
    def unit_shown(self, price: Price) -> str:
        return price.get_unit_display()

    @admin.display(description="input beyond")
    def beyond(self, price: Price) -> str:
        return f"{price.above_tokens:,}" if price.above_tokens else formatting.NOTHING

    @admin.display(description="for a million")
    def a_million(self, price: Price) -> SafeString:
        return format_html('<span class="qo-number">{}</span>', shown(price.amount, settings.QUEUEOPS.currency))

    @admin.display(description="for a million")
    def amount_shown(self, price: Price) -> SafeString:
        return self.a_million(price)

    @admin.display(description="way")
    def way(self, price: Price) -> str:
        return price.get_via_display()

    since = time_column("from", "valid_from")

    @admin.display(description="set")
    def origin(self, price: Price) -> str:
        return "by hand" if price.by_hand else "by a price map"
