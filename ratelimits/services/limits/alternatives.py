"""
A pool's calls: counted against any one of its members, each of which has limits' counters of its own.

A subject whose project is a pool's stands for all of them that are in for the project behind it. Where they
have their room added up, it is as if the pool were one large account; where a call goes, one of them is chosen, see
ratelimits/services/limiter/choose.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from queueops.tenancy.pools import MARK, members_of, pool_of
from ratelimits.subjects import Subject


class Alternative(NamedTuple):
    """One member of a pool: its credential, whom the provider counts where a call shows it, and whether it is tried."""

    credential: str
    weight: float
    subject: Subject
    is_on_trial: bool = False


def is_pooled(subject: Subject) -> bool:
    return subject.project.startswith(MARK)


def alternatives_of(subject: Subject) -> tuple[Alternative, ...]:
    """The members that a pool's call may be counted against, as they are now; none for any other call."""
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
    """Whom limits may count such a call against: a pool's members, which may be none, or else the subject itself."""
    if not subject.project.startswith(MARK):
        return (subject,)
    return [one.subject for one in alternatives_of(subject)]
