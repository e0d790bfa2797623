from typing import Any

from django.apps import AppConfig, apps
from django.db.models.signals import post_migrate, pre_migrate
from django.urls.converters import UUIDConverter

OURS = ("queueops.", "ratelimits", "jobs", "dashboards")


class SiteConfig(AppConfig):
    name = "queueops.site"
    label = "queueops"
    verbose_name = "QueueOps"

    def ready(self) -> None:
        from queueops.core.sql import read_statements

        from . import checks  # noqa: F401 - registers them

        # Swift writes ids in capitals. Without this, every address of one would be unknown.
        UUIDConverter.regex = f"(?i:{UUIDConverter.regex})"
        for config in apps.get_app_configs():
            if config.name.startswith(OURS):
                read_statements(config.name)

        # Django sends these signals once for each app with models. All permissions exist only at the last app.
        last = [config for config in apps.get_app_configs() if config.models_module][-1]
        pre_migrate.connect(_remember_permissions, sender=last)
        post_migrate.connect(_make_groups, sender=last)


def _remember_permissions(**kwargs: Any) -> None:
    from . import roles

    roles.remember_permissions()


def _make_groups(**kwargs: Any) -> None:
    from . import roles

    roles.make_groups()
