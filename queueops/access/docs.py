"""The generated page of roles."""

from __future__ import annotations

from jobs.roles import ROLES
from queueops.core.generated_docs import generated_page

HEAD = """\
# Roles

Written by `manage.py write_docs` from `jobs/roles.py`; change it there.

Four groups are made by `manage.py migrate` when they are missing, and left alone afterwards: what an installation
changes about them stays. After an upgrade give existing groups what is new in this table, under *Roles* in the admin.
Superusers may do everything; schedules and tasks of the house-keeping are for them alone.
"""


@generated_page("reference/roles.md")
def roles_page() -> str:
    """Every permission that any role has, and which roles those are."""
    every = sorted(frozenset().union(*ROLES.values()))
    lines = [HEAD, f"| permission | {' | '.join(ROLES)} |", f"| --- |{' --- |' * len(ROLES)}"]
    for permission in every:
        marks = " | ".join("yes" if permission in held else "" for held in ROLES.values())
        lines.append(f"| `{permission}` | {marks} |")
    return "\n".join(lines)
