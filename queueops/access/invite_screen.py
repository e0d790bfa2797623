"""*Invite*: makes a colleague's account with a role, and the link for their first sign-in."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import Group, User
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from unfold.decorators import action
from unfold.widgets import UnfoldAdminEmailInputWidget, UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from queueops.access.services import invitations
from queueops.core.errors import QueueOpsError
from queueops.screens.forms import ConfirmForm, set_queryset
from queueops.screens.secrets import shown_once
from queueops.screens.verbs import ask, show_error

INVITE = "access.invite_user"
_EXPLAINS = f"A link in which they choose their password: good once, for {invitations.LASTS_HOURS} hours."


class InviteForm(ConfirmForm):
    name = forms.CharField(
        max_length=150,
        validators=[UnicodeUsernameValidator()],
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
        help_text="With which they sign in. Letters, digits and @ . + - _",
    )
    email = forms.EmailField(
        label="E-mail",
        max_length=254,
        required=False,
        widget=UnfoldAdminEmailInputWidget(attrs={"autocomplete": "off"}),
    )
    role = forms.ModelChoiceField(
        queryset=Group.objects.none(),
        empty_label="Choose one",
        to_field_name="name",
        widget=UnfoldAdminSelectWidget,
        help_text="What they may see and do; of roles, those that hold nothing that you do not hold.",
    )

    def __init__(self, *args: Any, asks: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        mine = [role.pk for role in Group.objects.all() if invitations.may_give(asks, role)]
        set_queryset(self, "role", Group.objects.filter(pk__in=mine).order_by("name"))
        self.fields["email"].help_text = (
            "The link is mailed to it, and shown to you once."
            if settings.QUEUEOPS.email_url
            else "Optional. No mail server is configured (QUEUEOPS_EMAIL_URL): hand the link over yourself."
        )


class InvitesMixin:
    """The buttons of the accounts' list, and of an account whose owner has not signed in yet."""

    @action(description="Invite…", url_path="invite", icon="person_add")  # type: ignore[untyped-decorator]
    def invite(self, request: HttpRequest) -> HttpResponse:
        asks = _asking(request)
        form = InviteForm(request.POST if request.method == "POST" else None, asks=asks)
        if request.method == "POST" and form.is_valid():
            try:
                return self._shown(request, invitations.invite(asks, **form.cleaned_data, base=_base(request)))
            except QueueOpsError as error:
                show_error(form, error)
        return ask(
            self,
            request,
            title="Invite a colleague",
            form=form,
            explains=_EXPLAINS,
            button="Invite",
            goes_back_to=reverse("admin:auth_user_changelist"),
        )

    @action(description="Invite again", url_path="invite-again", icon="forward_to_inbox")  # type: ignore[untyped-decorator]
    def invite_again(self, request: HttpRequest, object_id: str) -> HttpResponse:
        asks = _asking(request)
        user = User.objects.filter(pk=object_id).first() if object_id.isdecimal() else None
        if user is None:
            raise Http404
        page = reverse("admin:auth_user_change", args=[user.pk])
        form = ConfirmForm(request.POST if request.method == "POST" else None)
        if form.is_valid():
            try:
                return self._shown(request, invitations.invite_again(asks, user, base=_base(request)))
            except QueueOpsError as error:
                messages.error(request, error.message)
                return HttpResponseRedirect(page)
        return ask(
            self,
            request,
            title=f"Invite {user} again",
            form=form,
            explains=f"{_EXPLAINS} Links from before are worth nothing then.",
            button="Invite again",
            goes_back_to=page,
        )

    invite.needs = invite_again.needs = INVITE

    def _shown(self, request: HttpRequest, invited: invitations.Invited) -> HttpResponse:
        explains = f"The link for {invited.user.username}. {invited.mailed or 'Hand it over yourself.'} {_EXPLAINS}"
        return shown_once(
            self,
            request,
            title="Invited",
            secret=invited.link,
            explains=explains,
        )


def _asking(request: HttpRequest) -> User:
    if not isinstance(request.user, User) or not request.user.has_perm(INVITE):
        raise PermissionDenied
    return request.user


def _base(request: HttpRequest) -> str:
    return settings.QUEUEOPS.public_url or request.build_absolute_uri("/")
