from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate, pre_migrate


class JobsConfig(AppConfig):
    name = "jobs"
    label = "jobs"
    verbose_name = "Jobs"

    def ready(self) -> None:
        from jobs import cluster  # noqa: F401 - what it replaces of django-q2 must stand before a cluster starts
        from jobs.handlers.registry import load_handlers
        from jobs.models import Webhook
        from jobs.services.audit import keep_trail
        from queueops.tenancy import credentials
        from ratelimits.trail import recorded

        load_handlers()
        credentials.also_rotate(Webhook)
        recorded.connect(keep_trail, dispatch_uid="audit")
        pre_migrate.connect(_remember_permissions, sender=self)
        post_migrate.connect(_prepare_database, sender=self)


def _remember_permissions(**kwargs: Any) -> None:
    from jobs import roles

    roles.remember_permissions()


def _prepare_database(**kwargs: Any) -> None:
    from jobs import cluster, roles
    from jobs.services import upkeep

    upkeep.prepare_database()
    cluster.ensure_schedules()
    roles.make_groups()
