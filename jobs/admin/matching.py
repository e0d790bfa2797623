"""
Actions on all rows that a list's filters match, on this page or not: a page that asks, then a bulk operation.

Like a verb (verbs.py) such an action is data. Its rows are fixed when it starts; its own page shows its progress.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from pydantic import BaseModel

from jobs.errors import InvalidFilter
from jobs.models import Batch, BulkOperation
from jobs.services.operate.job_filter import Counted
from queueops.core.errors import QueueOpsError
from queueops.core.values.numbers import numbered
from queueops.screens.admin import QueueAdmin
from queueops.screens.forms import ConfirmForm
from queueops.screens.paging import NOT_FILTERS, filters_of
from queueops.screens.verbs import Verb, actor_of, ask, list_address, show_error


@dataclass(frozen=True, slots=True)
class Matching:
    """
    A verb, for all matching rows.

    Attributes:
        verb: The action's name, permission and words. The verb's own form and service are for chosen rows only.
        start: A service of jobs/services/operate/bulk.py; called with the filter, `actor` and the form's fields.
        initial: (filter, count) -> the form's first values.
        done: The word for what happened to the rows; empty: the verb's own word.
    """

    verb: Verb
    form: type[ConfirmForm]
    start: Callable[..., BulkOperation]
    initial: Callable[[Any, int], Mapping[str, Any]] = lambda wanted, count: {}
    done: str = ""


class MatchingMixin(QueueAdmin):
    """
    Offers the actions of `matching` above a list, and their pages below its address.

    Attributes:
        everything: The name of the rows on the page that asks, if no filter narrows them.
    """

    matching: tuple[Matching, ...] = ()
    everything = "every row"

    def wanted_by(self, request: HttpRequest) -> BaseModel:
        """
        Return the filter that the list's address states.

        Raises:
            InvalidFilter: A parameter has a value that its field does not take.
        """
        raise NotImplementedError

    def count_matching(self, action: Matching, wanted: Any) -> Counted:
        """Count the rows that the action would change."""
        raise NotImplementedError

    def in_words(self, narrowed: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the filters for the page that asks: a batch also by its name, because nobody knows it by its id."""
        if "batch_id" not in narrowed:
            return narrowed
        name = Batch.objects.filter(pk=narrowed["batch_id"]).values_list("name", flat=True).first()
        return {**narrowed, "batch_id": f"{name}, {narrowed['batch_id']}"} if name else narrowed

    def get_urls(self) -> list[Any]:
        own = [
            self.page_at(f"all-{one.verb.name}/", partial(MatchingMixin._ask_or_start, action=one), _name_of(one))
            for one in self.matching
        ]
        return [*own, *super().get_urls()]

    def tools_for(self, request: HttpRequest) -> list[dict[str, Any]]:
        """The actions that this person may carry out on all matching rows, as buttons that keep the list's filters."""
        query = filters_of(request)
        if not query:
            return []  # without a filter, a button above a list would change all rows, which nobody means
        screens = f"admin:{self.opts.app_label}_{self.opts.model_name}"
        return [
            {
                "label": f"{one.verb.label}…",
                "icon": one.verb.icon,
                "href": f"{reverse(f'{screens}_{_name_of(one)}')}?{query}",
            }
            for one in self.matching
            if request.user.has_perm(one.verb.permission)
        ]

    def _ask_or_start(self, request: HttpRequest, action: Matching) -> HttpResponse:
        verb = action.verb
        if not request.user.has_perm(verb.permission):
            raise PermissionDenied
        back = list_address(self)
        try:
            wanted = self.wanted_by(request)
        except InvalidFilter as error:
            faults = "; ".join(f"{field}: {', '.join(said)}" for field, said in error.fields.items())
            messages.error(request, f"{error.message} {faults}")
            return HttpResponseRedirect(back)
        confirmed = request.method == "POST"
        counted = self.count_matching(action, wanted)
        form = action.form(request.POST if confirmed else None, initial=dict(action.initial(wanted, counted.count)))
        if confirmed and form.is_valid():
            try:
                operation = action.start(wanted, actor=actor_of(request), **form.cleaned_data)
            except QueueOpsError as error:
                show_error(form, error)
            else:
                least = "at least " if operation.total_is_least else ""
                messages.success(request, f"Started over {numbered(operation.total, 'row', before=least)}.")
                return HttpResponseRedirect(reverse("admin:jobs_bulkoperation_change", args=[operation.pk]))
        narrowed = self.in_words(wanted.model_dump(mode="json", exclude_none=True))
        return ask(
            self,
            request,
            title=f"{verb.label} all that match",
            form=form,
            explains=f"{verb.explains} It runs in the background and can be stopped; rows that come to match later"
            " are left alone.",
            overrides=verb.overrides,
            button=f"Yes, {verb.label.lower()} all" if verb.overrides else f"{verb.label} all",
            # If the bounded count found no row, rows may still match: the operation will look at all of them.
            applying=words_of(counted.count, counted.is_least) if counted.count or counted.is_least else 0,
            left_alone=0,
            done=action.done or verb.done,
            named=[f"{name.replace('_', ' ')}: {value}" for name, value in narrowed.items()] or [self.everything],
            goes_back_to=f"{back}?{request.GET.urlencode()}",
        )


def _name_of(action: Matching) -> str:
    return f"all_{action.verb.name.replace('-', '_')}"


def words_of(count: int, is_least: bool) -> str:  # noqa: FBT001 - of one figure
    return f"{'at least ' if is_least else ''}{count:,}"


def parameters_of(request: HttpRequest, names: Mapping[str, str]) -> dict[str, Any]:
    """
    Return the list's parameters by the names of a service's filter, and the range of times of creation.

    Args:
        names: The list's parameters, each with the filter's name for it.

    Raises:
        InvalidFilter: A parameter is empty or unknown: it would narrow nothing, and the action would apply to
            everything.
    """
    known = {*names, *NOT_FILTERS, *(f"created_at_{end}_{part}" for end in ("from", "to") for part in (0, 1))}
    faults = {name: ["empty; leave it out"] for name in request.GET if not request.GET[name].strip()}
    faults |= {name: ["unknown"] for name in request.GET if name not in known}
    if faults:
        raise InvalidFilter(fields=faults)
    given: dict[str, Any] = {}
    for parameter, field in names.items():
        if value := request.GET.get(parameter, "").strip():
            given[field] = value
    for end, field in (("from", "created_from"), ("to", "created_until")):
        if day := request.GET.get(f"created_at_{end}_0", "").strip():
            clock = request.GET.get(f"created_at_{end}_1", "").strip() or ("00:00:00" if end == "from" else "23:59:59")
            given[field] = f"{day}T{clock}Z"
    return given
