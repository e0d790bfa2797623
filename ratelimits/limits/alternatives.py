"""
A pool's calls: each is counted against one of the members, and each member has counters of its own.

The project of a subject may be `pool:<pool>/<project>`. The subject then stands for all members of the pool that calls
of that project may use. For forecasts the room of these members is added up, as if the pool were one large account.
When a call goes, one member is chosen, see ratelimits/limiter/choose.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from queueops.tenancy.credential_pools.pools import MARK, members_of, pool_of
from ratelimits.subjects import Subject


class Alternative(NamedTuple):
    """One member of a pool: its credential, weight, the subject that its provider counts, whether it is on trial."""

    credential: str
    weight: float
    subject: Subject
    is_on_trial: bool = False


def is_pooled(subject: Subject) -> bool:
    return subject.project.startswith(MARK)


def alternatives_of(subject: Subject) -> tuple[Alternative, ...]:
    """The members against which a pool's call may be counted, as they are now; none for any other call."""
    if not subject.project.startswith(MARK):
        return ()
    return tuple(
        Alternative(
            member.credential,
            member.weight,
            subject._replace(project=member.quota_project, user=member.quota_user or subject.user),
            member.is_on_trial,
        )
        for member in members_of(pool_of(subject.project), subject.project.partition("/")[2])
    )


def counted_as(subject: Subject) -> Sequence[Subject]:
    """The subjects against which limits may count a call: a pool's members, perhaps none; else the subject itself."""
    if not subject.project.startswith(MARK):
        return (subject,)
    return [one.subject for one in alternatives_of(subject)]
