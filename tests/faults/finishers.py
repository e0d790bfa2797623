"""
Whoever submits batches with callbacks, ends jobs and lets callbacks go: until there are so many, or it is killed.

    python -m tests.faults.finishers <seed> <batches>
"""

from __future__ import annotations

import random
import sys

import django

PROJECT = "acme"
JOBS = 3  # of a batch
LINE = {"kind": "http.request", "payload": {"method": "GET", "url": "http://127.0.0.1:9/"}}
CALLBACK = {**LINE, "tags": ["callback"]}


def main(seed: int, batches: int) -> None:
    from jobs.models import Batch, Job
    from jobs.services.operate.dependants import DependantsDuty
    from jobs.services.operate.operate import cancel_jobs
    from jobs.services.submit.spec import parse_spec
    from jobs.services.submit.submit import submit_batch
    from jobs.states import WAITING

    chance, duty, callback = random.Random(seed), DependantsDuty(), parse_spec(CALLBACK)  # noqa: S311 - no secret
    open_jobs = Job.objects.filter(batch__isnull=False, status__in=sorted(WAITING)).order_by()
    while Batch.objects.count() < batches:
        submit_batch([LINE] * JOBS, project_id=PROJECT, actor="key:test", on_finish=callback)
        # Whatever the others have submitted, too: some end a batch that another one is ending.
        found = list(open_jobs.values_list("pk", flat=True)[: 8 * JOBS])
        cancel_jobs(chance.sample(found, min(len(found), JOBS + 1)), actor="user:1", reason="x")
        if chance.random() < 0.5:
            duty.do()


if __name__ == "__main__":
    django.setup()
    main(int(sys.argv[1]), int(sys.argv[2]))
