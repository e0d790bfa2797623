from django.apps import AppConfig


class RatelimitsConfig(AppConfig):
    name = "ratelimits"
    label = "ratelimits"
    verbose_name = "Limits"

    def ready(self) -> None:
        from queueops.tenancy import credentials

        from .models import AlertRoute

        credentials.also_rotate(AlertRoute)
