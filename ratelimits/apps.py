from django.apps import AppConfig


class RatelimitsConfig(AppConfig):
    name = "ratelimits"
    label = "ratelimits"
    verbose_name = "Quotas"

    def ready(self) -> None:
        from queueops.tenancy.secrets import credentials
        from ratelimits.limits.quota_users import warn_of_users_apart

        from .models import AlertRoute

        credentials.also_rotate(AlertRoute)
        credentials.also_warn(warn_of_users_apart)
