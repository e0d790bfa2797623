"""The life of a batch: validated, worked through over its time, its results written; or cancelled, or expired."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sandbox import clock
from sandbox.batches.slices import SLICE_LINES, slices
from sandbox.batches.store import Outcome, Phase, ReceivedBatch, ReceivedLine, ResultFile
from sandbox.billing import digest_of
from sandbox.envelopes import ApiError
from sandbox.knobs.batches import BatchKnobs
from sandbox.provider import CallTokens
from sandbox.state import State

STEPS = 20
SERVER_ERROR: dict[str, Any] = {"code": "server_error", "line": None, "message": "The batch failed.", "param": None}


@dataclass(frozen=True, slots=True)
class LineAnswer:
    """The answer to a request."""

    body: dict[str, Any]
    model: str
    tokens: CallTokens
    prompt: str


class BatchDialect(Protocol):
    """
    How one provider reads a batch, answers a line of it, and writes results.

    `keeps_half_done` says whether a batch that is cancelled or expires keeps, and bills, the lines that
    were answered. `can_fail` says whether a batch may fail as a whole; if not, each of its lines fails.
    """

    keeps_half_done: bool
    can_fail: bool

    async def load(self, batch: ReceivedBatch, state: State) -> list[dict[str, Any]]:
        """Read and check the lines; return what is wrong with the batch as a whole."""

    def answer(self, line: ReceivedLine, batch: ReceivedBatch, state: State) -> LineAnswer:
        """
        Answer one line.

        Raises:
            ApiError: The provider refuses the request.
        """

    def error(self, status: int) -> ApiError:
        """Return the refusal of a line that the knobs let fail."""

    def file_of(self, line: ReceivedLine) -> str | None:
        """Return the kind of results that the line's result belongs to; None: the line has no result."""

    def render(self, line: ReceivedLine, batch: ReceivedBatch) -> str:
        """Return a line of results, without the line break."""

    def finish(self, batch: ReceivedBatch, state: State) -> None:
        """Store the results where the provider keeps them."""


async def run(batch: ReceivedBatch, dialect: BatchDialect, state: State) -> None:
    """Run a batch by the knobs at its start. An error of the sandbox itself fails the batch, and is reported."""
    batch.entered["validating"] = batch.created_at
    try:
        await _Life(batch, dialect, state).live()
    except Exception:
        batch.errors = [SERVER_ERROR]
        batch.enter("failed")
        raise


class _Life:
    def __init__(self, batch: ReceivedBatch, dialect: BatchDialect, state: State) -> None:
        self._batch, self._dialect, self._state = batch, dialect, state
        self._knobs: BatchKnobs = state.gate.knobs.batches
        self._lines_fail = False
        self._at = batch.created_at  # the planned time of the current step; a late step does not put off the next ones
        self._dice = random.Random(f"{state.gate.knobs.seed}:{batch.provider}:{state.batches.made}")

    async def live(self) -> None:
        batch, knobs = self._batch, self._knobs
        await self._wait_until(self._at + knobs.validation_seconds)
        batch.errors = await self._dialect.load(batch, self._state)
        if batch.errors:
            batch.enter("failed")
            return
        if not batch.cancel_asked.is_set():
            batch.enter("in_progress")
        fails = self._dice.random() < knobs.failed_rate
        self._lines_fail = fails and not self._dialect.can_fail
        ending = await self._work()
        if fails and self._dialect.can_fail and ending != "cancelled":
            await self._forget("errored")
            batch.errors = [SERVER_ERROR]
            batch.enter("failed")
            return
        if ending != "completed" and not self._dialect.keeps_half_done:
            await self._forget("canceled" if ending == "cancelled" else "expired")
        if ending == "cancelled":
            await clock.sleep(knobs.cancelling_seconds)
        else:
            batch.enter("finalizing")
            await clock.sleep_until(self._at + knobs.finalizing_seconds)
        await self._write()
        self._dialect.finish(batch, self._state)
        batch.enter(ending)

    async def _work(self) -> Phase:
        """Answer the lines, evenly over the time that was drawn, until the end, a cancel or the window's end."""
        batch, lines = self._batch, self._batch.lines
        share, seconds = self._knobs.expires_at_share, self._knobs.processing.draw(self._dice)
        most = len(lines) if share is None else int(len(lines) * share)
        size = max(1, min(SLICE_LINES, math.ceil(len(lines) / STEPS)))
        steps = max(1, math.ceil(len(lines) / size))
        ending: Phase = "completed" if most == len(lines) else "expired"
        done = 0
        began = self._at
        for number, start in enumerate(range(0, max(most, 1), size), 1):
            await self._wait_until(min(began + seconds * number / steps, batch.expires_at()))
            if batch.cancel_asked.is_set():
                ending = "cancelled"
                break
            if clock.now() >= batch.expires_at():
                ending = "expired"
                break
            some = lines[start : min(start + size, most)]
            for line in some:
                self._answer(line)
            done += len(some)
        if done < len(lines):
            await self._end_without_answer(lines[done:], "canceled" if ending == "cancelled" else "expired")
        return ending

    def _answer(self, line: ReceivedLine) -> None:
        batch, knobs, dice = self._batch, self._knobs, self._dice
        error_draw, fate_draw, repeat_draw = dice.random(), dice.random(), dice.random()
        try:
            if self._lines_fail:
                raise self._dialect.error(500)
            for status, rate in sorted(knobs.line_error_rates.items()):
                if error_draw < rate:
                    raise self._dialect.error(status)
                error_draw -= rate
            found = self._dialect.answer(line, batch, self._state)
        except ApiError as error:
            line.outcome, line.status, line.answer = "errored", error.status, error.body
        else:
            line.outcome, line.answer, line.tokens = "succeeded", found.body, found.tokens
            line.is_malformed = knobs.lost_line_rate <= fate_draw < knobs.lost_line_rate + knobs.malformed_line_rate
            line.digest = digest_of(found.prompt)
            line.model = found.model
        line.copies = 2 if repeat_draw < knobs.repeated_line_rate else 1
        if fate_draw < knobs.lost_line_rate:
            line.copies = 0
        batch.counts[line.outcome] += 1

    def _bill(self, line: ReceivedLine) -> None:
        batch, tokens = self._batch, line.tokens
        if tokens is None:
            return
        batch.usage.update(prompt=tokens.prompt, cached=tokens.cached, output=tokens.output)
        self._state.billing.note(
            provider=batch.provider,
            model=line.model,
            via="batch",
            tokens=tokens,
            digest=line.digest,
            custom_id=line.custom_id,
            is_readable=line.copies > 0 and not line.is_malformed,
        )

    async def _forget(self, outcome: Outcome) -> None:
        """Drop all answers without billing them."""
        self._batch.counts.clear()
        async for some in slices(self._batch.lines):
            for line in some:
                line.outcome, line.tokens, line.answer = outcome, None, None
            self._batch.counts[outcome] += len(some)

    async def _end_without_answer(self, lines: Sequence[ReceivedLine], outcome: Outcome) -> None:
        async for some in slices(lines):
            for line in some:
                line.outcome = outcome
            self._batch.counts[outcome] += len(some)

    async def _write(self) -> None:
        """Write the results, shuffled unless asked for in order; bill them, and drop requests and answers."""
        batch = self._batch
        order = [line for line in batch.lines for _ in range(line.copies)]
        if not self._knobs.results_in_order:
            self._dice.shuffle(order)
        async for some in slices(order):
            for line in some:
                name = self._dialect.file_of(line)
                if name is not None:
                    text = self._dialect.render(line, batch)
                    found = batch.results.setdefault(name, ResultFile())
                    found.add(text[: len(text) // 2] if line.is_malformed else text, line)
        async for some in slices(batch.lines):
            for line in some:
                self._bill(line)
                line.answer, line.body = None, {}

    async def _wait_until(self, moment: float) -> None:
        """Wait until the moment, or until the batch is cancelled."""
        self._at = moment
        await clock.sleep_until(moment, unless=self._batch.cancel_asked)
