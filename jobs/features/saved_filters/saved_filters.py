"""Filters of lists under a name, a person's own or shared with all who see the list."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qs, parse_qsl, urlencode
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from jobs.models import SavedFilter
from jobs.services.upkeep.user_rows import RowsOfUser, UserRows
from queueops.audit import trail
from queueops.core.errors import QueueOpsError

MAX_QUERY_LENGTH = 2000  # of SavedFilter.query
MAX_FILTERS_OF_ONE = 50  # for each person and screen: they are shown as a row of buttons


class InvalidSavedFilter(QueueOpsError):
    """The filter cannot be saved."""

    code = "invalid_saved_filter"
    status = 422


def visible_filters(user_id: int, screen: str) -> QuerySet[SavedFilter]:
    """Return the person's own filters and the shared filters of a screen, by name."""
    mine_or_shared = Q(owner_id=user_id) | Q(shared=True)
    return SavedFilter.objects.filter(mine_or_shared, screen=screen).select_related("owner").order_by("name", "pk")


@transaction.atomic
def save_filter(*, user_id: int, screen: str, name: str, query: str, shared: bool) -> SavedFilter:
    """
    Save a list's parameters. They replace the person's filter of that name on the screen.

    Raises:
        InvalidSavedFilter: Nothing narrows the list, the text is too long, or there are too many filters.
    """
    kept = urlencode([(key, value) for key, value in parse_qsl(query) if value])
    if not kept or len(kept) > MAX_QUERY_LENGTH:
        raise InvalidSavedFilter(
            "Narrow the list first: there is no filter to save." if not kept else "It is too long."
        )
    own = SavedFilter.objects.filter(owner_id=user_id, screen=screen)
    before = own.filter(name=name).first()
    if before is None and own.count() >= MAX_FILTERS_OF_ONE:
        raise InvalidSavedFilter(f"You have {MAX_FILTERS_OF_ONE} saved filters here; forget one first.")
    saved, _ = SavedFilter.objects.update_or_create(
        owner_id=user_id, screen=screen, name=name, defaults={"query": kept, "shared": shared}
    )
    if shared or (before is not None and before.shared):
        trail.record(
            actor=f"user:{user_id}",
            action="share_filter" if shared else "unshare_filter",
            target=f"saved filter {saved.pk}",
            before=before and {"name": before.name, "query": before.query, "shared": before.shared},
            after={"screen": screen, "name": name, "query": kept, "shared": shared},
        )
    return saved


@transaction.atomic
def forget_filter(filter_id: int, *, user_id: int, others_too: bool = False) -> bool:
    """
    Delete a saved filter.

    Args:
        others_too: The person may also delete shared filters of other people.

    Returns:
        Whether there was a filter that they may delete.
    """
    found = SavedFilter.objects.select_for_update().filter(pk=filter_id)
    mine = found.filter(Q(owner_id=user_id) | Q(shared=True) if others_too else Q(owner_id=user_id)).first()
    if mine is None:
        return False
    if mine.shared:
        trail.record(
            actor=f"user:{user_id}",
            action="forget_filter",
            target=f"saved filter {mine.pk}",
            before={"screen": mine.screen, "name": mine.name, "query": mine.query, "owner": f"user:{mine.owner_id}"},
        )
    mine.delete()
    return True


def rows_of_user(project_id: str, user_id: UUID) -> Iterator[UserRows]:
    """Filters by the end user, for the erasure of the user."""
    filters = SavedFilter.objects.filter(query__contains=str(user_id))
    own = RowsOfUser(project_id, user_id).naming(filters, lambda saved: parse_qs(saved.query).get("project", []))
    yield UserRows("saved filters", own)
