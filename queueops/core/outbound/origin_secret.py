"""The secret that a call shows to one origin, and that no other origin may see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, unquote_plus

from yarl import URL


@dataclass(frozen=True, slots=True)
class OriginSecret:
    """
    Headers, and at most one parameter of the query: (name, value).

    Attributes:
        texts: The secret in each form in which it is sent, so that it can be found where an answer repeats it.
    """

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: tuple[str, str] | None = field(default=None, repr=False)
    texts: tuple[str, ...] = field(default=(), repr=False)

    def on(self, target: URL) -> URL:
        """Return a target of the same origin with the query parameter, which is added if it is not there yet."""
        if self.query is None or self.query[0] in target.query:
            return target
        name, value = (quote(part, safe="") for part in self.query)
        return URL(f"{target}{'&' if target.raw_query_string else '?'}{name}={value}", encoded=True)

    def is_in(self, location: str) -> bool:
        """Say whether the target of a redirect would carry the secret on."""
        spellings = (location, unquote(location), unquote_plus(location))
        return any(text in spelling for text in self.texts for spelling in spellings)
