"""Prices, spend and budgets as a limits manager uses them."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from ratelimits.costs import Usage
from ratelimits.models import Budget, Price, Spend
from ratelimits.money import budgets, prices
from ratelimits.money.spend import MadeCall, Payer, record_calls
from tests.browser.conftest import PHONE
from tests.factories import make_project

pytestmark = pytest.mark.django_db(transaction=True)


def picture(page: Page, name: str) -> None:
    if folder := os.environ.get("PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def spend_something() -> None:
    now = timezone.now()
    for place in range(40):
        model = "small-1" if place % 3 else "without-a-price"
        at = (now - timedelta(days=place % 12, seconds=place)).timestamp()
        usage = Usage(9_000 + 300 * place, 2_000, 700)
        record_calls([MadeCall(uuid4(), 1, Payer("acme", None, None), "openai", model, at, usage)])


def test_a_call_without_a_price_says_so_once_also_on_a_phone(page: Page):
    make_project("acme")
    prices.forget()
    spend_something()
    page.set_viewport_size(PHONE)
    page.goto("/admin/ratelimits/spend/")
    expect(page.locator("#result_list").get_by_text("no price")).to_have_count(Spend.objects.filter(money=None).count())
    label = "getComputedStyle(document.querySelector('#result_list .data-row > *'), '::before').content"
    assert page.evaluate(label) == "none", "the first column is the card's title, and no box to select it by"


def test_a_price_is_added_spend_is_looked_at_and_a_budget_is_made(page: Page):
    make_project("acme")
    prices.forget()
    page.goto("/admin/ratelimits/price/")
    expect(page.get_by_text("No prices yet.")).to_be_visible()
    page.goto("/admin/ratelimits/price/add/")
    page.get_by_label("Provider").fill("openai")
    page.get_by_label("Model", exact=False).first.fill("small-1")
    page.locator("[name=unit]").select_option("input_tokens")
    page.locator("[name=a_million]").fill("0.15")
    picture(page, "price-form")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("was added successfully")).to_be_visible()
    assert Price.objects.get().amount == 150_000
    since = timezone.now() - timedelta(days=90)
    Price.objects.update(valid_from=since)
    Price.objects.create(provider="openai", model="small-1", unit="output_tokens", amount=600_000, valid_from=since)
    prices.forget()
    spend_something()
    page.goto("/admin/ratelimits/price/")
    picture(page, "prices")
    page.goto("/admin/ratelimits/spend/")
    expect(page.get_by_text("no price").first).to_be_visible()
    picture(page, "spend")
    page.get_by_role("link", name="By project, key, model and day").click()
    expect(page.get_by_role("heading", name="By model")).to_be_visible()
    picture(page, "spend-report")
    page.goto("/admin/ratelimits/budget/")
    expect(page.get_by_text("No budgets yet.")).to_be_visible()
    page.goto("/admin/ratelimits/budget/add/")
    page.locator("[name=project]").select_option("acme")
    page.locator("[name=name]").fill("pilot")
    page.locator("[name=money]").fill("12.50")
    expect(page.get_by_text("How it stands")).to_have_count(0)
    page.locator("[name=reason]").fill("agreed for the pilot")
    picture(page, "budget-form")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("was added successfully")).to_be_visible()
    budget = Budget.objects.get()
    assert (budget.amount, budget.policy) == (12_500_000, "wait")
    budgets.forget()
    page.goto("/admin/ratelimits/budget/")
    picture(page, "budgets")
    page.goto(f"/admin/ratelimits/budget/{budget.pk}/change/")
    expect(page.get_by_text("of 12.50 USD").first).to_be_visible()
    picture(page, "budget")
    page.get_by_role("link", name="Delete").first.click()
    page.get_by_label("Reason").fill("the pilot is over")
    page.get_by_role("button", name="Yes, delete").click()
    expect(page.get_by_text("1 deleted")).to_be_visible()
    assert not Budget.objects.exists()


def test_the_calendar_of_a_date_can_be_seen_in_the_dark(page: Page):
    page.emulate_media(color_scheme="dark")
    page.goto("/admin/ratelimits/spend/report/")
    expect(page.locator("[name=from]")).to_have_css("color-scheme", "dark")  # otherwise it is black on black
