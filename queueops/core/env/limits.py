"""Limits on what producers send and workers claim, and the currency of money."""

from dataclasses import dataclass
from typing import ClassVar

from queueops.core.values import parse
from queueops.core.values.numbers import ENVELOPE_BYTES, MEGABYTE

from .setting import setting


@dataclass(frozen=True, kw_only=True)
class MoneySettings:
    section: ClassVar[str] = "Money"

    currency: str = setting(
        "What prices, spend and budgets are in. Amounts that are stored are not converted: set it once.",
        parse.CURRENCY,
        default="USD",
    )


@dataclass(frozen=True, kw_only=True)
class LimitSettings:
    section: ClassVar[str] = "Limits"

    max_job_mb: int = setting("Largest payload of one job, in MB.", parse.integer(1, 64), default=2)
    max_claim_mb: int = setting(
        "Payloads of the jobs that a worker claims at once, in MB; one job is claimed however large.",
        parse.integer(1, 1_000),
        default=16,
    )
    max_page_mb: int = setting(
        "Payloads and results of one page of a list, in MB: it ends early, and its cursor goes on; one row is shown "
        "however large.",
        parse.integer(1, 1_000),
        default=32,
    )
    max_batch_jobs: int = setting("Most jobs in one batch.", parse.integer(1, 1_000_000), default=100_000)
    usage_max_age_days: int = setting(
        "Reports of usage that happened longer ago are refused; longer than any client keeps them unsent.",
        parse.integer(1, 365),
        default=35,
    )
    rate_limit_rpm: int = setting(
        "Requests a minute of a plain LLM service, for each project: the cap that `manage.py load_limits llm` stores, "
        "with --replace in place of one that is stored. A restart alone changes nothing.",
        parse.integer(1, 1_000_000_000),
        default=60,
        variable="RATE_LIMIT_RPM",
    )
    rate_limit_tpm: int = setting(
        "Tokens a minute of a plain LLM service, for each project: the cap that `manage.py load_limits llm` stores, "
        "with --replace in place of one that is stored. A restart alone changes nothing.",
        parse.integer(1, 1_000_000_000_000),
        default=30_000,
        variable="RATE_LIMIT_TPM",
    )

    @property
    def max_payload_bytes(self) -> int:
        return self.max_job_mb * MEGABYTE

    @property
    def max_claim_bytes(self) -> int:
        return self.max_claim_mb * MEGABYTE

    @property
    def max_page_bytes(self) -> int:
        return self.max_page_mb * MEGABYTE

    @property
    def max_job_bytes(self) -> int:
        """The limit for one job as it is sent: the payload and the other fields around it."""
        return self.max_payload_bytes + ENVELOPE_BYTES
