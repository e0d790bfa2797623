"""Where alerts are sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import admin
from django.core.exceptions import ValidationError
from django.core.validators import URLValidator, validate_email
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobs.services.upkeep.notify_alerts import can_send_email, send_test
from queueops.audit import trail
from queueops.audit.audited import AuditedMixin
from queueops.screens import showing
from queueops.screens.admin import QueueAdmin
from queueops.screens.forms import ConfirmForm
from queueops.screens.secrets import shown_once
from queueops.screens.verbs import Verb, VerbOutcome, on_one, on_selected
from queueops.tenancy.admin.signed import WRITTEN_BY_ROTATION, SignedForm
from ratelimits.models import AlertRoute

Channel = AlertRoute.Channel


def _send_test(ids: Sequence[int], *, actor: str) -> VerbOutcome:
    routes = list(AlertRoute.objects.filter(pk__in=ids, enabled=True).order_by("pk"))
    for route in routes:
        send_test(route)
        trail.record(actor=actor, action="test_alert_route", target=f"alert route {route.pk}")
    return VerbOutcome(len(routes), len(ids) - len(routes))


TEST = Verb(
    name="test",
    permission="ratelimits.change_alertroute",
    label="Send a test alert",
    done="sent a test alert",
    explains="A message that says it is a test. Whether it arrived shows here, under last sent and last error, and in"
    " its job. Routes that are switched off are left alone.",
    icon="send",
    applies=lambda rows: rows.filter(enabled=True),
    carry_out=_send_test,
    form=ConfirmForm,
)


class AlertRouteForm(SignedForm):
    def is_signed(self, given: dict[str, Any]) -> bool:
        return given.get("channel") == Channel.WEBHOOK

    def clean(self) -> dict[str, Any]:
        given = super().clean()
        channel, target = given.get("channel") or self.instance.channel, given.get("target")
        if not target:
            return given
        try:
            if channel == Channel.EMAIL:
                validate_email(target)
            else:
                URLValidator(schemes=["http", "https"])(target)
        except ValidationError as error:
            self.add_error("target", error)
        if channel == Channel.EMAIL and not can_send_email():
            self.add_error(
                "channel" if "channel" in self.fields else None,
                "No mail server is configured: set QUEUEOPS_EMAIL_URL and restart, or use a webhook.",
            )
        return given


@admin.register(AlertRoute)
class AlertRouteAdmin(AuditedMixin, QueueAdmin):
    form = AlertRouteForm
    list_display = ("name", "channel", "target_shown", "least_severity", "enabled", "last_sent", "error")
    fields = ("name", "channel", "target", "least_severity", "enabled")
    empty_title = "Nobody is told of alerts."
    empty_hint = "Add an e-mail address or a webhook; alerts of the chosen severity and above go there."
    actions = ("test_selected",)
    actions_detail = ("test",)

    test_selected, test = on_selected(TEST), on_one(TEST)

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).defer(*WRITTEN_BY_ROTATION)

    def get_readonly_fields(self, request: HttpRequest, obj: AlertRoute | None = None) -> tuple[str, ...]:
        return ("channel",) if obj else ()  # a webhook has a secret that was shown once; an address has none

    def has_delete_permission(self, request: HttpRequest, obj: AlertRoute | None = None) -> bool:
        return False  # messages on their way name it; switch it off instead

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
            goes_on_to=reverse("admin:ratelimits_alertroute_changelist"),
        )

    @admin.display(description="goes to")
    def target_shown(self, route: AlertRoute) -> SafeString:
        return format_html('<span class="qo-cut" title="{}">{}</span>', route.target, route.target)

    @admin.display(description="last sent")
    def last_sent(self, route: AlertRoute) -> SafeString | str:
        return showing.ago(route.last_sent_at)

    @admin.display(description="last error")
    def error(self, route: AlertRoute) -> SafeString | str:
        if not route.last_error:
            return showing.NOTHING
        return format_html('<span class="qo-error">{}</span>', route.last_error)
