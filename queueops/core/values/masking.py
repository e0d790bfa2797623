"""
The one rule for which words and values are secret. It applies to screens, logs, stored tracebacks, and the headers that
are dropped at a redirect.
"""

from __future__ import annotations

import json
import re
from typing import Any

MASK = "••••••"
_NAMES_A_PAIR = ("name", "key", "header", "field")  # `{"name": "Authorization", "value": …}`
MAX_CHARACTERS_SHOWN = 20_000  # characters of one JSON document on a page

# Each alternative begins with letters: otherwise the search would try all of them at every position. A condition on the
# text before a word is therefore written after the word.
_WORDS = (
    r"(?P<auth>authori[sz]ation)|authentication|auth(?<![a-np-z]auth)(?<![a-z]oauth)(?![a-z])|bearer(?![a-z])"
    r"|cookie|session|sessid|csrf|xsrf|credential|secret|signature|sig(?<![a-z]sig)(?![a-z])|jwt(?<![a-z]jwt)(?![a-z])"
    r"|passw(?:or)?d|passphrase|passcode|pwd|otp(?<![a-su-z]otp)(?<![a-z]totp)(?![a-z])|connection[-_]?string"
    # Counts of tokens are no secrets, in text as in JSON.
    r"|token(?!(?:s|_?count|_?limit|_?budget|_?usage)[\w-]{0,40}+[\"'\\]{0,9}+\s{0,3}+[=:]\s{0,3}+[\d.,]{1,20}+(?!\w))"
    r"|(?:api|access|private|subscription|signing|encryption|account|shared|master|functions?)[-_]?key"
    # Names of headers; the key of a table, a cache or a request is no secret.
    r"|-key(?<!idempotency-key)(?<!primary-key)(?<!foreign-key)(?<!unique-key)(?<!public-key)(?<!cache-key)"
    r"(?<!sort-key)(?![a-z])"
)
# A text that holds none of these in lower case cannot match _SECRET_IN_TEXT, and is not searched for it.
_HINTS = (
    *(
        "auth",
        "bearer",
        "cookie",
        "sess",
        "csrf",
        "xsrf",
        "cred",
        "secret",
        "sig",
        "jwt",
        "pass",
        "pwd",
        "otp",
        "tring",
    ),
    *("token", "key"),
)
SECRET_KEY = re.compile(_WORDS, re.IGNORECASE)
# Names of headers that are dropped when a redirect leads to another origin: rather one too many than one too few.
SECRET_HEADER = re.compile(rf"auth|{_WORDS}", re.IGNORECASE)
_SCHEMES = r"Bearer|Basic|Token|Digest|Negotiate|NTLM|Api-?Key|Key|Hawk|OAuth|DPoP|Bot|SSWS|GenieKey|Splunk|Signature"
# `name=value`, `name: value`, `name => value` and `('name', 'value')`. A quoted value ends with its quote, also where
# that is escaped, as in JSON within JSON. Any other value ends with its word; after `authorization`, two words are
# masked if the first is no known scheme.
# Bounded repetitions: an open one would try every start of a long word against every end. No group is possessive:
# Python before 3.11.5 matches such groups wrongly, Debian 12's among them.
_SECRET_IN_TEXT = re.compile(
    rf"(?P<name>(?:{_WORDS})[\w-]{{0,40}}+"
    r"(?:(?:\\{0,7}+[\"'])?\s{0,3}+(?:=>|[=:])\s{0,3}+|[\"']\s?+,\s?+(?=b?[\"'][^\"']{0,2000}+[\"']\s?+\)))"
    rf"(?:b?(?P<quote>\\{{0,7}}+[\"']))?(?:(?P<scheme>{_SCHEMES})\s{{1,3}}+)?)"
    r"(?(quote)(?:(?!(?<!\\)(?P=quote))[^\r\n])+"
    r"|[^\s&\"',;\\]++(?(auth)(?(scheme)|(?:[ \t]{1,3}+[^\s&\"',;\\]++)?)))",
    re.IGNORECASE,
)
_COOKIES = re.compile(
    r"(?P<name>cookie2?\s{0,3}+:\s{0,3}+)(?![\"'\\\s])(?:(?!\\{0,7}+\"\s{0,3}+[,}\]])[^\r\n])+", re.IGNORECASE
)
_BEARER = re.compile(r"\b(?P<name>Bearer|Basic)\s{1,9}+[\w.~+/=-]{6,}+", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"(?P<name>\w://[^\s/:@\"']*+:)[^\s/@\"']+@")
# Texts that are secrets by themselves: our keys, private keys, and keys of providers that have a form of their own.
_KNOWN = re.compile(
    r"(?P<name>)(?:-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:(?!-----END)[\s\S])*(?:-----END [A-Z ]{0,40}-----)?"
    r"|\b(?:qo_[\w-]{8,}+|AIza[\w-]{30,}+|ya29\.[\w.-]{10,}+|sk-[\w-]{16,}+|gh[pousr]_\w{20,}+|xox[a-z]-[\w-]{10,}+"
    r"|eyJ[\w-]{10,}+\.[\w-]{10,}+\.[\w-]*+))"
)

_MASKS: tuple[tuple[re.Pattern[str], str, tuple[str, ...]], ...] = (
    (_KNOWN, "{}", ("private key", "qo_", "aiza", "ya29", "sk-", "gh", "xox", "eyj")),
    (_COOKIES, "{}", ("cookie",)),
    (_SECRET_IN_TEXT, "{}", _HINTS),
    (_BEARER, " {}", ("bearer", "basic")),
    (_PASSWORD_IN_URL, "{}@", ("://",)),
)
PIECE = 1 << 14  # characters searched in one call, during which no other thread runs: some 10 ms
BEGUN = 1 << 12  # characters at a piece's end that the next one searches again: a secret may begin there


def masked_text(text: str, *, mask: str = MASK) -> str:
    """Return the text with `token=…`, `Authorization: Token …`, cookies, passwords in URLs and known keys masked."""
    small = text.casefold()
    for pattern, form, hints in _MASKS:
        if not any(hint in small for hint in hints):
            continue
        instead = form.format(mask)
        text = _replaced(text, pattern, instead) if len(text) > PIECE else pattern.sub(rf"\g<name>{instead}", text)
    return text


def is_secret_header(name: str) -> bool:
    """Whether a header carries credentials."""
    return SECRET_HEADER.search(name) is not None


def _replaced(text: str, pattern: re.Pattern[str], instead: str) -> str:
    """Do what `sub` does, in pieces: during one call on a megabyte, all other threads of the process would wait."""
    parts: list[str] = []
    begin = kept = 0
    while begin < len(text):
        end = min(begin + PIECE, len(text))
        sure = end - BEGUN if end < len(text) else end
        for found in pattern.finditer(text, begin, end):
            if found.start() >= sure:
                break
            whole = found if found.end() < sure else pattern.match(text, found.start()) or found
            parts += text[kept : whole.start()], whole["name"], instead
            kept = whole.end()
        begin = max(kept, sure)
    return "".join([*parts, text[kept:]])


def masked(value: Any) -> Any:
    """Return the JSON value with every secret replaced by MASK; numbers stay, so that `max_tokens` can be read."""
    if isinstance(value, dict):
        shown = {key: _hidden(item) if SECRET_KEY.search(str(key)) else masked(item) for key, item in value.items()}
        named = next((value[name] for name in _NAMES_A_PAIR if isinstance(value.get(name), str)), "")
        return shown | {"value": _hidden(value["value"])} if "value" in value and SECRET_KEY.search(named) else shown
    if isinstance(value, list):
        return [masked(item) for item in value]
    return masked_text(value) if isinstance(value, str) else value


def unmasked(edited: Any, original: Any) -> Any:
    """
    Return an edited document with each mask replaced by the original's value at the same place.

    A mask where the original has no value stays: the handler's schema or the provider refuses it.
    """
    if isinstance(edited, dict) and isinstance(original, dict):
        return {key: unmasked(item, original.get(key)) for key, item in edited.items()}
    if isinstance(edited, list) and isinstance(original, list):
        tail = [None] * max(0, len(edited) - len(original))
        return [unmasked(item, old) for item, old in zip(edited, [*original, *tail], strict=False)]
    unchanged = isinstance(edited, str) and MASK in edited and original is not None
    return original if unchanged and edited == masked_or_hidden(edited, original) else edited


def masked_or_hidden(edited: str, original: Any) -> str:
    """Return what the screen showed for `original`: a mask for the whole, or its text with the secrets masked."""
    return MASK if edited == MASK or not isinstance(original, str) else masked_text(original)


def pretty(value: Any, *, most: int = MAX_CHARACTERS_SHOWN) -> tuple[str, int]:
    """Return the masked document as indented text of at most `most` characters, and how many characters were cut."""
    text = json.dumps(masked(value), indent=2, ensure_ascii=False, default=str)
    return text[:most], max(0, len(text) - most)


def _hidden(value: Any) -> Any:
    return value if value == "" or _is_figures(value) else MASK


def _is_figures(value: Any) -> bool:
    """
    Whether a value is a number, or numbers by name such as the `tokens` of a forecast. A list does not count, because
    it may be a secret's bytes.
    """
    if isinstance(value, dict):
        return all(_is_figures(item) for item in value.values())
    return value is None or isinstance(value, (bool, int, float))
