"""Storing the jobs and batches that others wait for."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from jobs.models import Batch, Dependency, Job, OnFailure
from queueops.core.errors import QueueOpsError

DEPENDENCIES_OF_AN_INSERT = 5000


class Waits(NamedTuple):
    """The jobs and batches that a submitted job or batch waits for."""

    after: Sequence[UUID]
    on_failure: OnFailure


class UnknownDependency(QueueOpsError):
    """A job is to wait for one that the project does not have."""

    code = "unknown_dependency"
    status = 422


class Named:
    """The jobs and batches that a submission names; one object serves a whole batch."""

    def __init__(self, project_id: str, *, only_user: UUID | None = None) -> None:
        """
        Args:
            only_user: The end user who submits, and may name only their own.
        """
        self.project_id = project_id
        self._rows = {"project_id": project_id} | ({"user_id": only_user} if only_user else {})
        self._is_batch: dict[UUID, bool] = {}

    def read(self, ids: Collection[UUID]) -> None:
        """Look up the named ids for `check`, once for many jobs."""
        new = [one for one in ids if one not in self._is_batch]
        if not new:
            return
        for model, is_batch in ((Batch, True), (Job, False)):
            found = model.objects.filter(pk__in=new, **self._rows).order_by().values_list("pk", flat=True)
            self._is_batch |= dict.fromkeys(found, is_batch)

    def check(self, after: Sequence[UUID]) -> None:
        """
        Raises:
            UnknownDependency: An id does not exist, or is another project's or user's: the answer does not say which.
        """
        if unknown := [one for one in after if one not in self._is_batch]:
            raise UnknownDependency(
                "It cannot wait for what the project does not have.",
                fields={"after": [f"no job or batch {one}" for one in unknown]},
            )

    def store(self, owners: Mapping[UUID, Waits], *, of_batch: bool = False) -> None:
        """Store the dependencies of jobs or of a batch, in the transaction that stores these."""
        Dependency.objects.bulk_create(
            [
                Dependency(
                    owner_id=owner,
                    on_id=one,
                    of_batch=of_batch,
                    on_batch=self._is_batch[one],
                    on_failure=waits.on_failure,
                    project_id=self.project_id,
                )
                for owner, waits in owners.items()
                for one in waits.after
            ],
            batch_size=DEPENDENCIES_OF_AN_INSERT,
        )


def waits_as_json(waits: Waits) -> dict[str, Any] | None:
    """Return the dependencies for JSON; None: there are none."""
    if not waits.after:
        return None
    return {"after": [str(one) for one in waits.after], "on_failure": str(waits.on_failure)}


def told_of(waits: Waits) -> str | None:
    """Return the dependencies that a job's first event tells, as JSON text; None: there are none."""
    told = waits_as_json(waits)
    return None if told is None else json.dumps(told)


def batch_waits(batch_id: UUID) -> str | None:
    """Return the same for a job whose batch waits; None: the batch does not."""
    waits = Dependency.objects.filter(owner_id=batch_id).exists()
    return json.dumps({"batch": str(batch_id)}) if waits else None
