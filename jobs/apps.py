from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class JobsConfig(AppConfig):
    name = "jobs"
    label = "jobs"
    verbose_name = "Work"

    def ready(self) -> None:
        from jobs import cluster  # noqa: F401 - its import patches django-q2, before a cluster starts
        from jobs.handlers.registry import load_handlers
        from jobs.models import Webhook
        from jobs.services.explain import spent_by_key
        from jobs.services.operate import names_heard
        from queueops.tenancy.secrets import credentials
        from ratelimits.money.reports import also_group

        load_handlers()
        credentials.also_rotate(Webhook)
        credentials.also_rotate(Webhook, "former_secret")
        names_heard.tell()
        also_group("key", spent_by_key.spent_by_submitter)
        also_group("credential", spent_by_key.spent_by_credential)
        post_migrate.connect(_prepare_database, sender=self)


def _prepare_database(**kwargs: Any) -> None:
    from jobs import cluster
    from jobs.services.upkeep import upkeep

    upkeep.prepare_database()
    cluster.begin_version_unless_others_work()
