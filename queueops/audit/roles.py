"""Who sees the audit trail; docs/reference/roles.md."""

from __future__ import annotations

VIEWER = frozenset({"audit.view_auditentry"})
