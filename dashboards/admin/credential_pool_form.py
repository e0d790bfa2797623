"""The form of a pool of credentials. It checks which properties its members share and which differ."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from queueops.tenancy.admin.credentials import cleaned_hosts
from queueops.tenancy.credential_pools.http_use import is_among
from queueops.tenancy.models import Credential, CredentialPool


class CredentialPoolForm(forms.ModelForm):  # type: ignore[type-arg]
    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if Credential.objects.filter(name=name).exists():
            raise ValidationError("A credential has this name: a payload could mean either.")
        return name

    def clean_hosts(self) -> list[str]:
        return cleaned_hosts(self.cleaned_data["hosts"])


class MembersFormSet(forms.BaseInlineFormSet):  # type: ignore[type-arg]
    """Checks all members together, against the service and hosts typed on the same page."""

    def clean(self) -> None:
        super().clean()
        service = self.data.get("service") or self.instance.service
        hosts = self.instance.hosts  # as typed: Django has read the pool's own form before
        counted: dict[tuple[str, str], str] = {}
        for form in self.forms:
            given: dict[str, Any] = getattr(form, "cleaned_data", {})
            credential: Credential | None = given.get("credential")
            if credential is None or given.get("DELETE"):
                continue
            if credential.service != service:
                form.add_error("credential", f"It is for {credential.service}, not for {service}.")
            elif not credential.quota_project:
                form.add_error(
                    "credential", "Name its quota project first: whom its provider counts its calls against."
                )
            elif lacking := [host for host in hosts if not is_among(host, credential.hosts)]:
                form.add_error(
                    "credential", f"It may not be sent to {', '.join(lacking)}: add that to its hosts first."
                )
            elif other := counted.get(_principals(credential)):
                form.add_error("credential", f"The limits count it as {other}: give them quota projects of their own.")
            else:
                counted[_principals(credential)] = credential.name
        if self.instance.pk is None and not any(form.has_changed() for form in self.forms):
            raise ValidationError("Add a credential: jobs that name a pool without one wait until it has one.")


def _principals(credential: Credential) -> tuple[str, str]:
    return credential.quota_project, credential.quota_user


def audited(pool: CredentialPool) -> dict[str, Any]:
    """Return a pool's values for the audit trail."""
    members = pool.members.select_related("credential").order_by("credential__name")
    return {
        "name": pool.name,
        "service": pool.service,
        "hosts": pool.hosts,
        "projects": sorted(pool.projects.values_list("pk", flat=True)),
        "members": {member.credential.name: member.weight for member in members},
    }
