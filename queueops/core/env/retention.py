"""How long data is kept, and where archives and large results are stored."""

from dataclasses import dataclass
from typing import ClassVar

from queueops.core.values import parse
from queueops.core.values.numbers import MEGABYTE

from .setting import setting


@dataclass(frozen=True, kw_only=True)
class RetentionSettings:
    section: ClassVar[str] = "Retention"

    retention_days: int = setting(
        "Finished jobs, with their dead letters once those are resolved and their webhooks' messages, are deleted "
        "after so many days, and so are days of the log and periods of budgets that are over. An open dead letter "
        "keeps its job and what the log had of it.",
        parse.integer(1, 3650),
        default=30,
    )
    batch_retention_days: int = setting(
        "Batches are deleted so many days after they ended, when their jobs are gone.",
        parse.integer(1, 3650),
        default=90,
    )
    audit_retention_days: int = setting(
        "The audit trail is kept for so many days, and until the month is over that they end in: old months are "
        "dropped whole. Nothing else can remove an entry.",
        parse.integer(31, 36_500),
        default=400,
    )
    audit_stream: str = setting(
        "Where house-keeping sends every entry of the audit trail: `syslog+tls://host:6514`, `syslog+tcp://`, "
        "`syslog+udp://`, or `file:///path` on the worker's host.",
        parse.AUDIT_TARGET,
        default="",
        shown_default="unset: nowhere",
    )
    alert_retention_days: int = setting(
        "Alerts are deleted after so many days, once they are resolved.",
        parse.integer(1, 3650),
        default=30,
    )
    operation_retention_days: int = setting(
        "Bulk operations and house-keeping tasks that ended are deleted after so many days.",
        parse.integer(1, 3650),
        default=90,
    )
    answer_retention_days: int = setting(
        "For so many days a request that is sent again with its `Idempotency-Key` gets its first answer.",
        parse.integer(1, 365),
        default=7,
    )
    usage_retention_days: int = setting(
        "Usage, reservations and totals of allowances are deleted so many days after their month began.",
        parse.integer(100, 36_500),
        default=400,
    )
    spend_retention_days: int = setting(
        "Calls and what they cost are kept for so many days.",
        parse.integer(32, 36_500),
        default=400,
    )
    archive_dir: str | None = setting(
        "Where `manage.py archive` writes ended jobs, batches and days of the log: a directory, or "
        "`s3://bucket/prefix`, which needs `queueops[s3]`. Where it is set, or once that command has run, "
        "house-keeping deletes none of these: they go when they are archived.",
        parse.STORE,
        default=None,
        shown_default="unset: nothing is archived",
    )
    s3_endpoint: str = setting(
        "The S3-compatible server that has the bucket. Credentials and region are read from `AWS_ACCESS_KEY_ID`, "
        "`AWS_SECRET_ACCESS_KEY` and `AWS_REGION`, or are those of the machine's role.",
        parse.ORIGIN,
        default="",
        shown_default="unset: Amazon's",
    )


@dataclass(frozen=True, kw_only=True)
class ResultSettings:
    section: ClassVar[str] = "Results"

    result_store: str | None = setting(
        "Where large results are kept instead of the database: a directory that every worker and web process has, or "
        "`s3://bucket/prefix`, which needs `queueops[s3]`.",
        parse.STORE,
        default=None,
        shown_default="unset: all results are in the database",
    )
    result_store_over: int = setting(
        "Results of more bytes than this, as JSON, go there.",
        parse.integer(0, 64 * MEGABYTE),
        default=262_144,
    )
    result_store_max_mb: int = setting(
        "The largest result there, in MB; a job that returns more becomes a dead letter `result_too_large`. All of it "
        "is in the memory of the worker, and where it is encrypted also of the web process that sends it.",
        parse.integer(1, 1024),
        default=64,
    )
    result_store_seconds: float = setting(
        "How long the store may take for one result; see `result_store_failed` for what happens then.",
        parse.number(0.1, 600),
        default=30.0,
    )
