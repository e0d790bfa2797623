"""Query parameters of the listings; a wrong one is answered with 400 and a sentence."""

from collections.abc import Collection

from aiohttp import web

MAX_LIMIT = 1_000


def refuse_unknown(request: web.Request, known: Collection[str]) -> None:
    unknown = sorted(set(request.query) - set(known))
    if unknown:
        raise web.HTTPBadRequest(text=f"Unknown parameter {', '.join(unknown)}; known: {', '.join(sorted(known))}.")


def integer(request: web.Request, name: str, *, default: int, low: int = 0, high: int = 2**53) -> int:
    text = request.query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 17 and low <= int(text) <= high):  # noqa: PLR2004
        raise web.HTTPBadRequest(text=f"{name} must be a whole number from {low} to {high}.")
    return int(text)


def limit(request: web.Request) -> int:
    return integer(request, "limit", default=100, low=1, high=MAX_LIMIT)


def boolean(request: web.Request, name: str) -> bool | None:
    text = request.query.get(name)
    if text not in {None, "true", "false"}:
        raise web.HTTPBadRequest(text=f"{name} must be true or false.")
    return None if text is None else text == "true"
