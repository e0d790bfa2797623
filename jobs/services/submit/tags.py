"""The tags that jobs and batches get when they are stored."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from jobs.handlers.registry import all_handlers
from jobs.models import Tag
from queueops.core.values.tags import MAX_TAG_LENGTH, field_tag
from queueops.tenancy.secrets.encryption import is_encrypted

from .prepare import PreparedJob

TAGS_OF_AN_INSERT = 5000


def store_tags(project_id: str, tags: Mapping[UUID, Collection[str]]) -> None:
    """Store the tags of jobs or batches, in the caller's transaction."""
    rows = [Tag(owner_id=owner, name=name, project_id=project_id) for owner, names in tags.items() for name in names]
    if rows:
        Tag.objects.bulk_create(rows, batch_size=TAGS_OF_AN_INSERT)


def tags_of_jobs(jobs: Sequence[PreparedJob], project_id: str) -> dict[UUID, Collection[str]]:
    """
    Return the tags of the jobs that have any.

    Tags come from the producer, and from the payload fields by which a kind is searchable. In an encrypted project,
    fields give no tags: nothing of a payload may be readable in the database.
    """
    by_field = not is_encrypted(project_id)
    return {
        job.id: dict.fromkeys([*job.spec.tags, *job.kept_tags, *(_field_tags(job) if by_field else ())])
        for job in jobs
        if job.spec.tags or job.kept_tags or job.handler.searchable
    }


def tags_meant(text: str) -> list[str]:
    """The tags that a search for `text` may mean: the text itself, and the text as the value of a searchable field."""
    fields = {field for handler in all_handlers() for field in handler.searchable}
    return [text[:MAX_TAG_LENGTH], *sorted(field_tag(field, text) for field in fields)]


def _field_tags(job: PreparedJob) -> Iterator[str]:
    for field in job.handler.searchable:
        value: Any = job.spec.payload
        for part in field.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if isinstance(value, str | int | float) and value != "":
            yield field_tag(field, value)
