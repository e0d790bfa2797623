"""
Actions of operators: each has its permission, a page that says what it will do, and a report of what it did.

A verb is data. `on_selected(verb)` makes it an action of a list, `on_one(verb)` a button of a row's page. A GET only
shows the page. The POST that confirms the page calls a service, which writes the audit entry.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.contrib.admin.utils import unquote
from django.core.exceptions import BadRequest, PermissionDenied, ValidationError
from django.db.models import Model, QuerySet, Value
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.admin import ModelAdmin
from unfold.decorators import action
from unfold.enums import ActionVariant

from queueops.core.errors import QueueOpsError

from .forms import ConfirmForm, add_faults

MAX_ROWS_NAMED = 10  # rows named on the page that asks


@dataclass(frozen=True, slots=True)
class VerbOutcome:
    """
    The outcome of a service.

    Attributes:
        report: Replaces the sentence made of the two numbers.
        goes_to: Where to look next; None: back to where the action was started.
    """

    moved: int
    unmoved: int = 0
    report: str = ""
    goes_to: str | None = None


@dataclass(frozen=True, slots=True)
class Verb:
    """
    Attributes:
        name: The action's part of the URL.
        permission: `<app>.<codename>`.
        done: The report's word for a row afterwards, such as "cancelled".
        explains: What the action does and what it leaves alone.
        carry_out: Called with the ids, `actor` and the form's fields.
        applies: Returns the rows on which the action will act; the page says how many they are.
        unfit: Says why it leaves the other rows alone, such as "ended before".
        overrides: The action destroys or overrides something; the button says so.
        amount: Names what the action concerns, if not the rows themselves: "20,000 jobs of 1 batch". Empty: nothing.
    """

    name: str
    permission: str
    label: str
    done: str
    explains: str
    icon: str
    carry_out: Callable[..., VerbOutcome]
    applies: Callable[[QuerySet[Any]], QuerySet[Any]] = lambda rows: rows
    unfit: str = ""
    form: type[ConfirmForm] = ConfirmForm
    overrides: bool = False
    amount: Callable[[QuerySet[Any]], str] | None = None


def by_ids(service: Callable[..., int | Collection[Any]]) -> Callable[..., VerbOutcome]:
    """Return what carries out a verb by a service that takes ids and returns the rows it moved, or their number."""

    def carry_out(ids: Sequence[Any], **options: Any) -> VerbOutcome:
        moved = service(ids, **options)
        count = moved if isinstance(moved, int) else len(moved)
        return VerbOutcome(count, len(ids) - count)

    return carry_out


def actor_of(request: HttpRequest) -> str:
    return f"user:{request.user.pk}"


def mark(function: Callable[..., HttpResponse], **attributes: Any) -> Callable[..., HttpResponse]:
    """
    Set attributes of an action: `needs` is its permission, `verb_of` reads `verb`, and `fits` returns the rows whose
    pages offer it.
    """
    for name, value in attributes.items():
        setattr(function, name, value)
    return function


def on_selected(verb: Verb) -> Any:
    """Return the list's action on the chosen rows."""

    def selected(model_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
        # Act on the chosen rows only, even with `select_across`, by which Django means every row of the table.
        rows = queryset.filter(pk__in=request.POST.getlist(helpers.ACTION_CHECKBOX_NAME))
        return ask_or_act(model_admin, request, verb, rows, goes_back_to=request.get_full_path())

    name, words = f"{verb.name}_selected", f"{verb.label}…"
    return mark(selected, __name__=name, short_description=words, needs=verb.permission)


def on_one(verb: Verb) -> Any:
    """Return the button for the page of one row."""

    def one(model_admin: Any, request: HttpRequest, object_id: str) -> HttpResponse:
        rows = row_named(model_admin, request, object_id)
        if rows is None:
            raise Http404
        page = reverse(f"admin:{model_admin.opts.app_label}_{model_admin.opts.model_name}_change", args=[object_id])
        answer = ask_or_act(model_admin, request, verb, rows, goes_back_to=page)
        if isinstance(answer, HttpResponseRedirect) and answer.url == page and not rows.all().exists():
            return HttpResponseRedirect(list_address(model_admin))  # the verb has deleted the row
        return answer

    return action(
        mark(one, __name__=verb.name, needs=verb.permission, verb=verb, fits=verb.applies),
        description=verb.label,
        url_path=verb.name,
        icon=verb.icon,
        variant=ActionVariant.DANGER if verb.overrides else ActionVariant.DEFAULT,
    )


def row_named(model_admin: Any, request: HttpRequest, object_id: str) -> QuerySet[Any] | None:
    """Return the row that an address names; None: there is no such row, or the text is no key."""
    try:
        rows: QuerySet[Any] = model_admin.get_queryset(request).filter(pk=unquote(object_id))
        return rows if rows.exists() else None
    except (ValidationError, ValueError):
        return None


def verb_of(model: type[Model], name: str) -> Verb | None:
    """Return the verb that the page of a model's row offers under this name; None: there is none."""
    button = getattr(admin.site.get_model_admin(model), name, None)
    return getattr(button, "verb", None)


def ask_or_act(
    model_admin: Any, request: HttpRequest, verb: Verb, rows: QuerySet[Any], *, goes_back_to: str
) -> HttpResponse:
    """
    Show the page that asks, or act once it is confirmed.

    Raises:
        PermissionDenied: The person lacks the verb's permission, from wherever the request came.
    """
    if not request.user.has_perm(verb.permission):
        raise PermissionDenied
    chosen = list(rows)
    applying = set(verb.applies(rows.order_by()).values_list("pk", flat=True))
    # Act only on the rows that the page counts: a service might change others, too. If none counts, the service says
    # why.
    fitting = [row for row in chosen if row.pk in applying] or chosen
    confirmed = request.method == "POST" and "confirmed" in request.POST
    form = verb.form(request.POST if confirmed else None, rows=fitting)
    if confirmed and form.is_valid():
        try:
            outcome = verb.carry_out([row.pk for row in fitting], actor=actor_of(request), **form.cleaned_data)
        except QueueOpsError as error:
            show_error(form, error)
        else:
            report(request, verb, outcome, passed_over=len(chosen) - len(fitting))
            return HttpResponseRedirect(outcome.goes_to or goes_back_to)
    return ask(
        model_admin,
        request,
        title=verb.label,
        form=form,
        explains=verb.explains,
        overrides=verb.overrides,
        button=f"Yes, {verb.label.lower()}" if verb.overrides else verb.label,
        applying=len(applying) if verb.amount is None else verb.amount(verb.applies(rows.order_by())) or 0,
        left_alone=len(chosen) - len(applying),
        unfit=verb.unfit,
        done=verb.done,
        named=[str(row) for row in chosen[:MAX_ROWS_NAMED]],
        unnamed=max(0, len(chosen) - MAX_ROWS_NAMED),
        action_name=request.POST.get("action", ""),
        selected=request.POST.getlist(helpers.ACTION_CHECKBOX_NAME),
        checkbox_name=helpers.ACTION_CHECKBOX_NAME,
        goes_back_to=goes_back_to,
    )


def ask(model_admin: Any, request: HttpRequest, *, title: str, form: forms.Form, **context: Any) -> TemplateResponse:
    """Return the page that says what will happen and asks for what the action needs."""
    return show_page(model_admin, request, "admin/kit/confirm.html", {"title": title, "form": form, **context})


def show_page(model_admin: Any, request: HttpRequest, template: str, context: Mapping[str, Any]) -> TemplateResponse:
    """Return a page of the admin that belongs to a screen; its breadcrumbs lead to the screen's list."""
    shared = model_admin.admin_site.each_context(request)
    return TemplateResponse(request, template, {**shared, "opts": model_admin.opts, **context})


def list_address(model_admin: Any) -> str:
    return reverse(f"admin:{model_admin.opts.app_label}_{model_admin.opts.model_name}_changelist")


def show_error(form: forms.Form, error: QueueOpsError) -> None:
    """Put an expected error where the operator can act on it."""
    form.add_error(None, error.message)
    add_faults(form, error)


def report(request: HttpRequest, verb: Verb, outcome: VerbOutcome, *, passed_over: int) -> None:
    """Report what the service did, and not what was selected; it was not asked about the rows `passed_over`."""
    unmoved = outcome.unmoved + passed_over
    why = f": {verb.unfit}" if passed_over and verb.unfit else ""
    sentence = outcome.report or f"{outcome.moved:,} {verb.done}, {unmoved:,} left alone{why}."
    if outcome.report and passed_over:
        sentence += f" {passed_over:,} left alone{why}."
    all_went_well = outcome.moved and not unmoved
    messages.add_message(request, messages.SUCCESS if all_went_well or outcome.report else messages.WARNING, sentence)


class VerbsMixin(ModelAdmin):
    """
    Offers the actions whose permission a person has; an action that names no permission is offered to nobody. A row's
    page offers only what can do something to the row.

    The attribute `needs` replaces `allowed_permissions`. Django takes a name there for a method of the admin. Unfold
    checks a full name in the database, which has no tables before the first migration.
    """

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """
        Raises:
            BadRequest: A chosen value is no key.
        """
        key = self.opts.pk
        try:
            for chosen in request.POST.getlist(helpers.ACTION_CHECKBOX_NAME):
                key.to_python(chosen)
        except ValidationError as error:
            raise BadRequest("What was chosen is no row.") from error
        response: HttpResponse = super().changelist_view(request, extra_context)
        return response

    def _filter_actions_by_permissions(self, request: HttpRequest, actions: Sequence[Any]) -> list[Any]:
        return [offered for offered in actions if _is_allowed(request, offered[0])]

    def _filter_unfold_actions_by_permissions(
        self, request: HttpRequest, actions: Sequence[Any], object_id: Any = None
    ) -> list[Any]:
        return [offered for offered in actions if _is_allowed(request, offered.method)]

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        offered: list[Any] = super().get_actions_detail(request, object_id)
        rows = row_named(self, request, str(object_id)) if offered else None
        if rows is None:
            return []
        asked = [
            one.method.fits(rows.order_by()).values_list(Value(one.path))
            for one in offered
            if hasattr(one.method, "fits")
        ]
        fitting = {path for (path,) in asked[0].union(*asked[1:])} if asked else set()
        return [one for one in offered if one.path in fitting or not hasattr(one.method, "fits")]


def _is_allowed(request: HttpRequest, method: Any) -> bool:
    needs = getattr(method, "needs", None)
    return needs is not None and request.user.has_perm(needs)


class ReadOnlyMixin:
    """Makes rows read-only that services write: a form would bypass the log, the counts and the audit."""

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False
