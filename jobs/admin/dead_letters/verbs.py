"""An operator's actions on dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from jobs.admin.forms import EditedRequeueForm, RequeueForm
from jobs.admin.jobs.verbs import in_bulk, page_of_the_only
from jobs.services.operate import dead_letters
from queueops.screens.forms import ReasonForm
from queueops.screens.verbs import Verb, VerbOutcome


def _requeue(ids: Sequence[UUID], *, actor: str, **options: Any) -> VerbOutcome:
    result = dead_letters.requeue_dead_letters(ids, actor=actor, **options)
    return VerbOutcome(len(result.moved), len(result.unmoved), goes_to=page_of_the_only(list(result.moved.values())))


REQUEUE = Verb(
    name="requeue",
    permission="jobs.requeue_deadletter",
    label="Requeue",
    done="requeued",
    explains="Each gets a new job with fresh retries and the same effect key. Where its kind sends that key or is"
    " idempotent, its effect cannot happen twice; where it is neither, what the provider did before it failed may be"
    " repeated. Those requeued or discarded before are left alone.",
    icon="replay",
    applies=lambda rows: rows.filter(resolution=None),
    unfit="requeued or discarded before",
    carry_out=_requeue,
    form=RequeueForm,
)
EDIT = Verb(
    name="edit",
    permission="jobs.requeue_deadletter",
    label="Edit and requeue",
    done="requeued",
    explains="The new job gets the payload below; the dead letter keeps the old one.",
    icon="edit",
    applies=lambda rows: rows.filter(resolution=None),
    unfit="requeued or discarded before",
    carry_out=_requeue,
    form=EditedRequeueForm,
)
DISCARD = Verb(
    name="discard",
    permission="jobs.discard_deadletter",
    label="Discard",
    done="discarded",
    explains="Closed without running again: what they were to do is not done. Their jobs stay failed, and this cannot"
    " be taken back. Payload and errors are then kept only as long as those of other ended jobs; an open dead letter"
    " keeps them. Until they go, Run again on a job's page does its work once more.",
    icon="delete",
    applies=lambda rows: rows.filter(resolution=None),
    unfit="requeued or discarded before",
    carry_out=in_bulk(dead_letters.discard_dead_letters),
    form=ReasonForm,
    overrides=True,
)
