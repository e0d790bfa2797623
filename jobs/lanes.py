"""
Names of lanes and targets. A lane is the jobs that share every limit; a target is an address whose outages are told
apart from others. Pure.

A target is a base URL with its port, and after a space the credential that gave it: `https://llm.example:443 acme-key`.
An empty target means that the service has one address for everybody.

A lane's name has the subject that the provider counts and the owners of the jobs, so neither has to be looked up again.
The name is `service/call_type/model/quota project/quota user/project/user`, each part escaped. A tag of the target
follows if the service has several targets: jobs of a target that is out must not block the others. The kind comes last,
if a limit counts that kind by itself.

For a credential pool, the quota project is written as `pool:<name>`; in the lane's subject, the project follows it.
The claim chooses the member that a call uses, by the lane's name and by which credential has room.
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
    The parts of a lane's name.

    Attributes:
        subject: The subject that the provider counts the lane's calls against.
        project, user: The owners of its jobs.
        tag: The tag of the target; empty: the service has one address.
    """

    subject: Subject
    project: str
    user: str
    tag: str = ""


def lane_name(subject: Subject, *, project: str, user: str, target: str = "") -> str:
    """Name the lane for a project's and user's calls that go to `target` and count against `subject`."""
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
    """Return the parts of a lane's name."""
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
    Return the subject that a provider counts a job's call against.

    Args:
        principals: Project and user that the provider counts the job's credential as; if empty, the job's own.
        kind: See `Subject`.
    """
    quota_project, quota_user = principals
    counted = asked_by(quota_project, project) or project
    return Subject(service, call_type, counted, quota_user or user, model or "", project, kind)


def target_of(url: str, *, credential: str = "") -> str:
    """
    Return the target of calls to `url`.

    Args:
        credential: The credential that gave the address; empty: the address is the same for everybody.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    base = f"{parts.scheme}://{host}:{parts.port or PORTS.get(parts.scheme, 0)}"
    return (f"{base} {credential}" if credential else base)[:MAX_TARGET_CHARACTERS]


def target_of_pool(pool: str) -> str:
    """Return the target of a pool's calls, the same for all: members at different addresses replace each other."""
    return f" {pool}"[:MAX_TARGET_CHARACTERS]


def pool_of_lane(lane: str | None) -> str:
    """Return the credential pool of a lane's calls; empty: the calls use a single credential, or none."""
    if lane is None or f"/{MARK}" not in lane:
        return ""
    return pool_of(read_lane(lane).subject.project)


def path_of(text: str) -> int:
    """Return a number for a path of a target: equal for equal paths, and never 0, which means that there is no path."""
    return (zlib.crc32(text.encode(errors="replace")) - 2**31) or 1


def address_of(target: str) -> str:
    """The target without its credential."""
    return target.partition(" ")[0]


def tag_of(target: str) -> str:
    """Return a short tag of a target, for the name of a lane; empty for an empty target."""
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


def service_of(name: str) -> str:
    """Return the service of a target by its `name_of`."""
    host = urlsplit(name).hostname
    return f"http:{host}"[:64] if host else name.partition(" ")[0]
