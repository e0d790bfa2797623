"""The site of docs/ as an installation shows it: under the strict policy of our pages, with its search."""

from __future__ import annotations

import pytest
from django.test import override_settings
from mkdocs.commands.build import build
from mkdocs.config import load_config
from playwright.sync_api import Browser, expect

from tests.browser.conftest import PHONE, WIDE
from tests.support.processes import ROOT

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture(scope="module")
def site_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(root / "docs")))
    with override_settings(WHITENOISE_ROOT=root, WHITENOISE_INDEX_FILE=True, SITE_ROOT=root):
        yield root


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_the_site_is_shown_and_searched_under_the_strict_policy(site_root, live_server, chromium: Browser, viewport):
    page = chromium.new_page(viewport=viewport)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.goto(f"{live_server.url}/docs/")
    expect(page.get_by_role("heading", name="Documentation")).to_be_visible()
    if viewport is PHONE:
        page.locator("label[for=__search]").first.click()
    page.get_by_role("textbox", name="Search").fill("dead letters")
    expect(page.locator(".md-search-result__item").first).to_be_visible()
    page.locator(".md-search-result__item a").first.click()
    expect(page.locator("article h1")).to_be_visible()
    assert said == []
    page.close()
