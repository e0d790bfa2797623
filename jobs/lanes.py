"""
Lanes are jobs that share every limit. Targets are the addresses of their calls that outages tell apart. Pure.

A target is a base URL with its port, and after a space the credential that gave it: `https://llm.example:443 acme-key`.
Empty: the service has one address for everybody.

A lane's name tells whom the provider counts and whose jobs wait in it, so neither has to be looked up again. It is
`service/call_type/model/quota project/quota user/project/user`, each part escaped. A tag of the target follows where
the service has several: jobs of a target that is out must not stand before the others. The kind comes last, where a
limit counts that kind by itself.

A pool of credentials stands there as a quota project of its own, `pool:<name>`, and its subject has the project behind
that. The claim chooses the member that a call uses, by the lane's name and by which credential has room.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from queueops.tenancy.credential_pools.pools import MARK, asked_by, pool_of
from ratelimits.subjects import Subject

PORTS = {"http": 80, "https": 443}
MAX_TARGET_CHARACTERS = 400


class Lane(NamedTuple):
    """
    A lane's name taken apart.

    Attributes:
        project, user: The owners of its jobs; the subject has whom the provider counts.
        tag: Of the target, empty: the service itself.
    """

    subject: Subject
    project: str
    user: str
    tag: str = ""


def lane_name(subject: Subject, *, project: str, user: str, target: str = "") -> str:
    """Return the name of the lane of a project's and user's calls to `target` that are counted against `subject`."""
    counted = subject.project.partition("/")[0] if subject.project.startswith(MARK) else subject.project
    parts = (subject.service, subject.call_type, subject.model, counted, subject.user, project, user)
    name = "/".join([escaped(part) for part in parts])
    if subject.kind:
        return f"{name}/{tag_of(target)}/{escaped(subject.kind)}"
    return f"{name}/{tag_of(target)}" if target else name


def escaped(part: str) -> str:
    return quote(part, safe="-_.@:+")


@lru_cache(maxsize=65_536)
def read_lane(name: str) -> Lane:
    """Take a lane's name apart."""
    service, call_type, model, quota_project, quota_user, project, user, *more = map(unquote, name.split("/"))
    tag, kind = (*more, "", "")[:2]
    counted = asked_by(quota_project, project)
    return Lane(Subject(service, call_type, counted, quota_user, model, project, kind), project, user, tag)


def subject_of(
    *,
    service: str,
    call_type: str,
    model: str | None,
    project: str,
    user: str,
    principals: tuple[str, str] = ("", ""),
    kind: str = "",
) -> Subject:
    """
    Return whom a provider counts a job's call against.

    Args:
        principals: Project and user that the job's credential stands for; empty ones: the job's own.
        kind: See `Subject`.
    """
    quota_project, quota_user = principals
    counted = asked_by(quota_project, project) or project
    return Subject(service, call_type, counted, quota_user or user, model or "", project, kind)


def target_of(url: str, *, credential: str = "") -> str:
    """
    Return the target of calls to `url`.

    Args:
        credential: Whose address it is; empty: anybody's.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    base = f"{parts.scheme}://{host}:{parts.port or PORTS.get(parts.scheme, 0)}"
    return (f"{base} {credential}" if credential else base)[:MAX_TARGET_CHARACTERS]


def target_of_pool(pool: str) -> str:
    """Return the target of a pool's calls: one for all members, which stand in for each other wherever each is."""
    return f" {pool}"[:MAX_TARGET_CHARACTERS]


def pool_of_lane(lane: str | None) -> str:
    """The pool of credentials whose calls wait in a lane; empty: its calls show one credential, or none."""
    if lane is None or f"/{MARK}" not in lane:
        return ""
    return pool_of(read_lane(lane).subject.project)


def path_of(text: str) -> int:
    """Return a number for a path of a target: equal for equal paths, and never 0, which stands for none."""
    return (zlib.crc32(text.encode(errors="replace")) - 2**31) or 1


def address_of(target: str) -> str:
    """The target without its credential."""
    return target.partition(" ")[0]


def tag_of(target: str) -> str:
    """A short name of a target for a lane's; empty for none."""
    return f"{zlib.crc32(target.encode()):08x}" if target else ""


def name_of(service: str, target: str) -> str:
    """A target in words: `google-sheets`, `openai at https://llm.example:443`, `http:api.example`."""
    address = address_of(target)
    host = urlsplit(address).hostname
    if not address or (service == f"http:{host}"[:64] and urlsplit(address).port in PORTS.values()):
        return service
    if service.startswith("http:"):
        return address
    return f"{service} at {address}"
