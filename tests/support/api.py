"""What the answers of the API say, read alike by its tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def pages(api: Any, path: str, between: Callable[[], object] = lambda: None, *, field: str = "id") -> list[Any]:
    """A field of every row of a list, page by page."""
    found: list[Any] = []
    cursor = ""
    while True:
        page = api.get(f"{path}{'&' if '?' in path else '?'}page_size=3{cursor}").json()
        found += [row[field] for row in page["results"]]
        if page["next_cursor"] is None:
            assert page["next"] is None
            return found
        assert page["next_cursor"] in page["next"]
        cursor = f"&cursor={page['next_cursor']}"
        between()


def told(answer: Any) -> tuple[int, str, list[str]]:
    """Status, code and fields of a refusal; of what was no refusal an empty code."""
    error = (json.loads(answer.content or "{}") if answer.status_code >= 400 else {}).get("error", {})
    return answer.status_code, error.get("code", ""), sorted(error.get("fields", {}))


def faults_of(
    answers: Mapping[str, Any], status: int, code: str, fields: Mapping[str, str | Iterable[str]]
) -> dict[str, Any]:
    """The answers that do not refuse what was asked with that status and code, at the fields of its name alone."""
    expected = {name: [of] if isinstance(of, str) else sorted(of) for name, of in fields.items()}
    found = {name: told(answer) for name, answer in answers.items()}
    return {name: one for name, one in found.items() if one != (status, code, expected[name])}
