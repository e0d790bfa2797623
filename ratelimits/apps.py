from django.apps import AppConfig


class RatelimitsConfig(AppConfig):
    name = "ratelimits"
    label = "ratelimits"
    verbose_name = "Limits"
