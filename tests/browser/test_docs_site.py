"""The site of docs/ as an installation shows it: under the strict policy of our pages, with its search."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.test import Client, override_settings
from mkdocs.commands.build import build
from mkdocs.config import load_config
from playwright.sync_api import Browser, expect

from queueops.core.web.security_headers import policy_of
from tests.browser.conftest import PHONE, WIDE
from tests.support.processes import ROOT


class _Answer(SimpleHTTPRequestHandler):
    """Files, with the policy that they have in an installation."""

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", policy_of(self.path))
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    found: Path = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(found / "docs")))
    return found


@pytest.fixture
def address(root: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Answer, directory=str(root))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_an_installation_serves_the_site_with_its_policy(root: Path):
    with override_settings(WHITENOISE_ROOT=root, WHITENOISE_INDEX_FILE=True):
        answer = Client().get("/docs/")
    assert b"QueueOps" in b"".join(answer)
    assert answer.headers["Content-Security-Policy"] == policy_of("/docs/")


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_the_site_is_shown_and_searched_under_the_strict_policy(address: str, chromium: Browser, viewport):
    page = chromium.new_page(viewport=viewport)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.goto(f"{address}/docs/")
    expect(page.get_by_role("heading", name="Documentation")).to_be_visible()
    if viewport is PHONE:
        page.locator("label[for=__search]").first.click()
    # Key by key, as a person: the search listens to keys, and a value set at once is read only if the focus comes late.
    page.get_by_role("textbox", name="Search").press_sequentially("dead letters")
    expect(page.locator(".md-search-result__item").first).to_be_visible()
    page.locator(".md-search-result__item a").first.click()
    expect(page.locator("article h1")).to_be_visible()
    assert said == []
    page.close()
