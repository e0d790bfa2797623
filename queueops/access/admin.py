"""The admin's pages of people, their roles and second factors, and of locked accounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import Exists, F, Model, OuterRef, Q, QuerySet
from django.http import HttpRequest
from unfold.decorators import display
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from queueops.access import token_admin  # noqa: F401 - registers its screen
from queueops.access.invite_screen import InvitesMixin
from queueops.access.models import Passkey, SignInCount
from queueops.access.services import guard, invitations, second_factor
from queueops.audit.audited import AuditedMixin, audited_before
from queueops.core.errors import QueueOpsError
from queueops.screens import formatting
from queueops.screens.admin import QueueAdmin
from queueops.screens.attribute import TypedAttribute
from queueops.screens.columns import time_column
from queueops.screens.forms import ReasonForm
from queueops.screens.verbs import ReadOnlyMixin, Verb, VerbOutcome, on_one, on_selected

admin.site.unregister(User)
admin.site.unregister(Group)


class SuperusersOnly(QueueOpsError):
    """Only a superuser may take away the second factor of a superuser."""

    code = "superusers_only"
    status = 403


def _reset(ids: Sequence[int], *, actor: str, reason: str) -> VerbOutcome:
    """
    Raises:
        SuperusersOnly: An account is a superuser's, but the person who asks is no superuser. Otherwise an
            administrator's stolen password could open a superuser's account.
    """
    asks = User.objects.get(pk=actor.removeprefix("user:"))
    if not asks.is_superuser and User.objects.filter(pk__in=ids, is_superuser=True).exists():
        raise SuperusersOnly
    taken = second_factor.take_away(ids, actor=actor, reason=reason)
    return VerbOutcome(taken, len(ids) - taken)


HAS_PASSKEY = Exists(Passkey.objects.filter(user=OuterRef("pk")))
_has_passkey = TypedAttribute[bool]("has_passkey")
RESET = Verb(
    name="reset-second-factor",
    permission="access.reset_authenticator",
    label="Reset second factor",
    done="reset",
    explains="The app's codes, the recovery codes and all passkeys are good for nothing from then on; the next sign-in"
    " asks for the password alone, and for a new second factor where one is required. Be sure of who asks you.",
    icon="phonelink_erase",
    applies=lambda rows: rows.filter(Q(HAS_PASSKEY) | Q(authenticator__isnull=False)),
    unfit="without a second factor",
    carry_out=_reset,
    form=ReasonForm,
    overrides=True,
)


def _unlock(ids: Sequence[int], *, actor: str, reason: str) -> VerbOutcome:
    with transaction.atomic():
        rows = SignInCount.objects.filter(pk__in=ids)
        names = {row.account or row.address for row in rows}
        forgotten = sum(guard.unlock(name, actor=actor, reason=reason) for name in sorted(names))
    return VerbOutcome(forgotten, report=f"Unlocked: {', '.join(sorted(names)) or 'nobody'}.")


UNLOCK = Verb(
    name="unlock",
    permission="access.unlock_signincount",
    label="Unlock",
    done="unlocked",
    explains="Every failure of the account is forgotten, from all addresses.",
    icon="lock_open",
    carry_out=_unlock,
    form=ReasonForm,
    overrides=True,
)


class AuditedPeopleMixin(AuditedMixin):
    """Records a form's changes in the audit trail, with changes of groups, permissions and passwords."""

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        if audited_before.find(request) is None:  # only the page that sets a password skips `save_form`
            self.record(request, obj, "set_password_of", before=None, after=self.audited(obj))
        return super().log_change(request, obj, message)


class AccountForm(UserChangeForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "groups" in self.fields:  # the field is missing for people who may only look
            self.fields["groups"].label = "Roles"

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or self.cleaned_data
        if given.get("groups") and not given.get("is_staff", True):
            if "is_staff" in self.changed_data:
                self.add_error("is_staff", "Whoever has a role is staff. Take the roles away, or Active.")
            given["is_staff"] = True
        return given


@admin.register(User)
class UserAdmin(InvitesMixin, AuditedPeopleMixin, DjangoUserAdmin, QueueAdmin):  # type: ignore[type-arg]
    form = AccountForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "email", "is_active", "is_staff", "is_superuser", "has_second_factor", "last_login")
    list_select_related = ("authenticator",)
    search_help_text = "A part of a username, name or e-mail address"
    filter_horizontal = ()  # Django's two boxes cannot be told apart by a screen reader
    actions = ("reset_second_factor_selected",)
    actions_list = ("invite",)
    actions_detail = ("invite_again", "reset_second_factor")
    fieldsets = (
        (None, {"fields": ("username", "password", "first_name", "last_name", "email")}),
        ("Role", {"fields": ("groups", "is_active"), "description": "Whoever has a role is staff, and signs in."}),
        ("Raw permissions", {"fields": ("is_staff", "is_superuser", "user_permissions"), "classes": ("collapse",)}),
        ("Dates", {"fields": ("last_login", "date_joined"), "classes": ("collapse",)}),
    )

    reset_second_factor_selected, reset_second_factor = on_selected(RESET), on_one(RESET)

    @admin.display(description="second factor", boolean=True)
    def has_second_factor(self, user: User) -> bool:
        return second_factor.authenticator_of(user) is not None or _has_passkey.of(user)

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        people: QuerySet[User] = super().get_queryset(request)
        return people.annotate(**{_has_passkey.name: HAS_PASSKEY})

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        user = User.objects.filter(pk=object_id).first() if str(object_id).isdecimal() else None
        offered = super().get_actions_detail(request, object_id)
        waits = user is not None and invitations.is_waited_for(user)
        return [one for one in offered if waits or one.method.__name__ != "invite_again"]

    def audited(self, obj: User) -> Mapping[str, Any]:
        return {
            "username": obj.username,
            "email": obj.email,
            "is_active": obj.is_active,
            "is_staff": obj.is_staff,
            "is_superuser": obj.is_superuser,
            "groups": sorted(obj.groups.values_list("name", flat=True)),
            "permissions": _names(obj.user_permissions.all()),
        }


@admin.register(Group)
class GroupAdmin(AuditedPeopleMixin, DjangoGroupAdmin, QueueAdmin):
    filter_horizontal = ()  # for the same reason as in UserAdmin
    search_help_text = "A part of a role's name"

    def audited(self, obj: Group) -> Mapping[str, Any]:
        return {"name": obj.name, "permissions": _names(obj.permissions.all())}


@admin.register(SignInCount)
class SignInCountAdmin(ReadOnlyMixin, QueueAdmin):
    list_display = ("whose", "purpose", "from_address", "failures", "state", "until")
    list_filter = ("purpose",)
    search_fields = ("account", "address")
    search_help_text = "A part of an account or address"
    ordering = (F("forget_at").desc(), "account")
    fields = ("purpose", "account", "address", "failures", "forget_at")
    actions = ("unlock_selected",)
    actions_detail = ("unlock",)

    unlock_selected, unlock = on_selected(UNLOCK), on_one(UNLOCK)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return request.user.has_perm("access.view_signincount")

    @admin.display(description="account")
    def whose(self, row: SignInCount) -> str:
        if row.account.startswith(guard.UNKNOWN):
            return f"nobody's name ({row.account.removeprefix(guard.UNKNOWN)[:8]})"
        return row.account or formatting.NOTHING

    @admin.display(description="from")
    def from_address(self, row: SignInCount) -> str:
        return row.address or "all addresses"

    @display(description="state", label={"locked": "danger", "counting": "info", "over": "success"})  # type: ignore[untyped-decorator]
    def state(self, row: SignInCount) -> str:
        return guard.state_of(row)

    until = time_column("until", "forget_at")


def _names(permissions: QuerySet[Any]) -> list[str]:
    return sorted(f"{one.content_type.app_label}.{one.codename}" for one in permissions.select_related("content_type"))
