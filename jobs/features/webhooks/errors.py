"""Refusals of webhooks."""

from __future__ import annotations

from queueops.core.errors import QueueOpsError


class BadWebhook(QueueOpsError):
    """A webhook, or its filter of jobs, is not valid."""

    code = "bad_webhook"
    status = 422


class ReceiverIsOff(QueueOpsError):
    """It is switched off: switch it on first, or its messages would fail again."""

    code = "receiver_is_off"
    status = 409


class SecretChanging(QueueOpsError):
    """Its secret was changed before, and the former one still signs: wait until then, or change it without overlap."""

    code = "secret_changing"
    status = 409
    detail_fields = ("until",)


class UnknownWebhook(QueueOpsError):
    """There is no such webhook."""

    code = "unknown_webhook"
    status = 404
    detail_fields = ("webhook_id",)
