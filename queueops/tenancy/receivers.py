"""
Receivers of our messages, by webhooks and alert routes: whether they accept messages, and since when they have not.

A receiver that has accepted nothing for SILENT_FOR is paused; one that answers 410 is switched off. No message is sent
for ever to a receiver that does not accept it.
"""

# ruff: noqa: SLF001 - _meta and _default_manager are Django's documented API of a model that is not known here

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar, TypeVar

from django.db import models, transaction
from django.db.models import Q

from queueops.audit import trail
from queueops.core.clock import Now

SILENT_FOR = timedelta(days=3)  # a refused message is sent again for as long: see `receiver` in jobs/backoff.py
MAX_PAUSED = 100  # receivers in one call of `pause_silent`

R = TypeVar("R", bound="Receiver")


class Receiver(models.Model):
    """The state of an address that receives our messages. A test message counts only if it is accepted."""

    class Pause(models.TextChoices):
        SILENT = "silent", "it accepted nothing for three days"
        GONE = "gone", "it answered 410 Gone"

    enabled = models.BooleanField(default=True)
    failing_since = models.DateTimeField(
        null=True, editable=False, help_text="Since when it has accepted nothing. Null: it took its last message."
    )
    paused_at = models.DateTimeField(null=True, editable=False)
    paused_because = models.CharField(
        max_length=6, choices=Pause, default="", db_default="", editable=False, blank=True
    )
    shown_secret: str  # the secret of a new receiver, until its page has shown it

    class Meta:
        abstract = True

    NOT_FAILING: ClassVar[dict[str, Any]] = {"failing_since": None, "paused_at": None, "paused_because": ""}

    @property
    def is_silent(self) -> bool:
        """
        Whether the receiver is paused for silence. Nothing is sent until somebody sends failed messages again or saves
        the receiver, or until it accepts a message that is under way.
        """
        return self.paused_because == self.Pause.SILENT

    def go_on(self) -> None:
        """Clear the failure and the pause; the caller saves the row."""
        for name, value in self.NOT_FAILING.items():
            setattr(self, name, value)


def note_accepted(model: type[Receiver], pk: Any) -> None:
    """
    Note that a receiver accepted a message, which ends a pause for silence. A receiver that was switched off stays off.
    """
    failing = Q(failing_since__isnull=False) & ~Q(paused_because=Receiver.Pause.GONE)
    model._default_manager.filter(failing, pk=pk).update(**Receiver.NOT_FAILING)


@transaction.atomic
def note_refused(model: type[Receiver], pk: Any, *, is_gone: bool = False) -> None:
    """
    Note that a message did not arrive.

    Args:
        is_gone: Whether the receiver answered 410. It is then switched off, which is audited.
    """
    model._default_manager.filter(pk=pk, failing_since=None).update(failing_since=Now())
    if not is_gone:
        return
    because = Receiver.Pause.GONE
    rows = model._default_manager.filter(pk=pk, enabled=True)
    if rows.update(enabled=False, paused_at=Now(), paused_because=because):
        _record(model, pk, "disable", because.label)


def pause_silent(model: type[R]) -> list[R]:
    """Pause the receivers that have accepted nothing for SILENT_FOR, at most MAX_PAUSED; each pause is audited."""
    because = Receiver.Pause.SILENT
    due = model._default_manager.filter(enabled=True, paused_at=None, failing_since__lt=Now() - SILENT_FOR)
    paused = []
    for row in due.order_by("pk")[:MAX_PAUSED]:
        with transaction.atomic():
            if due.filter(pk=row.pk).update(paused_at=Now(), paused_because=because):
                _record(model, row.pk, "pause", because.label)
                paused.append(row)
    return paused


def _record(model: type[Receiver], pk: Any, verb: str, reason: str) -> None:
    named = model._meta
    row = model._default_manager.filter(pk=pk).first()
    trail.record(
        actor="system",
        action=f"{verb}_{named.model_name}",
        target=f"{named.verbose_name} {pk}",
        reason=reason,
        project_id=getattr(row, "project_id", getattr(row, "project", "")),
    )
