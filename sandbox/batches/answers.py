"""The common part of all providers' batch routes: start, fail on purpose, send results."""

import asyncio
from collections.abc import Iterable, Sequence

from aiohttp import web

from sandbox.batches.run import BatchDialect, run
from sandbox.batches.store import ReceivedBatch, ResultFile
from sandbox.envelopes import AnswerLost, ApiError
from sandbox.state import ARRIVAL, CALL, FATE, STATE


def project_of(request: web.Request) -> str:
    caller = request[ARRIVAL].caller
    return caller.project if caller is not None else "default"


def own_batch(request: web.Request, provider: str, missing: ApiError) -> ReceivedBatch:
    found = request.app[STATE].batches.get(
        request.match_info["batch_id"], provider=provider, project=project_of(request)
    )
    if found is None:
        raise missing
    return found


def start(request: web.Request, batch: ReceivedBatch, dialect: BatchDialect) -> None:
    """
    Start a batch.

    Raises:
        AnswerLost: The batch was made, but its caller gets no answer.
    """
    state = request.app[STATE]
    state.batches.start(batch, asyncio.create_task(run(batch, dialect, state)))
    state.ledger.note_effect(request[CALL])
    if request[FATE].dice.random() < state.gate.knobs.batches.lost_create_rate:
        batch.answer_lost = True
        raise AnswerLost


def fail_sometimes(request: web.Request, rate: float, error: ApiError) -> None:
    if request[FATE].dice.random() < rate:
        request[CALL].cause = "batches"
        raise error


async def send_results(
    request: web.Request, results: Sequence[ResultFile], content_type: str = "application/octet-stream"
) -> web.StreamResponse:
    pieces = (piece for result in results for piece in result.pieces())
    return await send_pieces(request, pieces, results, content_type)


async def send_pieces(
    request: web.Request, pieces: Iterable[bytes], results: Sequence[ResultFile], content_type: str
) -> web.StreamResponse:
    """
    Send an answer with results, piece by piece; they count as delivered once the whole answer was taken.

    Raises:
        AnswerLost: The knobs cut the connection in the middle of the results.
    """
    fate = request[FATE]
    if fate.answers_503_after:
        return web.Response()
    response = web.StreamResponse(headers={"Content-Type": content_type})
    response.enable_chunked_encoding()
    is_cut = fate.dice.random() < request.app[STATE].gate.knobs.batches.results_cut_rate
    await response.prepare(request)
    for piece in pieces:
        await response.write(piece[: len(piece) // 2] if is_cut else piece)
        if is_cut:
            raise AnswerLost
    await response.write_eof()
    for result in results:
        result.is_delivered = True
    return response
