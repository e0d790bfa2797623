"""When and how people are alerted."""

from dataclasses import dataclass
from typing import ClassVar

from queueops.core.values import parse

from .setting import setting


@dataclass(frozen=True, kw_only=True)
class AlertSettings:
    section: ClassVar[str] = "Alerts"

    email_url: str = setting(
        "The mail server for alerts: `smtp://` plain, `smtp+tls://` with STARTTLS (587), `smtps://` TLS from the "
        "start (465). User and password percent-encoded. Unset: no alert is sent by e-mail.",
        parse.SMTP_URL,
        default="",
        shown_default="unset",
        secret=True,
    )
    email_from: str = setting(
        "From whom alerts come.",
        parse.text(at_least=3),
        default="queueops@localhost",
    )
    public_url: str = setting(
        "Where people reach this installation; alerts link there. Unset: they carry no link.",
        parse.ORIGIN,
        default="",
        shown_default="unset",
    )
    pagerduty_url: str = setting(
        "Where PagerDuty takes events; in its EU region `https://events.eu.pagerduty.com/v2/enqueue`.",
        parse.text(at_least=8),
        default="https://events.pagerduty.com/v2/enqueue",
    )
    alert_dead_letters: int = setting(
        "So many new dead letters of a cause in a project within 15 minutes are an alert once more, where it was told"
        " long ago and came slower before.",
        parse.integer(1, 100_000),
        default=20,
    )
    alert_open_dead_letters: int = setting(
        "So many open dead letters of a project are an alert, where their causes were told a day ago or more.",
        parse.integer(1, 100_000),
        default=1000,
    )
    alert_oldest_ready_minutes: float = setting(
        "A job that nothing holds back and that still waits after so many minutes is an alert.",
        parse.number(0.1, 100_000),
        default=30.0,
    )
    alert_running_minutes: float = setting(
        "A job that has been running for so many minutes is an alert; more than any handler of yours takes.",
        parse.number(0.01, 100_000),
        default=60.0,
    )
    alert_paused_minutes: float = setting(
        "A pause that jobs have waited under for so many minutes is an alert.",
        parse.number(0.1, 100_000),
        default=60.0,
    )
    alert_transaction_minutes: float = setting(
        "A transaction that stays open in the database for so many minutes is an alert.",
        parse.number(0.1, 100_000),
        default=30.0,
    )
    alert_backup_hours: float = setting(
        "A last backup that is older than so many hours is an alert; more than lie between two. 0: nobody watches, as"
        " where the database's provider backs it up.",
        parse.number(0, 100_000),
        default=0.0,
    )
    alert_audit_minutes: float = setting(
        "Where QUEUEOPS_AUDIT_STREAM takes nothing for so many minutes though entries wait, that is an alert.",
        parse.number(0.1, 100_000),
        default=15.0,
    )
