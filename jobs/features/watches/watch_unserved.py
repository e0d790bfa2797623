"""Opens alerts about work that no worker carries out, one for each missing thing and project that waits for it."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings

from jobs.features.served_kinds.served_kinds import UNSERVED
from jobs.features.served_kinds.unserved import waiting_for
from jobs.features.watches.by_project import count_by_project, jobs_wait
from jobs.features.watches.unsent_fallbacks import unsent_fallbacks
from jobs.features.watches.unserved_pools import unserved_pools
from jobs.models import Job, PauseSwitch
from ratelimits.alerts.alerts import Opening, reconcile
from ratelimits.models import QuotaAlert
from ratelimits.subjects import MAX_ID_LENGTH

MAX_MISSING = 200  # pause switches read, one for each missing kind or key


def watch_unserved() -> None:
    """
    Alert about kinds that no worker knows, payloads that no worker takes, jobs whose pool no cluster serves, and
    fallbacks that no housekeeper can read.

    The alert ends when a worker takes such jobs, or when no such job is left.
    """
    switches = PauseSwitch.objects.filter(scope__in=UNSERVED).order_by("pk")[:MAX_MISSING]
    missing = [opening for one in switches for opening in _openings(one)]
    reconcile(QuotaAlert.Kind.UNSERVED, unserved_pools() + unsent_fallbacks() + missing)


def _openings(switch: PauseSwitch) -> Iterator[Opening]:
    late = f"a dead letter each after {settings.QUEUEOPS.unserved_hours:g} h"
    if switch.scope == PauseSwitch.Scope.SEALED:
        late = "none becomes a dead letter"
    cause = " ".join(filter(None, (switch.scope, switch.pool, switch.key)))
    for project, counted in count_by_project(Job.objects.filter(waiting_for(switch))).items():
        message = f"{switch}: {jobs_wait(counted, project)} for one; {late}"
        yield Opening(
            QuotaAlert.Kind.UNSERVED,
            f"{cause}/{project}"[:MAX_ID_LENGTH],
            QuotaAlert.Severity.WARNING,
            f"{message[:1].upper()}{message[1:]}",
            {"jobs": counted.count, "projects": [project], "cause": cause},
        )
