"""Alerts that are mailed to a server of the test's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings as django_settings

from ratelimits.models import AlertRoute

from .background import in_background
from .mail_sink import MailSink, mail_sink


@pytest.fixture
def mail(settings):
    with in_background(mail_sink()) as sink:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", sink.port
        settings.QUEUEOPS = replace(
            django_settings.QUEUEOPS,
            email_url=f"smtp://127.0.0.1:{sink.port}",
            public_url="https://queue.example.org",
        )
        yield sink


def email_route(**fields: Any) -> AlertRoute:
    return AlertRoute.objects.create(
        **{"name": "on call", "channel": "email", "target": "oncall@example.org", **fields}
    )


def text_of(sink: MailSink) -> str:
    payload = sink.messages[-1].get_payload(decode=True)
    assert isinstance(payload, bytes)
    return payload.decode()
