from django.apps import AppConfig
from django.db.models.signals import pre_migrate


class TenancyConfig(AppConfig):
    name = "queueops.tenancy"
    label = "tenancy"
    verbose_name = "Projects and keys"

    def ready(self) -> None:
        from queueops.audit import trail

        from . import checks  # noqa: F401 - registers itself
        from .database_roles import make_roles
        from .moves import hold_projects

        trail.hold_projects = hold_projects
        pre_migrate.connect(make_roles, sender=self)
