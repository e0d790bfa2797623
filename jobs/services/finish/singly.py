"""Writes outcomes one by one, where they could not be written together."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID, uuid4

import psycopg
from django.db import DatabaseError, DataError, IntegrityError, InterfaceError, transaction

from jobs import backoff
from jobs.classify import Failure

from .finish import record_outcomes, unstorable
from .outcomes import Failed, GivenBack, Outcome, Succeeded

logger = logging.getLogger(__name__)

OF_THE_DATABASE = (DatabaseError, InterfaceError, psycopg.Error)
OF_ONE_ROW = (DataError, IntegrityError)
NO_PAYLOAD = "{}"


def record_singly(outcomes: Sequence[Outcome], *, policies: Mapping[str, backoff.Policy]) -> set[UUID]:
    """
    Write each outcome by itself; one that cannot be stored fails its job, and no other.

    Returns:
        The jobs whose write was refused, as `record_outcomes` does.

    Raises:
        Exception: No outcome at all can be stored, so the fault is of none of them. All are to be tried again later.
    """
    lost, bad = _record_each(outcomes, policies)
    if len(bad) == len(outcomes):
        for outcome, fault in bad:
            if not _is_alone_at_fault(outcome, policies):
                raise fault
    # A fault of all that has passed meanwhile would end sound jobs without another try.
    others, bad = _record_each([outcome for outcome, _ in bad], policies)
    for outcome, fault in bad:
        others |= record_outcomes([unstorable(outcome, fault)], policies=policies).lost
    return lost | others


def _record_each(
    outcomes: Sequence[Outcome], policies: Mapping[str, backoff.Policy]
) -> tuple[set[UUID], list[tuple[Outcome, Exception]]]:
    """Write each outcome by itself; return the jobs whose write was refused, and the outcomes that failed, with why."""
    lost: set[UUID] = set()
    bad: list[tuple[Outcome, Exception]] = []
    for outcome in outcomes:
        try:
            with transaction.atomic():
                lost |= record_outcomes([outcome], policies=policies).lost
        except Exception as error:  # noqa: BLE001 - whatever one outcome raises
            raise_others(error)
            bad.append((outcome, error))
    return lost, bad


def raise_others(error: Exception) -> None:
    """
    Raise an error again unless it is of one outcome, whose values or handler's code raise it in the database or before.

    Repeating that cannot help, and other outcomes are sound.
    """
    if isinstance(error, OF_THE_DATABASE) and not isinstance(error, OF_ONE_ROW):
        raise error


def _is_alone_at_fault(outcome: Outcome, policies: Mapping[str, backoff.Policy]) -> bool:
    """Whether an empty outcome like this one, of a job that is not there, can be written. It is rolled back."""
    job = outcome.job._replace(id=uuid4(), token=0, payload=NO_PAYLOAD, partial=None, bound=None, holds=False)
    plain: Outcome
    match outcome:
        case Succeeded():
            plain = Succeeded(job, outcome.service, None, 0.0, via=outcome.via)
        case Failed():
            failure = Failure("none", "", "", outcome="refused")
            plain = replace(outcome, job=job, failure=failure, calls=(), log=(), usage=None, stated=())
        case GivenBack():
            plain = GivenBack(job, "", via=outcome.via)
    try:
        with transaction.atomic():
            record_outcomes([plain], policies=policies)
            transaction.set_rollback(True)
    except Exception:
        logger.exception("no outcome can be stored; those that wait are tried again")
        return False
    return True
