"""Making projects and issuing keys, each with its entry in the audit trail."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from queueops.audit import trail
from queueops.tenancy.models import ProducerKey, Project


def told_name(name: str) -> str:
    """
    Return the name that somebody gave a project or a key, without blanks around it.

    Raises:
        ValidationError: The name is empty, or has characters that cannot be printed.
    """
    if not name.strip() or not name.isprintable():
        raise ValidationError({"name": "Give a name that can be read."})
    return name.strip()


@transaction.atomic
def create_project(project_id: str, *, actor: str, **fields: Any) -> Project:
    """
    Make a project.

    Args:
        fields: Fields of Project; the others keep their defaults.

    Raises:
        ValidationError: The id or a field breaks its rule, or the project exists already.
    """
    project = Project(pk=project_id, **fields)
    project.full_clean()
    project.save(force_insert=True)
    after = {name: getattr(project, name) for name in ("id", "name", "weight", "max_waiting_jobs", "anonymous_read")}
    trail.record(actor=actor, action="add_project", target=f"project {project.pk}", after=after, project_id=project.pk)
    return project


@transaction.atomic
def issue_key(
    project: Project,
    *,
    actor: str,
    name: str,
    scopes: list[str],
    requests_per_minute: int | None = None,
    expires_at: datetime | None = None,
) -> tuple[ProducerKey, str]:
    """Issue a key of a project. Return its row, and its text, which cannot be seen again."""
    given = {"name": name, "scopes": scopes, "requests_per_minute": requests_per_minute, "expires_at": expires_at}
    key, secret = ProducerKey.issue(project, **given)
    trail.record(actor=actor, action="issue_key", target=f"key {key.prefix}", after=given, project_id=project.pk)
    return key, secret


def faults_told(error: ValidationError) -> str:
    """Return all faults in one line, each with its field."""
    faults = error.message_dict if hasattr(error, "error_dict") else {"": error.messages}
    told = {f"{field}: {text}".removeprefix(": ") for field, texts in faults.items() for text in texts}
    return " ".join(sorted(told))
