"""What a person sees of several processes in one terminal."""

import io

import pytest

from queueops.core.processes.console import CLEAR_LINE, Console


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch) -> Terminal:
    monkeypatch.setenv("COLUMNS", "40")
    return Terminal()


def visible(text: str) -> list[str]:
    """Return the lines as a terminal shows them after all was written."""
    return [line.rpartition(CLEAR_LINE)[2] for line in text.split("\n")]


def test_a_progress_line_stays_below_the_others(terminal):
    console = Console(terminal)
    console.say("demo", "[#---] 25 %")
    console.say("web", "listening")
    console.say("demo", "[##--] 50 %")
    assert visible(terminal.getvalue()) == ["web      | listening", "demo     | [##--] 50 %"]


def test_a_full_bar_stays_where_it_is(terminal):
    console = Console(terminal)
    console.say("demo", "[###-] 99 %")
    console.say("demo", "[####] 100 %")
    console.say("demo", "done")
    assert visible(terminal.getvalue()) == ["demo     | [####] 100 %", "demo     | done", ""]


def test_a_progress_line_is_cut_to_the_terminal(terminal):
    Console(terminal).say("demo", "[#---] " + "x" * 100)
    assert len(visible(terminal.getvalue())[0]) == 39


def test_without_a_terminal_every_line_is_kept():
    output = io.StringIO()
    console = Console(output)
    console.say("demo", "[#---] 25 %")
    console.say("demo", "[##--] 50 %")
    console.close()
    assert output.getvalue().splitlines() == ["demo     | [#---] 25 %", "demo     | [##--] 50 %"]


def test_a_closed_terminal_stops_nobody():
    class Gone(Terminal):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    Console(Gone()).say("web", "listening")


def test_what_a_terminal_has_no_letter_for_is_told_in_others():
    output = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    Console(output).say("workers", "10 \u20ac")
    assert output.buffer.getvalue() == b"workers  | 10 \\u20ac\n"
