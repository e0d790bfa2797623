"""Jobs of `google_sheets.*` in their handlers' hands, without a queue."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import jobs.handlers.google.sheets  # noqa: F401 (registers the kinds)
from jobs.handlers.registry import Continue, RunningJob, close_handlers, find_handler
from queueops.tenancy.secrets.credentials import OpenCredential

TOKEN = "project:p1/user:u1"
SERVICE = "google-sheets"


def credential_of(url: str, *, name: str = SERVICE, **secret: Any) -> OpenCredential:
    return OpenCredential(name=name, service=SERVICE, secret=secret or {"access_token": TOKEN}, base_url=url)


def jobs_of(
    kind: str, payloads: Sequence[dict[str, Any]], credential: OpenCredential | None, partials: Sequence[Any] = ()
) -> list[RunningJob[Any]]:
    schema = find_handler(kind).schema
    kept = [*partials, *[None] * (len(payloads) - len(partials))]
    return [
        RunningJob(
            id=uuid4(),
            payload=schema.validate_python({"spreadsheet_id": "s1", **payload}),
            project="demo",
            user_id=None,
            effect_key="effect",
            attempt=1,
            report=lambda percent, message: None,
            credential=credential,
            partial=partial,
        )
        for payload, partial in zip(payloads, kept, strict=True)
    ]


async def attempt(
    kind: str, payloads: Sequence[dict[str, Any]], credential: OpenCredential | None, partials: Sequence[Any] = ()
) -> list[Any]:
    """One run of a group, as an executor makes it: one answer a job."""
    handler = find_handler(kind)
    running = jobs_of(kind, payloads, credential, partials)
    if handler.coalesce is None:
        return [await handler.function(job) for job in running]
    return list(await handler.function(running))


async def closing(scenario: Any) -> Any:
    try:
        return await scenario
    finally:
        await close_handlers()


def run(kind: str, *payloads: dict[str, Any], url: str, partials: Sequence[Any] = ()) -> list[Any]:
    """Carry out jobs as one group against a sandbox; one answer each."""
    return list(asyncio.run(closing(attempt(kind, payloads, credential_of(url), partials))))


def run_to_the_end(kind: str, *payloads: dict[str, Any], url: str) -> tuple[list[Any], int]:
    """Carry out jobs until none goes on; their results, and how many runs that took."""

    async def scenario() -> tuple[list[Any], int]:
        results: list[Any] = [None] * len(payloads)
        waiting, partials, runs = list(range(len(payloads))), [None] * len(payloads), 0
        while waiting:
            runs += 1
            chosen = [payloads[place] for place in waiting]
            answers = await attempt(kind, chosen, credential_of(url), [partials[place] for place in waiting])
            for place, answer in zip(list(waiting), answers, strict=True):
                if isinstance(answer, Continue):
                    partials[place] = answer.partial
                else:
                    results[place] = answer
                    waiting.remove(place)
        return results, runs

    found: tuple[list[Any], int] = asyncio.run(closing(scenario()))
    return found
