"""The generated pages say what the code says."""

from jobs.docs import handlers_page, states_page
from jobs.states import APART, LEGAL_MOVES, SHOWN, JobState


def test_every_state_is_explained_and_shown():
    assert set(SHOWN) == {*JobState, *APART}


def test_the_diagram_has_every_legal_move_but_cancellations():
    page = states_page()
    drawn = {
        tuple(line.partition(":")[0].split(" --> "))
        for line in map(str.strip, page.splitlines())
        if " --> " in line and "[*]" not in line
    }
    assert drawn == {move for move in LEGAL_MOVES if move[1] != JobState.CANCELLED}


def test_the_handlers_page_lists_our_kinds_and_no_others():
    page = handlers_page()
    for kind in ("http.request", "queueops.webhook", "django.task"):
        assert f"## `{kind}`" in page
    assert "sample." not in page
