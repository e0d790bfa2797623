from django.apps import AppConfig


class AssistantConfig(AppConfig):
    name = "queueops.assistant"
    verbose_name = "Assistant"
