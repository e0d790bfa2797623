"""A real Chromium against a live server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Condition
from typing import Any, Literal

import pytest
from django.contrib.auth.models import User
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished, request_started
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, Error, Page, ViewportSize, expect, sync_playwright

from tests.support.browser import find_chromium
from tests.support.busy_dashboard import busy, fresh_figures  # noqa: F401 - fixtures

SCREENSHOTS = Path(__file__).resolve().parents[2] / ".screenshots"
DRAWN = bool(os.environ.get("WRITE_SCREENSHOTS"))
Scheme = Literal["light", "dark"]
WIDE, PHONE = ViewportSize(width=1180, height=720), ViewportSize(width=390, height=780)
VARIANTS: tuple[tuple[str, Scheme, ViewportSize], ...] = (
    ("light", "light", WIDE),
    ("dark", "dark", WIDE),
    ("phone", "light", PHONE),
)
# Cells hide what is wider than they are, on a phone too, where a row is a card.
CUT_OFF = """() => [...document.querySelectorAll("#result_list .data-row > *")]
    .filter((cell) => cell.innerText && cell.scrollWidth > cell.clientWidth).map((cell) => cell.innerText)"""
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PASSWORD = "a password for the browser"

expect.set_options(timeout=30_000)  # ms: for a page that a busy machine is slow to draw; playwright gives it 5 s


class Answering:
    """Counts the requests that live servers are answering; the tests' own clients have another handler."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._requests = 0

    def begin(self, sender: type | None, **kwargs: Any) -> None:
        self._count(sender, 1)

    def end(self, sender: type | None, **kwargs: Any) -> None:
        self._count(sender, -1)

    def wait(self) -> None:
        """Wait until there is none."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._requests == 0, timeout=30)

    def _count(self, handler: type | None, change: int) -> None:
        if handler is not None and issubclass(handler, WSGIHandler):  # None: an answer to a test's own client
            with self._changed:
                self._requests += change
                self._changed.notify_all()


def sign_in(page: Page, username: str) -> None:
    """Fill in the sign-in form that the page shows, and send it off."""
    page.get_by_label("Username").fill(username)
    page.locator("[name=password]").fill(PASSWORD)
    page.locator("[name=password]").press("Enter")


def session_of(user: User, address: str) -> Any:
    """The cookie of somebody who is signed in."""
    client = Client()
    client.force_login(user)
    return {"name": "sessionid", "value": client.cookies["sessionid"].value, "url": address}


def reload(page: Page) -> None:
    """Load the page again, also one that does so by itself while its work is running: either load ends the other."""
    try:
        page.reload()
    except Error as error:
        if "ERR_ABORTED" not in str(error):
            raise
        page.wait_for_load_state()


@pytest.fixture(scope="package")  # not longer: as long as playwright runs, no test of this thread can run a loop
def chromium() -> Iterator[Browser]:
    # Playwright's loop runs in this thread, so Django would take the tests' own queries for asynchronous ones.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(QUIET))
        yield browser
        browser.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture(scope="session")
def answering() -> Iterator[Answering]:
    answering = Answering()
    request_started.connect(answering.begin)
    request_finished.connect(answering.end)
    yield answering
    request_started.disconnect(answering.begin)
    request_finished.disconnect(answering.end)


@pytest.fixture(autouse=True)
def _all_answered(answering: Answering, request: pytest.FixtureRequest) -> Iterator[None]:
    """Before the tables are emptied: a page that is closed leaves requests behind, and they lock what they read."""
    if "live_server" in request.fixturenames:
        request.getfixturevalue("transactional_db")
    yield
    answering.wait()


@pytest.fixture(scope="package")
def context(chromium: Browser, live_server: Any) -> Iterator[BrowserContext]:
    """What all pages share: to load the admin's files for each test takes longer than most tests."""
    context = chromium.new_context(base_url=live_server.url, viewport=WIDE)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, live_server: Any) -> Iterator[Page]:
    """
    The page of a superuser who is signed in.

    Afterwards the test fails if a script of a stored text ran, or one of ours broke.
    """
    user = User.objects.create_superuser("operator", password=PASSWORD)
    context.add_cookies([session_of(user, live_server.url)])
    page = context.new_page()
    faults: list[str] = []

    def refuse(dialog: Any) -> None:
        faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("dialog", refuse)
    page.on("pageerror", lambda error: faults.append(str(error)))
    yield page
    context.set_offline(False)
    if page.url.startswith(live_server.url):
        page.evaluate("localStorage.clear(); sessionStorage.clear()")
    for opened in context.pages:
        opened.close()
    context.clear_cookies()
    assert faults == []


@pytest.fixture
def shoot(page: Page) -> Callable[[str], None]:
    """
    Take a page in light, dark and at a phone's width, and fail if it is wider than the phone or cut off there.

    With WRITE_SCREENSHOTS set the pictures go to .screenshots/, which git leaves out. Otherwise none is taken, and the
    page is loaded once: how wide it is does not depend on its colours.
    """

    def take(name: str) -> None:
        page.wait_for_load_state()  # a click may have begun to leave the page
        if DRAWN:
            for variant, scheme, size in VARIANTS:
                look(scheme, size)
                page.screenshot(path=SCREENSHOTS / f"{name}-{variant}.png")
        else:
            page.set_viewport_size(WIDE)
            check("light", WIDE)
            look("dark", PHONE)
        page.set_viewport_size(WIDE)
        page.emulate_media(color_scheme="light")

    def look(scheme: Scheme, size: ViewportSize) -> None:
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=scheme)
        reload(page)
        page.wait_for_load_state("networkidle")
        check(scheme, size)

    def check(scheme: Scheme, size: ViewportSize) -> None:
        page.wait_for_function("document.documentElement !== null")
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        if size == PHONE:
            assert page.evaluate(CUT_OFF) == []
        is_dark = page.evaluate("document.documentElement.classList.contains('dark')")
        assert is_dark is (scheme == "dark")

    return take
