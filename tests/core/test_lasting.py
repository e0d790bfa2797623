"""A trouble that lasts is told when it begins and when it is over."""

from __future__ import annotations

import logging

import pytest

from queueops.core.processes.lasting import LastingTrouble


def test_each_trouble_is_told_once_until_all_are_over_with_its_traceback_if_it_has_one(
    caplog: pytest.LogCaptureFixture,
):
    trouble = LastingTrouble(logging.getLogger("a"))
    assert (trouble.lasts, trouble.end()) == (False, None)
    for words in ("cut", "refused", "starting up"):
        trouble.tell("away", words)
    for _ in range(2):
        try:
            int("a defect")
        except ValueError as error:
            trouble.tell(str(error), "unexpected", level=logging.ERROR, traceback=True)
    trouble.tell("away", "refused")
    assert [(one.levelname, one.message, bool(one.exc_info)) for one in caplog.records] == [
        ("WARNING", "cut", False),
        ("ERROR", "unexpected", True),
    ]
    assert trouble.lasts
    lasted = trouble.end()
    assert lasted is not None
    assert 0 <= lasted < 60
    assert (trouble.lasts, trouble.end()) == (False, None)
    trouble.tell("away", "cut again")
    assert caplog.messages[-1] == "cut again"
