"""The generated pages say what the code says."""

from jobs.docs import EDGES, MEANINGS, handlers_page, states_page
from jobs.states import LEGAL_MOVES, TRANSITIONS, JobState


def test_every_state_and_move_is_explained():
    assert set(MEANINGS) == set(JobState)
    assert set(EDGES) == set(TRANSITIONS)


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
