"""Texts that producers and providers wrote, on every page and in every export."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.security.addresses import every_address
from tests.security.world import World
from tests.support.people import signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("without_sidebar")]

HOSTILE = "'\"><img src=x onerror=alert(1)></textarea></title><script>alert(1)</script><!--{{ 7*7 }}"
RAW = re.compile(r"<img src=x|</textarea></title>|<script>alert|<!--\{\{|<!--49", re.IGNORECASE)
SHOWN = "&lt;img src=x onerror=alert(1)&gt;"
FORMULAS = ["=cmd|' /C calc'!A0", "@SUM(A1)", "\t=1+1"]
HAS_NO_TEXT = {"admin/ratelimits/usagetracking/export.csv"}  # ids, months and figures alone
ACTS = ("=", "+", "-", "@", "\t", "\r")


def is_csv(route: str) -> bool:
    return route.endswith((".csv", ".<str:form>"))


def answers(text: str, *, of: Callable[[str], bool] = lambda route: True) -> dict[str, Any]:
    world, superuser = World.make(text), signed_in("superuser")
    superuser.raise_request_exception = False
    return {address.route: superuser.get(address.path(world)) for address in every_address() if of(address.route)}


def body_of(answer: Any) -> str:
    return (b"".join(answer) if answer.streaming else answer.content).decode(errors="replace")


@pytest.mark.proves("S12")
@pytest.mark.matrix
def test_no_page_gives_a_stored_text_to_the_browser_as_markup():
    found = answers(HOSTILE)
    pages = {route: body_of(answer) for route, answer in found.items() if "html" in answer["Content-Type"]}
    assert [route for route, page in pages.items() if RAW.search(page)] == []
    shown = [route for route, page in pages.items() if SHOWN in page]
    assert len(shown) > 40, shown  # the text did get there
    for route, answer in found.items():
        if answer.status_code == 200 and route not in pages:
            assert answer["X-Content-Type-Options"] == "nosniff", route
            assert "svg" not in answer["Content-Type"], route
        assert ("csv" in answer["Content-Type"]) is is_csv(route), route


@pytest.mark.proves("S13")
@pytest.mark.parametrize("formula", FORMULAS)
def test_no_cell_of_any_csv_can_act_as_a_formula(formula):
    exports = {route: body_of(answer) for route, answer in answers(formula, of=is_csv).items()}
    assert "admin/jobs/deadletter/export.csv" in exports
    for route, text in exports.items():
        cells = [cell for line in csv.reader(io.StringIO(text)) for cell in line]
        assert [cell for cell in cells if formula.strip() in cell] or route in HAS_NO_TEXT, route
        assert [cell for cell in cells if cell.startswith(ACTS)] == [], route
