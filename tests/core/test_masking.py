"""Masking of long texts, which is done in pieces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queueops.core.telemetry.logs import without_secrets
from queueops.core.values import masking
from queueops.core.values.masking import MASK, is_secret_header, masked, masked_text

WORDS = [
    "token",
    "pwd",
    "\\",
    "'",
    "Token ",
    "cookie",
    "tokens",
    "X-Api_Key",
    "Authorization",
    ":",
    "=",
    " ",
    "\n",
    '"',
    "Bearer",
    "basic ",
    "abcdef123456",
    "-",
    ",",
]
PARTS = [*WORDS, "https://me:", "hush", "@host/", "\N{LATIN SMALL LETTER LONG S}ecret", "x" * 30, ". "]


# Each is hidden in JSON and in text, however it is written.
NAMES = [
    *("authorization", "authorisation", "Cookie", "password", "passwd", "passphrase", "token", "secret", "signature"),
    *("api_key", "apiKey", "api-key", "credential", "private_key", "access_key", "AccessKey"),
    *("X-Auth", "auth", "x_auth_key", "oauth", "pwd", "userPwd", "session", "sessionId", "PHPSESSID", "X-CSRF-Token"),
    *("sig", "otp", "jwt", "passcode", "Ocp-Apim-Subscription-Key", "X-Key", "connection_string"),
]
# A text, and what may be seen of it.
SHOWN = {
    "Authorization: Token hush": f"Authorization: Token {MASK}",
    "Authorization: Strange hush, then": f"Authorization: {MASK}, then",
    '"Authorization": "Strange hush hush"': f'"Authorization": "{MASK}"',
    json.dumps({"body": json.dumps({"password": 'hush "hush', "x": 1})}): json.dumps(
        {"body": json.dumps({"password": MASK, "x": 1}, ensure_ascii=False)}, ensure_ascii=False
    ),
    "password='hush hush' and on": f"password='{MASK}' and on",
    r'pwd="hush \"hush" and on': f'pwd="{MASK}" and on',
    'Cookie: a=hush; b="hush"\nand on': f"Cookie: {MASK}\nand on",
    '{"text": "Cookie: a=hush; b=hush", "on": 1}': f'{{"text": "Cookie: {MASK}", "on": 1}}',
    "[(b'authorization', b'Token hush'), (b'a', b'b')]": f"[(b'authorization', b'Token {MASK}'), (b'a', b'b')]",
    "password => 'hush'": f"password => '{MASK}'",
    "-----BEGIN RSA PRIVATE KEY-----\nhush\n-----END RSA PRIVATE KEY----- on": f"{MASK} on",
    "https://me:hush@example.org/?session=hush&x=1": f"https://me:{MASK}@example.org/?session={MASK}&x=1",
}
NO_SECRETS = [
    *("author: Bob", "max_tokens=500, tokens: 7", '{"max_tokens": 400, "token_count": 5}', "Idempotency-Key: 7"),
    *("missing 'password', 'user'", "the session opened", "signal=9", "primary-key: 3", "sort_key: a", "unique_key=b"),
]


def test_a_value_of_each_name_for_a_secret_is_hidden_in_json_and_in_text():
    shown = {
        name: (masked({name: "hush"}), masked_text(f"{name}=hush"), masked_text(f'{{"{name}": "hush"}}'))
        for name in NAMES
    }
    assert [name for name, forms in shown.items() if "hush" in str(forms)] == []
    assert masked({"max_tokens": 5, "name": "hush"}) == {"max_tokens": 5, "name": "hush"}


def test_what_is_quoted_escaped_or_of_several_words_is_hidden_whole_on_screens_and_in_logs():
    assert {text: masked_text(text) for text in SHOWN} == SHOWN
    assert [text for text in SHOWN if "hush" in without_secrets(text)] == []
    assert [text for text in NO_SECRETS if masked_text(text) != text] == []
    headers = [{"name": "X-Auth", "value": "hush"}, {"name": "Accept", "value": "text/plain"}]
    assert masked(headers) == [{"name": "X-Auth", "value": MASK}, headers[1]]


def test_a_redirect_leaves_behind_each_header_that_screens_hide():
    assert [name for name in NAMES if not is_secret_header(name)] == []
    assert [
        name for name in ("Accept", "Content-Type", "Idempotency-Key", "User-Agent") if is_secret_header(name)
    ] == []


def in_one(text: str) -> str:
    for pattern, form, _ in masking._MASKS:
        text = pattern.sub(rf"\g<name>{form.format(MASK)}", text)
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
    monkeypatch.setattr(masking, "_MASKS", [(Watched(pattern), *rest) for pattern, *rest in masking._MASKS])
    assert masked_text(text) == expected
    assert masked_text("token=abc") == f"token={MASK}"
