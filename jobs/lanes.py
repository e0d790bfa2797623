"""
Lanes: the jobs that share every limit. Pure.

A lane's name tells whom the provider counts and whose jobs wait in it, so neither has to be looked up again:
`service/call_type/model/quota project/quota user/project/user`, each part escaped, and after it a tag of the target
where the service has several: one that is out must not stand before the others.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote

from jobs.targets import tag_of
from ratelimits.subjects import Subject


class Lane(NamedTuple):
    """
    A lane's name taken apart.

    Attributes:
        project, user: Whose jobs they are; the subject has whom the provider counts.
        tag: Of the target, see jobs/targets.py; empty: the service itself.
    """

    subject: Subject
    project: str
    user: str
    tag: str = ""


def lane_name(subject: Subject, *, project: str, user: str, target: str = "") -> str:
    """Return the name of the lane of a project's and user's calls to `target` that are counted against `subject`."""
    parts = (subject.service, subject.call_type, subject.model, subject.project, subject.user, project, user)
    name = "/".join([escaped(part) for part in parts])
    return f"{name}/{tag_of(target)}" if target else name


def escaped(part: str) -> str:
    return quote(part, safe="-_.@:+")


@lru_cache(maxsize=65_536)
def read_lane(name: str) -> Lane:
    """Take a lane's name apart."""
    service, call_type, model, quota_project, quota_user, project, user, *tag = map(unquote, name.split("/"))
    return Lane(Subject(service, call_type, quota_project, quota_user, model), project, user, *tag)


def subject_of(
    *,
    service: str,
    call_type: str,
    model: str | None,
    project: str,
    user: str,
    principals: tuple[str, str] = ("", ""),
) -> Subject:
    """
    Return whom a provider counts a job's call against.

    Args:
        principals: Project and user that the job's credential stands for; empty ones: the job's own.
    """
    quota_project, quota_user = principals
    return Subject(service, call_type, quota_project or project, quota_user or user, model or "")
