"""What people changed."""

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
        """Masked for everybody, as on the screen and in the stream: it tells of changes, and needs no secret for it."""
        shown: dict[str, Any] = masked(super().to_representation(instance))
        return shown
