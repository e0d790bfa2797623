"""Pools of credentials: their members, how much room each member has, and which were taken out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminTextInputWidget

from jobs.services.operate.credential_pools import put_back_members
from jobs.states import CallType
from queueops.audit.audited import AuditedMixin
from queueops.screens import formatting
from queueops.screens.admin import LabelledInline
from queueops.screens.forms import OptionalReasonForm
from queueops.screens.verbs import Verb, VerbOutcome, on_one, on_selected
from queueops.tenancy.credential_pools import pools
from queueops.tenancy.credential_pools.refusals import Absence, absences
from queueops.tenancy.models import CredentialPool, CredentialPoolMember
from ratelimits.limiter.view.headroom import WITHOUT_END, Headroom, read_headroom
from ratelimits.limits.catalogue import rules
from ratelimits.subjects import Subject

from .credential_pool_form import CredentialPoolForm, MembersFormSet, audited


def _put_back(ids: Sequence[int], *, actor: str, reason: str) -> VerbOutcome:
    members = CredentialPoolMember.objects.filter(pool__in=ids).values_list("pk", flat=True)
    done = put_back_members(list(members), actor=actor, reason=reason)
    said = [f"{name} stays out: {why}" for name, why in done.refused.items()]
    if done.put_back:
        said.insert(0, f"Put back: {', '.join(done.put_back)}.")
    if done.untried:
        said.append(f"Nobody could try {', '.join(done.untried)}: the first call will tell.")
    return VerbOutcome(len(done.put_back), len(done.refused), " ".join(said) or "None was out.")


PUT_BACK = Verb(
    name="put_back",
    permission="tenancy.reinstate_credentialpool",
    label="Put back",
    done="put back",
    explains="The provider is asked whether it takes each credential that was taken out. Those that it takes are shown "
    "by calls again, and the jobs that wait for them go on; the others stay out.",
    icon="key",
    applies=lambda rows: rows.filter(members__credential__in=[one.credential_id for one in absences()]).distinct(),
    unfit="with none taken out",
    carry_out=_put_back,
    form=OptionalReasonForm,
)


class MemberInline(LabelledInline):
    model = CredentialPoolMember
    formset = MembersFormSet
    fields = ("credential", "weight", "stands", "room")
    readonly_fields = ("stands", "room")
    autocomplete_fields = ("credential",)
    verbose_name_plural = "Members"

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).select_related("credential", "pool").defer("credential__secret")

    @admin.display(description="stands")
    def stands(self, member: CredentialPoolMember) -> SafeString | str:
        if not member.pk:
            return formatting.NOTHING
        return _stands(member)

    @admin.display(description="room now")
    def room(self, member: CredentialPoolMember) -> str:
        return _room(member) if member.pk else formatting.NOTHING


@admin.register(CredentialPool)
class CredentialPoolAdmin(AuditedMixin):
    form = CredentialPoolForm
    inlines = (MemberInline,)
    list_display = ("name", "service", "used_by", "members_in", "members_out")
    list_filter = ("service",)
    search_fields = ("name", "service")
    search_help_text = "A part of its name or service"
    autocomplete_fields = ("projects",)
    fields = ("name", "service", "projects", "hosts")
    audited_as = "credential_pool"
    fixed_fields = ("name", "service")  # payloads and unfinished jobs name the pool
    actions = ("put_back_selected",)
    actions_detail = ("put_back",)
    empty_title = "There are no pools of credentials."
    empty_hint = "Add one where several keys of a service shall share out the calls of jobs that name the pool."

    put_back_selected, put_back = on_selected(PUT_BACK), on_one(PUT_BACK)

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "hosts":
            kwargs["widget"] = UnfoldAdminTextInputWidget()
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def audit_targets(self, row: CredentialPool) -> list[str]:
        return [_target(row)]

    def get_queryset(self, request: HttpRequest) -> QuerySet[CredentialPool]:
        found: QuerySet[CredentialPool] = super().get_queryset(request)
        return found.prefetch_related("projects", "members__credential")

    def audited(self, obj: CredentialPool) -> dict[str, Any]:
        return audited(obj)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        super().save_related(request, form, formsets, change)
        pools.forget()
        if not audited(form.instance)["members"]:
            self.message_user(
                request, "It has no credential any more: jobs that name it wait until it has one.", messages.WARNING
            )

    def delete_model(self, request: HttpRequest, obj: CredentialPool) -> None:
        super().delete_model(request, obj)
        pools.forget()

    @admin.display(description="projects")
    def used_by(self, pool: CredentialPool) -> str:
        return ", ".join(project.pk for project in pool.projects.all()) or "nobody"

    @admin.display(description="credentials")
    def members_in(self, pool: CredentialPool) -> SafeString | str:
        names = [
            member.credential.name for member in pool.members.all() if not pools.absences_of(member.credential.name)
        ]
        return ", ".join(names) or formatting.badge("red", "key_off", "none: its jobs wait")

    @admin.display(description="taken out")
    def members_out(self, pool: CredentialPool) -> SafeString | str:
        out = {member.credential.name: pools.absences_of(member.credential.name) for member in pool.members.all()}
        said = [f"{name} for {_for_whom(absent)}" for name, absent in out.items() if absent]
        return formatting.badge("amber", "key_off", ", ".join(said)) if said else formatting.NOTHING


def _for_whom(absent: Iterable[Absence]) -> str:
    return ", ".join(one.project or "all" for one in absent)


def _target(pool: CredentialPool) -> str:
    return f"pool of credentials {pool.name}"


def _stands(member: CredentialPoolMember) -> SafeString | str:
    absent = pools.absences_of(member.credential.name)
    if not absent:
        return formatting.badge("green", "check", "in use")
    out = formatting.badge("red", "key_off", f"taken out for {_for_whom(absent)}")
    return format_html(
        '{}<br><span class="qo-told">after {}: {}</span>', out, absent[0].evidence, absent[0].reason[:200]
    )


def _room(member: CredentialPoolMember) -> str:
    """Return in words how many calls of each type the credential's limits admit now, for jobs without a user."""
    credential = member.credential
    counted = {(rule.call_type, rule.model) for rule in rules() if rule.service == credential.service}
    subjects = {
        Subject(credential.service, call_type, credential.quota_project, credential.quota_user, model)
        for call_type, model in counted
        for call_type in ([call_type] if call_type in CallType else list(CallType))
    }
    found = read_headroom(subjects) if subjects else {}
    return "; ".join(_words(found)) or "no limit counts it"


def _words(found: dict[Subject, Headroom]) -> Iterable[str]:
    for subject, room in sorted(found.items()):
        what = f"{subject.call_type}s" + (f" to {subject.model}" if subject.model else "")
        if room.calls == WITHOUT_END:
            yield f"{what}: as many as tokens allow"
        elif room.calls or room.opens_at == math.inf:
            yield f"{what}: {room.calls:,}"
        else:
            yield f"{what}: none for {formatting.duration(room.opens_at - room.now)}"
