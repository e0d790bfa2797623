from django.apps import AppConfig


class TenancyConfig(AppConfig):
    name = "queueops.tenancy"
    label = "tenancy"
    verbose_name = "Projects and keys"
