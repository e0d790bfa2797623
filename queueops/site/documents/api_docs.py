"""The generated overview of the API."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

from django.urls import URLPattern
from drf_spectacular.generators import SchemaGenerator
from rest_framework.exceptions import APIException

import jobs.api
import jobs.features
import jobs.services
import queueops.rest
import ratelimits
from jobs.api.urls import urlpatterns as jobs_patterns
from jobs.door.urls import api_patterns as door_patterns
from queueops.core.errors import QueueOpsError
from queueops.core.generated_docs import generated_page
from queueops.rest.schema import ALWAYS, OTHERS
from ratelimits.urls import urlpatterns as limits_patterns

HEAD = """\
# The API

After this page you can look up every address of the API, its scope, its errors and its lists.

Written by `manage.py write_docs` from `jobs/api/`, `jobs/door/` and `ratelimits/*/api/`; change it there. A running
installation serves the whole OpenAPI document at `/api/v1/schema/` and a page to browse and try it at `/api/v1/docs/`.
How to submit work: [submit.md](../how-to/submit.md). How to ask the limiter:
[ask-the-limiter.md](../how-to/ask-the-limiter.md). How to count against allowances:
[report-usage.md](../how-to/report-usage.md). Official clients of OpenAI and Anthropic go by
[change-one-url.md](../how-to/change-one-url.md).

## Keys, tokens, scopes and sessions

A producer sends `Authorization: Bearer qo_…` or `X-Api-Key: qo_…`. A key belongs to one project; whatever belongs to
another is answered like something that does not exist (404). Its scopes say what it may do. An operator who is signed
in to the admin may use the API too, with a CSRF token, naming the project by `?project=` or the header `X-Project`; the
permissions of the admin then take the place of scopes.

An end user of an app sends a token (JWT) of an issuer that the project trusts, `Authorization: Bearer eyJ…`, with the
issuer's scopes, and sees and does only what is theirs: [let-app-users-in.md](../how-to/let-app-users-in.md). Which
operations that are, and which need no credentials in a project that shows itself to everybody, is in the last column.

Limits belong to no project: a key with `read` sees all of them, and of counters and overrides its own project's and
those of everyone together. One with `limits` simulates changes and gives its own project other capacities (overrides).
Whatever counts for other projects, too, operators change alone: 403 `shared_limit` to a key.

A web process lets each key send `QUEUEOPS_REQUESTS_PER_MINUTE` requests a minute, unless the key has a rate of its own,
and each user `QUEUEOPS_USER_REQUESTS_PER_MINUTE`, a minute's worth at once. It counts for itself: with several web
processes each may send that many to each.

## Operations

Paths are below `/api/v1`. `/usage/reserve/`, `/usage/ingest/` and `/usage/cancel/` are also served as
`/functions/reserve-usage`, `/functions/ingest-usage` and `/functions/cancel-reservation`.
"""

LISTS = """\
## Lists

Lists are ordered newest first and paged by cursor: `page_size` (50 by default, 500 at most) and `cursor`, the
`next_cursor` of the page before, or simply the address in `next`. A page that is read stays as it is while rows arrive.
The end of a list is where `next_cursor` is null: a page of jobs that looked through 500,000 others, or for a quarter of
a second, ends there. It then has fewer rows than it may, or none, and the next one goes on.
A filter that does not exist, is empty or cannot be read is refused (400 `invalid_query`), so that none answers with
everything. Times are written with an offset of at most 15:59 hours, which is what PostgreSQL reads:
`2026-03-02T09:00:00Z`.
"""

ERRORS = """\
## Errors

Every error has one shape. Decide by `code`; `message` is for people and may change.

```json
{"error": {"code": "invalid_job", "message": "…", "fields": {"payload.url": ["…"]}, "details": {}}}
```

`fields` names what is wrong in the input, `details` has figures. `Retry-After` comes with 429 and 503, and with the
answers about jobs, batches and operations that have not ended.
"""


OURS = (
    "jobs.",
    "ratelimits.",
    "queueops.rest.",
    "queueops.tenancy.",
    "queueops.core.web.",
    "queueops.core.errors",
    "queueops.core.values.reasons",
)

FRAMEWORK: dict[str, tuple[int, str]] = {
    "bad_request": (400, "The request is not acceptable, for example its Host header."),
    "method_not_allowed": (405, "The address does not take this method; Allow names those it takes."),
    "permission_denied": (403, "The session's CSRF token is missing or wrong."),
}


@generated_page("reference/api.md")
def api_page() -> str:
    operations = ["| | | scope | besides keys |", "| --- | --- | --- | --- |", *_operations()]
    errors = ["| code | status | |", "| --- | --- | --- |", *_errors()]
    return "\n".join([HEAD, *operations, "", LISTS, ERRORS, *errors])


def _operations() -> Iterator[str]:
    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]  # type: ignore[no-untyped-call]
    for pattern in described_patterns():
        path = "/" + described_path(pattern)
        view = vars(pattern.callback)["cls"]
        for method, described in paths[f"/api/v1{path}"].items():
            scope = view.needs[method.upper()].scope.value
            yield f"| `{method.upper()} {path}` | {described['summary']} | {scope} | {_opened_to(view, method)} |"


def _opened_to(view: Any, method: str) -> str:
    everybody = ["everybody"] if view.for_anonymous and method == "get" else []
    return ", ".join((["users"] if view.for_users else []) + everybody)


def described_patterns() -> list[URLPattern]:
    """Return the addresses of the OpenAPI document; second spellings of an address are left out."""
    patterns = (*jobs_patterns, *door_patterns, *limits_patterns)
    return [pattern for pattern in patterns if "schema" not in vars(pattern.callback)["view_initkwargs"]]


def described_path(pattern: URLPattern) -> str:
    return re.sub(r"<\w+:(\w+)>", lambda found: "{id}" if found[1] == "pk" else f"{{{found[1]}}}", str(pattern.pattern))


def _errors() -> Iterator[str]:
    for package in (jobs.api, jobs.features, jobs.services, queueops.rest, ratelimits):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    found = {code: (status, text) for status, (code, text) in (ALWAYS | OTHERS).items()} | FRAMEWORK
    for error in _subclasses(QueueOpsError):
        if error.__module__.startswith(OURS) and error.status < 500:  # noqa: PLR2004
            found.setdefault(error.code, (error.status, error.default_message()))
    for refusal in _subclasses(APIException):
        if refusal.__module__.startswith("queueops.tenancy."):
            found.setdefault(refusal.default_code, (refusal.status_code, str(refusal.default_detail)))
    for code, (status, text) in sorted(found.items(), key=lambda item: (item[1][0], item[0])):
        yield f"| `{code}` | {status} | {text} |"


def _subclasses(base: type[Any]) -> Iterator[type[Any]]:
    for child in base.__subclasses__():
        yield child
        yield from _subclasses(child)
