"""Masking of long texts, which is done in pieces."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queueops.core.values import masking
from queueops.core.values.masking import MASK, masked, masked_text

WORDS = ["token", "X-Api_Key", "Authorization", ":", "=", " ", "\n", '"', "Bearer", "basic ", "abcdef123456", "-", ","]
PARTS = [*WORDS, "https://me:", "hush", "@host/", "\N{LATIN SMALL LETTER LONG S}ecret", "x" * 30, ". "]


# Each is hidden in JSON and in text, however it is written.
NAMES = [
    *("authorization", "authorisation", "Cookie", "password", "passwd", "passphrase", "token", "secret", "signature"),
    *("api_key", "apiKey", "api-key", "credential", "private_key", "access_key", "AccessKey"),
]


def test_a_value_of_each_name_for_a_secret_is_hidden_in_json_and_in_text():
    shown = {
        name: (masked({name: "hush"}), masked_text(f"{name}=hush"), masked_text(f'{{"{name}": "hush"}}'))
        for name in NAMES
    }
    assert [name for name, forms in shown.items() if "hush" in str(forms)] == []
    assert masked({"max_tokens": 5, "name": "hush"}) == {"max_tokens": 5, "name": "hush"}


def in_one(text: str) -> str:
    for pattern, instead in masking._MASKS:
        text = pattern.sub(rf"\g<name>{instead}", text)
    return text


@given(parts=st.lists(st.sampled_from(PARTS), max_size=120), piece=st.integers(300, 400))
def test_a_long_text_is_masked_as_a_short_one(parts, piece):
    text, before = "".join(parts), (masking.PIECE, masking.BEGUN)
    masking.PIECE, masking.BEGUN = piece, 200
    try:
        shown = masked_text(text)
    finally:
        masking.PIECE, masking.BEGUN = before
    assert shown == in_one(text)


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "PIECE", 2 * masking.BEGUN)


def test_a_value_longer_than_a_piece_and_one_at_each_place_of_its_end_are_masked(short_pieces):
    assert masked_text(f"token={'s' * 3 * masking.PIECE} and on") == f"token={MASK} and on"
    for place in range(masking.PIECE - 40, masking.PIECE + 2):
        text = " " * place + "Authorization: Bearer sssss.ssss, then " + "t" * masking.PIECE
        assert masked_text(text) == text.replace("sssss.ssss", MASK)


class Watched:
    """A pattern that goes through no more than a piece in one call."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern = pattern

    def finditer(self, text: str, begin: int, end: int) -> Iterator[re.Match[str]]:
        assert end - begin <= masking.PIECE
        return self.pattern.finditer(text, begin, end)

    def match(self, text: str, begin: int) -> re.Match[str] | None:
        return self.pattern.match(text, begin)

    def sub(self, instead: str, text: str) -> str:
        assert len(text) <= masking.PIECE
        return self.pattern.sub(instead, text)


def test_no_call_goes_through_so_much_that_other_threads_stand_still(short_pieces, monkeypatch):
    text = "token=abc and on, " * masking.PIECE
    expected = in_one(text)
    monkeypatch.setattr(masking, "_MASKS", [(Watched(pattern), instead) for pattern, instead in masking._MASKS])
    assert masked_text(text) == expected
    assert masked_text("token=abc") == f"token={MASK}"
