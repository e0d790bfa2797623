"""The project and user against whom a provider counts a call, and the keys under which limits count it. Pure."""

from __future__ import annotations

from typing import NamedTuple

MAX_NAME_LENGTH = 100  # characters of a project, a user or a model
MAX_KEY_LENGTH = len("project:/user:/model:") + 3 * MAX_NAME_LENGTH
MAX_ID_LENGTH = len("00000000:") + MAX_KEY_LENGTH
OF_SERVICE = "service"  # the scope of the ramp's rule alone; stored limits cannot have it
NOBODY = "-"  # the user of calls made for no user: a provider counts them as one


class Subject(NamedTuple):
    """
    One call as its provider sees it.

    Attributes:
        call_type: `read` or `write`.
        project: The provider's project; by default the job's own.
        user: The provider's user, such as a service account; by default the job's own; empty: none.
        model: Empty where the service has none.
        owner: The project that owns the call; `project` may be another one.
        kind: The kind of its job if some limit counts jobs of that kind; else empty, so that kinds add no lanes.
    """

    service: str
    call_type: str
    project: str = ""
    user: str = ""
    model: str = ""
    owner: str = ""
    kind: str = ""


def counter_key(scope: str, subject: Subject, *, per_model: bool) -> str:
    """Return the key of a `Limit.Scope` or OF_SERVICE: `*`, `project:acme`, `user:u`, `project:acme/user:u`."""
    user = f"user:{subject.user or NOBODY}"
    project = f"project:{subject.project}"
    named = {"global": "*", "project": project, "user": user, "project_user": f"{project}/{user}"}
    key = f"service:{subject.service}" if scope == OF_SERVICE else named[scope]
    return f"{key}/model:{subject.model}" if per_model else key


def counter_id(limit_id: int, key: str) -> str:
    """Return the counter's primary key. Every transaction locks counters in the order of this key, sorted as text."""
    return f"{limit_id:08d}:{key}"
