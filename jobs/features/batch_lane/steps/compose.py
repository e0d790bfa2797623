"""Makes the lines of a batch from the payloads of its jobs, at the moment when the batch is handed over."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction

from jobs.handlers.batch_form import custom_id_of
from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import find_handler
from jobs.models import ProviderBatch, ProviderBatchLine
from queueops.tenancy.secrets.credentials import open_named

from .collect import Spoken
from .settle import LINES_OF_A_SLICE, OutcomeNotes, drop_lines, hand_back_lines, lock_lines


def compose_lines(batch: ProviderBatch, spoken: Spoken, *, log: OutcomeNotes | None = None) -> list[bytes]:
    """
    Make the lines of the jobs that the batch still owns, in the order of their numbers.

    Lines of jobs that the batch does not own any more are dropped. Jobs whose payload does not fit any more go live,
    where the error is reported.

    Args:
        log: Notes the jobs whose lines are about to be sent.
    """
    waiting = batch.all_lines.filter(state=ProviderBatchLine.State.WAITING).order_by("number")
    numbers = list(waiting.values_list("number", flat=True))
    lines: list[bytes] = []
    for start in range(0, len(numbers), LINES_OF_A_SLICE):
        lines += _compose(batch, numbers[start : start + LINES_OF_A_SLICE], spoken, log)
    return lines


@transaction.atomic
def _compose(batch: ProviderBatch, numbers: Sequence[int], spoken: Spoken, log: OutcomeNotes | None) -> list[bytes]:
    credential, schema = open_named(batch.credential), find_handler(batch.kind).schema
    found = {line.number: line for line in lock_lines(batch.pk, numbers) if line.is_owned}
    lines: list[bytes] = []
    misfits: list[int] = []
    for number, line in found.items():
        try:
            payload = schema.validate_json(line.job.payload)
            if spoken.form.api_of(payload, credential.base_url) != batch.provider:
                misfits.append(number)
                continue
            body = spoken.form.compose(payload, credential)
            if spoken.form.as_written is not None:
                body = spoken.form.as_written(payload, line.job.payload)
            line_text = spoken.api.line(custom_id_of(batch.pk, number, line.job.id), body)
        except (ValueError, ProviderError):
            misfits.append(number)
            continue
        lines.append(line_text)
    drop_lines(batch, [number for number in numbers if number not in found])
    if misfits:
        hand_back_lines(batch, misfits, reason="it cannot go by batch", live=None)
    if log is not None:
        log.begin([line.job for number, line in found.items() if number not in misfits])
    return lines
