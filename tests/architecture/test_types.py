"""The type checker sees every attribute that the product reads or sets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from tests.support.processes import ROOT

PACKAGES = ("clients/python", "dashboards", "demo", "jobs", "queueops", "ratelimits", "sandbox")
MAX_MISC = 2  # a hook of Django that its stubs do not know, and a tuple whose length no type can say
IGNORED = re.compile(r"# type: ignore\[([\w, -]+)\]")


def ignored(texts: Iterable[str]) -> Counter[str]:
    return Counter(code.strip() for text in texts for codes in IGNORED.findall(text) for code in codes.split(","))


def texts() -> list[str]:
    return [path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.py")]


def test_no_attribute_is_hidden_from_the_type_checker():
    found = ignored(texts())
    assert found["type-arg"], "the modules were read"
    assert found["attr-defined"] == 0
    assert found["misc"] <= MAX_MISC


def test_a_hidden_attribute_is_found():
    planted = "row.unit = 'tokens'  # type: ignore[attr-defined, no-any-return]  # planted"
    assert ignored([*texts(), planted])["attr-defined"] == 1
