"""The sandbox's record of batches: lines received, delivered and billed, and results that were never fetched."""

from collections import Counter
from typing import Any

from aiohttp import web

from sandbox.batches.store import ReceivedBatch
from sandbox.paging import integer, limit, refuse_unknown
from sandbox.state import STATE


def add_routes(app: web.Application) -> None:
    app.router.add_get("/_sandbox/batches", list_batches)
    app.router.add_get("/_sandbox/batches/{batch_id}/lines", list_lines)
    app.router.add_get("/_sandbox/billing", read_billing)


async def list_batches(request: web.Request) -> web.Response:
    """List batches in the order in which they were made; `after` is how many to skip."""
    refuse_unknown(request, ("provider", "project", "phase", "after", "limit"))
    query = request.query
    found = [
        batch
        for batch in request.app[STATE].batches.batches.values()
        if query.get("provider", batch.provider) == batch.provider
        and query.get("project", batch.caller.project) == batch.caller.project
        and query.get("phase", batch.phase) == batch.phase
    ]
    after, count = integer(request, "after", default=0), limit(request)
    more = after + count < len(found)
    page = [_summary(batch) for batch in found[after : after + count]]
    return web.json_response({"batches": page, "total": len(found), "next_after": after + count if more else None})


async def list_lines(request: web.Request) -> web.Response:
    """List the lines of a batch as they were sent; `after` is how many to skip."""
    refuse_unknown(request, ("after", "limit"))
    batch = request.app[STATE].batches.batches.get(request.match_info["batch_id"])
    if batch is None:
        raise web.HTTPNotFound(text="There is no such batch.")
    after, count = integer(request, "after", default=0), limit(request)
    more = after + count < len(batch.lines)
    page = [
        {
            "custom_id": line.custom_id,
            "outcome": line.outcome,
            "status": line.status,
            "copies": line.copies,
            "is_malformed": line.is_malformed,
            "prompt_tokens": line.tokens.prompt if line.tokens else 0,
            "cached_tokens": line.tokens.cached if line.tokens else 0,
            "output_tokens": line.tokens.output if line.tokens else 0,
        }
        for line in batch.lines[after : after + count]
    ]
    return web.json_response({"lines": page, "total": len(batch.lines), "next_after": after + count if more else None})


async def read_billing(request: web.Request) -> web.Response:
    """Return sums over everything, however many lines there were."""
    refuse_unknown(request, ())
    state = request.app[STATE]
    phases: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    answers_lost = never_fetched = 0
    for batch in state.batches.batches.values():
        phases[batch.phase] += 1
        answers_lost += batch.answer_lost
        never_fetched += batch.is_never_fetched()
        lines.update(batch.counts)
        lines["received"] += len(batch.lines)
        lines["delivered"] += batch.delivered_lines()
    del lines["total"]
    return web.json_response(
        {
            **state.billing.report(),
            "batches": {
                "made": state.batches.made,
                "by_phase": dict(sorted(phases.items())),
                "answers_lost": answers_lost,
                "never_fetched": never_fetched,
            },
            "lines": {name: lines[name] for name in _LINE_SUMS},
        }
    )


_LINE_SUMS = ("received", "succeeded", "errored", "canceled", "expired", "delivered")


def _summary(batch: ReceivedBatch) -> dict[str, Any]:
    return {
        "id": batch.id,
        "provider": batch.provider,
        "project": batch.caller.project,
        "user": batch.caller.user,
        "model": batch.model,
        "phase": batch.phase,
        "created_at": batch.created_at,
        "entered": batch.entered,
        "lines": len(batch.lines),
        "counts": {name: batch.counts[name] for name in _LINE_SUMS[1:-1]},
        "delivered": batch.delivered_lines(),
        "answer_lost": batch.answer_lost,
        "never_fetched": batch.is_never_fetched(),
        "details": batch.details,
    }
