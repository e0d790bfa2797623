"""Running `llm.generate` without a database."""

import asyncio
from typing import Any
from uuid import UUID

from jobs.handlers.http.connections import close
from jobs.handlers.llm import generate as llm
from jobs.handlers.llm.requests.payload import LlmGenerate
from jobs.handlers.registry import Continue, Done, RunningJob
from queueops.tenancy.secrets.credentials import OpenCredential

API_KEY = "project:acme/user:robot"


def payload_of(**fields: Any) -> dict[str, Any]:
    """A payload for Gemini, unless `provider` says otherwise."""
    given = {"provider": "gemini", "credential": "key", "model": "small-1", **fields}
    return given if given.keys() & {"prompt", "messages", "contents"} else {**given, "prompt": "Why is the sky blue?"}


def credential_for(payload: LlmGenerate, base_url: str, *, api_key: str = API_KEY) -> OpenCredential:
    return OpenCredential("key", payload.service_name, {"api_key": api_key}, base_url)


class Progress(list[tuple[int, str]]):
    def __call__(self, percent: int, message: str) -> None:
        self.append((percent, message))


async def ask(base_url: str, *, partial: Any = None, progress: Any = None, **fields: Any) -> Done | Continue:
    """Carry out one call of the handler on the running loop."""
    given = fields.pop("open_credential", ...)
    api_key = fields.pop("api_key", API_KEY)
    payload = LlmGenerate.model_validate(payload_of(**fields))
    job = RunningJob(
        id=UUID(int=1),
        payload=payload,
        project="acme",
        user_id=None,
        effect_key="effect-1",
        attempt=1,
        report=Progress() if progress is None else progress,
        credential=credential_for(payload, base_url, api_key=api_key) if given is ... else given,
        partial=partial,
    )
    try:
        return await llm.generate(job)
    finally:
        await close()


def ask_once(base_url: str, **fields: Any) -> Any:
    return asyncio.run(ask(base_url, **fields))


def ask_to_the_end(base_url: str, **fields: Any) -> tuple[Done, list[Continue]]:
    """Call the handler again for as long as it wants to continue, as executors do."""
    steps: list[Continue] = []
    while True:
        answer = ask_once(base_url, partial=steps[-1].partial if steps else None, **fields)
        if isinstance(answer, Done):
            return answer, steps
        steps.append(answer)
