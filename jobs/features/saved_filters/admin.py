"""Saved filters above a list: one click narrows the list, and the list's present filters can be saved."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from unfold.widgets import UnfoldAdminTextInputWidget, UnfoldBooleanWidget

from jobs.features.saved_filters.saved_filters import forget_filter, save_filter, visible_filters
from jobs.models import SavedFilter
from queueops.core.errors import QueueOpsError
from queueops.screens.admin import QueueAdmin
from queueops.screens.forms import ConfirmForm
from queueops.screens.paging import filters_of
from queueops.screens.verbs import ask, list_address, show_error

SHARE = "jobs.share_savedfilter"
FORGET_OTHERS = "jobs.delete_savedfilter"


class SaveForm(ConfirmForm):
    name = forms.CharField(
        max_length=60,
        widget=UnfoldAdminTextInputWidget,
        help_text="One of yours with the same name is replaced.",
    )
    shared = forms.BooleanField(
        label="Share it with everybody who sees this list", required=False, widget=UnfoldBooleanWidget
    )


class SavedFiltersMixin(QueueAdmin):
    """Gives a list saved filters: above it, and the pages below its address."""

    def get_urls(self) -> list[Any]:
        forget = SavedFiltersMixin.forget_filter
        return [
            self.page_at("save-filter/", SavedFiltersMixin.save_filter, "save_filter"),
            self.page_at("forget-filter/<int:filter_id>/", forget, "forget_filter"),
            *super().get_urls(),
        ]

    def shown_above(self, request: HttpRequest) -> dict[str, Any]:
        name = f"{self.opts.app_label}_{self.opts.model_name}"
        query = filters_of(request)
        person = self._person(request)
        others_too = request.user.has_perm(FORGET_OTHERS)
        filters = [
            {
                "name": one.name,
                "href": f"?{one.query}",
                "chosen": one.query == query,
                "whose": "" if one.owner_id == person else f"shared by {one.owner.get_username()}",
                "shared": one.shared,
                "forget_href": reverse(f"admin:{name}_forget_filter", args=[one.pk])
                if one.owner_id == person or (others_too and one.shared)
                else "",
            }
            for one in visible_filters(person, self.opts.model_name)
        ]
        is_new = bool(query) and not request.GET.get("q") and not any(one["chosen"] for one in filters)
        return {
            **super().shown_above(request),
            "saved_filters": filters,
            "save_filter_href": f"{reverse(f'admin:{name}_save_filter')}?{query}" if is_new else "",
        }

    def save_filter(self, request: HttpRequest) -> HttpResponse:
        self._refuse_strangers(request)
        query = filters_of(request)
        back = f"{list_address(self)}?{query}"
        form = SaveForm(request.POST if request.method == "POST" else None)
        if not request.user.has_perm(SHARE):
            del form.fields["shared"]
        if request.method == "POST" and form.is_valid():
            try:
                save_filter(
                    user_id=self._person(request),
                    screen=SavedFilter.Screen(self.opts.model_name),
                    name=form.cleaned_data["name"],
                    query=query,
                    shared=form.cleaned_data.get("shared", False),
                )
            except QueueOpsError as error:
                show_error(form, error)
            else:
                return HttpResponseRedirect(back)
        return ask(
            self,
            request,
            title="Save these filters",
            form=form,
            button="Save",
            named=[f"{key.replace('_', ' ')}: {value}" for key, value in request.GET.items() if value],
            goes_back_to=back,
        )

    def forget_filter(self, request: HttpRequest, filter_id: int) -> HttpResponse:
        self._refuse_strangers(request)
        found = visible_filters(self._person(request), self.opts.model_name).filter(pk=filter_id).first()
        if found is None:
            raise Http404
        if request.method == "POST":
            others_too = request.user.has_perm(FORGET_OTHERS)
            if not forget_filter(filter_id, user_id=self._person(request), others_too=others_too):
                raise PermissionDenied
            messages.success(request, f"“{found.name}” is forgotten.")
            return HttpResponseRedirect(list_address(self))
        return ask(
            self,
            request,
            title="Forget a saved filter",
            form=ConfirmForm(),
            button="Yes, forget it",
            overrides=True,
            explains="Nobody it is shared with has it afterwards." if found.shared else "",
            named=[found.name],
            goes_back_to=list_address(self),
        )

    def _refuse_strangers(self, request: HttpRequest) -> None:
        if not self.has_view_permission(request):
            raise PermissionDenied

    @staticmethod
    def _person(request: HttpRequest) -> int:
        if request.user.pk is None:
            raise PermissionDenied
        return int(request.user.pk)
