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
    """The jobs and batches that a submitted job or batch waits for, by their ids."""

    after: Sequence[UUID]
    on_failure: OnFailure


class UnknownDependency(QueueOpsError):
    """A job is to wait for a job or batch that the project does not have."""

    code = "unknown_dependency"
    status = 422


class Named:
    """The jobs and batches that a submission names; one object serves a whole batch."""

    def __init__(self, project_id: str, *, only_user: UUID | None = None) -> None:
        """
        Args:
            only_user: The end user who submits, and may name only their own jobs and batches.
        """
        self.project_id = project_id
        self._rows = {"project_id": project_id} | ({"user_id": only_user} if only_user else {})
        self._is_batch: dict[UUID, bool] = {}
        self._of_keys: dict[str, UUID] = {}
        self._coming: set[str] = set()

    def read(self, names: Collection[UUID | str]) -> None:
        """Look up the named ids and idempotency keys for `check`, once for many jobs."""
        new = [one for one in names if isinstance(one, UUID) and one not in self._is_batch]
        if new:
            for model, is_batch in ((Batch, True), (Job, False)):
                found = model.objects.filter(pk__in=new, **self._rows).order_by().values_list("pk", flat=True)
                self._is_batch |= dict.fromkeys(found, is_batch)
        keys = [one for one in names if isinstance(one, str) and one not in self._of_keys]
        if keys:
            jobs = Job.objects.filter(idempotency_key__in=keys, **self._rows).order_by()
            self._of_keys |= {str(key): pk for key, pk in jobs.values_list("idempotency_key", "pk")}
            self._is_batch |= dict.fromkeys(self._of_keys.values(), False)

    def expect(self, key: str) -> None:
        """Let later lines of a batch wait for the job that its line with this key makes."""
        self._coming.add(key)

    def expect_no_more(self, key: str) -> None:
        """Take back `expect`, as the line with this key was refused: only a job that `read` finds has the key then."""
        self._coming.discard(key)

    def check(self, after: Sequence[UUID | str]) -> None:
        """
        Raises:
            UnknownDependency: A named job or batch does not exist, or is another project's or user's; the error does
                not say which.
        """
        known = (self._is_batch, self._of_keys, self._coming)
        if unknown := [one for one in after if not any(one in names for names in known)]:
            raise UnknownDependency(
                "It cannot wait for what the project does not have.",
                fields={"after": [f"no job or batch {one}" for one in unknown]},
            )

    def know(self, names: Mapping[str, UUID]) -> None:
        """Accept these names of jobs that were looked up before, even if the jobs were deleted since."""
        self._of_keys |= names

    def id_of(self, name: UUID | str) -> UUID:
        """Return the id that a checked name stands for."""
        return name if isinstance(name, UUID) else self._of_keys[name]

    def waits(self, after: Sequence[UUID | str], on_failure: OnFailure) -> Waits:
        """Return the dependencies that checked names stand for, each job or batch once."""
        return Waits(tuple(dict.fromkeys(map(self.id_of, after))), on_failure)

    def store(self, owners: Mapping[UUID, Waits], *, of_batch: bool = False) -> None:
        """Store the dependencies of jobs or of a batch, in the transaction that stores the owners."""
        Dependency.objects.bulk_create(
            [
                Dependency(
                    owner_id=owner,
                    on_id=one,
                    of_batch=of_batch,
                    on_batch=self._is_batch.get(one, False),  # a requeued job may wait for a deleted job
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
    """Return the dependencies as JSON text for a job's first event; None: there are none."""
    told = waits_as_json(waits)
    return None if told is None else json.dumps(told)


def batch_waits(batch_id: UUID) -> str | None:
    """Return the batch as JSON text for the first event of its jobs; None: the batch waits for nothing."""
    waits = Dependency.objects.filter(owner_id=batch_id).exists()
    return json.dumps({"batch": str(batch_id)}) if waits else None
