from django.apps import AppConfig
from django.db.models.signals import pre_migrate


class TenancyConfig(AppConfig):
    name = "queueops.tenancy"
    label = "tenancy"
    verbose_name = "Projects and keys"

    def ready(self) -> None:
        from . import checks  # noqa: F401 - registers itself
        from .database_roles import make_roles

        pre_migrate.connect(make_roles, sender=self)
