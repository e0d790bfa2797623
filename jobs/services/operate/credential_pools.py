"""Putting credentials back into their pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction

from jobs.handlers.errors import ProviderError
from jobs.handlers.trials import try_credential
from queueops.audit import trail
from queueops.core.errors import QueueOpsError
from queueops.core.notify import Channel, notify
from queueops.tenancy.credential_pools import pools, refusals
from queueops.tenancy.models import CredentialPoolMember
from queueops.tenancy.secrets.credentials import open_credential


@dataclass(frozen=True, slots=True)
class PutBack:
    """
    The result of `put_back_members`.

    Attributes:
        refused: The reason of the provider's refusal, by the credential that therefore stays out.
        untried: Credentials put back without a trial, as there is no way to try them.
    """

    put_back: tuple[str, ...]
    refused: dict[str, str]
    untried: tuple[str, ...]


def put_back_members(members: Sequence[int], *, actor: str, reason: str = "") -> PutBack:
    """
    Put back members whose provider accepts their credential again. Not to be called inside a transaction: providers are
    asked.

    Jobs that wait for them go on within a second.
    """
    absent = {one.credential_id: one for one in refusals.absences()}
    given = CredentialPoolMember.objects.filter(pk__in=members, credential__in=absent)
    out = list(given.select_related("credential", "pool").order_by("pk"))
    trials: dict[str, str | bool] = {}
    for member in out:
        if member.credential.name not in trials:
            trials[member.credential.name] = _trial(member)
    good = [member for member in out if not isinstance(trials[member.credential.name], str)]
    names = sorted({member.credential.name for member in good})
    with transaction.atomic():
        refusals.forgive(names)
        pools.forget()
        for member in good:
            absence = absent[member.credential_id]
            trail.record(
                actor=actor,
                action="put_back_credential",
                target=f"pool of credentials {member.pool.name}",
                before={"credential": absence.credential, "out_since": absence.since, "evidence": absence.evidence},
                after={"tried": trials[absence.credential]},
                reason=reason,
            )
        if good:
            notify(Channel.READY)
    return PutBack(
        tuple(names),
        {name: why for name, why in trials.items() if isinstance(why, str)},
        tuple(name for name in names if trials[name] is False),
    )


def _trial(member: CredentialPoolMember) -> str | bool:
    """Try a member's credential. Return why it is refused; True: it is accepted; False: the provider was not asked."""
    try:
        return try_credential(open_credential(member.credential))
    except (ProviderError, QueueOpsError) as error:
        return error.message
