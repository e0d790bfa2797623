"""The screen of alert routes, which say where alerts are sent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.core.validators import URLValidator, validate_email
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from jobs.features.watches.notify_alerts import can_send_email, send_test
from jobs.features.webhooks.send_again import count_failed, send_route_again
from queueops.audit import trail
from queueops.audit.audited import AuditedMixin
from queueops.core.errors import QueueOpsError
from queueops.screens import formatting, receivers
from queueops.screens.admin import QueueAdmin
from queueops.screens.columns import column, time_column
from queueops.screens.forms import OptionalReasonForm
from queueops.screens.receivers import HowManyForm, send_again_verb, sent_again
from queueops.screens.secrets import change_secret_action, shown_once
from queueops.screens.verbs import (
    Verb,
    VerbOutcome,
    on_one,
    on_selected,
)
from queueops.tenancy.models import Project
from queueops.tenancy.secrets.signing import WRITTEN_BY_ROTATION, new_signing_secret, seal_signing_secret
from ratelimits.models import AlertRoute, QuotaAlert

Channel, KEEPS_ITS_TARGET = AlertRoute.Channel, AlertRoute.KEEPS_ITS_TARGET
INTEGRATION_KEY = re.compile(r"[A-Za-z0-9]{32}")
SHOWN_CHARACTERS = 4
CHANGE = "ratelimits.change_alertroute"


def _send_test(ids: Sequence[int], *, actor: str) -> VerbOutcome:
    routes = list(AlertRoute.objects.filter(pk__in=ids, enabled=True).order_by("pk"))
    for route in routes:
        send_test(route)
        trail.record(actor=actor, action="test_alert_route", target=f"alert route {route.pk}")
    return VerbOutcome(len(routes), len(ids) - len(routes))


TEST = Verb(
    name="test",
    permission=CHANGE,
    label="Send a test alert",
    done="sent a test alert",
    explains="A message that says it is a test. Whether it arrived shows here, under last sent and last error, and in"
    " its job. Routes that are switched off are left alone.",
    icon="send",
    applies=lambda rows: rows.filter(enabled=True),
    unfit="switched off",
    carry_out=_send_test,
)


def _send_again(ids: Sequence[int], *, actor: str, reason: str) -> VerbOutcome:
    told = [send_route_again(pk, actor=actor, reason=reason) for pk in ids]
    return sent_again(sum(one.sent for one in told), left=sum(one.left for one in told))


class SendAlertsAgainForm(HowManyForm):
    def told_of(self, row: Any) -> tuple[str, datetime | None]:
        failed = count_failed(row)
        return failed.words, failed.first_at


SEND_AGAIN = send_again_verb(
    permission=CHANGE,
    explains="Ends its pause, and sends the messages again that failed for good, the oldest first. Each tells of its"
    " alert as it is now.",
    carry_out=_send_again,
    form=SendAlertsAgainForm,
)


@transaction.atomic
def _new_secret(route: AlertRoute, *, actor: str, reason: str) -> tuple[str, str]:
    text, sealed = new_signing_secret()
    AlertRoute.objects.filter(pk=route.pk).update(secret=sealed)
    trail.record(actor=actor, action="change_alert_route_secret", target=f"alert route {route.pk}", reason=reason)
    return text, ""


CHANGE_SECRET = change_secret_action(
    permission=CHANGE,
    explains="From now on messages, also those that are repeated, are signed with a new secret. The next page shows"
    " it once. The receiver refuses them until it has it; Send again sends those that failed meanwhile.",
    form_class=OptionalReasonForm,
    carry_out=_new_secret,
    fits=lambda rows: rows.filter(channel=Channel.WEBHOOK),
    overrides=True,
)


class AlertRouteForm(forms.ModelForm):  # type: ignore[type-arg]
    kinds = forms.MultipleChoiceField(
        choices=QuotaAlert.Kind.choices,
        required=False,
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text="Only these. None chosen: all.",
    )

    def clean_project(self) -> str:
        project: str = self.cleaned_data["project"]
        if project and not Project.objects.filter(pk=project).exists():
            raise ValidationError("There is no such project.")
        return project

    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        is_new = self.instance._state.adding  # noqa: SLF001 - a new route has an id before it is stored
        if is_new and given.get("channel") == Channel.WEBHOOK:
            self._sign()
        channel, target = given.get("channel") or self.instance.channel, given.get("target")
        if not target or (channel in KEEPS_ITS_TARGET and target == self.initial.get("target")):
            return given
        try:
            check_target(channel, target)
            if channel in KEEPS_ITS_TARGET:
                self.instance.secret = seal_signing_secret(target)
                given["target"] = shown_of(channel, target)
        except ValidationError as error:
            self.add_error("target", error)
        except QueueOpsError as error:
            raise ValidationError(error.message, code=error.code) from None
        if channel == Channel.EMAIL and not can_send_email():
            self.add_error(
                "channel" if "channel" in self.fields else None,
                "No mail server is configured: set QUEUEOPS_EMAIL_URL and restart, or use a webhook.",
            )
        return given

    def _sign(self) -> None:
        """
        Give a webhook its secret. The text is kept on the instance as `shown_secret`, until the page has shown it.
        """
        try:
            self.instance.shown_secret, self.instance.secret = new_signing_secret()
        except QueueOpsError as error:
            raise ValidationError(error.message, code=error.code) from None


def check_target(channel: str, target: str) -> None:
    """
    Raises:
        ValidationError: The target does not fit the channel.
    """
    if channel == Channel.EMAIL:
        validate_email(target)
    elif channel == Channel.PAGERDUTY:
        if not INTEGRATION_KEY.fullmatch(target):
            raise ValidationError("An integration key has 32 letters and digits: copy it from the service's page.")
    else:
        URLValidator(schemes=["http", "https"])(target)


def shown_of(channel: str, target: str) -> str:
    """
    Return the part of a target that screens show: its host and last four characters. Anybody who knew the whole target
    could post to it.
    """
    host = "" if channel == Channel.PAGERDUTY else f"{urlsplit(target).netloc.rpartition('@')[2]}/"
    return f"{host}…{target[-SHOWN_CHARACTERS:]}"


@admin.register(AlertRoute)
class AlertRouteAdmin(AuditedMixin, QueueAdmin):
    form = AlertRouteForm
    list_display = (
        "name",
        "channel",
        "target_shown",
        "least_severity",
        "only",
        "enabled",
        "takes",
        "last_sent",
        "error",
    )
    fields = ("name", "channel", "target", "least_severity", "project", "kinds", "enabled")
    fixed_fields = ("channel",)  # a webhook has a secret that was shown once; others have no such secret
    is_deletable = False  # messages under way name the route; switch it off instead
    empty_title = "Nobody is told of alerts."
    empty_hint = (
        "Add an e-mail address, Slack, Teams, PagerDuty or a webhook; alerts of the chosen severity and above go there."
    )
    actions = ("test_selected",)
    actions_detail = ("test", "send_again", "change_secret")

    test_selected, test, send_again = on_selected(TEST), on_one(TEST), on_one(SEND_AGAIN)
    change_secret = CHANGE_SECRET

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).defer(*WRITTEN_BY_ROTATION)

    def save_model(self, request: HttpRequest, obj: AlertRoute, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        obj.go_on()  # end a pause: a person has looked at the route; another button sends failed messages again
        super().save_model(request, obj, form, change)

    def audited(self, obj: AlertRoute) -> Mapping[str, Any]:
        return {name: getattr(obj, name) for name in self.fields}

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        if obj.channel != Channel.WEBHOOK:
            response: HttpResponse = super().response_add(request, obj, post_url_continue)
            return response
        return shown_once(
            self,
            request,
            title="Alert route added",
            secret=obj.shown_secret,
            explains="The signing secret, as Standard Webhooks want it. The receiver checks each message with it.",
        )

    @admin.display(description="goes to")
    def target_shown(self, route: AlertRoute) -> SafeString:
        return format_html('<span class="qo-cut" title="{}">{}</span>', route.target, route.target)

    @admin.display(description="only")
    def only(self, route: AlertRoute) -> str:
        return "; ".join([*([route.project] if route.project else []), *route.kinds]) or formatting.NOTHING

    takes = column("its messages", receivers.takes)
    last_sent = time_column("last sent", "last_sent_at")

    @admin.display(description="last error")
    def error(self, route: AlertRoute) -> SafeString | str:
        if not route.last_error:
            return formatting.NOTHING
        return format_html('<span class="qo-error">{}</span>', route.last_error)
