"""Operators' names for a project's end users, whom QueueOps knows by their ids alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from queueops.tenancy.models import USER_PLACE, Project, UserLabel

LABELS_OF_AN_INSERT = 5000
THEIR_PAGE = ' <a class="qo-link" href="{}" rel="noreferrer">their page</a>'


def label_users(project_id: str, labels: Mapping[UUID, str]) -> None:
    """
    Give the users these labels, in the caller's transaction. Call it at the end: it locks the rows that it changes.

    A label that a user already has is not written: otherwise submissions that repeat labels would wait for each other.
    """
    if not labels:
        return
    known = dict(
        UserLabel.objects.filter(project_id=project_id, user_id__in=list(labels)).values_list("user_id", "label")
    )
    changed = [
        UserLabel(project_id=project_id, user_id=user, label=label)
        for user, label in sorted(labels.items())  # in a fixed order: otherwise two submissions could deadlock
        if known.get(user) != label
    ]
    UserLabel.objects.bulk_create(
        changed,
        batch_size=LABELS_OF_AN_INSERT,
        update_conflicts=True,
        unique_fields=["project", "user_id"],
        update_fields=["label"],
    )


def labels_of(project_id: str, users: Iterable[UUID]) -> dict[UUID, str]:
    """Return the labels of the users who have one."""
    rows = UserLabel.objects.filter(project_id=project_id, user_id__in=list(users))
    return dict(rows.values_list("user_id", "label"))


def in_words(names: Iterable[str], *, project_id: str = "") -> dict[str, str]:
    """
    Return each name with the user's label: `acme / Ada` for `acme / 6f9f1b0e-…`, if that user's label is Ada.

    Args:
        project_id: The users' project, if the names do not begin with it. Empty: a user to whom two projects give
            different labels keeps the id.
    """
    found = {name: (name.rpartition(" / ")[0] or project_id, _user_of(name.rpartition(" / ")[2])) for name in names}
    rows = UserLabel.objects.filter(user_id__in={user for _, user in found.values() if user})
    labels: dict[UUID | None, dict[str, str]] = {}
    for row in rows:
        labels.setdefault(row.user_id, {})[row.project_id] = row.label
    told = {}
    for name, (project, user) in found.items():
        known = labels.get(user, {})
        unsaid = set(known.values()) if not project else set()
        label = known.get(project) or (unsaid.pop() if len(unsaid) == 1 else "")
        before = name.rpartition(" / ")[0]
        told[name] = " / ".join(filter(None, (before, label))) if label else name
    return told


def users_shown(project_id: str, users: Iterable[UUID]) -> dict[UUID, SafeString]:
    """Return each user as HTML for pages: the label, with links to their jobs and to the project's own page."""
    wanted = set(users)
    labels = labels_of(project_id, wanted)
    form = Project.objects.filter(pk=project_id).values_list("user_address", flat=True).first() or ""
    jobs = reverse("admin:jobs_job_changelist")
    return {
        user: format_html(
            '<a class="qo-link" href="{}?user_id={}">{}</a>{}{}',
            jobs,
            user,
            labels.get(user, user),
            format_html(' <code class="qo-id">{}</code>', user) if user in labels else "",
            format_html(THEIR_PAGE, form.replace(USER_PLACE, str(user))) if form else "",
        )
        for user in wanted
    }


def _user_of(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
