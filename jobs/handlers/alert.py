"""`queueops.alert`: sends one alert, or one digest of many users' alerts, to one route in its receiver's form."""

from __future__ import annotations

import json
import smtplib
from http import HTTPStatus
from typing import Any, Literal
from urllib.parse import urlencode

from django.conf import settings
from django.core.mail import EmailMessage
from django.db.models import CharField, F, Func, Value
from django.urls import reverse
from django.utils import timezone
from pydantic import BaseModel

from jobs.handlers.alert_forms import Told, native_form
from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import Done, RunningJob, handler
from jobs.handlers.webhook import (
    WebhookMessage,
    in_thread,
    post,
    post_message,
    refuse_paused,
    secret_of,
    settle_at_once,
)
from queueops.core.values.numbers import numbered
from queueops.tenancy.receivers import note_accepted, note_refused

MAX_ERROR = 500  # characters of a route's last error
MAX_NAMED, MAX_PROJECTS = 20, 5  # alerts in one message, and projects in its subject
MAX_SUBJECT_LENGTH = 200  # characters
PERMANENT = 500  # SMTP replies from here on are final (RFC 5321, 4.2.1)


class Digest(BaseModel):
    """Alerts of a project's users that are told together; `alerts` are the first of them."""

    project: str
    kind: str
    severity: str
    count: int
    alerts: list[int]


class AlertPayload(BaseModel, title="Delivery"):
    """`service` repeats what the outage breaker goes by; `alert` is null in a test and in a digest of several."""

    route: int
    service: str
    alert: int | None
    event: Literal["opened", "acknowledged", "resolved", "test"]
    digest: Digest | None = None


@handler(
    kind="queueops.alert",
    service=lambda delivery: delivery.service,
    payload=AlertPayload,
    idempotent=True,  # a second message is better than none
    retry="receiver",
    internal=True,  # otherwise a producer could mail operators, and fake an outage of any service
)
async def deliver_alert(job: RunningJob[AlertPayload]) -> Done:
    """Tell a route of an alert; repeated for three days until the mail server or the receiver accepts it."""
    told = await in_thread(_compose, job.payload)
    if told is None:
        return Done({"skipped": "the route was removed, or is off and was to be tested, or the alert was deleted"})
    try:
        await _send(told, job.effect_key)
    except ProviderError as error:
        await in_thread(_note_refused, job.payload, error)
        if job.payload.event == "test":
            settle_at_once(error)
        raise
    await in_thread(_note_sent, job.payload.route)
    return Done({"sent_by": told.channel})


async def _send(told: Told, message_id: str) -> None:
    if told.channel == "email":
        await in_thread(_send_email, told, message_id)
    elif told.channel == "webhook":
        body, timestamp = json.dumps(told.content).encode(), int(timezone.now().timestamp())
        await post_message(WebhookMessage(message_id, told.target, told.secret, timestamp, body))
    else:
        native = native_form(told, message_id, pagerduty_url=settings.QUEUEOPS.pagerduty_url)
        await post(native.url, headers={"Content-Type": "application/json"}, body=json.dumps(native.body).encode())


def _compose(delivery: AlertPayload) -> Told | None:
    """
    Write the message from the alert's present state; None: the message is not wanted any more.

    Raises:
        ProviderError: The route is switched off or paused, or no key decrypts its secret.
    """
    from ratelimits.models import AlertRoute, QuotaAlert

    alert = QuotaAlert.objects.select_related("limit").filter(pk=delivery.alert).first() if delivery.alert else None
    digest = delivery.digest if delivery.alert is None else None
    if alert is None and digest is None and delivery.event != "test":
        return None
    route = _route_of(delivery)
    if route is None:
        return None
    lines: list[str] = []
    others: list[QuotaAlert] = []
    is_over = delivery.event == "resolved"
    about, severity, link = "test", "notice", settings.QUEUEOPS.public_url or None
    content: dict[str, Any] = {"type": f"alert.{delivery.event}", "timestamp": timezone.now().isoformat()}
    if digest is not None:
        subject, lines, content["data"] = _sum_up(digest, delivery.event)
        about, severity = f"{digest.kind}/{digest.severity}/{digest.project}", digest.severity
        link = content["data"]["link"]
        content["type"] = f"alerts.{delivery.event}"
    elif alert is None:
        subject = "Test of an alert route"
        lines.append(f"This is a test of the route {route.name}. Nothing is wrong.")
    else:
        state = "Resolved" if delivery.event == "resolved" else alert.get_severity_display().capitalize()
        others = [] if route.project else list(QuotaAlert.objects.filter(told_with=alert.pk).order_by("pk"))
        besides = _besides(alert, others)
        subject = f"{state}: {alert.message}"[: MAX_SUBJECT_LENGTH - len(besides)] + besides
        lines += [alert.message, *[one.message for one in others[:MAX_NAMED]]]
        if len(others) > MAX_NAMED:
            lines.append(f"and {len(others) - MAX_NAMED:,} more")
        lines += ["", f"Kind: {alert.get_kind_display()}", f"Severity: {alert.severity}"]
        lines.append(f"Since: {_time(alert.opened_at)}")
        if alert.resolved_at:
            lines.append(f"Resolved: {_time(alert.resolved_at)}")
        lines.append(f"What to do: {alert.runbook}")
        content["data"] = _data(alert)
        if others:
            content["data"] |= {
                "projects": sorted({name for one in (alert, *others) for name in one.projects}),
                "also": [_data(one) for one in others[:MAX_NAMED]],
            }
        about, severity = str(alert.pk), alert.severity
        if link := _link(alert.pk):
            lines.append(f"Alert: {link}")
    # An incident gets the alert's present state: a message that was put off, or is sent again, must not reopen it.
    if route.channel == AlertRoute.Channel.PAGERDUTY and delivery.event != "test":
        is_over = not _is_open(digest) if alert is None else not _goes_on(alert, others)
    return Told(
        channel=route.channel,
        target=route.target,
        secret="" if route.channel == AlertRoute.Channel.EMAIL else _secret_of(route),
        about=about,
        is_over=is_over,
        is_acknowledged=delivery.event == "acknowledged",
        severity=severity,
        link=link,
        subject=" ".join(subject.split())[:MAX_SUBJECT_LENGTH],
        text="\n".join(lines),
        content=content,
    )


def _route_of(delivery: AlertPayload) -> Any:
    """
    The route that takes the message; None: it was removed, or is switched off and was to be tested.

    Raises:
        ProviderError: The route is switched off or paused.
    """
    from ratelimits.models import AlertRoute

    route = AlertRoute.objects.filter(pk=delivery.route).first()
    if route is not None and delivery.event != "test":
        refuse_paused(route)
    return route if route is not None and route.enabled else None


def _besides(alert: Any, others: list[Any]) -> str:
    """Return the words for the message's subject that name its other alerts."""
    projects = sorted({name for one in others for name in one.projects} - alert.projects)
    if projects:
        more = f" and {len(projects) - MAX_PROJECTS} more" if len(projects) > MAX_PROJECTS else ""
        return f" (also {', '.join(projects[:MAX_PROJECTS])}{more})"
    return f" (and {numbered(len(others), 'other cause')})" if others else ""


def _goes_on(alert: Any, others: list[Any]) -> bool:
    return any(one.resolved_at is None for one in (alert, *others))


def _secret_of(route: Any) -> str:
    try:
        return secret_of(route)
    except ProviderError as error:
        _note_error(route.pk, error)
        raise


def _sum_up(digest: Digest, event: str) -> tuple[str, list[str], dict[str, Any]]:
    """Subject, lines and data of a digest."""
    from ratelimits.models import QuotaAlert

    about = QuotaAlert(kind=digest.kind, severity=digest.severity)
    first = list(QuotaAlert.objects.select_related("limit").filter(pk__in=digest.alerts).order_by("pk"))
    message = f"{digest.project}, {numbered(digest.count, 'user')}: {about.get_kind_display()}"
    state = "Resolved" if event == "resolved" else about.get_severity_display().capitalize()
    link = _list_link(digest, "resolved" if event == "resolved" else "open")
    lines = [message, "", *[alert.message for alert in first]]
    if digest.count > len(first):
        lines.append(f"and {digest.count - len(first):,} more")
    lines += ["", f"Severity: {digest.severity}", f"What to do: {about.runbook}"]
    if link:
        lines.append(f"Alerts: {link}")
    shown = {"message": message, "alerts": [_data(alert) for alert in first], "runbook": about.runbook, "link": link}
    return f"{state}: {message}", lines, digest.model_dump() | shown


def _is_open(digest: Digest | None) -> bool:
    """Whether any alert of the digest's group is open: the whole group is one incident."""
    from ratelimits.models import QuotaAlert

    if digest is None:
        return False
    project = Func(F("subject"), Value("/"), Value(2), function="split_part", output_field=CharField())
    rows = QuotaAlert.objects.filter(kind=digest.kind, severity=digest.severity, resolved_at=None)
    return rows.annotate(of=project).filter(of=digest.project).exists()


def _data(alert: Any) -> dict[str, Any]:
    return {
        "alert": alert.pk,
        "kind": alert.kind,
        "severity": alert.severity,
        "limit": alert.limit.name if alert.limit else None,
        "subject": alert.subject,
        "threshold": alert.threshold,
        "message": alert.message,
        "figures": alert.figures,
        "forecast_at": alert.forecast_at.isoformat() if alert.forecast_at else None,
        "opened_at": alert.opened_at.isoformat(),
        "resolved_at": alert.resolved_at.isoformat() if alert.resolved_at else None,
        "runbook": alert.runbook,
        "link": _link(alert.pk),
    }


def _link(alert_id: int) -> str | None:
    base = settings.QUEUEOPS.public_url
    return base + reverse("admin:ratelimits_quotaalert_change", args=[alert_id]) if base else None


def _list_link(digest: Digest, state: str) -> str | None:
    base, chosen = settings.QUEUEOPS.public_url, digest.model_dump(include={"project", "kind", "severity"})
    address = reverse("admin:ratelimits_quotaalert_changelist")
    return f"{base}{address}?{urlencode({**chosen, 'state': state})}" if base else None


def _time(moment: Any) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _send_email(told: Told, message_id: str) -> None:
    mail = EmailMessage(
        subject=f"[QueueOps] {told.subject}",
        body=told.text,
        to=[told.target],
        headers={"Message-ID": f"<{message_id.replace(':', '.')}@queueops>"},  # so that a repetition can be recognised
    )
    try:
        mail.send()
    except smtplib.SMTPResponseException as error:
        raise _refused(error.smtp_code, f"the mail server answered {error.smtp_code}") from error
    except smtplib.SMTPRecipientsRefused as error:
        code = next((code for code, _ in error.recipients.values()), PERMANENT)
        raise _refused(code, f"the mail server refused the address with {code}") from error
    except (OSError, smtplib.SMTPException) as error:
        raise ProviderError(
            None, f"the mail server cannot be reached: {error}", code="mail_unreachable", outcome="not_sent"
        ) from error


def _refused(code: int, message: str) -> ProviderError:
    is_final = code >= PERMANENT
    return ProviderError(
        None, message, code="mail_refused", outcome="refused" if is_final else "not_sent", details={"smtp": code}
    )


def _note_sent(route_id: int) -> None:
    """Note that the last message was sent, to show it with the route."""
    from queueops.core.clock import Now
    from ratelimits.models import AlertRoute

    AlertRoute.objects.filter(pk=route_id).update(last_error="", last_sent_at=Now())
    note_accepted(AlertRoute, route_id)


def _note_refused(delivery: AlertPayload, error: ProviderError) -> None:
    from ratelimits.models import AlertRoute

    _note_error(delivery.route, error)
    if delivery.event != "test":
        note_refused(AlertRoute, delivery.route, is_gone=error.status == HTTPStatus.GONE)


def _note_error(route_id: int, error: ProviderError) -> None:
    from ratelimits.models import AlertRoute

    AlertRoute.objects.filter(pk=route_id).update(last_error=error.message[:MAX_ERROR])
