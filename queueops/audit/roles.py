"""The roles that see the audit trail; docs/reference/roles.md."""

from __future__ import annotations

VIEWER = frozenset({"audit.view_auditentry"})
