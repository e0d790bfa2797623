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
from queueops.tenancy import pools
from queueops.tenancy.credentials import open_credential
from queueops.tenancy.models import CredentialPoolMember


@dataclass(frozen=True, slots=True)
class PutBack:
    """
    What `put_back_members` did.

    Attributes:
        refused: By credential, why it stays out.
        untried: Credentials put back on trust, as nobody knows how to try them.
    """

    put_back: tuple[str, ...]
    refused: dict[str, str]
    untried: tuple[str, ...]


def put_back_members(members: Sequence[int], *, actor: str, reason: str = "") -> PutBack:
    """
    Put members back whose provider takes their credential again. Not in a transaction: providers are asked.

    Jobs that wait for them go on within a second.
    """
    out = CredentialPoolMember.objects.standing_out().filter(pk__in=members).select_related("credential", "pool")
    trials: dict[str, str | bool] = {}
    for member in out:
        if member.credential.name not in trials:
            trials[member.credential.name] = _trial(member)
    good = [member for member in out if not isinstance(trials[member.credential.name], str)]
    with transaction.atomic():
        done = pools.put_back([member.pk for member in good])
        for member in good:
            if member.pk in done:
                trail.record(
                    actor=actor,
                    action="put_back_credential",
                    target=f"pool of credentials {member.pool.name}",
                    before={"credential": member.credential.name, "out_since": member.taken_out_at},
                    after={"tried": trials[member.credential.name]},
                    reason=reason,
                )
        if done:
            notify(Channel.READY)
    names = sorted({member.credential.name for member in good if member.pk in done})
    return PutBack(
        tuple(names),
        {name: why for name, why in trials.items() if isinstance(why, str)},
        tuple(name for name in names if trials[name] is False),
    )


def _trial(member: CredentialPoolMember) -> str | bool:
    """Why its provider does not take a credential; else whether it was asked."""
    try:
        return try_credential(open_credential(member.credential))
    except (ProviderError, QueueOpsError) as error:
        return error.message
