"""Gemini's requests of a batch: read from the call or from a file, answered, and written the same way."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sandbox.batches.run import LineAnswer
from sandbox.batches.slices import parse_with_list, slices
from sandbox.batches.store import ReceivedBatch, ReceivedLine, StoredFile
from sandbox.envelopes import ApiError, google_error
from sandbox.gemini import answers, errors
from sandbox.llm import call_tokens
from sandbox.state import State


@dataclass(frozen=True, slots=True)
class AskedBatch:
    display_name: str
    file_name: str | None


async def read_requests(body: bytes, stored: Callable[[str], bytes]) -> tuple[AskedBatch, list[ReceivedLine]]:
    """
    Read a request for a batch; fields may be written in either of the two ways that Google's APIs read.

    Raises:
        ApiError: 400.
    """
    try:
        asked, requests = await parse_with_list(body, "requests")
    except (ValueError, RecursionError):
        asked, requests = _without_list(body), []
    batch = _field(asked, "batch")
    name, config = _field(batch, "displayName", "display_name"), _field(batch, "inputConfig", "input_config")
    if not isinstance(name, str) or not name:
        raise google_error(400, "* BatchGenerateContentRequest.batch.display_name: display_name is not specified\n")
    file_name = _field(config, "fileName", "file_name")
    if isinstance(file_name, str):
        requests = await _rows(stored(file_name))
    if not requests:
        raise google_error(400, "* BatchGenerateContentRequest.batch.input_config: no requests\n")
    lines: list[ReceivedLine] = []
    async for some in slices(requests):
        for item in some:
            request = _field(item, "request")
            if not isinstance(request, dict):
                raise google_error(400, f"* requests[{len(lines)}].request: request is not specified\n")
            key = _field(item, "key") or _field(_field(item, "metadata"), "key")
            lines.append(ReceivedLine(str(key) if key is not None else "", request))
    return AskedBatch(name, file_name if isinstance(file_name, str) else None), lines


class GeminiLines:
    """Each line is a request of generateContent. A batch that did not complete has no results, and costs nothing."""

    keeps_half_done = False
    can_fail = True

    async def load(self, batch: ReceivedBatch, state: State) -> list[dict[str, Any]]:
        return []

    def answer(self, line: ReceivedLine, batch: ReceivedBatch, state: State) -> LineAnswer:
        model, prompt = batch.model or "", answers.prompt_of(line.body)
        generation = answers.generation_of(line.body, state.gate.knobs.gemini)
        answer = answers.answer(model, generation, generation.text, answer_id=uuid4().hex, usage=True)
        return LineAnswer(answer, model, call_tokens(generation), prompt)

    def error(self, status: int) -> ApiError:
        return google_error(status, errors.MESSAGES.get(status, "The operation failed."))

    def file_of(self, line: ReceivedLine) -> str | None:
        return "inline" if line.outcome in {"succeeded", "errored"} else None

    def render(self, line: ReceivedLine, batch: ReceivedBatch) -> str:
        result = {"response": line.answer} if line.outcome == "succeeded" else {"error": line.answer["error"]}
        if batch.details["file_name"] is not None:
            return json.dumps({"key": line.custom_id, **result})
        says_key = line.custom_id and batch.details["says_keys"]
        return json.dumps({"metadata": {"key": line.custom_id}, **result} if says_key else result)

    def finish(self, batch: ReceivedBatch, state: State) -> None:
        """If the requests came in a file, write the results to a file."""
        results = batch.results.get("inline")
        if batch.details["file_name"] is None or results is None:
            return
        stored = StoredFile(
            id=f"batch-{batch.id[:24]}",
            provider=batch.provider,
            project=batch.caller.project,
            filename=f"{batch.details['display_name']}.jsonl",
            purpose="batch_output",
            results=results,
        )
        state.batches.files[stored.id] = stored
        batch.details["responses_file"] = f"files/{stored.id}"


async def _rows(data: bytes) -> list[Any]:
    found: list[Any] = []
    async for some in slices([row for row in data.split(b"\n") if row.strip()]):
        try:
            found += [json.loads(row) for row in some]
        except (ValueError, RecursionError):
            raise google_error(400, "The input file is not made of lines of JSON.") from None
    return found


def _without_list(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise google_error(400, "Invalid JSON payload received. Unexpected token.") from None


def _field(value: Any, *names: str) -> Any:
    """Return the first of the named fields that the object has."""
    if not isinstance(value, dict):
        return None
    return next((value[name] for name in names if name in value), None)
