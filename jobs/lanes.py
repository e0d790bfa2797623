"""
Lanes: the jobs that share every limit; and targets: where their calls go, as far as outages are told apart by it. Pure.

A target is a base URL with its port, and after a space the credential that gave it: `https://llm.example:443 acme-key`.
Empty: the service has one address for everybody.

A lane's name tells whom the provider counts and whose jobs wait in it, so neither has to be looked up again:
`service/call_type/model/quota project/quota user/project/user`, each part escaped, and after it a tag of the target
where the service has several: one that is out must not stand before the others. Last
the kind, where a limit counts that one by itself.

A pool of credentials stands there as a provider's project of its own, `pool:<name>`: which member a call goes with is
chosen at the claim, from the lane's name and whose credential has room. Its subject has the project behind it.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from queueops.tenancy.pools import MARK, asked_by, pool_of
from ratelimits.subjects import Subject

PORTS = {"http": 80, "https": 443}
MOST_CHARACTERS = 400


class Lane(NamedTuple):
    """
    A lane's name taken apart.

    Attributes:
        project, user: Whose jobs they are; the subject has whom the provider counts.
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
    return (f"{base} {credential}" if credential else base)[:MOST_CHARACTERS]


def target_of_pool(pool: str) -> str:
    """The target of a pool's calls: one, as its members are one another's substitutes, wherever each is."""
    return f" {pool}"[:MOST_CHARACTERS]


def pool_of_lane(lane: str | None) -> str:
    """The pool of credentials whose calls wait in a lane; empty: its calls show one credential, or none."""
    if lane is None or f"/{MARK}" not in lane:
        return ""
    return pool_of(read_lane(lane).subject.project)


def path_of(text: str) -> int:
    """Return what stands for a path of a target: never 0, which stands for none; equal ones are equal."""
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
