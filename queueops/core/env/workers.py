"""Workers, what they carry out, and batches at providers."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from queueops.core.values import parse

from .setting import setting


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    section: ClassVar[str] = "Workers"

    workers: int = setting(
        "Worker processes of one `manage.py qcluster`; one more runs jobs that crashed twice, one at a time.",
        parse.integer(1, 256),
        default=2,
    )
    executor_slots: int = setting(
        "Jobs that one worker process carries out at once.", parse.integer(1, 10_000), default=200
    )
    pool: str = setting(
        "The pool whose jobs the clusters started here carry out, and no others; `--pool` names another. Not set: all "
        "jobs. A pool is added in the admin or with `manage.py set_pool`.",
        parse.text(),
        default="",
        shown_default="all jobs",
    )
    unserved_hours: float = setting(
        "How long a job whose kind no worker knows, or whose payload none takes, waits before it is a dead letter.",
        parse.number(0.0001, 8760),
        default=24.0,
    )
    loop_budget_seconds: float = setting(
        "How long a handler may keep a worker's other jobs from going on before it is named and runs alone.",
        parse.number(0.1, 30),
        default=2.0,
    )
    lease_seconds: float = setting(
        "How long a worker owns a claimed job unless it renews; a lost worker's jobs come back after it.",
        parse.number(1, 3600),
        default=30.0,
    )
    renew_seconds: float = setting(
        "How often a lease is renewed; less than half of the lease.",
        parse.number(0.1, 600),
        default=10.0,
    )
    sweep_seconds: float = setting(
        "How often lapsed leases are looked for; no longer than the lease.",
        parse.number(0.1, 600),
        default=5.0,
    )
    poll_seconds: float = setting(
        "How often a worker looks for work when nothing woke it; after five quiet seconds, each five seconds.",
        parse.number(0.01, 60),
        default=0.25,
    )
    drain_grace_seconds: float = setting(
        "How long a stopping worker lets running jobs finish before it hands them back, and a stopping web process "
        "the requests under way.",
        parse.number(0, 3600),
        default=30.0,
    )
    outcome_log: Path | None = setting(
        "A directory on the worker's own disk in which each worker process notes what it called and how it ended, "
        "for `manage.py reconcile` after a restore. Unset: nothing is noted.",
        parse.PATH,
        default=None,
        shown_default="unset",
    )
    outcome_log_mb: int = setting(
        "So many MB of it are kept, beside the files being written; the oldest go.",
        parse.integer(1, 1_000_000),
        default=2000,
    )
    outcome_log_days: float = setting(
        "So many days of it are kept: more than lie between two backups.",
        parse.number(0.01, 3650),
        default=7.0,
    )


@dataclass(frozen=True, kw_only=True)
class BatchLaneSettings:
    section: ClassVar[str] = "Batch lane"

    batch_window_seconds: float = setting(
        "How long a batch of a provider is taken to last while fewer than ten of that service are known.",
        parse.number(1, 30 * 86_400),
        default=86_400.0,
    )
    batch_margin_seconds: float = setting(
        "How long before its deadline a job that its batch has not done goes live.",
        parse.number(1, 7 * 86_400),
        default=1800.0,
    )
    batch_collect_seconds: float = setting(
        "How long jobs wait for others to fill a batch of the provider.",
        parse.number(0.1, 86_400),
        default=60.0,
    )
    batch_poll_seconds: float = setting(
        "The longest pause between two looks at a batch of a provider.",
        parse.number(0.1, 3600),
        default=60.0,
    )
    batch_call_seconds: float = setting(
        "How long one call to a batch API may take, beside a second for each 200 kB that it sends; what a provider was "
        "asked to make and did not answer in time is looked for among its batches.",
        parse.number(1, 600),
        default=90.0,
    )
    batch_most_jobs: int = setting(
        "Most jobs in one batch of a provider, where that allows no fewer.",
        parse.integer(1, 100_000),
        default=20_000,
    )


@dataclass(frozen=True, kw_only=True)
class HandlerSettings:
    section: ClassVar[str] = "Handlers"

    extra_apps: tuple[str, ...] = setting(
        "Django apps of your own whose `handlers` module declares handlers; each must be importable.",
        parse.WORDS,
        default=(),
    )
    tasks_project: str = setting(
        "Project whose jobs the functions decorated with django.tasks' `@task` become.",
        parse.text(),
        default="tasks",
    )
