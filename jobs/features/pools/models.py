"""Which clusters carry out which jobs."""

from __future__ import annotations

import uuid
from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.core.validators import RegexValidator
from django.db import models
from django.db.models.functions import Now

POOLED = "pooled"  # the variant of a statement that takes the jobs of one pool

NAME = RegexValidator(
    r"^[a-z0-9][a-z0-9_-]*\Z", "A pool's name has small letters, digits, - and _ only, such as llm-slow."
)
WORD = RegexValidator(
    r"^([A-Za-z0-9_][A-Za-z0-9_.:/-]*\*?|\*)\Z",
    "%(value)s is no name: letters, digits, and . _ : / - within, with * at its end for all that begin so.",
)


def _words(what: str) -> ArrayField[list[str], list[str]]:
    return ArrayField(
        models.CharField(max_length=100, validators=[WORD]),
        default=list,
        blank=True,
        size=100,
        help_text=f"{what} Separated by commas; * at the end of one stands for all that begin so. Empty: all.",
    )


class Pool(models.Model):
    """
    Jobs that clusters may be set aside for.

    A job belongs to the first pool, by place and name, that names it in each list that is not empty
    (sql/fragments/pool_of.sql). `Job.pool` is that pool's name. If there are pools and no pool names the job,
    `Job.pool` is empty and not null, so that the same indexes find such jobs.
    """

    name = models.CharField(primary_key=True, max_length=40, validators=[NAME])
    services = _words("Such as gemini, openai.")
    kinds = _words("Such as google_sheets.*, http.request.")
    projects = _words("Of these projects only.")
    place = models.PositiveSmallIntegerField(
        default=100, help_text="Where several pools name a job, it belongs to that with the lowest place."
    )
    served_at = models.DateTimeField(null=True, editable=False, help_text="When a live cluster was seen last.")

    class Meta:
        ordering = ("place", "name")

    def __str__(self) -> str:
        return self.name


class PoolSweep(models.Model):
    """
    How far unfinished jobs have been moved since the pools' rules changed; one row. See assign.py.

    Attributes:
        xid: The id of the transaction that changed the rules; older ones may still insert jobs by the old rules.
        passes: How often all jobs have been looked through since.
    """

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    changed_at = models.DateTimeField(db_default=Now())
    xid = models.BigIntegerField()
    after = models.UUIDField(default=uuid.UUID(int=0))
    passes = models.PositiveSmallIntegerField(default=0, db_default=0)

    class Meta:
        constraints: ClassVar = [models.CheckConstraint(condition=models.Q(id=1), name="jobs_poolsweep_one_row")]

    def __str__(self) -> str:
        return f"pass {self.passes}, after {self.after}"
