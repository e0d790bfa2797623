from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "queueops.audit"
    label = "audit"
    verbose_name = "Audit trail"
