"""The audit trail: changes that people made."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from queueops.audit.models import ProjectAuditEntry
from queueops.core.values.masking import masked

from .fields import AnyJSON


class AuditEntrySerializer(serializers.ModelSerializer[ProjectAuditEntry]):
    before = AnyJSON()
    after = AnyJSON()

    class Meta:
        model = ProjectAuditEntry
        fields = (
            "id",
            "created_at",
            "project_id",
            "actor",
            "action",
            "target",
            "moved",
            "reason",
            "address",
            "before",
            "after",
        )
        read_only_fields = fields

    def to_representation(self, instance: ProjectAuditEntry) -> dict[str, Any]:
        """
        Mask secrets for everybody, as on the screen and in the stream: an entry tells of changes and needs no secret.
        """
        shown: dict[str, Any] = masked(super().to_representation(instance))
        return shown
