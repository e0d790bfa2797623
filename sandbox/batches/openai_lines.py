"""OpenAI's batch files, line by line: how a line is checked, answered and written."""

import json
from typing import Any
from uuid import uuid4

from sandbox.batches.run import LineAnswer
from sandbox.batches.slices import slices
from sandbox.batches.store import ReceivedBatch, ReceivedLine, StoredFile
from sandbox.envelopes import ApiError
from sandbox.llm import call_tokens, count_tokens
from sandbox.openai.endpoints import ENDPOINTS
from sandbox.openai.errors import openai_error
from sandbox.state import State

MAX_ERRORS = 100

_ENDED_MESSAGES = {
    "expired": ("batch_expired", "This request could not be executed before the completion window expired."),
    "canceled": ("batch_cancelled", "This request was not executed, as its batch was cancelled."),
}


class OpenAiLines:
    keeps_half_done = True
    can_fail = True

    async def load(self, batch: ReceivedBatch, state: State) -> list[dict[str, Any]]:
        """Read the file; one mistake in it fails the whole batch."""
        knobs = state.gate.knobs.openai
        stored = state.batches.files.get(batch.details["input_file_id"])
        rows = [] if stored is None else [row for row in stored.data.split(b"\n") if row.strip()]
        if not rows:
            return [_mistake("empty_file", "The batch input file is empty.")]
        if len(rows) > knobs.batch_lines:
            return [_mistake("too_many_requests", f"The batch has more than {knobs.batch_lines} requests.")]
        reading = _Reading(batch)
        number = 0
        async for some in slices(rows):
            for row in some:
                number += 1
                reading.take(row, number)
        if reading.mistakes:
            return reading.mistakes[:MAX_ERRORS]
        if knobs.models is not None and batch.model not in knobs.models:
            return [_mistake("model_not_found", f"The model `{batch.model}` does not exist.", param="body.model")]
        tokens, endpoint = 0, ENDPOINTS[batch.details["endpoint"]]
        async for lines in slices(batch.lines):
            tokens += sum(count_tokens(endpoint.prompt_of(line.body), factor=knobs.token_factor) for line in lines)
        project = batch.caller.project
        waiting = state.batches.enqueued_tokens(provider=batch.provider, project=project, model=batch.model)
        if knobs.enqueued_tokens is not None and waiting + tokens > knobs.enqueued_tokens:
            message = (
                f"Enqueued token limit reached for {batch.model} in organization {project}. "
                f"Limit: {knobs.enqueued_tokens:,} enqueued tokens. "
                "Please try again once some in_progress batches have been completed."
            )
            return [_mistake("token_limit_exceeded", message)]
        batch.enqueued_tokens = tokens
        return []

    def answer(self, line: ReceivedLine, batch: ReceivedBatch, state: State) -> LineAnswer:
        knobs, endpoint = state.gate.knobs.openai, ENDPOINTS[batch.details["endpoint"]]
        body = endpoint.check(line.body)
        generation = endpoint.generation_of(body, knobs)
        answer = endpoint.answer(body, generation, endpoint.usage_of(generation, knobs))
        tokens = call_tokens(generation, cached_share=knobs.cached_share)
        return LineAnswer(answer, body["model"], tokens, endpoint.prompt_of(body))

    def error(self, status: int) -> ApiError:
        return openai_error(status, "The server had an error while processing your request.")

    def file_of(self, line: ReceivedLine) -> str | None:
        return "output" if line.outcome == "succeeded" else "error"

    def render(self, line: ReceivedLine, batch: ReceivedBatch) -> str:
        ended = _ENDED_MESSAGES.get(line.outcome or "")
        response = {"status_code": line.status, "request_id": f"req_{uuid4().hex}", "body": line.answer}
        return json.dumps(
            {
                "id": f"batch_req_{uuid4().hex[:24]}",
                "custom_id": line.custom_id,
                "response": None if ended else response,
                "error": None if ended is None else {"code": ended[0], "message": ended[1]},
            }
        )

    def finish(self, batch: ReceivedBatch, state: State) -> None:
        """Make a file for each kind of results that the batch has."""
        for kind, results in batch.results.items():
            stored = StoredFile(
                id=f"file-{uuid4().hex[:24]}",
                provider=batch.provider,
                project=batch.caller.project,
                filename=f"{batch.id}_{kind}.jsonl",
                purpose="batch_output",
                results=results,
            )
            state.batches.files[stored.id] = stored
            batch.details[f"{kind}_file_id"] = stored.id


class _Reading:
    """Reads the rows of a file into a batch, and notes their faults."""

    def __init__(self, batch: ReceivedBatch) -> None:
        self._batch = batch
        self._seen: set[str] = set()
        self.mistakes: list[dict[str, Any]] = []

    def take(self, row: bytes, number: int) -> None:
        try:
            asked = json.loads(row)
        except (ValueError, RecursionError):
            asked = None
        if not isinstance(asked, dict):
            self._wrong(number, "invalid_json_line", "This line is not parseable as valid JSON.")
            return
        custom_id, body = asked.get("custom_id"), asked.get("body")
        if not isinstance(custom_id, str) or not isinstance(body, dict):
            name = "body" if isinstance(custom_id, str) else "custom_id"
            message = f"Missing required parameter: '{name}'."
            self._wrong(number, "missing_required_parameter", message, param=name)
            return
        if custom_id in self._seen:
            message = f"The custom_id '{custom_id}' is used by another request of this batch."
            self._wrong(number, "duplicate_custom_id", message, param="custom_id")
        self._seen.add(custom_id)
        if asked.get("url") != self._batch.details["endpoint"] or asked.get("method") != "POST":
            message = "The method and URL of this request do not match the batch's endpoint."
            self._wrong(number, "mismatched_endpoint", message, param="url")
        self._check_model(body.get("model"), number)
        self._batch.lines.append(ReceivedLine(custom_id, body))

    def _check_model(self, model: Any, number: int) -> None:
        if self._batch.model is None:
            self._batch.model = model if isinstance(model, str) else None
        if model != self._batch.model:
            message = f"The model '{model}' is not that of the other requests, '{self._batch.model}'."
            self._wrong(number, "mismatched_model", message, param="body.model")

    def _wrong(self, number: int, code: str, message: str, *, param: str | None = None) -> None:
        if len(self.mistakes) < MAX_ERRORS:
            self.mistakes.append(_mistake(code, message, param=param, line=number))


def _mistake(code: str, message: str, *, param: str | None = None, line: int | None = None) -> dict[str, Any]:
    return {"code": code, "line": line, "message": message, "param": param}
